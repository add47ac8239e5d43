// SPDX-License-Identifier: Apache-2.0
// CRC-32C against published values, its two implementations against each other, and pieces against the whole.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <dspp/base/crc32c.hpp>
#include <dspp/base/philox.hpp>

using namespace dspp;

namespace {

std::vector<unsigned char> noise(Size bytes) {
  std::vector<unsigned char> data(static_cast<std::size_t>(bytes));
  for (Size i = 0; i < bytes; ++i)
    data[static_cast<std::size_t>(i)] = static_cast<unsigned char>(philox_bits({.key = {7}}, i) >> 24);
  return data;
}

}  // namespace

TEST_CASE("the checksums are those of RFC 3720 and of the catalogue's check string") {
  std::array<unsigned char, 32> bytes{};
  CHECK(crc32c(bytes.data(), 32) == 0x8A9136AAu);
  bytes.fill(0xff);
  CHECK(crc32c(bytes.data(), 32) == 0x62A8AB43u);
  for (unsigned i = 0; i < 32; ++i) bytes[i] = static_cast<unsigned char>(i);
  CHECK(crc32c(bytes.data(), 32) == 0x46DD794Eu);
  std::reverse(bytes.begin(), bytes.end());
  CHECK(crc32c(bytes.data(), 32) == 0x113FDB5Cu);
  const unsigned char command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                     0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                     0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
  CHECK(crc32c(command, 48) == 0xD9963A56u);
  CHECK(crc32c("123456789", 9) == 0xE3069283u);
  CHECK(crc32c("", 0) == 0);
}

TEST_CASE("tables and instructions agree, at every length, offset and continuation") {
  const auto data = noise(300);
  for (Size first = 0; first < 9; ++first)
    for (Size bytes = 0; first + bytes <= 64; ++bytes)
      CHECK(crc32c(data.data() + first, bytes) == ~detail::crc32c_by_tables(~0u, data.data() + first, bytes));
  for (Size cut = 0; cut <= 300; ++cut)
    CHECK(crc32c(data.data() + cut, 300 - cut, crc32c(data.data(), cut)) == crc32c(data.data(), 300));
  const auto many = noise(150'000);  // of which parts are under way at the same time
  for (const Size bytes : {49'151, 49'152, 49'153, 98'303, 98'304, 100'000, 147'461, 150'000})
    for (const std::uint32_t before : {0u, 0x12345678u})
      CHECK(crc32c(many.data(), bytes, before) == ~detail::crc32c_by_tables(~before, many.data(), bytes));
}

TEST_CASE("shares of pieces, in any order, make the checksum of the whole") {
  const Size bytes = 5000;
  const auto data = noise(bytes);
  const std::uint32_t whole = crc32c(data.data(), bytes);
  for (Size length : {1, 7, 64, 999, 4999, 5000}) {
    std::uint32_t sum = crc32c_of_zeros(bytes);
    for (int parity : {1, 0})
      for (Size begin = 0, number = 0; begin < bytes; begin += length, ++number)
        if (number % 2 == parity) {
          const Size count = std::min(length, bytes - begin);
          sum ^= crc32c_share(data.data() + begin, count, bytes - begin - count);
        }
    CHECK(sum == whole);
  }
  static_assert(crc32c_of_zeros(0) == 0);
  const std::vector<unsigned char> zeros(3000);
  for (Size n : {1, 2, 31, 32, 1000, 3000}) CHECK(crc32c_of_zeros(n) == crc32c(zeros.data(), n));
  // distances beyond 2^32 bytes: twice 5 GiB is 10 GiB
  const std::uint32_t far = detail::crc32c_over_zeros(detail::crc32c_over_zeros(1, 5_GiB), 5_GiB);
  CHECK(detail::crc32c_over_zeros(1, 10_GiB) == far);
}

TEST_CASE("every flipped bit and every swap of two neighbours is detected") {
  auto data = noise(200);
  const std::uint32_t whole = crc32c(data.data(), 200);
  for (std::size_t bit = 0; bit < 1600; ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    CHECK(crc32c(data.data(), 200) != whole);
    data[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
  for (std::size_t i = 1; i < 200; ++i) {
    if (data[i] == data[i - 1]) continue;
    std::swap(data[i], data[i - 1]);
    CHECK(crc32c(data.data(), 200) != whole);
    std::swap(data[i], data[i - 1]);
  }
}
