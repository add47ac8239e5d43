// SPDX-License-Identifier: Apache-2.0
/// Shapes, parts and unions along a dimension of which a rank has a part only.
// expected-error {{dspp: slice and split need the dimension they cut whole, but it is split over Tp: a rank}}
// expected-error {{has a part of it only. redistribute<Invariant>(x) first, or cut along another dimension.}}
// expected-error {{dspp: slice and split need the dimension they cut whole, but it is split over Tp}}
// expected-error {{dspp: concat needs the dimension it joins whole, but it is split over Tp: every rank would}}
// expected-error {{join its own parts. redistribute<Invariant>(x) them first, or join along another dimension.}}
// expected-error {{dspp: concat needs all its parts placed alike, but they are placed differently over Tp.}}
// expected-error {{redistribute some of them first.}}
// expected-error {{dspp: reshape needs the new place of the split dimension, but this value is split}}
// expected-error {{along a dimension other than the first over Tp. Write reshape<Shard<Dim>>(x, shape), or}}
// expected-error {{redistribute first.}}
// expected-error {{dspp: reshape needs a split value to name the place of its split dimension, but this one is}}
// expected-error {{not split over Tp or the place is no Shard<Dim>. Leave it out; redistribute is what changes}}
// expected-error {{a placement.}}
// expected-error {{dspp: transpose needs each dimension once, but its order is another list. Write 0 to rank -}}
// expected-error {{1 in the new order: transpose<0, 2, 1>(x).}}
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A slice along a dimension of which a rank has a part only.
namespace slice_along_split_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x) {
  return slice<-1>(x, 0, 4);
}
#else
auto f(const Value<P, 3, Shard<1>>& x) {
  return slice<-2>(x, 0, 4);
}
#endif
}  // namespace slice_along_split_dimension

/// The parts of a dimension of which a rank has a part only: q, k, v of a fused projection.
namespace split_along_split_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& x) {
  return split<0, 3>(x);
}
#else
auto f(const Value<P, 3, Shard<-1>>& x) {
  return split<-1, 3>(x);
}
#endif
}  // namespace split_along_split_dimension

/// Every rank would join its own slices, and the order of the whole would be another one.
namespace concat_along_split_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<1>>& y) {
  return concat<-1>(x, y);
}
#else
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<1>>& y) {
  return concat<1>(x, y);
}
#endif
}  // namespace concat_along_split_dimension

/// A whole value joined to slices.
namespace concat_of_unequal_placements {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x, const Value<P, 3, Partial>& y) {
  return concat<2>(x, y);
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return concat<2>(x, y);
}
#endif
}  // namespace concat_of_unequal_placements

/// A reshape of slices along a later dimension, whose positions the extents do not determine.
namespace reshape_of_split_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<2>>& x) {
  return reshape<Shard<1>>(x, shape(x[0] * x[1], x[2]));
}
#else
auto f(const Value<P, 3, Shard<2>>& x) {
  return reshape(x, shape(x[0] * x[1], x[2]));
}
#endif
}  // namespace reshape_of_split_dimension

/// A reshape that names a placement which the value does not have.
namespace reshape_changes_placement {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) {
  return reshape(x, shape(x[0] * x[1], x[2]));
}
#else
auto f(const Value<P, 3, Invariant>& x) {
  return reshape<Shard<1>>(x, shape(x[0] * x[1], x[2]));
}
#endif
}  // namespace reshape_changes_placement

/// An order that names a dimension twice.
namespace transpose_order_is_no_permutation {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x) {
  return transpose<0, 2, 1>(x);
}
#else
auto f(const Value<P, 3, Shard<1>>& x) {
  return transpose<0, 2, 2>(x);
}
#endif
}  // namespace transpose_order_is_no_permutation
