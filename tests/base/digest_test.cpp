// SPDX-License-Identifier: Apache-2.0
// A digest of bits always detects a flipped one; facts survive the conversion to text and back.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <dspp/base/facts.hpp>

using namespace dspp;

namespace {
std::uint64_t digest_of(const std::vector<unsigned char>& bytes) {
  return Digest().add(bytes.data(), std::ssize(bytes)).value();
}
}  // namespace

TEST_CASE("every flipped bit of every length up to 100 bytes gives a different digest") {
  std::mt19937 random(1);
  for (std::size_t length = 1; length <= 100; length += length < 40 ? 1 : 7) {
    std::vector<unsigned char> bytes(length);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    std::set<std::uint64_t> seen{digest_of(bytes)};
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      seen.insert(digest_of(bytes));
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    }
    CHECK(seen.size() == 8 * length + 1);
  }
}

TEST_CASE("order and lengths matter: no two cuts, rotations or runs of zeros have the same digest") {
  std::set<std::uint64_t> seen;
  for (Size zeros = 0; zeros < 100; ++zeros)
    seen.insert(digest_of(std::vector<unsigned char>(static_cast<std::size_t>(zeros), 0)));
  CHECK(seen.size() == 100);
  const std::string text = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::set<std::uint64_t> cuts;
  for (Size cut = 0; cut < 36; ++cut)
    cuts.insert(Digest().add(text.data(), cut).add(text.data() + cut, 36 - cut).value());
  CHECK(cuts.size() == 36);
  CHECK(digest_text(0xabc) == "0000000000000abc");
}

TEST_CASE("a digest of parts does not depend on their order, and every flipped bit and exchanged word changes it") {
  std::mt19937 random(2);
  for (std::size_t length = 1; length <= 100; length += length < 40 ? 1 : 7) {
    std::vector<unsigned char> bytes(length);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    const auto whole = [&] { return PlacedDigest().add(bytes.data(), std::ssize(bytes), 0).value(); };
    const std::uint64_t value = whole();
    for (Size cut = 0; cut < std::ssize(bytes); cut += 8)
      CHECK(PlacedDigest().add(bytes.data() + cut, std::ssize(bytes) - cut, cut).add(bytes.data(), cut, 0).value() ==
            value);
    std::set<std::uint64_t> seen{value};
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      seen.insert(whole());
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    }
    CHECK(seen.size() == 8 * length + 1);
    if (length == 96 || length == 40)
      for (std::size_t a = 0; a < 8 * length; ++a)  // no two flipped bits undo each other
        for (std::size_t b = 0; b < a; b += 1 + a % 3) {
          bytes[a / 8] ^= static_cast<unsigned char>(1u << a % 8),
              bytes[b / 8] ^= static_cast<unsigned char>(1u << b % 8);
          CHECK(whole() != value);
          bytes[a / 8] ^= static_cast<unsigned char>(1u << a % 8),
              bytes[b / 8] ^= static_cast<unsigned char>(1u << b % 8);
        }
    for (std::size_t at = 0; at + 16 <= length; at += 8) {
      std::swap_ranges(bytes.begin() + static_cast<Size>(at), bytes.begin() + static_cast<Size>(at) + 8,
                       bytes.begin() + static_cast<Size>(at) + 8);
      CHECK(whole() != value);
      std::swap_ranges(bytes.begin() + static_cast<Size>(at), bytes.begin() + static_cast<Size>(at) + 8,
                       bytes.begin() + static_cast<Size>(at) + 8);
    }
  }
}

TEST_CASE("facts read back from their text unchanged, also empty and long ones") {
  Facts facts;
  facts.add("lr", 0.1).add("steps", Size{-3}).add("seed", std::uint64_t{1} << 63).add("mode", true).add("", "");
  facts.add("text", std::string(1000, 'x')).add("empty", "").add(Facts().add("beta", 0.25f), "optimizer ");
  const Facts back = Facts::received(facts.sent());
  CHECK(back.all() == facts.all());
  CHECK(back.digest() == facts.digest());
  CHECK(facts.all()[0].value == "0.1");
  CHECK(facts.all().back().name == "optimizer beta");
  CHECK(Facts().add("a", "bc").digest() != Facts().add("ab", "c").digest());
  CHECK(Facts::received("").all().empty());
}
