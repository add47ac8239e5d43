// SPDX-License-Identifier: Apache-2.0
/// Digest and rotation of bytes in device memory.
#pragma once

#include <cstdint>

#include <dspp/ops/cpu/bits.hpp>

namespace dspp::ops {

/// The digest of `bytes` bytes of D, continued from `start` (base/digest.hpp). On paper 0.
///
/// Cost     reads them once; synchronizes
template <class D>
constexpr std::uint64_t digest(Memory<D>& memory, const std::byte* x, Size bytes, std::uint64_t start = 0) {
  return ask<kernels::DigestOf, D>(memory, std::uint64_t{0}, start, bytes, x);
}

/// The same by a digest that a communicator can make of a sum, part by part (PlacedDigest). On paper 0.
///
/// Cost     reads them once; synchronizes
template <class D>
constexpr std::uint64_t placed_digest(Memory<D>& memory, const std::byte* x, Size bytes) {
  return ask<kernels::PlacedDigestOf, D>(memory, std::uint64_t{0}, bytes, x);
}

/// Moves the last `by` of `bytes` bytes to the front, the others after them.
///
/// Cost     copies
template <class D>
constexpr void rotate(Memory<D>& memory, std::byte* x, Size bytes, Size by) {
  launch<kernels::Rotate, D>(memory, bytes, by, x);
}

}  // namespace dspp::ops
