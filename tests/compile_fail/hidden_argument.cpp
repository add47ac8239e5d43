// SPDX-License-Identifier: Apache-2.0
/// Arguments of a function of the residual stream that are something else.
// expected-error {{dspp: a layer needs a finished value, but this one is Partial over Tp: its sum is still}}
// expected-error {{pending. Put a RowParallel before it, or redistribute<Invariant>(x) first.}}
// expected-error {{dspp: a layer needs a value placed over Tp as its parameter says, but this one is placed}}
// expected-error {{otherwise. redistribute<State>(x) it first.}}
// expected-error {{dspp: a layer needs values of its own rank, but these have another number of dimensions.}}
// expected-error {{Reshape them first.}}
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;
auto g(const Hidden<P>& x) {
  return x;
}

/// A function of the residual stream given a sum that is still pending.
namespace hidden_argument_is_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x) {
  return g(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, Partial>& x) {
  return g(x);
}
#endif
}  // namespace hidden_argument_is_partial

/// A function of the residual stream given the output of a column-parallel layer.
namespace hidden_argument_is_split {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& x) {
  return g(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, Shard<-1>>& x) {
  return g(x);
}
#endif
}  // namespace hidden_argument_is_split

/// A function of the residual stream given a matrix.
namespace hidden_argument_of_another_rank {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Invariant>& x) {
  return g(reshape(x, shape(1, x[0], x[1])));
}
#else
auto f(const Value<P, 2, Invariant>& x) {
  return g(x);
}
#endif
}  // namespace hidden_argument_of_another_rank
