// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/reduce.hpp>
#include <kernels/squared_norm.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
double norm_of(const std::vector<T>& x, Size offset = 0, double before = -1) {
  const laws::TestStream stream;
  const DeviceArray<T> d_x(x, offset);
  const DeviceArray<double> scratch(gpu::squared_norm_scratch(d_x.size())), total(std::vector<double>{before});
  gpu::squared_norm<T>(stream, d_x.size(), d_x, scratch, total.data(), before >= 0);
  return total.read(stream)[0];
}

template <class T>
void check_cases() {
  std::mt19937 random(6);
  for (const Size count : {Size{0}, Size{1}, Size{3}, Size{8}, Size{1000}, Size{70001}})
    for (const Size offset : {Size{0}, Size{1}}) {
      const auto x = laws::normals<T>(count, random, 3.0);
      double expected = 0;
      Kernel<kernels::SquaredNorm<T, double>, Cpu>::run(count, x.data(), &expected);
      CHECK(laws::difference(norm_of(x, offset), expected) <= 1e-12 * expected);
      CHECK(laws::difference(norm_of(x, offset, 5.0), expected + 5) <= 1e-12 * (expected + 5));
    }
}

}  // namespace

TEST_CASE("gpu::squared_norm is the Cpu's, for f32, bf16 and f16") {
  check_cases<float>();
  check_cases<bf16>();
  check_cases<f16>();
}

TEST_CASE("gpu::squared_norm neither overflows nor underflows, and is finite exactly if every element is") {
  CHECK(laws::close(norm_of(std::vector<float>(100, 3e38f)), 100 * 9e76, 1e-6));
  CHECK(laws::close(norm_of(std::vector<float>(100, 1e-40f)), 100 * 1e-80, 1e-4, 1e-90));
  std::mt19937 random(8);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (int i = 0; i < 5; ++i) {
      auto x = laws::normals<bf16>(laws::odd_extent(20000, random), random);
      CHECK(std::isfinite(norm_of(x)));
      x[random() % x.size()] = bf16(bad);
      CHECK(!std::isfinite(norm_of(x)));
    }
}
