// SPDX-License-Identifier: Apache-2.0
/// Moves for which there is no arrow.
// expected-error {{dspp: redistribute needs an arrow between the two states, but there is none. From Invariant}}
// expected-error {{one goes to Replicate or Shard, from Replicate to Shard, from Partial to Invariant,}}
// expected-error {{Replicate or Shard, from Shard to Invariant, Replicate or another Shard, from PaddedShard to}}
// expected-error {{Invariant or Replicate.}}
// expected-error {{dspp: Shard<Dim> needs a dimension of the tensor, but the tensor has fewer. Give 0 <= Dim <}}
// expected-error {{rank, or a negative one that counts from the end.}}
#include <dspp/autograd/redistribute.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// There is no arrow from Replicate to Invariant: its gradient would be summed twice or never.
namespace redistribute_without_arrow {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Replicate>& x) {
  return redistribute<Shard<1>>(x);
}
#else
auto f(const Value<P, 3, Replicate>& x) {
  return redistribute<Invariant>(x);
}
#endif
}  // namespace redistribute_without_arrow

/// A value cannot be made a summand by a wish: that move is for gradients.
namespace redistribute_to_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x) {
  return redistribute<Replicate>(x);
}
#else
auto f(const Value<P, 3, Shard<1>>& x) {
  return redistribute<Partial>(x);
}
#endif
}  // namespace redistribute_to_partial

/// A slice along a dimension that the tensor does not have.
namespace shard_beyond_the_rank {
#ifdef DSPP_TWIN
Value<P, 2, Shard<-2>>* x;
#else
Value<P, 2, Shard<2>>* x;
#endif
}  // namespace shard_beyond_the_rank
