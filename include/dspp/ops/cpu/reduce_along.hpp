// SPDX-License-Identifier: Apache-2.0
/// Sums over some dimensions of a tensor, and the largest elements along one.
#pragma once

#include <cstdint>

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// In runs of 64 terms that are then summed, as SumRows: the rounding error grows with 64 + terms / 64. Threads share
/// the results; if the innermost dimension is kept, a result has a lane of its own, else 32 lanes share its terms.
template <class T>
struct Kernel<kernels::SumAlong<T>, Cpu> {
  static void run(const kernels::SumExtents& at, double divisor, T* y, const T* x);
};

template <class T>
struct Kernel<kernels::MaxAlong<T>, Cpu> {
  static void run(Size outer, Size n, Size inner, T* y, std::int32_t* place, const T* x);
};

template <class T>
struct Kernel<kernels::MaxAlongVjp<T>, Cpu> {
  static void run(Size outer, Size n, Size inner, T* dx, const T* dy, const std::int32_t* place);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <algorithm>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu::detail {

/// The offset of the i-th combination of the dimensions [first, count), innermost first.
inline Size offset_of(Size i, int first, int count, const Size* extents, const Size* strides) {
  Size offset = 0;
  for (int d = first; d < count; i /= extents[d++]) offset += i % extents[d] * strides[d];
  return offset;
}

inline Size product_of(int first, int count, const Size* extents) {
  Size product = 1;
  for (int d = first; d < count; ++d) product *= extents[d];
  return product;
}

/// Lanes that are summed in runs of 64.
template <class C>
struct RunningLanes {
  Lanes<C> run = {}, total = {};
  int terms = 0;

  [[gnu::always_inline]] void add(const C* a) {
    for (int k = 0; k < block_length; ++k) run[k] += a[k];
    if (++terms == 64) end_run();
  }
  [[gnu::always_inline]] void end_run() {
    for (int k = 0; k < block_length; ++k) total[k] += run[k], run[k] = 0;
    terms = 0;
  }
};

/// f(i, first, columns) for x [outer, n, inner] in pieces of at most 64 columns of one i, which threads share.
template <class F>
void for_columns(Size outer, Size n, Size inner, const F& f) {
  const Size width = std::clamp<Size>(inner, 1, 64), pieces = (inner + width - 1) / width;
  parallel_for(outer * pieces, std::max<Size>(1, 16384 / std::max<Size>(n * width, 1)), [=](Size begin, Size end) {
    for (Size piece = begin; piece < end; ++piece) {
      const Size first = piece % pieces * width;
      f(piece / pieces, first, std::min(width, inner - first));
    }
  });
}

}  // namespace dspp::cpu::detail

namespace dspp {

template <class T>
void Kernel<kernels::SumAlong<T>, Cpu>::run(const kernels::SumExtents& at, double divisor, T* y, const T* x) {
  using namespace cpu;
  using C = Compute<T>;
  const int lanes = at.kept > 0 && at.kept_strides[0] == 1;     // the innermost dimension is kept
  const int runs = at.summed > 0 && at.summed_strides[0] == 1;  // or summed
  const Size width = lanes ? at.kept_extents[0] : 1, length = runs ? at.summed_extents[0] : 1;
  const Size blocks = (width + block_length - 1) / block_length;
  const Size rows = cpu::detail::product_of(lanes, at.kept, at.kept_extents);
  const Size steps = cpu::detail::product_of(runs, at.summed, at.summed_extents);
  const Size terms = std::max<Size>(1, steps * length);
  parallel_for(rows * blocks, std::max<Size>(1, 16384 / terms), [=](Size begin, Size end) {
    Lanes<C> buffer;
    for (Size task = begin; task < end; ++task) {
      const Size row = task / blocks, first = task % blocks * block_length;
      const T* const from = x + cpu::detail::offset_of(row, lanes, at.kept, at.kept_extents, at.kept_strides) + first;
      cpu::detail::RunningLanes<C> sum;
      for (Size step = 0; step < steps; ++step) {
        const T* const term =
            from + cpu::detail::offset_of(step, runs, at.summed, at.summed_extents, at.summed_strides);
        if (lanes)
          sum.add(read_block(buffer, term, width - first));
        else
          for (Size j = 0; j < length; j += block_length) sum.add(read_block(buffer, term + j, length - j));
      }
      sum.end_run();
      if (!lanes) {
        y[row] = static_cast<T>(sum_lanes<C>(sum.total) / static_cast<C>(divisor));
        continue;
      }
      for (int k = 0; k < block_length; ++k) sum.total[k] /= static_cast<C>(divisor);
      store_block(y + row * width + first, sum.total, width - first);
    }
  });
}

template <class T>
void Kernel<kernels::MaxAlong<T>, Cpu>::run(Size outer, Size n, Size inner, T* y, std::int32_t* place, const T* x) {
  using C = Compute<T>;
  const auto replaces = [](C a, C largest) { return !(a <= largest) && largest == largest; };  // a NaN stays
  if (inner == 1)
    return cpu::parallel_for(outer, std::max<Size>(1, 16384 / std::max<Size>(n, 1)), [=](Size begin, Size end) {
      for (Size i = begin; i < end; ++i) {
        Size best = i * n;
        C largest = static_cast<C>(x[best]);
        for (Size k = i * n + 1; k < (i + 1) * n; ++k)
          if (const C a = static_cast<C>(x[k]); replaces(a, largest)) largest = a, best = k;
        y[i] = x[best], place[i] = static_cast<std::int32_t>(best - i * n);
      }
    });
  cpu::detail::for_columns(outer, n, inner, [=](Size i, Size first, Size columns) {
    T* const to = y + i * inner + first;
    std::int32_t* const at = place + i * inner + first;
    const T* from = x + i * n * inner + first;
    std::copy_n(from, columns, to);
    std::fill_n(at, columns, 0);
    for (Size k = 1; k < n; ++k) {
      from += inner;
      for (Size j = 0; j < columns; ++j) {
        if (replaces(static_cast<C>(from[j]), static_cast<C>(to[j]))) {
          to[j] = from[j];
          at[j] = static_cast<std::int32_t>(k);
        }
      }
    }
  });
}

template <class T>
void Kernel<kernels::MaxAlongVjp<T>, Cpu>::run(Size outer, Size n, Size inner, T* dx, const T* dy,
                                               const std::int32_t* place) {
  cpu::detail::for_columns(outer, n, inner, [=](Size i, Size first, Size columns) {
    T* const to = dx + i * n * inner + first;
    const T* const from = dy + i * inner + first;
    const std::int32_t* const at = place + i * inner + first;
    if (columns == inner)
      std::fill_n(to, n * inner, T{});
    else
      for (Size k = 0; k < n; ++k) std::fill_n(to + k * inner, columns, T{});
    for (Size j = 0; j < columns; ++j) to[at[j] * inner + j] = from[j];
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
