// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/add_bias.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
void check_case(Size rows, Size n, Size offset, std::mt19937& random) {
  const auto x = laws::normals<T>(rows * n, random), bias = laws::normals<T>(n, random);
  const laws::TestStream stream;
  const DeviceArray<T> d_x(x, offset), d_bias(bias), y(rows * n, offset);
  gpu::add_bias<T>(stream, rows, n, y, d_x, d_bias);
  gpu::add_bias<T>(stream, rows, n, d_x, d_x, d_bias);
  const auto got = y.read(stream), in_place = d_x.read(stream);
  int wrong = 0;
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0; j < n; ++j) {
      const auto expected = static_cast<T>(static_cast<float>(x[i * n + j]) + static_cast<float>(bias[j]));
      wrong += !(got[i * n + j] == expected) + !(in_place[i * n + j] == expected);
    }
  INFO("rows " << rows << ", n " << n << ", offset " << offset);
  CHECK(wrong == 0);
}

template <class T>
void check_cases() {
  std::mt19937 random(22);
  check_case<T>(0, 8, 0, random);
  check_case<T>(1, 1, 0, random);
  check_case<T>(9, 2056, 0, random);
  for (int i = 0; i < 6; ++i) check_case<T>(laws::odd_extent(40, random), laws::odd_extent(900, random), i % 2, random);
}

}  // namespace

TEST_CASE("gpu::add_bias gives the Cpu's bits") {
  check_cases<float>();
  check_cases<bf16>();
  check_cases<f16>();
}
