// SPDX-License-Identifier: Apache-2.0
/// Digest and rotation of bytes.
#pragma once

#include <algorithm>

#include <dspp/base/digest.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

template <>
struct Kernel<kernels::DigestOf, Cpu> {
  static std::uint64_t run(std::uint64_t start, Size bytes, const std::byte* x) {
    return Digest().add(start).add(x, bytes).value();
  }
};

template <>
struct Kernel<kernels::PlacedDigestOf, Cpu> {
  static std::uint64_t run(Size bytes, const std::byte* x) { return PlacedDigest().add(x, bytes, 0).value(); }
};

template <>
struct Kernel<kernels::Rotate, Cpu> {
  static void run(Size bytes, Size by, std::byte* x) { std::rotate(x, x + (bytes - by), x + bytes); }
};

}  // namespace dspp
