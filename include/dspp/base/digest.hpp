// SPDX-License-Identifier: Apache-2.0
/// A digest of bits, to compare state between ranks.
#pragma once

#include <cstdint>
#include <cstring>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// 64 bits over all bytes. Two inputs that differ in one word of 8 bytes, as by a flipped bit, always differ in digest,
/// since every step is a bijection of the state for a given word and of the word for a given state; others collide with
/// probability 2^-64. It detects accidents, not adversaries.
///
/// Cost     one pass; four independent chains of a multiplication per 8 bytes: as fast as memory
/// Source   the step is that of Collet's xxHash64
class Digest {
 public:
  Digest& add(const void* data, Size bytes);
  Digest& add(std::uint64_t word) { return add(&word, 8); }

  std::uint64_t value() const;

 private:
  static constexpr std::uint64_t stepped(std::uint64_t lane, std::uint64_t word) {
    const std::uint64_t sum = lane + word * 0xc2b2ae3d27d4eb4fu;
    return (sum << 31 | sum >> 33) * 0x9e3779b185ebca87u;
  }
  /// The finaliser of MurmurHash3: a bijection. Source: Appleby, public domain.
  static constexpr std::uint64_t mixed(std::uint64_t word) {
    word = (word ^ word >> 33) * 0xff51afd7ed558ccdu;
    word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53u;
    return word ^ word >> 33;
  }

  std::uint64_t lanes_[4] = {0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u, 0x082efa98ec4e6c89u};
};

/// 64 bits over bytes that come in parts, in any order. A word of 8 bytes that differs always changes them, as in a
/// Digest.
///
/// Cost     one pass; two multiplications per 8 bytes
/// Source   the words are mixed as in Steele, Lea and Flood's SplitMix64, 2014
class PlacedDigest {
 public:
  /// Adds bytes [place, place + bytes) of the whole. `place` is a multiple of 8, and so is `bytes` except at the end.
  PlacedDigest& add(const void* data, Size bytes, Size place);

  std::uint64_t value() const { return sum_; }

  /// What word number `place` adds.
  DSPP_HOST_DEVICE static constexpr std::uint64_t term(std::uint64_t word, std::uint64_t place) {
    return mixed(word, step * (place + 1));
  }

 private:
  /// A bijection of the word.
  DSPP_HOST_DEVICE static constexpr std::uint64_t mixed(std::uint64_t word, std::uint64_t number) {
    std::uint64_t x = word + number;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
  }
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15u;

  std::uint64_t sum_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE PlacedDigest& PlacedDigest::add(const void* data, Size bytes, Size place) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t number = step * static_cast<std::uint64_t>(place / 8 + 1), sum = 0, word = 0;
  for (; bytes >= 8; bytes -= 8, at += 8, number += step) {
    std::memcpy(&word, at, 8);
    sum += mixed(word, number);
  }
  if (bytes > 0) {
    word = 0;
    std::memcpy(&word, at, static_cast<std::size_t>(bytes));
    sum += mixed(word, number);
  }
  sum_ += sum;
  return *this;
}

DSPP_INLINE Digest& Digest::add(const void* data, Size bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  const auto word_at = [](const unsigned char* from, Size length) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, static_cast<std::size_t>(length));
    return word;
  };
  std::uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  Size left = bytes;
  for (; left >= 32; left -= 32, at += 32) {
    a = stepped(a, word_at(at, 8)), b = stepped(b, word_at(at + 8, 8));
    c = stepped(c, word_at(at + 16, 8)), d = stepped(d, word_at(at + 24, 8));
  }
  for (; left > 0; left -= left < 8 ? left : 8, at += 8) a = stepped(a, word_at(at, left < 8 ? left : 8));
  lanes_[0] = stepped(a, static_cast<std::uint64_t>(bytes)), lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
  return *this;
}

DSPP_INLINE std::uint64_t Digest::value() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes_) sum = mixed(sum ^ lane);
  return sum;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
