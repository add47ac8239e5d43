// SPDX-License-Identifier: Apache-2.0
/// Products of columns of matrices in place, to compute a product tile by tile without copies.
#pragma once

#include <string>
#include <utility>

#include <dspp/ops/matmul.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_columns(Size first, Size extent, Extents matrix);
}  // namespace detail

/// Columns [begin, begin + count) of a matrix [rows, columns], as a view.
///
/// Throws   Error(shape) if the matrix has fewer columns
template <class T, class D>
struct Columns {
  Tensor<T, 2, D> of;
  Size begin = 0, count = 0;

  constexpr explicit Columns(Tensor<T, 2, D> matrix) : of(std::move(matrix)), count(of[1]) {}
  constexpr Columns(Tensor<T, 2, D> matrix, Size first, Size extent)
      : of(std::move(matrix)), begin(first), count(extent) {
    if (first < 0 || extent < 0 || first + extent > of[1]) detail::fail_of_columns(first, extent, of.shape());
  }

  constexpr Shape<2> shape() const { return dspp::shape(of[0], count); }
  /// The first element; rows are of[1] elements apart. Null on paper.
  constexpr T* data() const { return of.data_from(begin); }
};

/// into = op(a) op(b) (+ bias on every row), or into += op(a) op(b): as matmul_into and matmul_bias, on columns. The
/// bias is [n] or empty, and goes with Write::overwrite.
///
/// Cost     2 m n k operations; allocates nothing but a GPU's workspace
/// Throws   Error(shape) when the extents do not fit
template <class G, class T, class D>
constexpr void matmul_columns_into(const Columns<G, D>& into, Write write, const Columns<T, D>& a, Transpose ta,
                                   const Columns<T, D>& b, Transpose tb, const Tensor<G, 1, D>& bias = {}) {
  kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "matmul_columns_into");
  detail::require_result(into.shape(), dspp::shape(p.m, p.n), "a destination", "matmul_columns_into");
  if (bias) detail::require_result(bias.shape(), dspp::shape(p.n), "a bias", "matmul_columns_into");
  p.lda = a.of[1];
  p.ldb = b.of[1];
  p.ldc = into.of[1];
  a.of.memory().count_flops(detail::flops_of(p) + (bias ? static_cast<double>(p.m * p.n) : 0.0));
  detail::launch_with_workspace<kernels::Matmul<T, G>, D>(
      a.of.memory(), {p.m, p.n, "matmul_columns_into"}, p, a.data(), b.data(),
      kernels::Finish<G>{.c = into.data(), .write = write, .bias = detail::data_or_null(bias)});
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_columns(Size first, Size extent, Extents matrix) {
  fail(ErrorCode::shape, "dspp: Columns needs columns of its matrix, but it got " + std::to_string(first) + " to " +
                             std::to_string(first + extent) + " of " + to_string(matrix) +
                             ". Check the first one and their number.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
