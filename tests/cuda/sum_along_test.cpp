// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/cpu/reduce_along.hpp>
#include <kernels/sum_along.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::in_f64;
using laws::odd_extent;

namespace {

/// Dimensions of a dense tensor, innermost first, each kept or summed.
kernels::SumExtents drawn(std::mt19937& random) {
  kernels::SumExtents at;
  Size stride = 1;
  for (Size d = odd_extent(4, random); d > 0; --d) {
    const Size extent = odd_extent(12, random);
    if (random() % 2)
      at.kept_extents[at.kept] = extent, at.kept_strides[at.kept++] = stride;
    else
      at.summed_extents[at.summed] = extent, at.summed_strides[at.summed++] = stride;
    stride *= extent;
  }
  return at;
}

Size product(int count, const Size* extents) {
  Size all = 1;
  for (int d = 0; d < count; ++d) all *= extents[d];
  return all;
}

template <class T>
void check_sums() {
  std::mt19937 random(6);
  const laws::TestStream stream;
  for (int i = 0; i < 15; ++i) {
    const auto at = drawn(random);
    const Size kept = product(at.kept, at.kept_extents), summed = product(at.summed, at.summed_extents);
    const auto x = laws::normals<T>(kept * summed, random);
    const DeviceArray<T> d_x(x), y(kept);
    std::vector<double> expected(kept);
    gpu::sum_along<T>(stream, at, 3.0, y, d_x);
    Kernel<kernels::SumAlong<double>, Cpu>::run(at, 3.0, expected.data(), in_f64(x).data());
    laws::check_elements(y.read(stream), expected, 64, "sum_along", 4);

    const Size rows = odd_extent(6, random), n = odd_extent(9, random), times = odd_extent(5, random);
    const auto all = laws::normals<T>(rows * n * times, random);
    const DeviceArray<T> d_all(all), sums(rows * n);
    expected.resize(rows * n);
    gpu::sum_repeats<T>(stream, rows, n, times, sums, d_all);
    Kernel<kernels::SumRepeats<double>, Cpu>::run(rows, n, times, expected.data(), in_f64(all).data());
    laws::check_elements(sums.read(stream), expected, 16, "sum_repeats", 4);
  }
}

template <class T>
void check_largest() {
  std::mt19937 random(7);
  const laws::TestStream stream;
  for (int i = 0; i < 15; ++i) {
    const Size outer = odd_extent(6, random), n = odd_extent(9, random), inner = i % 3 ? odd_extent(8, random) : 1;
    auto x = laws::normals<T>(outer * n * inner, random);
    for (T& a : x)
      if (random() % 3 == 0) a = static_cast<T>(random() % 5 ? 1.0f : std::nanf(""));  // equal ones, and NaN
    std::vector<T> y(outer * inner), dx(x.size());
    std::vector<std::int32_t> place(y.size());
    const auto dy = laws::normals<T>(outer * inner, random);
    const DeviceArray<T> d_x(x), d_y(outer * inner), d_dy(dy), d_dx(outer * n * inner);
    const DeviceArray<std::int32_t> d_place(outer * inner);
    gpu::max_along<T>(stream, outer, n, inner, d_y, d_place, d_x);
    gpu::max_along_backward<T>(stream, outer, n, inner, d_dx, d_dy, d_place);
    Kernel<kernels::MaxAlong<T>, Cpu>::run(outer, n, inner, y.data(), place.data(), x.data());
    Kernel<kernels::MaxAlongVjp<T>, Cpu>::run(outer, n, inner, dx.data(), dy.data(), place.data());
    const auto read = d_y.read(stream);
    CHECK(std::memcmp(read.data(), y.data(), y.size() * sizeof(T)) == 0);
    CHECK(d_place.read(stream) == place);
    CHECK(d_dx.read(stream) == dx);
  }
}

}  // namespace

TEST_CASE("gpu::sum_along and sum_repeats agree with f64 on the Cpu") {
  check_sums<float>();
  check_sums<bf16>();
  check_sums<f16>();
}

TEST_CASE("gpu::max_along is the Cpu's: the first of equal ones, and NaN above any number") {
  check_largest<float>();
  check_largest<bf16>();
}
