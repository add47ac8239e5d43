// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/embedding.hpp>
#include <kernels/embedding.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// `distinct` ids, so that few make long runs; some lie outside the table.
template <class T, class G>
void check_case(Size count, Size rows, Size n, Size distinct, Write write, std::mt19937& random) {
  const std::string what = laws::describe("count", count, "rows", rows, "n", n, "distinct", distinct);
  const Size first_row = 10, offset = distinct % 2;
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids)
    id = static_cast<std::int32_t>(first_row + static_cast<Size>(random() % distinct) * 7 % (rows + 3));
  const auto table = laws::normals<T>(rows * n, random), dy = laws::normals<T>(count * n, random);
  const laws::TestStream stream;
  const DeviceArray<T> d_table(table, offset), d_dy(dy, offset), y(count * n, offset);
  const DeviceArray<std::int32_t> d_ids(ids);
  gpu::embedding<T>(stream, count, rows, n, y, d_table, d_ids, first_row);
  std::vector<T> expected(count * n);
  Kernel<kernels::Embedding<T>, Cpu>::run(count, rows, n, expected.data(), table.data(), ids.data(), first_row);
  CHECK((count == 0 || laws::worst_difference(y.read(stream), expected) == 0));

  const auto before = laws::normals<G>(rows * n, random);
  const DeviceArray<G> into(before, offset);
  const DeviceArray<std::uint32_t> keys(count), sorted_keys(count);
  const DeviceArray<std::int32_t> positions(count), sorted_positions(count);
  const DeviceArray<float> parts(gpu::embedding_parts(count, n));
  const DeviceArray<std::uint8_t> workspace(gpu::embedding_workspace(count, rows));
  gpu::embedding_backward<T, G>(stream, count, rows, n, into, write, d_dy, d_ids, first_row,
                                {keys, sorted_keys, positions, sorted_positions, parts, workspace, workspace.size()});
  auto into64 = laws::in_f64(before);
  std::vector<std::int32_t> starts(rows + 1), order(count);
  Kernel<kernels::EmbeddingVjp<double, double>, Cpu>::run(count, rows, n, into64.data(), write, laws::in_f64(dy).data(),
                                                          ids.data(), first_row, starts.data(), order.data());
  laws::check_elements(into.read(stream), into64, 64, what);
}

template <class T, class G>
void check_cases() {
  std::mt19937 random(20);
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    check_case<T, G>(0, 5, 8, 3, write, random);
    check_case<T, G>(1, 1, 1, 1, write, random);
    check_case<T, G>(32, 40, 16, 1, write, random);
    check_case<T, G>(33, 40, 16, 2, write, random);
    check_case<T, G>(500, 300, 1032, 4, write, random);
    for (int i = 0; i < 8; ++i)
      check_case<T, G>(laws::odd_extent(900, random), laws::odd_extent(100, random), laws::odd_extent(90, random),
                       laws::odd_extent(i % 2 ? 5 : 200, random), write, random);
  }
}

}  // namespace

TEST_CASE("gpu::embedding gathers rows, and its backward pass agrees with f64 on the Cpu") {
  check_cases<float, float>();
  check_cases<bf16, bf16>();
  check_cases<bf16, float>();
  check_cases<f16, f16>();
}
