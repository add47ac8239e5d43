// SPDX-License-Identifier: Apache-2.0
/// Sums of all elements of a range, in an order that depends on its length only.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

template <class T>
struct Kernel<kernels::Sum<T>, Cpu> {
  static void run(Size count, const T* x, double divisor, Compute<T>* total);
};

template <class T, class U>
struct Kernel<kernels::SquaredNorm<T, U>, Cpu> {
  static void run(Size count, const T* x, U* total);
};

template <class T>
struct Kernel<kernels::Broadcast<T>, Cpu> {
  static void run(Size count, const Compute<T>* value, double divisor, T* y);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

namespace detail {

/// The sum of term(x[i]) in f64: runs of 1024 elements in 32 lanes of Sum, runs and pieces in order in f64.
template <class Sum, class T, class F>
double ordered_sum(Size count, const T* x, F term) {
  constexpr Size run = 1024, piece = 16 * run, pieces = 64;
  double total = 0;
  for (Size first = 0; first < count; first += pieces * piece) {
    const Size length = std::min(count - first, pieces * piece);
    double sums[pieces] = {};
    parallel_for(length, piece, [&](Size begin, Size end) {
      for (Size start = begin; start < end; start += run) {
        const Size stop = std::min(end, start + run);
        Lanes<Sum> sum = {};
        Lanes<Compute<T>> buffer;
        for (Size i = start; i < stop; i += block_length) {
          const Compute<T>* a = read_block(buffer, x + first + i, stop - i);
          for (int k = 0; k < block_length; ++k) sum[k] += term(static_cast<Sum>(a[k]));
        }
        sums[begin / piece] += static_cast<double>(sum_lanes<Sum>(sum));
      }
    });
    for (Size i = 0; i < (length + piece - 1) / piece; ++i) total += sums[i];
  }
  return total;
}

}  // namespace detail

/// The sum of a range: lanes of 32 elements in Compute<T>, the rest in f64.
template <class T>
double sum(Size count, const T* x) {
  return detail::ordered_sum<Compute<T>>(count, x, [](auto a) { return a; });
}

/// The sum of squares of a range, in f64 throughout: squares of f32 neither overflow nor underflow in it.
template <class T>
double squared_norm(Size count, const T* x) {
  return detail::ordered_sum<double>(count, x, [](double a) { return a * a; });
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Sum<T>, Cpu>::run(Size count, const T* x, double divisor, Compute<T>* total) {
  *total = static_cast<Compute<T>>(cpu::sum(count, x) / divisor);
}

template <class T, class U>
void Kernel<kernels::SquaredNorm<T, U>, Cpu>::run(Size count, const T* x, U* total) {
  *total = static_cast<U>(cpu::squared_norm(count, x));
}

template <class T>
void Kernel<kernels::Broadcast<T>, Cpu>::run(Size count, const Compute<T>* value, double divisor, T* y) {
  std::fill_n(y, count, static_cast<T>(*value / static_cast<Compute<T>>(divisor)));
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
