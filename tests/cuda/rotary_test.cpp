// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/rotary.hpp>
#include <kernels/rotary.cuh>
#include <kernels/rotary_table.cuh>

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

/// The Cpu's bits in software. A GPU's sines differ in the last places of f64, and few f32 values by a unit.
void check_table(Size first, Size count, Size head_dim, const RopeScaling& scaling) {
  INFO("first ", first, ", count ", count, ", head_dim ", head_dim, ", kind ", static_cast<int>(scaling.kind));
  std::vector<float> expected(count * head_dim);
  Kernel<kernels::RotaryTable<float>, Cpu>::run(first, count, head_dim, 10000.0, scaling, expected.data());
  const laws::TestStream stream;
  const DeviceArray<float> table(count * head_dim);
#if !DSPP_HAS_NVCC()
  software_gpu::fail_call(0);
  gpu::rotary_table<float>(stream, first, count, head_dim, 10000.0, scaling, table);
  const Size launches = count == 0 ? 0 : gpu::blocks_for(head_dim / 2, gpu::pairs_of_launch);
  CHECK(software_gpu::fail_call(0) == launches);  // and nothing else
  CHECK(table.read(stream) == expected);
#else
  gpu::rotary_table<float>(stream, first, count, head_dim, 10000.0, scaling, table);
  const auto got = table.read(stream);
  for (Size i = 0; i < count * head_dim; ++i) CHECK(std::abs(got[i] - expected[i]) <= 0x1p-23f);
#endif
}

}  // namespace

TEST_CASE("gpu::rotary_table has the Cpu's bits, without a copy or a wait") {
  check_table(0, 70, 16, {});
  check_table(5, 0, 16, {});
  check_table(31, 2, 2, {});
  check_table(1000, 1090, 24, {});  // positions of two blocks
  check_table(100003, 40, 64, {});
  check_table(3, 9, 2 * (gpu::pairs_of_launch + 3), {});
  check_table(0, 64, 16, {.kind = RopeKind::linear, .factor = 4});
  check_table(7, 64, 16, {.kind = RopeKind::dynamic, .factor = 2, .original_sequence = 40});
  check_table(7, 64, 16, {.kind = RopeKind::llama3, .factor = 8, .original_sequence = 32});
  check_table(7, 64, 16, {.kind = RopeKind::yarn, .factor = 4, .original_sequence = 32});
}

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
