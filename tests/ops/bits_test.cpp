// SPDX-License-Identifier: Apache-2.0
// Digests that stay in the device's memory are those that the host has, and a comparison there finds a flipped bit.
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/ops/bits.hpp>
#include <dspp/tensor/pool.hpp>

using namespace dspp;

namespace {

constexpr Size bytes = 44;

std::vector<std::byte> some_bytes() {
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(7 * i + 3);
  return all;
}

}  // namespace

TEST_CASE("digests in memory are those that the host asks for") {
  Pool pool;
  const auto x = some_bytes();
  std::uint64_t digest = 5;
  ops::continue_digest<Cpu>(pool, x.data(), bytes, &digest);
  CHECK(digest == ops::digest<Cpu>(pool, x.data(), bytes, 5));
  ops::placed_digest<Cpu>(pool, x.data(), bytes, &digest);
  CHECK(digest == PlacedDigest().add(x.data(), bytes, 0).value());
}

TEST_CASE("every flipped bit is noted, and a note stays") {
  Pool pool;
  auto x = some_bytes();
  std::uint64_t digest = 0, changed = 0;
  ops::placed_digest<Cpu>(pool, x.data(), bytes, &digest);
  ops::compare_placed_digest<Cpu>(pool, x.data(), bytes, &digest, &changed);
  CHECK(changed == 0);
  for (std::size_t bit = 0; bit < 8 * x.size(); ++bit) {
    const std::byte flip{static_cast<unsigned char>(1u << bit % 8)};
    changed = 0;
    x[bit / 8] ^= flip;
    ops::compare_placed_digest<Cpu>(pool, x.data(), bytes, &digest, &changed);
    CHECK(changed == 1);
    x[bit / 8] ^= flip;
    ops::compare_placed_digest<Cpu>(pool, x.data(), bytes, &digest, &changed);
    CHECK(changed == 1);
  }
}

TEST_CASE("one word that is not 0 makes all elements NaN, and what lies between the words does not") {
  Pool pool;
  for (const int set : {-1, 0, 1, 2}) {
    std::uint64_t words[] = {0, 9, 9, 0, 9, 9, 0, 9, 9};
    if (set >= 0) words[3 * set] = 1;
    double y[] = {1, 2, 3};
    ops::nan_if_any<Cpu>(pool, 3, 3, words, 2, y);
    CHECK(std::isnan(y[0]) == (set >= 0));
    CHECK(std::isnan(y[1]) == (set >= 0));
    CHECK(y[2] == 3);
  }
}
