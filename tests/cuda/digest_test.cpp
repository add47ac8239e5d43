// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/cuda_kernels.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

const std::byte* bytes_of(const DeviceArray<std::uint8_t>& x) {
  return reinterpret_cast<const std::byte*>(x.data());
}

std::vector<std::uint8_t> random_bytes(Size count, std::mt19937& random) {
  std::vector<std::uint8_t> x(count);
  for (auto& a : x) a = static_cast<std::uint8_t>(random());
  return x;
}

}  // namespace

TEST_CASE("a digest on the GPU of bytes that come in one part is the host's PlacedDigest") {
  std::mt19937 random(14);
  CudaMemory on;
  for (const Size count : {0, 1, 7, 8, 9, 1000, 40001}) {
    const auto x = random_bytes(count, random);
    const DeviceArray<std::uint8_t> d_x(x);
    const DeviceArray<std::uint64_t> digest(1), changed(std::vector<std::uint64_t>{0});
    Kernel<kernels::PlacedDigestOf, Cuda>::run(on, count, bytes_of(d_x), digest);
    const std::uint64_t expected = PlacedDigest().add(x.data(), count, 0).value();
    CHECK(digest.read(gpu::stream_of(on))[0] == expected);
    Kernel<kernels::ComparePlacedDigest, Cuda>::run(on, count, bytes_of(d_x), digest, changed);
    CHECK(changed.read(gpu::stream_of(on))[0] == 0);
    const DeviceArray<std::uint64_t> other(std::vector<std::uint64_t>{expected ^ 1});
    Kernel<kernels::ComparePlacedDigest, Cuda>::run(on, count, bytes_of(d_x), other, changed);
    CHECK(changed.read(gpu::stream_of(on))[0] == 1);
  }
}

TEST_CASE("a continued digest on the GPU differs with any flipped bit, with the start and with the order") {
  std::mt19937 random(15);
  CudaMemory on;
  const auto digest_of = [&](std::uint64_t start, const std::vector<std::uint8_t>& x) {
    const DeviceArray<std::uint8_t> d_x(x);
    return Kernel<kernels::DigestOf, Cuda>::run(on, start, d_x.size(), bytes_of(d_x));
  };
  auto x = random_bytes(1003, random);
  const auto y = random_bytes(88, random);
  const std::uint64_t one = digest_of(5, x);
  CHECK(one == digest_of(5, x));
  CHECK(one != digest_of(6, x));
  CHECK(digest_of(digest_of(0, x), y) != digest_of(digest_of(0, y), x));
  for (int i = 0; i < 20; ++i) {
    auto& byte = x[random() % x.size()];
    const auto bit = static_cast<std::uint8_t>(1u << random() % 8);
    byte ^= bit;
    CHECK(digest_of(5, x) != one);
    byte ^= bit;
  }
}

TEST_CASE("nan_if_any writes NaN if a word is not 0") {
  CudaMemory on;
  for (const std::uint64_t last : {0, 9}) {
    const DeviceArray<std::uint64_t> words(std::vector<std::uint64_t>{0, 7, 0, 7, last});
    const DeviceArray<double> y(std::vector<double>{1, 2});
    Kernel<kernels::NanIfAny, Cuda>::run(on, 3, 2, words, 2, y);
    const auto read = y.read(gpu::stream_of(on));
    CHECK((last == 0 ? read == std::vector<double>{1, 2} : std::isnan(read[0]) && std::isnan(read[1])));
  }
}
