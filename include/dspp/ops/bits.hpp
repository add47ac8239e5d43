// SPDX-License-Identifier: Apache-2.0
/// Digests and rotation of bytes in device memory.
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

/// *digest = the digest of `bytes` bytes, continued from *digest, all in D's memory.
///
/// Cost     reads them once
template <class D>
constexpr void continue_digest(Memory<D>& memory, const std::byte* x, Size bytes, std::uint64_t* digest) {
  launch<kernels::ContinueDigest, D>(memory, bytes, x, digest);
}

/// *digest = the digest that a communicator can make of a sum, part by part (PlacedDigest), all in D's memory.
///
/// Cost     reads them once
template <class D>
constexpr void placed_digest(Memory<D>& memory, const std::byte* x, Size bytes, std::uint64_t* digest) {
  launch<kernels::PlacedDigestOf, D>(memory, bytes, x, digest);
}

/// *changed = 1 unless *digest is that PlacedDigest, all in D's memory.
///
/// Cost     reads them once
template <class D>
constexpr void compare_placed_digest(Memory<D>& memory, const std::byte* x, Size bytes, const std::uint64_t* digest,
                                     std::uint64_t* changed) {
  launch<kernels::ComparePlacedDigest, D>(memory, bytes, x, digest, changed);
}

/// y[i] = NaN for i < count unless all of word[k stride], k < words, are 0.
template <class D>
constexpr void nan_if_any(Memory<D>& memory, Size words, Size stride, const std::uint64_t* word, Size count,
                          double* y) {
  launch<kernels::NanIfAny, D>(memory, words, stride, word, count, y);
}

/// Moves the last `by` of `bytes` bytes to the front, the others after them.
///
/// Cost     copies
template <class D>
constexpr void rotate(Memory<D>& memory, std::byte* x, Size bytes, Size by) {
  launch<kernels::Rotate, D>(memory, bytes, by, x);
}

}  // namespace dspp::ops
