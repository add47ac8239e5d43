// SPDX-License-Identifier: Apache-2.0
/// Elements as whole numbers of few bits in blocks with one scale each (ops/quantized_parts.hpp), and sums of them.
///
/// Bytes     quantize: sizeof(T) + bits / 8 an element, with an error 2 sizeof(T) more;
///           sum: bits / 8 of each sender, and sizeof(T)
#pragma once

#include <cmath>

#include <dspp/ops/quantized_parts.hpp>
#include <kernels/each.cuh>
#include <kernels/reduce.cuh>

namespace dspp::gpu {

/// The larger of two magnitudes as integers, in which a NaN is above all numbers.
struct LargerBits {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; }
};

inline constexpr int quantize_threads = static_cast<int>(QuantizedParts::block) / 2;

/// A block of threads for each block of elements, of which every thread has two neighbours.
template <class T>
__global__ void __launch_bounds__(quantize_threads)
    quantize_kernel(QuantizedParts parts, Size rows, Size columns, const T* x, std::uint8_t* to, T* error, float keep) {
  const Size blocks = parts.blocks(), part = blockIdx.x / blocks, b = blockIdx.x % blocks;
  const Size row = part / columns, column = part % columns, n = parts.elements_of(b);
  const Size i = 2 * static_cast<Size>(threadIdx.x);
  const Size at = part * parts.count + b * QuantizedParts::block + i;
  const bool has_first = i < n, has_second = i + 1 < n;
  const auto error_at = [&](Size k) { return error != nullptr ? to_float(error[at + k]) : 0; };
  const float first = has_first ? to_float(x[at]) + error_at(0) : 0;
  const float second = has_second ? to_float(x[at + 1]) + error_at(1) : 0;
  const auto magnitude = [](float a) { return bits_as<unsigned>(a) & 0x7fffffffu; };
  constexpr unsigned infinity = 0x7f800000u, not_a_number = 0x7fc00000u;
  constexpr float smallest = 0x1p-126f;
  const unsigned largest = reduce_block(LargerBits{}(magnitude(first), magnitude(second)), LargerBits{}, 0u);
  float scale = bits_as<float>(largest) / static_cast<float>(parts.levels()), inverse = 0;
  if (largest >= infinity)
    scale = bits_as<float>(not_a_number);
  else if (scale < smallest)
    scale = 0;
  else
    inverse = 1 / scale;
  std::uint8_t* const out = to + (column * rows + row) * parts.bytes();
  if (threadIdx.x == 0) reinterpret_cast<float*>(out)[b] = scale;
  if (!has_first) return;
  const auto number = [&](float a) { return inverse == 0 ? 0 : static_cast<int>(rintf(a * inverse)); };
  std::uint8_t* const numbers = out + parts.numbers_at() + b * QuantizedParts::block * parts.bits / 8;
  if (parts.bits == 4) {
    numbers[i / 2] = static_cast<std::uint8_t>((number(first) & 15) | (number(second) & 15) << 4);
  } else {
    numbers[i] = static_cast<std::uint8_t>(number(first));
    if (has_second) numbers[i + 1] = static_cast<std::uint8_t>(number(second));
  }
  if (error == nullptr) return;
  const auto keep_error = [&](Size k, float a) {
    const float lost = a - scale * static_cast<float>(number(a));
    error[at + k] = from_float<T>(scale != scale ? 0.0f : keep * error_at(k) + (1 - keep) * lost);
  };
  keep_error(0, first);
  if (has_second) keep_error(1, second);
}

template <class T>
void quantize(cudaStream_t stream, const QuantizedParts& parts, Size rows, Size columns, const T* x, std::uint8_t* to,
              T* error, float keep) {
  launch(Work{"quantize", rows * columns, parts.count}, quantize_kernel<T>, rows * columns * parts.blocks(),
         {quantize_threads}, stream, parts, rows, columns, x, to, error, keep);
}

template <class T>
struct SumQuantized {
  QuantizedParts parts;
  Size senders, rows;
  const std::uint8_t* from;
  T* y;
  __device__ void operator()(Size i) const {
    const Size row = i / parts.count, at = i % parts.count;
    float sum = 0;
    for (Size s = 0; s < senders; ++s) {
      const std::uint8_t* const in = from + (s * rows + row) * parts.bytes();
      const std::uint8_t* const numbers = in + parts.numbers_at();
      const int number =
          parts.bits == 8 ? static_cast<std::int8_t>(numbers[at]) : ((numbers[at / 2] >> (at % 2 * 4) & 15) ^ 8) - 8;
      sum += reinterpret_cast<const float*>(in)[at / QuantizedParts::block] * static_cast<float>(number);
    }
    y[i] = from_float<T>(sum);
  }
};

template <class T>
void sum_quantized(cudaStream_t stream, const QuantizedParts& parts, Size senders, Size rows, const std::uint8_t* from,
                   T* y) {
  launch_each(Work{"sum_quantized", rows, parts.count}, stream, rows * parts.count,
              SumQuantized<T>{parts, senders, rows, from, y});
}

}  // namespace dspp::gpu
