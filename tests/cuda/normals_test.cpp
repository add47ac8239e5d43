// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/normals.hpp>
#include <kernels/normals.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
void check_normals() {
  const laws::TestStream stream;
  const PhiloxStream numbers{.key = {0x123456789abcdef}, .step = -1, .sample = 0, .site = 7};
  const Size far = (Size{1} << 34) + 3;
  for (const Size first : {Size{0}, Size{1}, Size{2}, Size{3}, Size{4097}, far})
    for (const Size count : {0, 1, 2, 3, 4, 5, 64, 5000}) {
      const std::vector<T> before(static_cast<std::size_t>(count), static_cast<T>(7.0f));
      const DeviceArray<T> y(before, first % 3);
      gpu::normals<T>(stream, numbers, first, count, 0.02, y);
      std::vector<T> expected(before);
      Kernel<kernels::Normals<T>, Cpu>::run(numbers, first, count, 0.02, expected.data());
      CHECK(laws::in_f64(y.read(stream)) == laws::in_f64(expected));
    }
  std::vector<T> alone(5);
  Kernel<kernels::Normals<T>, Cpu>::run(numbers, 70'000, 5, 0.5, alone.data());
  for (Size i = 0; i < 5; ++i)
    CHECK(static_cast<double>(alone[static_cast<std::size_t>(i)]) ==
          static_cast<double>(static_cast<T>(0.5f * philox_normal(numbers, 70'000 + i))));
}

}  // namespace

TEST_CASE("gpu::normals has the Cpu's bits from any element on, and writes nothing beside") {
  check_normals<float>();
  check_normals<bf16>();
  check_normals<f16>();
}
