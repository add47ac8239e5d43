// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/select.hpp>
#include <kernels/select.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::odd_extent;

namespace {

template <class T>
void check_cases() {
  std::mt19937 random(8);
  const laws::TestStream stream;
  for (int i = 0; i < 12; ++i) {
    const Size rows = odd_extent(30, random), n = i % 3 ? odd_extent(9, random) : 1;
    std::vector<std::uint8_t> mask(rows);
    for (auto& m : mask) m = random() % 2 ? static_cast<std::uint8_t>(odd_extent(255, random)) : 0;
    const auto a = laws::normals<T>(rows * n, random), b = laws::normals<T>(rows * n, random);
    const bool has_a = i % 4 != 1, has_b = i % 4 != 2;
    std::vector<T> y(rows * n);
    const DeviceArray<T> d_a(a), d_b(b), d_y(rows * n);
    const DeviceArray<std::uint8_t> d_mask(mask);
    gpu::select<T, std::uint8_t>(stream, rows, n, d_y, d_mask, has_a ? d_a.data() : nullptr, 0.3,
                                 has_b ? d_b.data() : nullptr, -2);
    Kernel<kernels::Select<T, std::uint8_t>, Cpu>::run(rows, n, y.data(), mask.data(), has_a ? a.data() : nullptr, 0.3,
                                                       has_b ? b.data() : nullptr, -2);
    CHECK(d_y.read(stream) == y);

    const Size outer = odd_extent(3, random), count = odd_extent(12, random);
    std::vector<std::int32_t> ids(outer * count);
    for (auto& id : ids) id = static_cast<std::int32_t>(odd_extent(rows, random) - 1);
    const auto x = laws::normals<T>(outer * rows * n, random), dy = laws::normals<T>(outer * count * n, random);
    std::vector<T> picked(outer * count * n);
    std::vector<double> dx(x.size());
    std::vector<std::int32_t> starts(rows + 1), order(count);
    const DeviceArray<std::int32_t> d_ids(ids);
    const DeviceArray<T> d_x(x), d_dy(dy), d_picked(outer * count * n), d_dx(outer * rows * n);
    gpu::gather<T>(stream, outer, rows, count, n, d_picked, d_x, d_ids);
    gpu::gather_backward<T>(stream, outer, rows, count, n, d_dx, d_dy, d_ids);
    Kernel<kernels::Gather<T>, Cpu>::run(outer, rows, count, n, picked.data(), x.data(), ids.data());
    Kernel<kernels::GatherVjp<double>, Cpu>::run(outer, rows, count, n, dx.data(), laws::in_f64(dy).data(), ids.data(),
                                                 starts.data(), order.data());
    CHECK(d_picked.read(stream) == picked);
    laws::check_elements(d_dx.read(stream), dx, 32, "gather_backward", 4);
  }
}

}  // namespace

TEST_CASE("gpu::select and gather are the Cpu's, and gather's backward pass agrees with f64") {
  check_cases<float>();
  check_cases<bf16>();
}
