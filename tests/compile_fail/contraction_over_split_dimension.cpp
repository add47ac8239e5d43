// SPDX-License-Identifier: Apache-2.0
/// Contractions over a split dimension become Partial only by `contract`.
// expected-error {{dspp: matmul needs the contracted dimension whole, but it is split over Tp on both sides:}}
// expected-error {{the result would be Partial. Say so with contract(a, b), or redistribute first.}}
// expected-error {{dspp: matmul needs the contracted dimension whole, but it is split over Tp on one side.}}
// expected-error {{redistribute that side first.}}
// expected-error {{dspp: matmul needs at most one side split, but a is split by rows and b by columns over Tp.}}
// expected-error {{redistribute one of them to Replicate first.}}
// expected-error {{dspp: a product needs factors placed alike, or Partial with Replicate, but they are placed}}
// expected-error {{differently over Tp. redistribute one of them first.}}
// expected-error {{dspp: contract needs the contracted dimension split over Tp on both sides, but it is not.}}
// expected-error {{Use matmul(a, b).}}
// expected-error {{dspp: batched_matmul needs its matrices whole, but they are split over Tp. Split the first}}
// expected-error {{dimension, or redistribute first.}}
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A contraction over a dimension that is split on both sides is a sum that is still pending.
namespace matmul_over_split_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Shard<1>>& a, const Value<P, 2, Shard<0>>& b) {
  return redistribute<Invariant>(contract(a, b));
}
#else
auto f(const Value<P, 2, Shard<1>>& a, const Value<P, 2, Shard<0>>& b) {
  return redistribute<Invariant>(matmul(a, b));
}
#endif
}  // namespace matmul_over_split_dimension

/// A contraction over a dimension that is split on one side only.
namespace matmul_over_half_split_dimension {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Shard<1>>& a, const Value<P, 2, Replicate>& b) {
  return matmul(redistribute<Replicate>(a), b);
}
#else
auto f(const Value<P, 2, Shard<1>>& a, const Value<P, 2, Replicate>& b) {
  return matmul(a, b);
}
#endif
}  // namespace matmul_over_half_split_dimension

/// Rows of one side and columns of the other: a rank would have one tile of the result.
namespace matmul_of_rows_and_columns {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Shard<0>>& a, const Value<P, 2, Shard<1>>& b) {
  return matmul(a, redistribute<Replicate>(b));
}
#else
auto f(const Value<P, 2, Shard<0>>& a, const Value<P, 2, Shard<1>>& b) {
  return matmul(a, b);
}
#endif
}  // namespace matmul_of_rows_and_columns

/// Rows of one side times a sum that is still pending: every rank would have its rows of its summand.
namespace matmul_of_rows_and_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Shard<0>>& a, const Value<P, 2, Partial>& b) {
  return matmul(a, redistribute<Replicate>(b));
}
#else
auto f(const Value<P, 2, Shard<0>>& a, const Value<P, 2, Partial>& b) {
  return matmul(a, b);
}
#endif
}  // namespace matmul_of_rows_and_partial

/// contract is for a contraction over a split dimension, and there is none.
namespace contract_of_whole_values {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Invariant>& a, const Value<P, 2, Invariant>& b) {
  return matmul(a, b);
}
#else
auto f(const Value<P, 2, Invariant>& a, const Value<P, 2, Invariant>& b) {
  return contract(a, b);
}
#endif
}  // namespace contract_of_whole_values

/// A batch of products whose matrices are split.
namespace batched_matmul_of_split_matrices {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<0>>& a, const Value<P, 3, Shard<0>>& b) {
  return batched_matmul(a, b);
}
#else
auto f(const Value<P, 3, Shard<1>>& a, const Value<P, 3, Shard<1>>& b) {
  return batched_matmul(a, b);
}
#endif
}  // namespace batched_matmul_of_split_matrices
