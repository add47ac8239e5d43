// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/swiglu.hpp>
#include <kernels/swiglu.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// Both passes in T against the Cpu's kernels in f64.
template <class T>
void check_case(Size rows, Size n, Size offset, std::mt19937& random) {
  const std::string what = laws::describe("rows", rows, "n", n, "offset", offset);
  const laws::TestStream stream;
  const auto x = laws::normals<T>(2 * rows * n, random, 2.0), dy = laws::normals<T>(rows * n, random);
  const DeviceArray<T> d_x(x, offset), d_dy(dy, offset), y(rows * n, offset);
  const auto x64 = laws::in_f64(x), dy64 = laws::in_f64(dy);
  std::vector<double> y64(rows * n), dx64(2 * rows * n);
  Kernel<kernels::Swiglu<double>, Cpu>::run(rows, n, y64.data(), x64.data());
  Kernel<kernels::SwigluVjp<double>, Cpu>::run(rows, n, dx64.data(), x64.data(), dy64.data());
  gpu::swiglu<T>(stream, rows, n, y, d_x);
  gpu::swiglu_backward<T>(stream, rows, n, d_x, d_x, d_dy);  // in place
  laws::check_elements(y.read(stream), y64, 8, what + ": y");
  laws::check_elements(d_x.read(stream), dx64, 8, what + ": dx");
}

template <class T>
void check_cases() {
  std::mt19937 random(2);
  check_case<T>(0, 8, 0, random);
  check_case<T>(3, 1, 0, random);
  check_case<T>(11, 64, 0, random);
  check_case<T>(5, 2056, 0, random);
  check_case<T>(5, 344, 1, random);
  for (int i = 0; i < 6; ++i) check_case<T>(laws::odd_extent(30, random), laws::odd_extent(600, random), i % 2, random);
}

}  // namespace

TEST_CASE("gpu::swiglu and its backward pass agree with f64 on the Cpu, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::swiglu and its backward pass agree with f64 on the Cpu, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::swiglu and its backward pass agree with f64 on the Cpu, f16") {
  check_cases<f16>();
}
