// SPDX-License-Identifier: Apache-2.0
/// Squares of ranges of gradients, added up in place.
#pragma once

#include <algorithm>
#include <cmath>

#include <dspp/ops/cpu/reduce.hpp>

namespace dspp {

template <class T>
struct Kernel<kernels::AddSquares<T>, Cpu> {
  template <class Ranges>
  static void run(const Ranges& ranges) {
    ranges([](Size count, const T* x, double* sum) {
      double squares = 0;
      Kernel<kernels::SquaredNorm<T, double>, Cpu>::run(count, x, &squares);
      *sum += squares;
    });
  }
};

template <class T>
struct Kernel<kernels::AddRowSquares<T>, Cpu> {
  template <class Ranges>
  static void run(const Ranges& ranges) {
    ranges([](Size count, Size columns, Size first, const T* x, double* sums) {
      for (Size at = 0; at < count;) {
        const Size end = std::min(count, ((first + at) / columns + 1) * columns - first);
        double squares = 0;
        Kernel<kernels::SquaredNorm<T, double>, Cpu>::run(end - at, x + at, &squares);
        *sums++ += squares;
        at = end;
      }
    });
  }
};

template <>
struct Kernel<kernels::SumPairs, Cpu> {
  DSPP_HOST_DEVICE static void run(Size pairs, const double* x, double* sum) {
    sum[0] = sum[1] = 0;
    for (Size i = 0; i < 2 * pairs; ++i) sum[i % 2] += x[i];
  }
};

template <>
struct Kernel<kernels::NormOfPairs, Cpu> {
  DSPP_HOST_DEVICE static void run(int ranks, double* squares) {
    double square = squares[1];
    for (int r = 0; r < ranks; ++r) {
      square += squares[2 * r];
      if (!(squares[2 * r + 1] - squares[2 * r + 1] == 0)) square = squares[2 * r + 1];
    }
    squares[0] = std::sqrt(square);
  }
};

}  // namespace dspp
