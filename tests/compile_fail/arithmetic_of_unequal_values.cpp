// SPDX-License-Identifier: Apache-2.0
/// Arithmetic of values that do not fit together.
// expected-error {{dspp: an operator needs values on one device, but these are on two. Give their layers one}}
// expected-error {{policy.}}
// expected-error {{dspp: an operator needs values of one element type, but these have two. cast<Element>(x) one}}
// expected-error {{of them first.}}
// expected-error {{dspp: an operator needs values of its number of dimensions, but one of these has another:}}
// expected-error {{matmul takes matrices, batched_matmul values of three dimensions, concat, join and where}}
// expected-error {{values of one rank. reshape(x, shape) it first.}}
// expected-error {{dspp: + of a number needs a finished value, but this one is Partial over Tp: the number}}
// expected-error {{would be added once per rank. redistribute<Invariant>(x) first.}}
// expected-error {{dspp: / needs a finished divisor, but this one is Partial over Tp: its sum is still pending.}}
// expected-error {{redistribute<Replicate>(x) it first.}}
// expected-error {{dspp: + needs both sides placed alike, but they are placed differently over Tp. redistribute}}
// expected-error {{one of them first.}}
// expected-error {{dspp: an operator needs values whose sequences Cp cuts along one dimension, but it cuts}}
// expected-error {{another dimension of one of these, or none.}}
// expected-error {{dspp: broadcast_to needs a Replicate value to name the Shard<Dim> that it is repeated to,}}
// expected-error {{but this one is placed otherwise, or the place is no Shard<Dim>. Leave it out, or}}
// expected-error {{redistribute<Replicate>(x) first.}}
// expected-error {{dspp: this operation needs equal slices over Tp, but the value is padded to make them equal}}
#include <dspp/autograd.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A value of another device.
namespace two_devices {
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const Hidden<P>& y) {
  return x - y;
}
#else
auto f(const Hidden<P>& x, const Hidden<Policy<Tp<2>, Meta>>& y) {
  return x - y;
}
#endif
}  // namespace two_devices

/// A value of another element type.
namespace two_element_types {
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const Hidden<Policy<Tp<2>, Bf16>>& y) {
  return x / cast<float>(y);
}
#else
auto f(const Hidden<P>& x, const Hidden<Policy<Tp<2>, Bf16>>& y) {
  return x / y;
}
#endif
}  // namespace two_element_types

/// A matrix product of a value that is no matrix.
namespace matmul_of_three_dimensions {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x, const Value<P, 2, Invariant>& y) {
  return matmul(reshape(x, shape(x[0] * x[1], x[2])), y);
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 2, Invariant>& y) {
  return matmul(x, y);
}
#endif
}  // namespace matmul_of_three_dimensions

/// A union of values of two ranks.
namespace concat_of_two_ranks {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x, const Value<P, 2, Invariant>& y) {
  return concat<0>(x, reshape(y, shape(1, y[0], y[1])));
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 2, Invariant>& y) {
  return concat<0>(x, y);
}
#endif
}  // namespace concat_of_two_ranks

/// A number added to each summand.
namespace number_plus_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x) {
  return 1.0 - redistribute<Invariant>(x);
}
#else
auto f(const Value<P, 3, Partial>& x) {
  return 1.0 - x;
}
#endif
}  // namespace number_plus_partial

/// A quotient by a sum that is pending.
namespace partial_divisor {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Replicate>& x, const Value<P, 3, Partial>& y) {
  return x / redistribute<Replicate>(y);
}
#else
auto f(const Value<P, 3, Replicate>& x, const Value<P, 3, Partial>& y) {
  return x / y;
}
#endif
}  // namespace partial_divisor

/// A vector of all features beside slices of them.
namespace whole_vector_beside_slices {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& x, const Value<P, 1, Replicate>& y) {
  return x + redistribute<Shard<0>>(y);
}
#else
auto f(const Value<P, 3, Shard<-1>>& x, const Value<P, 1, Replicate>& y) {
  return x + y;
}
#endif
}  // namespace whole_vector_beside_slices

/// The features of one position beside all: the vector lacks the dimension that Tp cuts.
namespace vector_beside_positions {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 1, Replicate>& y) {
  return x * y;
}
#else
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 1, Invariant>& y) {
  return x + redistribute<Shard<0>>(y);
}
#endif
}  // namespace vector_beside_positions

/// The numbers of all positions beside a rank's.
namespace all_positions_beside_a_part {
#ifdef DSPP_TWIN
using Q = Policy<Cp<2>>;
auto f(const Hidden<Q>& x, const Value<Q, 2, Invariant>& y) {
  return x * reshape(y, shape(y[0], y[1], 1));
}
#else
using Q = Policy<Cp<2>>;
auto f(const Hidden<Q>& x, const WholeOverCp<Hidden<Q>>& y) {
  return x * y;
}
#endif
}  // namespace all_positions_beside_a_part

/// A value whose gradient would miss the other ranks.
namespace slices_of_what_is_not_replicate {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Replicate>& x, const Value<P, 3, Shard<-1>>& y) {
  return y * broadcast_to<Shard<-1>>(x, y.shape());
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<-1>>& y) {
  return y * broadcast_to<Shard<-1>>(x, y.shape());
}
#endif
}  // namespace slices_of_what_is_not_replicate

/// A function that is infinite at zero, of logits that end in padding.
namespace logarithm_of_padding {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, PaddedShard<-1>>& x) {
  return log(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, PaddedShard<-1>>& x) {
  return log(x);
}
#endif
}  // namespace logarithm_of_padding
