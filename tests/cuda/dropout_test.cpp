// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/dropout.hpp>
#include <kernels/dropout.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
void check_window(const kernels::DropoutArguments& at, Size offset, std::mt19937& random) {
  Size count = at.samples;
  for (int d = 0; d < at.dimensions; ++d) count *= at.extents[d];
  const auto x = laws::normals<T>(count, random);
  std::vector<T> expected(count);
  Kernel<kernels::Dropout<T>, Cpu>::run(at, expected.data(), x.data());
  const laws::TestStream stream;
  const DeviceArray<T> d_x(x, offset), y(count, offset);
  gpu::dropout<T>(stream, at, y, d_x);
  const auto got = y.read(stream);
  int wrong = 0, kept = 0;
  for (Size i = 0; i < count; ++i) {
    wrong += bits_as<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>(got[i]) !=
             bits_as<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>(expected[i]);
    kept += static_cast<float>(got[i]) != 0;
  }
  CHECK(wrong == 0);
  CHECK((count < 100 || (kept > 0 && kept < count)));
}

template <class T>
void check_windows() {
  std::mt19937 random(16);
  kernels::DropoutArguments at;
  at.stream = {.key = {0x123456789abcdefu}, .step = 3, .sample = 17, .site = 5};
  at.threshold = 0x40000000u;
  at.factor = 4.0 / 3.0;
  for (int i = 0; i < 24; ++i) {
    at.samples = laws::odd_extent(4, random);
    at.dimensions = 1 + i % 3;
    for (int d = 0; d < at.dimensions; ++d) {
      at.global[d] = laws::odd_extent(d + 1 == at.dimensions ? 300 : 7, random);
      if (i % 2 == 0) at.global[d] = round_up(at.global[d], 8);
      at.origin[d] = i % 4 < 2 ? 0 : static_cast<Size>(random() % at.global[d]);
      at.extents[d] = i % 4 < 2 ? at.global[d] : laws::odd_extent(at.global[d] - at.origin[d], random);
    }
    check_window<T>(at, i % 5 == 0, random);
  }
}

}  // namespace

TEST_CASE("gpu::dropout gives the Cpu's bits, in windows of any place") {
  check_windows<float>();
  check_windows<bf16>();
  check_windows<f16>();
}

TEST_CASE("gpu::dropout gives the Cpu's bits for elements beyond 2^32") {
  std::mt19937 random(17);
  kernels::DropoutArguments at;
  at.stream = {.key = {77}, .step = Size{1} << 33, .sample = Size{1} << 34, .site = 3};
  at.threshold = 0x80000000u;
  at.samples = 2, at.dimensions = 2;
  at.extents[0] = 3, at.global[0] = Size{1} << 20, at.origin[0] = 900000;
  at.extents[1] = 75, at.global[1] = 100001, at.origin[1] = 99900;
  check_window<float>(at, 0, random);
  check_window<bf16>(at, 0, random);
  at.samples = 1, at.extents[1] = 20000, at.origin[1] = 80001;  // several packs a thread
  check_window<float>(at, 0, random);
  check_window<bf16>(at, 0, random);
  check_window<f16>(at, 1, random);
}
