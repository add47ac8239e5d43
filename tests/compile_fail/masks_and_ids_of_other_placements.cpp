// SPDX-License-Identifier: Apache-2.0
/// Choices by masks and ids that do not lie as the values do.
// expected-error {{dspp: where needs a mask of std::uint8_t or std::int32_t, but its elements are of another}}
// expected-error {{type. Make it one that is 0 or 1.}}
// expected-error {{dspp: where needs its mask on the device of its values, but it is on another. Give both one}}
// expected-error {{policy.}}
// expected-error {{dspp: where needs a mask of at most as many dimensions as its values, but it has more.}}
// expected-error {{Reshape it.}}
// expected-error {{dspp: where needs both values placed alike, but they are placed differently over Tp.}}
// expected-error {{redistribute one of them first.}}
// expected-error {{dspp: where with a number needs a finished value, but this one is Partial over Tp: the}}
// expected-error {{number would be counted once per rank. redistribute<Invariant>(x) first.}}
// expected-error {{dspp: a mask, or ids, beside values need the cut over Cp of the values in the dimensions}}
// expected-error {{that they share, and no other, but have another. What is no sequence is a WholeOverCp<X>;}}
// expected-error {{positions of other ranks need redistribute<Replicate, Axis::Cp>(x).}}
// expected-error {{dspp: a mask, or ids, beside values need to be whole or split over Tp as the values are, but}}
// expected-error {{they are split otherwise. Give them whole: every rank takes its slice.}}
// expected-error {{dspp: gather needs ids of std::int32_t on the device of its value, but they are of another}}
// expected-error {{type or device. Give tokens of the same policy.}}
// expected-error {{dspp: gather needs ids of at least one dimension and at most as many as its value, but they}}
// expected-error {{have others. Reshape them.}}
// expected-error {{dspp: gather needs the dimension that its ids number whole, but it is split over Tp: a rank}}
// expected-error {{has a part of it only. redistribute<Replicate>(x) first.}}
// expected-error {{dspp: this operation needs a dimension whole, but it runs along the sequences that Cp cuts}}
#include <dspp/autograd.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A mask of floats.
namespace mask_of_floats {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& mask, const Value<P, 3, Invariant>& x) {
  return where(mask, x, 0.0);
}
#else
auto f(const Value<P, 2, Invariant>& mask, const Value<P, 3, Invariant>& x) {
  return where(mask, x, 0.0);
}
#endif
}  // namespace mask_of_floats

/// A mask on another device.
namespace mask_of_another_device {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& mask, const Value<P, 3, Invariant>& x) {
  return where(mask, 0.0, x);
}
#else
auto f(const Tokens<Policy<Tp<2>, Meta>>& mask, const Value<P, 3, Invariant>& x) {
  return where(mask, 0.0, x);
}
#endif
}  // namespace mask_of_another_device

/// A mask of more dimensions.
namespace mask_of_more_dimensions {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& mask, const Value<P, 2, Invariant>& x) {
  return where(mask, x, 0.0);
}
#else
auto f(const Tokens<P>& mask, const Value<P, 1, Invariant>& x) {
  return where(mask, x, 0.0);
}
#endif
}  // namespace mask_of_more_dimensions

/// A whole value or slices.
namespace choice_of_unequal_placements {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& mask, const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return where(mask, redistribute<Shard<1>>(x), y);
}
#else
auto f(const Tokens<P>& mask, const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return where(mask, x, y);
}
#endif
}  // namespace choice_of_unequal_placements

/// A number in place of a summand.
namespace number_or_summand {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& mask, const Value<P, 3, Partial>& x) {
  return where(mask, redistribute<Invariant>(x), 1.0);
}
#else
auto f(const Tokens<P>& mask, const Value<P, 3, Partial>& x) {
  return where(mask, x, 1.0);
}
#endif
}  // namespace number_or_summand

/// A mask of all positions beside a rank's.
namespace mask_of_all_positions {
#ifdef DSPP_TWIN
using Q = Policy<Cp<2>>;
auto f(const Tokens<Q>& mask, const Hidden<Q>& x) {
  return where(mask, x, 0.0);
}
#else
using Q = Policy<Cp<2>>;
auto f(const WholeOverCp<Tokens<Q>>& mask, const Hidden<Q>& x) {
  return where(mask, x, 0.0);
}
#endif
}  // namespace mask_of_all_positions

/// The slices of a mask beside whole values.
namespace mask_of_slices {
#ifdef DSPP_TWIN
auto f(const InState<Tokens<P>, Shard<1>>& mask, const Value<P, 3, Shard<1>>& x) {
  return where(mask, x, 0.0);
}
#else
auto f(const InState<Tokens<P>, Shard<1>>& mask, const Value<P, 3, Invariant>& x) {
  return where(mask, x, 0.0);
}
#endif
}  // namespace mask_of_slices

/// Ids that are floats.
namespace ids_that_are_floats {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& ids, const Value<P, 3, Invariant>& x) {
  return gather(x, ids);
}
#else
auto f(const Value<P, 2, Invariant>& ids, const Value<P, 3, Invariant>& x) {
  return gather(x, ids);
}
#endif
}  // namespace ids_that_are_floats

/// Ids of more dimensions.
namespace ids_of_more_dimensions {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& ids, const Value<P, 2, Invariant>& x) {
  return gather(x, ids);
}
#else
auto f(const Tokens<P>& ids, const Value<P, 1, Invariant>& x) {
  return gather(x, ids);
}
#endif
}  // namespace ids_of_more_dimensions

/// Positions of which a rank has a part.
namespace rows_of_a_slice {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& ids, const Value<P, 3, Shard<1>>& x) {
  return gather(redistribute<Replicate>(x), ids);
}
#else
auto f(const Tokens<P>& ids, const Value<P, 3, Shard<1>>& x) {
  return gather(x, ids);
}
#endif
}  // namespace rows_of_a_slice

/// Positions of a sequence that Cp cuts.
namespace positions_of_a_part {
#ifdef DSPP_TWIN
using Q = Policy<Cp<2>>;
auto f(const WholeOverCp<Tokens<Q>>& ids, const Hidden<Q>& x) {
  return gather(redistribute<Replicate, Axis::Cp>(x), ids);
}
#else
using Q = Policy<Cp<2>>;
auto f(const WholeOverCp<Tokens<Q>>& ids, const Hidden<Q>& x) {
  return gather(x, ids);
}
#endif
}  // namespace positions_of_a_part
