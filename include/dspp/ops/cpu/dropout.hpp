// SPDX-License-Identifier: Apache-2.0
/// Dropout of one run of consecutive elements of a Philox stream.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// Dropout of a window [extents] of a global tensor [global], both per sample and of `dimensions` >= 1 dimensions; the
/// window begins at `origin`. x and y: [samples, extents...].
template <class T>
struct Kernel<kernels::Dropout<T>, Cpu> {
  static void run(const kernels::DropoutArguments& at, T* y, const T* x);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

/// y[i] = x[i] * factor if the bits of element first + i are at least `threshold`, else 0; `count` of them. `y` may be
/// `x`.
template <class T>
void dropout_run(const PhiloxStream& stream, Size first, Size count, std::uint32_t threshold, Compute<T> factor, T* y,
                 const T* x) {
  using C = Compute<T>;
  constexpr Size chunk = 512;  // of random bits, which are drawn in groups of 64
  for (Size start = 0; start < count; start += chunk) {
    const Size stop = std::min(count, start + chunk);
    std::uint32_t bits[chunk + block_length] = {};
    philox_fill_bits(stream, first + start, first + stop, bits);
    Lanes<C> buffer, result;
    for (Size i = start; i < stop; i += block_length) {
      const C* a = read_block(buffer, x + i, stop - i);
      const std::uint32_t* drawn = bits + (i - start);
      for (int k = 0; k < block_length; ++k) result[k] = drawn[k] >= threshold ? a[k] * factor : C(0);
      store_block(y + i, result, stop - i);
    }
  }
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Dropout<T>, Cpu>::run(const kernels::DropoutArguments& at, T* y, const T* x) {
  using namespace cpu;
  const int dimensions = at.dimensions;
  const PhiloxStream stream = at.stream_of_step();
  const auto factor = static_cast<Compute<T>>(at.factor);
  Size rows = at.samples;
  for (int d = 0; d < dimensions - 1; ++d) rows *= at.extents[d];
  const Size n = at.extents[dimensions - 1], first_sample = stream.sample;
  parallel_for(rows, std::max<Size>(1, 16384 / std::max<Size>(n, 1)), [&](Size begin, Size end) {
    PhiloxStream of_sample = stream;
    for (Size row = begin; row < end; ++row) {
      Size rest = row, element = at.origin[dimensions - 1], stride = at.global[dimensions - 1];
      for (int d = dimensions - 2; d >= 0; --d) {
        element += (rest % at.extents[d] + at.origin[d]) * stride;
        rest /= at.extents[d];
        stride *= at.global[d];
      }
      of_sample.sample = first_sample + rest;
      dropout_run(of_sample, element, n, at.threshold, factor, y + row * n, x + row * n);
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
