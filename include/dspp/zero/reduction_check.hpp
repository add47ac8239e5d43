// SPDX-License-Identifier: Apache-2.0
/// Digests of reduced gradients, to check that they have the bits of the sum, and keep them until the update.
#pragma once

#include <cstdint>
#include <vector>

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

/// The places of a bucket's digests in a device's memory, each a word of 64 bits. The first three are over all
/// micro-steps of a step that checks.
struct ReductionPrint {
  static constexpr Size first = 0;      ///< this rank's slice, as reduced
  static constexpr Size neighbour = 1;  ///< the previous rank's slice, reduced again here
  static constexpr Size again = 2;      ///< this rank's slice, reduced again
  static constexpr Size resting = 3;    ///< the sum so far, which must not change
  static constexpr Size summand = 4;    ///< a later micro-step's sum, by the communicator
  static constexpr Size changed = 5;    ///< 1 if a sum changed, else 0
  static constexpr Size count = 6;
};

/// The ReductionPrints of all buckets, written and compared in the device's memory: the host waits where it reads them.
/// Buckets are given by number, from 1; `slice` is this rank's, of `bytes` bytes.
template <Device D>
class ReductionPrints {
 public:
  using Slice = Storage<Memory<D>>;

  /// Memory   48 bytes a bucket
  constexpr void allocate(Memory<D>& memory, int buckets) {
    words_ = Tensor<std::uint64_t, 1, D>::zeros(shape(ReductionPrint::count * buckets), memory, Category::communication,
                                                "digests of reductions");
  }
  constexpr explicit operator bool() const { return static_cast<bool>(words_); }

  /// Before what a step's first reduction of a bucket notes.
  constexpr void begin(int bucket) {
    zero_bytes<D>(words_.storage(), place(bucket, 0) * width, ReductionPrint::count * width);
  }
  /// Continues one of the first three digests by the slice.
  constexpr void add(int bucket, Size which, const Slice& slice, Size bytes) {
    ops::continue_digest<D>(words_.memory(), slice.data(), bytes, word(bucket, which));
  }
  /// Notes the sum so far: by the communicator's digest, if there is one.
  constexpr void note_sum(int bucket, const SumDigest& digest, const Slice& sum, Size bytes) {
    if (digest)
      D::fill(words_.memory(), word(bucket, ReductionPrint::resting), 1, digest.value);
    else
      ops::placed_digest<D>(words_.memory(), sum.data(), bytes, word(bucket, ReductionPrint::resting));
  }
  /// Sets `changed` if the sum so far is not as it was when last noted.
  constexpr void check_resting(int bucket, const Slice& sum, Size bytes) {
    if (sum) compare(bucket, ReductionPrint::resting, sum, bytes);
  }
  /// Checks a later micro-step's sum, before it is added; sets `changed`.
  constexpr void check_summand(int bucket, const SumDigest& digest, const Slice& summand, Size bytes) {
    if (!digest) return;
    D::fill(words_.memory(), word(bucket, ReductionPrint::summand), 1, digest.value);
    compare(bucket, ReductionPrint::summand, summand, bytes);
  }
  /// Makes the elements NaN if a sum changed.
  constexpr void spoil_if_changed(const Tensor<double, 1, D>& x) const {
    ops::nan_if_any<D>(words_.memory(), words_.count() / ReductionPrint::count, ReductionPrint::count,
                       words_.data_from(ReductionPrint::changed), x.count(), x.data());
  }

  /// One number of every bucket, on the host: waits for them. None if none are kept.
  std::vector<std::uint64_t> of_buckets(Size which) const {
    std::vector<std::uint64_t> numbers;
    if (words_)
      words_.read([&](const std::uint64_t* host) {
        for (Size i = which; i < words_.count(); i += ReductionPrint::count) numbers.push_back(host[i]);
      });
    return numbers;
  }

 private:
  static constexpr Size width = sizeof(std::uint64_t);

  static constexpr Size place(int bucket, Size which) { return ReductionPrint::count * (bucket - 1) + which; }
  constexpr std::uint64_t* word(int bucket, Size which) const { return words_.data_from(place(bucket, which)); }
  constexpr void compare(int bucket, Size with, const Slice& slice, Size bytes) {
    ops::compare_placed_digest<D>(words_.memory(), slice.data(), bytes, word(bucket, with),
                                  word(bucket, ReductionPrint::changed));
  }

  Tensor<std::uint64_t, 1, D> words_;
};

}  // namespace dspp
