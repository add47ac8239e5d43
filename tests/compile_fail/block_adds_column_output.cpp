// SPDX-License-Identifier: Apache-2.0
/// The line of the README: the residual stream plus the output of a column-parallel layer fed by one.
// expected-error {{dspp: ColumnParallel needs an input that is whole along its features, but this one is split}}
// expected-error {{along them over Tp.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/nn/layer_norm.hpp>

using namespace dspp;
using P = Policy<Tp<2>, SequenceParallel>;
struct Mine {
  LayerNorm<P> norm;
  ColumnParallel<Linear, P> up;
  RowParallel<Linear, P> down;
};

#ifdef DSPP_TWIN
template <class Block>
auto f(const Block& b, const Hidden<P>& y) {
  return y + b.down(gelu(b.up(b.norm(y))));
}
template auto f(const Mine&, const Hidden<P>&);
#else
template <class Block>
auto f(const Block& b, const Hidden<P>& y) {
  return y + b.up(gelu(b.up(b.norm(y))));
}
template auto f(const Mine&, const Hidden<P>&);
#endif
