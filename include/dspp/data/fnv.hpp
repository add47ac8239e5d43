// SPDX-License-Identifier: Apache-2.0
/// A checksum that detects damage; it is not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

#include <dspp/base/config.hpp>

namespace dspp::data {

/// FNV-1a of 64 bits, updated with bytes in order.
///
/// Cost     about one nanosecond a byte
/// Source   Fowler, Noll, Vo: FNV hash, variant 1a (1991)
class Fnv1a {
 public:
  constexpr Fnv1a& add(std::string_view bytes) {
    for (const char c : bytes) sum_ = (sum_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return *this;
  }
  constexpr std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325u;
};

}  // namespace dspp::data
