// SPDX-License-Identifier: Apache-2.0
/// Updates of whole matrices: what comes before and after the products.
#pragma once

#include <algorithm>
#include <cmath>

#include <dspp/ops/cpu/reduce.hpp>
#include <dspp/ops/cpu/update.hpp>

namespace dspp {

/// Visible in every translation unit: the optimizer may be the user's.
template <class O, class T, class G, class S>
struct Kernel<kernels::MatrixDirections<O, T, G, S>, Cpu> {
  template <class Ranges>
  static void run(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    if (!updates(step)) return;
    ranges([&](const FlatRange<T, G, S>& range, const RangeSettings& settings, S* to) {
      UpdateScalars own = scalars_of(scalars, settings);
      if (step) own.gradient_scale = step[StepScalars::gradient_scale];
      const auto direction = optimizer_of(optimizer, settings).template matrix_direction<S>(own);
      FlatRange<S, G, S> as_values{.gradient = range.gradient, .parameter = to, .count = range.count};
      for (int m = 0; m < O::matrix_moment_count; ++m) as_values.moments[m] = range.moments[m];
      cpu::update_range<O::matrix_moment_count>(as_values, static_cast<S>(own.gradient_scale), direction);
    });
  }
};

template <class O, class T, class S>
struct Kernel<kernels::UpdateMatrices<O, T, S>, Cpu> {
  template <class Ranges>
  static void run(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    if (!updates(step)) return;
    ranges([&](const FlatRange<T, S, S>& range, const RangeSettings& settings, const MatrixShape& shape) {
      const auto rule = optimizer_of(optimizer, settings).template matrix_rule<S>(scalars_of(scalars, settings), shape);
      cpu::update_range<0>(range, S(1), rule);
    });
  }
};

template <class T>
struct Kernel<kernels::Normalize<T>, Cpu> {
  static void run(Size count, double epsilon, T* y, const T* x) {
    double squares = 0;
    Kernel<kernels::SquaredNorm<T, double>, Cpu>::run(count, x, &squares);
    const T norm = static_cast<T>(std::max(std::sqrt(squares), epsilon));
    cpu::parallel_for(count, 16384, [=](Size begin, Size end) {
      for (Size i = begin; i < end; ++i) y[i] = norm == 0 ? T(0) : x[i] / norm;
    });
  }
};

}  // namespace dspp
