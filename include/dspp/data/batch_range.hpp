// SPDX-License-Identifier: Apache-2.0
/// The tokens of each of a rank's batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/facts.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/data/batch_stream.hpp>
#include <dspp/data/sample_order.hpp>

namespace dspp::data {

/// Tokens and the next tokens, both [micro_batch, sequence], row-major: targets[b][s] is tokens[b][s + 1].
struct TokenBatch {
  Size micro_batch = 0, sequence = 0;
  Size step = 0, micro_step = 0;  ///< the optimizer step, and its micro-step
  std::vector<std::int32_t> tokens, targets;
};

/// The first position of the `sample`-th sequence of a step: uniform in [0, positions), a function of the arguments.
constexpr Size sample_position(std::uint64_t seed, Size step, Size sample, Size positions);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
inline constexpr std::uint32_t data_site = 0x00DA7A00u;  // not a layer's: those count from zero
}  // namespace detail

/// Batches 0 to count - 1. Owns its data source.
class BatchRange {
 public:
  /// How the batches are chosen: windows in order, or samples in epochs, or else sequences at random positions.
  struct Plan {
    BatchSizes sizes{};
    BatchConfig config{};
    DataShare share{};
    Size count = 0;
    Size tokens = 0;  // to choose from
    Size windows = 0, windows_in_all = 0;
    Size samples = 0;         // of an epoch
    std::uint64_t print = 0;  // a digest of the data: ranks with others are refused
  };
  /// Writes tokens [first, first + count) of the data.
  using Read = std::function<void(Size first, Size count, std::int32_t* out)>;

  /// Throws   Error(usage) for a plan with fewer tokens than a sequence and its last target, or with numbers below 0
  BatchRange(Read read, const Plan& plan);

  class Iterator {
   public:
    using value_type = TokenBatch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    explicit Iterator(BatchRange* range) : range_(range) {}
    const TokenBatch& operator*() const { return range_->batch_; }
    const TokenBatch* operator->() const { return &range_->batch_; }
    Iterator& operator++() {
      range_->fill(++number_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.number_ >= it.range_->size(); }

   private:
    BatchRange* range_;
    Size number_ = 0;
  };

  /// Throws   Error(usage) if a run that resumes had other data
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// Batches of this rank, and tokens in them over all ranks.
  Size size() const { return plan_.count; }
  Size global_tokens() const {
    return plan_.count * plan_.sizes.micro_batch * plan_.share.ranks * plan_.sizes.sequence;
  }
  /// The first_sample of a run that resumes after `steps` of these.
  Size next_sample(Size steps) const { return stream().next_sample(steps); }
  BatchStream stream() const { return {plan_.sizes, plan_.config, plan_.share}; }

  /// The facts that must be equal on all ranks: how batches are chosen, and from what data.
  Facts facts() const;
  /// Of the data and their order: equal for runs that may resume each other.
  std::uint64_t data_digest() const {
    return of_data().add("sequence", plan_.sizes.sequence).add("seed", plan_.config.seed).digest();
  }

  /// Writes batch `number` to tokens and targets [micro_batch, sequence] of the caller.
  void fill(Size number, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  Facts of_data() const;
  Size start(Size number, Size row) const;
  void fill(Size number);

  Read read_;
  Plan plan_;
  TokenBatch batch_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE BatchRange::BatchRange(Read read, const Plan& plan) : read_(std::move(read)), plan_(plan) {
  require(
      plan.sizes.sequence >= 1 && plan.tokens > plan.sizes.sequence,
      "dspp: BatchRange needs more tokens than a sequence has, but its plan has fewer. Set Plan::tokens, or shorten "
      "the sequence.",
      ErrorCode::usage, {{"tokens", plan.tokens}, {"sequence", plan.sizes.sequence}});
  require(
      plan.count >= 0 && plan.sizes.micro_batch >= 1 && plan.sizes.accumulate >= 1 && plan.share.rank >= 0 &&
          plan.share.rank < plan.share.ranks,
      "dspp: BatchRange needs a count of at least 0, sizes of at least 1 and a data rank in [0, ranks), but its plan "
      "has others. Change the plan.");
}

DSPP_INLINE BatchRange::Iterator BatchRange::begin() {
  detail::check_resumed(plan_.config, *this);
  fill(0);
  return Iterator(this);
}

DSPP_INLINE Facts BatchRange::facts() const {
  return stream().facts().add(of_data());
}

DSPP_INLINE Facts BatchRange::of_data() const {
  return Facts()
      .add("tokens of the data", plan_.tokens)
      .add("digest of the data", digest_text(plan_.print))
      .add("windows", plan_.windows)
      .add("samples", plan_.samples);
}

DSPP_INLINE void BatchRange::fill(Size number, std::int32_t* tokens, std::int32_t* targets) const {
  const Size sequence = plan_.sizes.sequence;
  for (Size row = 0; row < plan_.sizes.micro_batch; ++row, tokens += sequence, targets += sequence) {
    const Size first = start(number, row);
    read_(first, sequence, tokens);
    std::copy(tokens + 1, tokens + sequence, targets);
    read_(first + sequence, 1, targets + sequence - 1);
  }
}

DSPP_INLINE Size BatchRange::start(Size number, Size row) const {
  const auto& [micro_batch, sequence, accumulate] = plan_.sizes;
  const BatchConfig& c = plan_.config;
  const Size sample = stream().number_in_step(number) + row;
  if (plan_.samples > 0) return sample_at(c.seed, stream().position(number) + row, plan_.samples) * sequence;
  if (plan_.windows == 0)
    return sample_position(c.seed, c.first_step + number / accumulate, sample, plan_.tokens - sequence);
  const Size window = number * plan_.share.ranks * micro_batch + sample;
  // window windows_in_all / windows, whose product might not fit
  const Size whole = plan_.windows_in_all / plan_.windows, rest = plan_.windows_in_all % plan_.windows;
  return (window * whole + window * rest / plan_.windows) * sequence;
}

DSPP_INLINE void BatchRange::fill(Size number) {
  const auto& [micro_batch, sequence, accumulate] = plan_.sizes;
  if (number >= plan_.count) return;
  batch_.micro_batch = micro_batch, batch_.sequence = sequence;
  batch_.step = plan_.config.first_step + number / accumulate, batch_.micro_step = number % accumulate;
  batch_.tokens.resize(static_cast<std::size_t>(micro_batch * sequence));
  batch_.targets.resize(batch_.tokens.size());
  fill(number, batch_.tokens.data(), batch_.targets.data());
}

#endif  // DSPP_HAS_DEFINITIONS()

constexpr Size sample_position(std::uint64_t seed, Size step, Size sample, Size positions) {
  const PhiloxStream stream{.key = {seed}, .step = step, .sample = sample, .site = detail::data_site};
  // floor(u positions) with u of 64 bits, by halves: exact in 64-bit arithmetic for positions below 2^32
  const auto n = static_cast<std::uint64_t>(positions);
  const std::uint64_t high = philox_bits(stream, 0), low = philox_bits(stream, 1);
  if (n >> 32 != 0) return static_cast<Size>((high << 32 | low) % n);
  return static_cast<Size>((high * n + (low * n >> 32)) >> 32);
}

}  // namespace dspp::data
