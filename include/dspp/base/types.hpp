// SPDX-License-Identifier: Apache-2.0
/// The integer that counts everything: extents, elements, bytes.
#pragma once

#include <cstdint>

#include <dspp/base/config.hpp>

namespace dspp {

/// Signed, so that differences and reverse loops are safe; 64 bits, so that 2^31 elements fit.
using Size = std::int64_t;

/// The smallest multiple of `unit` that is >= `count`.
constexpr Size round_up(Size count, Size unit) {
  return (count + unit - 1) / unit * unit;
}

namespace literals {
constexpr Size operator""_KiB(unsigned long long n) {
  return static_cast<Size>(n) << 10;
}
constexpr Size operator""_MiB(unsigned long long n) {
  return static_cast<Size>(n) << 20;
}
constexpr Size operator""_GiB(unsigned long long n) {
  return static_cast<Size>(n) << 30;
}
}  // namespace literals
using namespace literals;

}  // namespace dspp
