// SPDX-License-Identifier: Apache-2.0
/// A row-parallel layer on an input that every rank has whole.
// expected-error {{dspp: RowParallel needs an input split along its features over Tp, but this one is whole or}}
// expected-error {{Partial. Put a ColumnParallel before it, or redistribute<Shard<-1>>(x) first.}}
#include <dspp/parallel/row.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
auto f(const RowParallel<Linear, P>& down, const Hidden<P>& x) {
  return down(redistribute<Shard<-1>>(x));
}
#else
auto f(const RowParallel<Linear, P>& down, const Hidden<P>& x) {
  return down(x);
}
#endif
