// SPDX-License-Identifier: Apache-2.0
/// Digests of reduced gradients: whether another rank sums them to the same bits, and whether they stay as they are.
#pragma once

#include <algorithm>
#include <cstdint>

#include <dspp/base/digest.hpp>
#include <dspp/zero/bucket.hpp>

namespace dspp::detail {

/// Chains the digest of bytes to `print`.
inline void add_print(std::uint64_t& print, const std::byte* data, Size bytes) {
  print = Digest().add(print).add(data, bytes).value();
}

/// Of a bucket's own slice of the sum.
template <class T, Device D>
std::uint64_t print_of_sum(const Bucket<T, D>& b, Size bytes) {
  return Digest().add(b.reduced.data(), bytes).value();
}

/// The sum is as it was when it was last noted, or `changed` says that it is not.
template <class T, Device D>
constexpr void check_resting(Bucket<T, D>& b, Size bytes) {
  if constexpr (D::real)
    if (b.reduced && print_of_sum(b, bytes) != b.print.resting) b.print.changed = true;
}
template <class T, Device D>
constexpr void note_resting(Bucket<T, D>& b, Size bytes) {
  if constexpr (D::real) b.print.resting = print_of_sum(b, bytes);
}

/// The last `by` of `bytes` come to the front, the others after them.
inline void rotate_bytes(std::byte* data, Size bytes, Size by) {
  std::rotate(data, data + (bytes - by), data + bytes);
}

}  // namespace dspp::detail
