// SPDX-License-Identifier: Apache-2.0
/// Products of values that are placed differently.
// expected-error {{dspp: a product needs factors that can mix, but one is Invariant and the other is not:}}
// expected-error {{Invariant mixes with nothing else. redistribute the Invariant side to Replicate or to the}}
// expected-error {{other's state first.}}
// expected-error {{dspp: a product needs factors placed alike, or Partial with Replicate, but they are placed}}
// expected-error {{differently over Tp. redistribute one of them first.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A whole value times slices.
namespace product_of_invariant_and_shard {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<2>>& y) {
  return redistribute<Shard<2>>(x) * y;
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<2>>& y) {
  return x * y;
}
#endif
}  // namespace product_of_invariant_and_shard

/// Slices along one dimension times slices along another.
namespace product_of_different_shards {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x, const Value<P, 3, Replicate>& y) {
  return x * y;
}
#else
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<2>>& y) {
  return x * y;
}
#endif
}  // namespace product_of_different_shards
