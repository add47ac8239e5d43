// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/column_sum.hpp>
#include <kernels/column_sum.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T, class G>
void check_case(Size rows, Size n, Size offset, Write write, std::mt19937& random) {
  const std::string what = laws::describe("rows", rows, "n", n, "offset", offset);
  const auto x = laws::normals<T>(rows * n, random);
  const auto before = laws::normals<G>(n, random);
  auto expected = laws::in_f64(before);
  Kernel<kernels::SumRows<double, double>, Cpu>::run(rows, n, expected.data(), write, laws::in_f64(x).data());
  const laws::TestStream stream;
  const DeviceArray<T> d_x(x, offset);
  const DeviceArray<G> into(before);
  const DeviceArray<float> scratch(gpu::column_sum_scratch<T>(rows, n));
  gpu::column_sum<T, G>(stream, rows, n, d_x, scratch, into, write);
  laws::check_elements(into.read(stream), expected, 64, what);
}

template <class T, class G>
void check_cases() {
  std::mt19937 random(18);
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    check_case<T, G>(0, 40, 0, write, random);
    check_case<T, G>(1, 1, 0, write, random);
    check_case<T, G>(3000, 24, 0, write, random);
    check_case<T, G>(70, 1032, 1, write, random);
    for (int i = 0; i < 6; ++i)
      check_case<T, G>(laws::odd_extent(500, random), laws::odd_extent(700, random), i % 2, write, random);
  }
}

}  // namespace

TEST_CASE("gpu::column_sum agrees with f64 on the Cpu") {
  check_cases<float, float>();
  check_cases<bf16, bf16>();
  check_cases<bf16, float>();
  check_cases<f16, f16>();
}
