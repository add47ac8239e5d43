// SPDX-License-Identifier: Apache-2.0
/// Reductions along a dimension of which a rank has a part.
// expected-error {{dspp: a reduction needs a dimension of the tensor, but it has fewer. Give 0 <= Dim < rank,}}
// expected-error {{or a negative one that counts from the end.}}
// expected-error {{dspp: max needs a finished value, but this one is Partial over Tp: the maximum of a sum is}}
// expected-error {{not the sum of maxima. redistribute<Invariant>(x) first.}}
// expected-error {{dspp: max needs the dimension it runs along whole, but it is split over Tp: every rank would}}
// expected-error {{have the maximum of its part. redistribute<Invariant>(x) first.}}
// expected-error {{dspp: this operation needs a dimension whole, but it runs along the sequences that Cp cuts}}
// expected-error {{dspp: a sum, mean, norm or contraction needs every element to count}}
// expected-error {{dspp: + needs both sides finished or both Partial}}
#include <dspp/autograd.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A dimension that the value has not.
namespace no_such_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) {
  return sum<2>(x);
}
#else
auto f(const Value<P, 3, Invariant>& x) {
  return sum<3>(x);
}
#endif
}  // namespace no_such_dimension

/// A maximum of a sum that is pending.
namespace maximum_of_summands {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x) {
  return max<-1>(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, Partial>& x) {
  return max<-1>(x);
}
#endif
}  // namespace maximum_of_summands

/// A maximum over a rank's features.
namespace maximum_of_a_part {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& x) {
  return max<1>(x);
}
#else
auto f(const Value<P, 3, Shard<-1>>& x) {
  return max<-1>(x);
}
#endif
}  // namespace maximum_of_a_part

/// A mean over a rank's positions.
namespace mean_of_a_part_of_the_positions {
#ifdef DSPP_TWIN
using Q = Policy<Cp<2>>;
auto f(const Hidden<Q>& x) {
  return mean<1>(redistribute<Replicate, Axis::Cp>(x));
}
#else
using Q = Policy<Cp<2>>;
auto f(const Hidden<Q>& x) {
  return mean<1>(x);
}
#endif
}  // namespace mean_of_a_part_of_the_positions

/// A sum over logits that end in padding.
namespace sum_of_padding {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, PaddedShard<-1>>& x) {
  return sum<-1>(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, PaddedShard<-1>>& x) {
  return sum<-1>(x);
}
#endif
}  // namespace sum_of_padding

/// The sum over split features is Partial.
namespace sum_of_a_part_used_as_whole {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& x, const Value<P, 2, Invariant>& y) {
  return redistribute<Invariant>(sum<-1>(x)) + y;
}
#else
auto f(const Value<P, 3, Shard<-1>>& x, const Value<P, 2, Invariant>& y) {
  return sum<-1>(x) + y;
}
#endif
}  // namespace sum_of_a_part_used_as_whole
