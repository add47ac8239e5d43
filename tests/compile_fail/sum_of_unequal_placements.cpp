// SPDX-License-Identifier: Apache-2.0
/// Sums of values that are placed differently.
// expected-error {{dspp: + needs both sides finished or both Partial, but one side is Partial over Tp: the}}
// expected-error {{other would be added once per rank. redistribute<Invariant>(x) the Partial side first.}}
// expected-error {{dspp: + needs both sides placed alike, but one is Invariant and the other is not: Invariant}}
// expected-error {{mixes with nothing else. redistribute the Invariant side to the other's state first; after}}
// expected-error {{a ColumnParallel put a RowParallel.}}
// expected-error {{dspp: + needs both sides placed alike, but they are placed differently over Tp.}}
// expected-error {{redistribute one of them first.}}
// expected-error {{dspp: an operator needs values cut for one Tp degree, but these come from layers of different}}
// expected-error {{policies. Give the layers one policy.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A finished value added to a sum that is still pending would be added once per rank.
namespace sum_of_partial_and_invariant {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x, const Value<P, 3, Invariant>& y) {
  return redistribute<Invariant>(x) + y;
}
#else
auto f(const Value<P, 3, Partial>& x, const Value<P, 3, Invariant>& y) {
  return x + y;
}
#endif
}  // namespace sum_of_partial_and_invariant

/// A whole value added to slices.
namespace sum_of_invariant_and_shard {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return redistribute<Shard<1>>(x) + y;
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return x + y;
}
#endif
}  // namespace sum_of_invariant_and_shard

/// Slices along one dimension added to slices along another.
namespace sum_of_different_shards {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<1>>& y) {
  return x + y;
}
#else
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<2>>& y) {
  return x + y;
}
#endif
}  // namespace sum_of_different_shards

/// Values of two degrees: the slices of one policy's ranks are not those of the other's.
namespace sum_of_two_degrees {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<1>>& y) {
  return x + y;
}
#else
auto f(const Value<P, 3, Shard<1>>& x, const Value<Policy<Tp<4>>, 3, Shard<1>>& y) {
  return x + y;
}
#endif
}  // namespace sum_of_two_degrees
