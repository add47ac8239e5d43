// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/bits.hpp>
#include <dspp/ops/cpu/copy.hpp>
#include <kernels/copy.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::odd_extent;

namespace {

/// Random extents, and strides of a tensor whose dimensions lie in another order.
kernels::Strides permuted(std::mt19937& random) {
  kernels::Strides at;
  at.dimensions = static_cast<int>(odd_extent(4, random));
  std::vector<int> order;
  for (int d = 0; d < at.dimensions; ++d) at.extents[d] = odd_extent(d % 2 ? 20 : 5, random), order.push_back(d);
  std::shuffle(order.begin(), order.end(), random);
  Size stride = 1;
  for (const int d : order) at.strides[d] = stride, stride *= at.extents[d];
  return at;
}

template <class T>
void check_copies() {
  std::mt19937 random(3);
  const laws::TestStream stream;
  for (int i = 0; i < 10; ++i) {
    const Size outer = odd_extent(20, random), run = odd_extent(30, random), x_stride = run + odd_extent(5, random),
               y_stride = run + odd_extent(9, random);
    std::vector<T> x(outer * x_stride), y(outer * y_stride);
    for (T& a : x) a = static_cast<T>(static_cast<float>(random() % 256));
    for (T& a : y) a = static_cast<T>(static_cast<float>(random() % 256));
    const DeviceArray<T> d_x(x), d_y(y);
    gpu::copy_runs<T>(stream, outer, run, d_y, y_stride, d_x, x_stride);
    Kernel<kernels::CopyRuns<T>, Cpu>::run(outer, run, y.data(), y_stride, x.data(), x_stride);
    CHECK(d_y.read(stream) == y);
    gpu::zero_runs<T>(stream, outer, run, d_y, y_stride);
    Kernel<kernels::ZeroRuns<T>, Cpu>::run(outer, run, y.data(), y_stride);
    CHECK(d_y.read(stream) == y);

    const DeviceArray<T> d_swapped(std::vector<T>(y.size(), T{}));
    gpu::exchange<T>(stream, d_y.size(), d_y, d_swapped);
    CHECK(d_swapped.read(stream) == y);
    CHECK(d_y.read(stream) == std::vector<T>(y.size(), T{}));

    const auto at = permuted(random);
    Size count = 1;
    for (int d = 0; d < at.dimensions; ++d) count *= at.extents[d];
    x.resize(count), y.assign(count, T{});
    for (T& a : x) a = static_cast<T>(static_cast<float>(random() % 256));
    const DeviceArray<T> from(x), to(count);
    gpu::copy_strided<T>(stream, at, to, from);
    Kernel<kernels::CopyStrided<T>, Cpu>::run(at, y.data(), x.data());
    CHECK(to.read(stream) == y);
  }
}

}  // namespace

TEST_CASE("gpu::copy_runs, zero_runs, exchange and copy_strided are the Cpu's, of floats and of bytes") {
  check_copies<float>();
  check_copies<bf16>();
  check_copies<std::uint8_t>();
}

TEST_CASE("gpu::rotate brings the last bytes to the front") {
  std::mt19937 random(4);
  const laws::TestStream stream;
  for (const Size bytes : {Size{0}, Size{1}, Size{2}, Size{7}, Size{1000}, Size{1001}})
    for (const Size by : {Size{0}, bytes / 3, bytes / 2, bytes}) {
      std::vector<std::uint8_t> x(bytes);
      for (auto& a : x) a = static_cast<std::uint8_t>(random());
      const DeviceArray<std::uint8_t> d_x(x);
      gpu::rotate(stream, bytes, by, d_x);
      Kernel<kernels::Rotate, Cpu>::run(bytes, by, reinterpret_cast<std::byte*>(x.data()));
      CHECK(d_x.read(stream) == x);
    }
}
