// SPDX-License-Identifier: Apache-2.0
/// Two column-parallel layers in a row, in Sequential.
// expected-error {{dspp: ColumnParallel needs an input that is whole along its features, but this one is split}}
// expected-error {{along them over Tp.}}
#include <dspp/models/sequential.hpp>
#include <dspp/nn/activation.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
using Feed = Sequential<P, ColumnParallel<Linear>, Gelu, RowParallel<Linear>>;
auto f(const Feed& feed, const Hidden<P>& x) {
  return feed(x);
}
#else
using Feed = Sequential<P, ColumnParallel<Linear>, Gelu, ColumnParallel<Linear>>;
auto f(const Feed& feed, const Hidden<P>& x) {
  return feed(x);
}
#endif
