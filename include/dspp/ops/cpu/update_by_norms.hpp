// SPDX-License-Identifier: Apache-2.0
/// Updates whose length depends on the norms of whole parameters and whole updates.
#pragma once

#include <algorithm>
#include <cmath>

#include <dspp/ops/cpu/update.hpp>

namespace dspp {

/// Visible in every translation unit: the optimizer may be the user's.
template <class O, class T, class G, class S>
struct Kernel<kernels::AddUpdateSquares<O, T, G, S>, Cpu> {
  template <class Ranges>
  static void run(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    ranges([&](const FlatRange<T, G, S>& range, const RangeSettings& settings, double* sums) {
      UpdateScalars own = scalars_of(scalars, settings);
      if (step) own.gradient_scale = step[StepScalars::gradient_scale];
      const auto direction = optimizer_of(optimizer, settings).template direction<S>(own);
      add(range, static_cast<S>(own.gradient_scale), direction, sums);
    });
  }

 private:
  /// Pieces of fixed length, in order.
  template <class Direction>
  static void add(const FlatRange<T, G, S>& range, S scale, const Direction& direction, double* sums) {
    constexpr Size piece = 16384, pieces = 64;
    double parts[pieces][2];
    for (Size first = 0; first < range.count; first += pieces * piece) {
      const Size count = std::min(range.count - first, pieces * piece), used = (count + piece - 1) / piece;
      cpu::parallel_for(used, 1, [&](Size begin, Size end) {
        for (Size i = begin; i < end; ++i)
          squares_of(range, first + i * piece, first + std::min(count, (i + 1) * piece), scale, direction, parts[i]);
      });
      for (Size i = 0; i < used; ++i) sums[0] += parts[i][0], sums[1] += parts[i][1];
    }
  }
  template <class Direction>
  static void squares_of(const FlatRange<T, G, S>& range, Size begin, Size end, S scale, const Direction& direction,
                         double* squares) {
    using namespace cpu;
    const S* const values = accumulating(range);
    UpdateInputs<G, S> inputs;
    squares[0] = squares[1] = 0;
    for (Size i = begin; i < end; i += block_length) {
      inputs.read(range, values, O::moment_count, i, end - i);
      for (int k = 0; k < std::min<Size>(end - i, block_length); k += rule_length) {
        UpdateBlock<S, rule_length> block;
        begin_rule<O::moment_count>(block, inputs, k, scale);
        direction(block);
        for (int j = 0; j < std::min<Size>(end - i - k, rule_length); ++j) {
          const double p = static_cast<double>(block.value[j]), u = static_cast<double>(block.new_value[j]);
          squares[0] += p * p, squares[1] += u * u;
        }
      }
    }
  }
};

template <class O, class T, class G, class S>
struct Kernel<kernels::UpdateByNorms<O, T, G, S>, Cpu> {
  template <class Ranges>
  static void run(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    if (!updates(step)) return;
    ranges([&](const FlatRange<T, G, S>& range, const RangeSettings& settings, const double* sums) {
      UpdateScalars own = scalars_of(scalars, settings);
      if (step) own.gradient_scale = step[StepScalars::gradient_scale];
      const O of_range = optimizer_of(optimizer, settings);
      const S rate = static_cast<S>(own.lr * of_range.ratio(std::sqrt(sums[0]), std::sqrt(sums[1])));
      const auto direction = of_range.template direction<S>(own);
      cpu::update_range<O::moment_count>(range, static_cast<S>(own.gradient_scale), [=](auto& block) {
        direction(block);
        for (int k = 0; k < block.length; ++k) block.new_value[k] = block.value[k] - rate * block.new_value[k];
      });
    });
  }
};

template <>
struct Kernel<kernels::AddPairs, Cpu> {
  template <class Ranges>
  static void run(const Ranges& ranges) {
    ranges([](Size count, Size stride, const double* parts, double* sums) {
      for (Size i = 0; i < count; ++i) sums[0] += parts[stride * i], sums[1] += parts[stride * i + 1];
    });
  }
};

}  // namespace dspp
