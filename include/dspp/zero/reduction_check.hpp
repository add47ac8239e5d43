// SPDX-License-Identifier: Apache-2.0
/// Digests of reduced gradients, to check that another rank sums them to the same bits and that they do not change.
#pragma once

#include <cstdint>

#include <dspp/base/digest.hpp>
#include <dspp/ops/bits.hpp>
#include <dspp/zero/bucket.hpp>

namespace dspp::detail {

/// The digest of this rank's slice of a bucket's sum.
template <class T, Device D>
constexpr std::uint64_t digest_of_sum(const Bucket<T, D>& b, Size bytes) {
  return ops::digest<D>(b.reduced.memory(), b.reduced.data(), bytes);
}

/// Sets `changed` if the sum is not as it was when last noted.
template <class T, Device D>
constexpr void check_resting(Bucket<T, D>& b, Size bytes) {
  if (b.reduced && digest_of_sum(b, bytes) != b.print.resting) b.print.changed = true;
}
template <class T, Device D>
constexpr void note_resting(Bucket<T, D>& b, Size bytes) {
  b.print.resting = digest_of_sum(b, bytes);
}

}  // namespace dspp::detail
