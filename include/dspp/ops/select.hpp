// SPDX-License-Identifier: Apache-2.0
/// Elements of one tensor or of another by a mask, and rows by number.
#pragma once

#include <string>
#include <utility>

#include <dspp/ops/cpu/select.hpp>
#include <dspp/ops/embedding.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_first_extents(Extents mask, Extents x, const char* who, const char* what);

/// Throws unless the mask has the first extents of the values.
template <int MaskRank, int Rank>
constexpr void require_first_extents(const Shape<MaskRank>& mask, const Shape<Rank>& x, const char* who,
                                     const char* what, int rank) {
  bool same = true;
  for (int d = 0; d < rank; ++d) same &= mask[d] == x[d];
  if (!same) fail_of_first_extents(mask, x, who, what);
}
}  // namespace detail

/// y = mask[i, ...] ? a : b, where a mask of fewer dimensions has the first ones of a and b. Its vjps are
/// select_vjp(mask, dy, true) and select_vjp(mask, dy, false).
///
///   mask [batch, sequence], a [batch, sequence, width], b like a -> y like a
///
/// Cost     copies
/// Memory   y
/// Throws   Error(shape)
template <class M, int MaskRank, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> select(const Tensor<M, MaskRank, D>& mask, const Tensor<T, Rank, D>& a,
                                    const Tensor<T, Rank, D>& b) {
  static_assert(MaskRank <= Rank);
  require_same_shape(a.shape(), b.shape(), "where");
  detail::require_first_extents(mask.shape(), a.shape(), "where", "a mask", MaskRank);
  auto y = Tensor<T, Rank, D>::uninitialized(a.shape(), a.memory(), Category::activations, "where");
  note_moved(a, y);
  launch<kernels::Select<T, M>, D>(a.memory(), mask.count(), a.shape().product(MaskRank, Rank), y.data(),
                                   static_cast<const M*>(mask.data()), static_cast<const T*>(a.data()), 0.0,
                                   static_cast<const T*>(b.data()), 0.0);
  return y;
}

/// The same with a number for b, in a's block if it is moved in and has no other handle.
template <class M, int MaskRank, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> select(const Tensor<M, MaskRank, D>& mask, Tensor<T, Rank, D> a, double b,
                                    bool keep = true) {
  static_assert(MaskRank <= Rank);
  detail::require_first_extents(mask.shape(), a.shape(), "where", "a mask", MaskRank);
  const T* const from = a.data();
  const Size n = a.shape().product(MaskRank, Rank);
  auto y = in_place_or_new(a, "where");
  launch<kernels::Select<T, M>, D>(y.memory(), mask.count(), n, y.data(), static_cast<const M*>(mask.data()),
                                   keep ? from : nullptr, b, keep ? nullptr : from, b);
  return y;
}

/// dy where the mask is (or with keep = false is not) set, else 0.
template <class M, int MaskRank, class T, int Rank, class D>
constexpr Tensor<T, Rank, D> select_vjp(const Tensor<M, MaskRank, D>& mask, Tensor<T, Rank, D> dy, bool keep) {
  return select(mask, std::move(dy), 0.0, keep);
}

/// y[i..., k, ...] = x[i..., ids[i..., k], ...]: along the last dimension of ids, which is one of x; those before it
/// are x's.
///
///   x [b, s, n], ids [b, m] -> y [b, m, n];   x [s, n], ids [m] -> y [m, n]
///
/// Cost     copies
/// Memory   y
/// Throws   Error(shape); Error(usage) for an id outside [0, extent), now or when the host next synchronizes
template <class T, int Rank, int IdsRank, class D>
constexpr Tensor<T, Rank, D> gather(const Tensor<T, Rank, D>& x, const Tensor<std::int32_t, IdsRank, D>& ids) {
  static_assert(1 <= IdsRank && IdsRank <= Rank);
  constexpr int dimension = IdsRank - 1;
  detail::require_first_extents(ids.shape(), x.shape(), "gather", "ids", dimension);
  require_ids(ids, x[dimension], "gather");
  auto y = Tensor<T, Rank, D>::uninitialized(x.shape().with(dimension, ids[-1]), x.memory(), Category::activations,
                                             "gather");
  launch<kernels::Gather<T>, D>(x.memory(), x.shape().product(0, dimension), x[dimension], ids[-1],
                                x.shape().product(IdsRank, Rank), y.data(), x.data(), ids.data());
  return y;
}

/// dx of the given shape: the sum of dy's rows for each row of x, in order of position, rounded once.
///
/// Cost     an operation an element of dy
/// Memory   dx; workspace of ids of a sample and of its rows + 1 numbers of 32 bits
template <class T, int Rank, int IdsRank, class D>
constexpr Tensor<T, Rank, D> gather_vjp(const Shape<Rank>& shape, const Tensor<std::int32_t, IdsRank, D>& ids,
                                        const Tensor<T, Rank, D>& dy) {
  constexpr int dimension = IdsRank - 1;
  require_same_shape(dy.shape(), shape.with(dimension, ids[-1]), "gather_vjp");
  Memory<D>& memory = dy.memory();
  using Numbers = Tensor<std::int32_t, 1, D>;
  auto dx = Tensor<T, Rank, D>::uninitialized(shape, memory, Category::activations, "gather_vjp");
  auto starts = Numbers::uninitialized(dspp::shape(shape[dimension] + 1), memory, Category::workspace, "gather_vjp");
  auto order = Numbers::uninitialized(dspp::shape(ids[-1]), memory, Category::workspace, "gather_vjp");
  memory.count_flops(static_cast<double>(dy.count()));
  launch<kernels::GatherVjp<T>, D>(memory, shape.product(0, dimension), shape[dimension], ids[-1],
                                   shape.product(IdsRank, Rank), dx.data(), dy.data(), ids.data(), starts.data(),
                                   order.data());
  return dx;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_first_extents(Extents mask, Extents x, const char* who, const char* what) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs " + what + " of the first extents of its values, but " +
                             to_string(mask) + " stands beside " + to_string(x) + ". Reshape one of them first.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
