// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/transpose.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
void check_case(Size rows, Size n, Size offset, std::mt19937& random) {
  const auto x = laws::normals<T>(rows * n, random);
  const laws::TestStream stream;
  const DeviceArray<T> d_x(x, offset), y(rows * n);
  gpu::transpose<T>(stream, rows, n, y, d_x);
  const auto got = y.read(stream);
  int wrong = 0;
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0; j < n; ++j) wrong += !(got[j * rows + i] == x[i * n + j]);
  INFO("rows " << rows << ", n " << n << ", offset " << offset);
  CHECK(wrong == 0);
}

template <class T>
void check_cases() {
  std::mt19937 random(19);
  check_case<T>(0, 8, 0, random);
  check_case<T>(1, 1, 0, random);
  check_case<T>(64, 64, 0, random);
  check_case<T>(72, 200, 0, random);
  check_case<T>(72, 201, 0, random);
  check_case<T>(71, 200, 0, random);
  for (int i = 0; i < 6; ++i)
    check_case<T>(laws::odd_extent(200, random), laws::odd_extent(200, random), i % 2, random);
}

}  // namespace

TEST_CASE("gpu::transpose moves every element") {
  check_cases<float>();
  check_cases<bf16>();
  check_cases<f16>();
}
