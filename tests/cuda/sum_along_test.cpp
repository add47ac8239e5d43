// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>

#include <dspp/ops/cpu/copy.hpp>
#include <dspp/ops/cpu/reduce_along.hpp>
#include <kernels/sum_along.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::in_f64;
using laws::odd_extent;

namespace {

/// Dimensions of a dense tensor, innermost first, each kept or summed. Those of one element are none.
kernels::SumExtents drawn(std::mt19937& random) {
  kernels::SumExtents at;
  Size stride = 1;
  for (Size d = odd_extent(4, random); d > 0; --d) {
    const Size extent = 1 + odd_extent(11, random);
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

/// Dimensions [outer, middle, inner], of which those are summed that are named. Those of one element are none.
kernels::SumExtents of_three(const Size (&extents)[3], std::initializer_list<int> summed) {
  kernels::SumExtents at;
  Size stride = 1;
  for (int d = 2; d >= 0; stride *= extents[d--])
    if (extents[d] == 1)
      continue;
    else if (std::find(summed.begin(), summed.end(), d) != summed.end())
      at.summed_extents[at.summed] = extents[d], at.summed_strides[at.summed++] = stride;
    else
      at.kept_extents[at.kept] = extents[d], at.kept_strides[at.kept++] = stride;
  return at;
}

/// What a thread, a warp, a block, and threads that share a result sum.
std::vector<kernels::SumExtents> cases_of_sums(std::mt19937& random) {
  std::vector<kernels::SumExtents> cases;
  for (int i = 0; i < 15; ++i) cases.push_back(drawn(random));
  for (const Size n : {31, 32, 100, 1024, 1025, 3001}) cases.push_back(of_three({3, 7, n}, {2}));
  for (const Size n : {32, 1500}) cases.push_back(of_three({5, 3, n}, {0, 2}));  // in rows that are apart
  for (const Size n : {1, 31, 33, 70}) {
    cases.push_back(of_three({1, 63, n}, {1}));
    cases.push_back(of_three({2, 64, n}, {1}));
    cases.push_back(of_three({40, 9, n}, {0}));
    cases.push_back(of_three({3, 700, n}, {0, 1}));
  }
  return cases;
}

template <class T>
void check_sums() {
  std::mt19937 random(6);
  const laws::TestStream stream;
  for (const kernels::SumExtents& at : cases_of_sums(random)) {
    const Size kept = product(at.kept, at.kept_extents), summed = product(at.summed, at.summed_extents);
    const auto x = laws::normals<T>(kept * summed, random);
    const DeviceArray<T> d_x(x), y(kept);
    std::vector<double> expected(kept);
    gpu::sum_along<T>(stream, at, 3.0, y, d_x);
    Kernel<kernels::SumAlong<double>, Cpu>::run(at, 3.0, expected.data(), in_f64(x).data());
    std::string what = "sum_along";
    for (int d = 0; d < at.kept; ++d) what += laws::describe(" kept", at.kept_extents[d], "by", at.kept_strides[d]);
    for (int d = 0; d < at.summed; ++d)
      what += laws::describe(" summed", at.summed_extents[d], "by", at.summed_strides[d]);
    laws::check_elements(y.read(stream), expected, 64, what, 4);

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
  for (int i = 0; i < 30; ++i) {
    const Size outer = odd_extent(6, random), n = i < 15 ? odd_extent(9, random) : 28 + 3 * i;
    const Size inner = i % 3 ? odd_extent(8, random) : 1;
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
