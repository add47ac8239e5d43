// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/arithmetic.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
void check_case(Size count, Size offset, std::mt19937& random) {
  const laws::TestStream stream;
  const auto x = laws::normals<T>(count, random), y = laws::normals<T>(count, random);
  const DeviceArray<T> d_x(x, offset), d_y(y), z(count, offset), scaled(count);
  gpu::add<T>(stream, count, z, d_x, d_y);
  gpu::scale<T>(stream, count, scaled, d_x, 0.37);
  const auto got_z = z.read(stream), got_scaled = scaled.read(stream);
  for (Size i = 0; i < count; ++i) {  // bit for bit
    CHECK(got_z[i] == static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(y[i])));
    CHECK(got_scaled[i] == static_cast<T>(static_cast<float>(x[i]) * 0.37f));
  }
}

/// Every 16-bit pattern of T to f32, and back.
template <class T>
void check_every_value() {
  const laws::TestStream stream;
  std::vector<T> all(65536);
  for (int i = 0; i < 65536; ++i) all[i] = T::from_bits(static_cast<std::uint16_t>(i));
  const DeviceArray<T> d_all(all), back(65536);
  const DeviceArray<float> wide(65536);
  gpu::cast<float>(stream, Size{65536}, wide.data(), static_cast<const T*>(d_all));
  gpu::cast<T>(stream, Size{65536}, back.data(), static_cast<const float*>(wide));
  const auto got_wide = wide.read(stream);
  const auto got_back = back.read(stream);
  int wrong = 0;
  for (int i = 0; i < 65536; ++i) {
    const auto expected = static_cast<float>(all[i]);
    wrong += !laws::same_or_both_nan(got_wide[i], expected);
    wrong += std::isnan(expected) ? !std::isnan(static_cast<float>(got_back[i])) : got_back[i].bits != all[i].bits;
  }
  CHECK(wrong == 0);
}

/// Values between neighbours, ties, beyond the largest and below the smallest, against the Cpu's rounding.
template <class T>
void check_rounding() {
  std::mt19937 random(4);
  std::vector<float> x;
  for (int i = 0; i < 60000; ++i) x.push_back(bits_as<float>(static_cast<std::uint32_t>(random())));
  for (int i = 0; i < 4000; ++i) {
    const float middle = bits_as<float>((static_cast<std::uint32_t>(random()) & 0xffff0000u) | 0x8000u);
    x.push_back(middle);
    x.push_back(static_cast<float>(1 + (random() % 4096)) * 0x1p-26f);
    x.push_back(65504.0f + static_cast<float>(random() % 64));
  }
  const laws::TestStream stream;
  const DeviceArray<float> d_x(x);
  const DeviceArray<T> y(d_x.size());
  gpu::cast<T>(stream, d_x.size(), y.data(), static_cast<const float*>(d_x));
  const auto got = y.read(stream);
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    wrong += std::isnan(x[i]) ? !std::isnan(static_cast<float>(got[i])) : got[i].bits != static_cast<T>(x[i]).bits;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("gpu::add and gpu::scale give the Cpu's bits") {
  std::mt19937 random(3);
  for (const Size count : {Size{0}, Size{1}, Size{15}, Size{4104}, Size{5003}})
    for (const Size offset : {Size{0}, Size{3}}) {
      check_case<float>(count, offset, random);
      check_case<bf16>(count, offset, random);
      check_case<f16>(count, offset, random);
    }
}

TEST_CASE("gpu::cast keeps every value of bf16 and f16 through f32") {
  check_every_value<bf16>();
  check_every_value<f16>();
}

TEST_CASE("gpu::cast rounds as the Cpu does") {
  check_rounding<bf16>();
  check_rounding<f16>();
}
