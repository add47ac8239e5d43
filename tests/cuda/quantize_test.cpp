// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include <dspp/ops/quantize.hpp>
#include <kernels/cuda_kernels.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
std::vector<T> elements(Size count) {
  std::mt19937 random(31);
  std::normal_distribution<float> normal;
  std::vector<T> x;
  for (Size i = 0; i < count; ++i) x.push_back(static_cast<T>(normal(random) * std::ldexp(1.0f, i / 256 % 4 * 5 - 8)));
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("the GPU's numbers and scales are the Cpu's, and so are its sums", T, float, bf16, f16) {
  CudaMemory on;
  for (const int bits : {8, 4})
    for (const Size count : {1, 2, 255, 256, 257, 1537}) {
      CAPTURE(bits);
      CAPTURE(count);
      const Size rows = 2, columns = 3;
      const QuantizedParts parts{count, bits, 4};
      auto x = elements<T>(rows * columns * count);
      if (count > 2) x[1] = T(0.0f), x[static_cast<std::size_t>(count)] = T(std::numeric_limits<float>::infinity());
      std::vector<std::uint8_t> expected(static_cast<std::size_t>(rows * columns * parts.bytes()));
      Kernel<kernels::Quantize<T>, Cpu>::run(parts, rows, columns, x.data(),
                                             reinterpret_cast<std::byte*>(expected.data()));
      const DeviceArray<T> d_x(x);
      const DeviceArray<std::uint8_t> d_to(std::vector<std::uint8_t>(expected.size()));
      auto error = elements<T>(rows * columns * count);  // of both, and x without it afterwards
      const DeviceArray<T> d_error(error);
      std::vector<std::uint8_t> with_error(expected.size());
      Kernel<kernels::Quantize<T>, Cpu>::run(parts, rows, columns, x.data(),
                                             reinterpret_cast<std::byte*>(with_error.data()), error.data(), 0.75);
      Kernel<kernels::Quantize<T>, Cuda>::run(on, parts, rows, columns, d_x, reinterpret_cast<std::byte*>(d_to.data()),
                                              d_error, 0.75);
      const auto kept = d_error.read(gpu::stream_of(on));
      for (std::size_t i = 0; i < kept.size(); ++i) {
        const float a = static_cast<float>(kept[i]), b = static_cast<float>(error[i]);
        CHECK(std::abs(a - b) <= (sizeof(T) == 2 ? 1e-2f : 1e-5f) * (1 + std::abs(b)));
      }
      Kernel<kernels::Quantize<T>, Cuda>::run(on, parts, rows, columns, d_x, reinterpret_cast<std::byte*>(d_to.data()));
      const auto to = d_to.read(gpu::stream_of(on));
      const DeviceArray<float> d_y(static_cast<std::size_t>(rows * count));
      Kernel<kernels::SumQuantized<float>, Cuda>::run(on, parts, columns, rows,
                                                      reinterpret_cast<const std::byte*>(d_to.data()), d_y);
      std::vector<float> sums(static_cast<std::size_t>(rows * count));
      Kernel<kernels::SumQuantized<float>, Cpu>::run(parts, columns, rows,
                                                     reinterpret_cast<const std::byte*>(to.data()), sums.data());
      const auto on_gpu = d_y.read(gpu::stream_of(on));
      for (std::size_t i = 0; i < sums.size(); ++i)
        CHECK((std::isnan(sums[i]) ? std::isnan(on_gpu[i])
                                   : std::abs(on_gpu[i] - sums[i]) <= 1e-5f * std::abs(sums[i]) + 1e-7f));
      for (Size part = 0; part < rows * columns; ++part) {
        const auto* const a = expected.data() + part * parts.bytes();
        const auto* const b = to.data() + part * parts.bytes();
        const auto* const scales = reinterpret_cast<const float*>(a);
        for (Size i = 0; i < parts.blocks(); ++i) {
          const float other = reinterpret_cast<const float*>(b)[i];
          CHECK((std::isnan(scales[i]) ? std::isnan(other) : scales[i] == other));
        }
        const auto used = static_cast<std::size_t>((count * bits + 7) / 8);
        CHECK(std::equal(a + parts.numbers_at(), a + parts.numbers_at() + used, b + parts.numbers_at()));
      }
    }
}
