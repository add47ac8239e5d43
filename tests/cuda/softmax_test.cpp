// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/softmax.hpp>
#include <kernels/softmax.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// Both passes in T against the Cpu's kernels in f64.
template <class T>
void check_case(Size rows, Size n, Size offset, std::mt19937& random) {
  const std::string what = laws::describe("rows", rows, "n", n, "offset", offset);
  const laws::TestStream stream;
  const auto x = laws::normals<T>(rows * n, random, 3.0), dy = laws::normals<T>(rows * n, random);
  const DeviceArray<T> d_x(x, offset), d_dy(dy, offset), y(rows * n);
  std::vector<double> y64(rows * n), dx64(rows * n);
  const auto x64 = laws::in_f64(x), dy64 = laws::in_f64(dy);
  Kernel<kernels::Softmax<double>, Cpu>::run(rows, n, y64.data(), x64.data());
  gpu::softmax<T>(stream, rows, n, y, d_x);
  const auto got = y.read(stream);
  laws::check_elements(got, y64, 16, what + ": y");
  const auto got64 = laws::in_f64(got);
  Kernel<kernels::SoftmaxVjp<double>, Cpu>::run(rows, n, dx64.data(), dy64.data(), got64.data());
  gpu::softmax_backward<T>(stream, rows, n, d_dy, d_dy, y);
  laws::check_elements(d_dy.read(stream), dx64, 32, what + ": dx");
  gpu::softmax<T>(stream, rows, n, d_x, d_x);
  laws::check_elements(d_x.read(stream), y64, 16, what + ": y in place of x");
}

template <class T>
void check_cases() {
  std::mt19937 random(14);
  const Size all = gpu::longest_row<T>;
  for (const Size n :
       {Size{1}, Size{8}, Size{77}, Size{1024}, Size{2056}, all + 1, all + 8, 2 * all, 2 * all + 8, Size{66001}})
    for (const Size offset : {Size{0}, Size{1}}) check_case<T>(3, n, offset, random);
  check_case<T>(0, 5, 0, random);
  for (int i = 0; i < 6; ++i)
    check_case<T>(laws::odd_extent(30, random), laws::odd_extent(3000, random), i % 2, random);
}

}  // namespace

TEST_CASE("gpu::softmax and its backward pass agree with f64 on the Cpu, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::softmax and its backward pass agree with f64 on the Cpu, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::softmax and its backward pass agree with f64 on the Cpu, f16") {
  check_cases<f16>();
}

TEST_CASE("gpu::softmax gives 0 for minus infinity, and NaN where the Cpu does") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Size rows = 4;
  for (const Size n : {Size{40}, gpu::longest_row<float> + 3}) {
    std::vector<float> x(rows * n, 1.0f), expected(rows * n);
    for (Size j = 0; j < n; ++j) {
      if (j % 2 == 0) x[j] = -infinity;
      x[n + j] = -infinity;
    }
    x[2 * n + n / 2] = nan;
    x[3 * n + n / 2] = infinity;
    Kernel<kernels::Softmax<float>, Cpu>::run(rows, n, expected.data(), x.data());
    const laws::TestStream stream;
    const DeviceArray<float> d_x(x), y(rows * n);
    gpu::softmax<float>(stream, rows, n, y, d_x);
    const auto got = y.read(stream);
    int wrong = 0;
    for (Size i = 0; i < rows * n; ++i)
      wrong += !laws::same_or_both_nan(got[i], expected[i]) && !laws::close(got[i], expected[i], 1e-5, 1e-9);
    CHECK(wrong == 0);
  }
}
