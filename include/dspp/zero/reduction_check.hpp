// SPDX-License-Identifier: Apache-2.0
/// Digests of reduced gradients, to check that they have the bits of the sum, and keep them until the update.
#pragma once

#include <cstdint>

#include <dspp/ops/bits.hpp>
#include <dspp/zero/bucket.hpp>

namespace dspp {

/// What is done to detect a wrong bit in a slice of a reduced gradient, which one replica alone holds.
enum class ReductionCheck {
  none,
  digest,  ///< the slice is compared with the communicator's digest of the sum, up to the update
  repeat,  ///< reductions are also repeated, on another rank and on this one; not without rank order, since the bits
           ///< may differ
};

namespace detail {

/// The digest of `bytes` bytes of a sum in `storage`.
template <Device D>
constexpr std::uint64_t digest_of_sum(const Storage<Memory<D>>& storage, Size bytes) {
  return ops::placed_digest<D>(storage.memory(), storage.data(), bytes);
}

/// Sets `changed` if this rank's slice of a bucket's sum is not as it was when last noted.
template <class T, Device D>
constexpr void check_resting(Bucket<T, D>& b, Size bytes) {
  if (b.reduced && digest_of_sum<D>(b.reduced, bytes) != b.print.resting) b.print.changed = true;
}

/// Notes the slice after its first reduction: by the communicator's digest, if there is one.
template <class T, Device D>
constexpr void note_sum(Bucket<T, D>& b, Size bytes) {
  b.print.resting = b.print.sum ? b.print.sum.value : digest_of_sum<D>(b.reduced, bytes);
}

/// Checks a later micro-step's sum, before it is added; sets `changed`.
template <class T, Device D>
constexpr void check_summand(Bucket<T, D>& b, const Storage<Memory<D>>& summand, Size bytes) {
  if (b.print.sum && digest_of_sum<D>(summand, bytes) != b.print.sum.value) b.print.changed = true;
}

}  // namespace detail
}  // namespace dspp
