// SPDX-License-Identifier: Apache-2.0
/// Digests of reduced gradients: whether another rank sums them to the same bits, and whether they stay as they are.
#pragma once

#include <cstdint>

#include <dspp/base/digest.hpp>
#include <dspp/ops/bits.hpp>
#include <dspp/zero/bucket.hpp>

namespace dspp::detail {

/// Of a bucket's own slice of the sum.
template <class T, Device D>
constexpr std::uint64_t digest_of_sum(const Bucket<T, D>& b, Size bytes) {
  return ops::digest<D>(b.reduced.memory(), b.reduced.data(), bytes);
}

/// The sum is as it was when it was last noted, or `changed` says that it is not.
template <class T, Device D>
constexpr void check_resting(Bucket<T, D>& b, Size bytes) {
  if (b.reduced && digest_of_sum(b, bytes) != b.print.resting) b.print.changed = true;
}
template <class T, Device D>
constexpr void note_resting(Bucket<T, D>& b, Size bytes) {
  b.print.resting = digest_of_sum(b, bytes);
}

}  // namespace dspp::detail
