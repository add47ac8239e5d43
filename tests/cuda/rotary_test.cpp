// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/rotary.hpp>
#include <kernels/rotary.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// Forward into another array and back in place, in T, against the Cpu's kernel in f64.
template <class T>
void check_case(const kernels::RotaryExtents& at, Size offset, std::mt19937& random) {
  const std::string what =
      laws::describe("rows", at.rows, "columns", at.columns, "head_dim", at.head_dim, "offset", offset);
  std::vector<float> table(at.sequence * at.head_dim);
  Kernel<kernels::RotaryTable<float>, Cpu>::run(5, at.sequence, at.head_dim, 10000.0, {}, table.data());
  const laws::TestStream stream;
  const auto x = laws::normals<T>(at.rows * at.columns, random);
  const DeviceArray<T> d_x(x, offset), y(at.rows * at.columns, offset);
  const DeviceArray<float> d_table(table);
  const auto x64 = laws::in_f64(x), table64 = laws::in_f64(table);
  std::vector<double> y64(x.size()), back64(x.size());
  for (const double sign : {1.0, -1.0}) {
    Kernel<kernels::Rotary<double>, Cpu>::run(at, y64.data(), x64.data(), table64.data(), sign);
    gpu::rotary<T>(stream, at, y, d_x, d_table, sign);
    laws::check_elements(y.read(stream), y64, 8, what + ": y");
  }
  gpu::rotary<T>(stream, at, d_x, d_x, d_table, -1);
  laws::check_elements(d_x.read(stream), y64, 8, what + ": y in place of x");
}

template <class T>
void check_cases() {
  std::mt19937 random(15);
  check_case<T>({.rows = 5, .sequence = 5, .columns = 3 * 64 + 8, .rotated = 3 * 64, .head_dim = 64}, 0, random);
  check_case<T>({.rows = 14, .sequence = 7, .columns = 3 * 128, .rotated = 2 * 128, .head_dim = 64}, 0, random);
  check_case<T>({.rows = 9, .sequence = 3, .columns = 5 * 16 + 3, .rotated = 3 * 16, .head_dim = 16}, 0, random);
  check_case<T>({.rows = 6, .sequence = 6, .columns = 2 * 128, .rotated = 2 * 128, .head_dim = 128}, 1, random);
  check_case<T>({.rows = 10, .sequence = 5, .columns = 60, .rotated = 40, .head_dim = 10}, 0, random);
  check_case<T>({.rows = 0, .sequence = 5, .columns = 64, .rotated = 64, .head_dim = 64}, 0, random);
}

}  // namespace

TEST_CASE("gpu::rotary agrees with f64 on the Cpu, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::rotary agrees with f64 on the Cpu, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::rotary agrees with f64 on the Cpu, f16") {
  check_cases<f16>();
}

TEST_CASE("gpu::rotary refuses extents that need more than 32 bits") {
  const Size huge = Size{1} << 32;
  CHECK_THROWS_WITH_AS(gpu::rotary<float>({}, {1, huge, huge, 8, 1}, nullptr, nullptr, nullptr, 1),
                       doctest::Contains("rotary [rows 1, columns 4294967296] needs extents below 2^31."), Error);
}
