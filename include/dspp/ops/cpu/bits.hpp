// SPDX-License-Identifier: Apache-2.0
/// Digest and rotation of bytes.
#pragma once

#include <algorithm>
#include <limits>

#include <dspp/base/digest.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

template <>
struct Kernel<kernels::DigestOf, Cpu> {
  static std::uint64_t run(std::uint64_t start, Size bytes, const std::byte* x);
};

template <>
struct Kernel<kernels::ContinueDigest, Cpu> {
  static void run(Size bytes, const std::byte* x, std::uint64_t* digest) {
    *digest = Kernel<kernels::DigestOf, Cpu>::run(*digest, bytes, x);
  }
};

template <>
struct Kernel<kernels::PlacedDigestOf, Cpu> {
  static void run(Size bytes, const std::byte* x, std::uint64_t* digest);
};

template <>
struct Kernel<kernels::ComparePlacedDigest, Cpu> {
  static void run(Size bytes, const std::byte* x, const std::uint64_t* digest, std::uint64_t* changed);
};

template <>
struct Kernel<kernels::NanIfAny, Cpu> {
  static void run(Size words, Size stride, const std::uint64_t* word, Size count, double* y) {
    bool any = false;
    for (Size k = 0; k < words; ++k) any |= word[k * stride] != 0;
    if (any) std::fill_n(y, count, std::numeric_limits<double>::quiet_NaN());
  }
};

template <>
struct Kernel<kernels::Rotate, Cpu> {
  static void run(Size bytes, Size by, std::byte* x) { std::rotate(x, x + (bytes - by), x + bytes); }
};

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::uint64_t Kernel<kernels::DigestOf, Cpu>::run(std::uint64_t start, Size bytes, const std::byte* x) {
  return Digest().add(start).add(x, bytes).value();
}

DSPP_INLINE void Kernel<kernels::PlacedDigestOf, Cpu>::run(Size bytes, const std::byte* x, std::uint64_t* digest) {
  *digest = PlacedDigest().add(x, bytes, 0).value();
}

DSPP_INLINE void Kernel<kernels::ComparePlacedDigest, Cpu>::run(Size bytes, const std::byte* x,
                                                                const std::uint64_t* digest, std::uint64_t* changed) {
  if (PlacedDigest().add(x, bytes, 0).value() != *digest) *changed = 1;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
