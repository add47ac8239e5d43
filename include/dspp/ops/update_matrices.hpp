// SPDX-License-Identifier: Apache-2.0
/// Updates of whole matrices: what comes before and after the products.
#pragma once

#include <utility>

#include <dspp/ops/cpu/update_matrices.hpp>
#include <dspp/ops/in_place.hpp>

namespace dspp {

/// Writes the directions of ranges: `ranges(f)` calls f(range, RangeSettings, S* to) for each, pointers of D, and is
/// not called on paper. `step` as in update_ranges.
///
/// Cost     each array is read once, and written once if it changes
template <class T, class G, class S, class D, class O, class Ranges>
constexpr void write_matrix_directions(Memory<D>& memory, const O& optimizer, const Ranges& ranges,
                                       const UpdateScalars& scalars, const double* step) {
  launch<kernels::MatrixDirections<O, T, G, S>, D>(memory, optimizer, ranges, scalars, step);
}

/// Updates ranges of matrices: `ranges(f)` calls f(range, RangeSettings, MatrixShape).
///
/// Cost     as update_ranges
template <class T, class S, class D, class O, class Ranges>
constexpr void update_matrix_ranges(Memory<D>& memory, const O& optimizer, const Ranges& ranges,
                                    const UpdateScalars& scalars, const double* step) {
  launch<kernels::UpdateMatrices<O, T, S>, D>(memory, optimizer, ranges, scalars, step);
}

namespace ops {

/// x / max(|x|, epsilon), the 2-norm of all elements: in x's block if it is moved in and has no other handle.
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> normalize(Tensor<T, Rank, D> x, double epsilon) {
  const T* from = x.data();
  const Size count = x.count();
  auto y = in_place_or_new(x, "normalize");
  y.memory().count_flops(3.0 * static_cast<double>(count));
  launch<kernels::Normalize<T>, D>(y.memory(), count, epsilon, y.data(), from);
  return y;
}

/// x = factor x + other y, in place.
template <class T, int Rank, class D>
constexpr void combine_into(const Tensor<T, Rank, D>& x, double factor, const Tensor<T, Rank, D>& y, double other);

}  // namespace ops

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
struct Combination {
  double factor, other;
  template <class C>
  DSPP_HOST_DEVICE [[gnu::always_inline]] constexpr C operator()(C x, C y) const {
    return static_cast<C>(factor) * x + static_cast<C>(other) * y;
  }
};
}  // namespace detail

template <class T, int Rank, class D>
constexpr void ops::combine_into(const Tensor<T, Rank, D>& x, double factor, const Tensor<T, Rank, D>& y,
                                 double other) {
  x.memory().count_flops(3.0 * static_cast<double>(x.count()));
  launch<kernels::PointwisePair<dspp::detail::Combination, T, T, T>, D>(
      x.memory(), dspp::detail::Combination{factor, other}, x.count(), x.data(), x.data(), y.data());
}

}  // namespace dspp
