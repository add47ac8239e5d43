// SPDX-License-Identifier: Apache-2.0
/// Batches of tokens: random ones to train on, the same for every world size, and windows in order to evaluate on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/philox.hpp>
#include <dspp/data/text.hpp>

namespace dspp {

/// This rank's place along the data axis.
struct DataShare {
  int rank = 0;
  int ranks = 1;
};

/// Tokens and the ones that follow them, both [micro_batch, sequence], row-major: targets[b][s] is tokens[b][s + 1].
struct TokenBatch {
  Size micro_batch = 0, sequence = 0;
  Size step = 0, micro_step = 0;  ///< which optimizer step, and which of its accumulated parts
  std::vector<std::int32_t> tokens, targets;
};

/// Of training: a global batch is micro_batch x accumulate x data ranks sequences.
struct BatchConfig {
  Size micro_batch = 8;
  Size sequence = 256;
  Size steps = 1;
  Size accumulate = 1;
  std::uint64_t seed = 1;
  Size first_step = 0;  ///< where a resumed run goes on
};

/// Of evaluation: windows that do not overlap, in order; with a limit, that many tokens' worth, evenly spaced.
struct WindowConfig {
  Size micro_batch = 8;
  Size sequence = 256;
  Size at_least_tokens = 0;  ///< enough windows for this many, rounded up; 0: all that fit
};

namespace detail {
class BatchRange;
}

/// Where the `sample`-th sequence of a step begins: uniform in [0, positions), a function of the arguments alone.
constexpr Size sample_position(std::uint64_t seed, Size step, Size sample, Size positions);

/// Random sequences of the training part: steps x accumulate batches, this rank's share of each. Sample g of a step's
/// global batch is the same for every number of ranks: g = (micro_step ranks + rank) micro_batch + row.
///
/// Memory   shares the text; one batch of 8 micro_batch sequence bytes, rewritten by every step of the iteration
/// Throws   Error(file) if the training part is shorter than one sequence and its last target; Error(usage)
/// Example  for (const TokenBatch& batch : batches(text, {.micro_batch = 8, .sequence = 64, .steps = 100})) ...
detail::BatchRange batches(std::shared_ptr<const Text> text, const BatchConfig& config, DataShare share = {});

/// The windows of the validation part: every rank gets equally many batches of equal size, so a mean of their losses is
/// the mean over all windows taken. What is left over at the end, less than a row of batches, is not taken; if there
/// are fewer windows than micro_batch x ranks, the batches are smaller.
///
/// Throws   Error(file) if the validation part has less than one window per rank; Error(usage)
detail::BatchRange windows(std::shared_ptr<const Text> text, const WindowConfig& config, DataShare share = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::uint32_t data_site = 0x00DA7A00u;  // no layer's: those are counted from zero

inline void check_batch(Size micro_batch, Size sequence, DataShare share) {
  require(micro_batch >= 1, "dspp: batches need a micro-batch of at least 1, but it is less. Raise micro_batch.");
  require(sequence >= 1, "dspp: batches need a sequence of at least 1, but it is less. Raise sequence.");
  require(share.ranks >= 1 && share.rank >= 0 && share.rank < share.ranks,
          "dspp: batches need a data rank in [0, ranks), but it is outside. Pass the rank and size of the data axis.");
}

/// Batches number 0 to count - 1, where row b of batch number n begins at start(n, b) of the part. Owns what it needs.
class BatchRange {
 public:
  /// How the batches are chosen; `windows` is 0 for random ones.
  struct Plan {
    BatchConfig config{};
    DataShare share{};
    Size count = 0;
    Size windows = 0, windows_in_all = 0;
    bool held_out = false;
  };

  BatchRange(std::shared_ptr<const Text> text, const Plan& plan) : text_(std::move(text)), plan_(plan) {}

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

  Iterator begin() {
    fill(0);
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

  /// Batches that this rank sees, and tokens in them over all ranks.
  Size size() const { return plan_.count; }
  Size global_tokens() const {
    return plan_.count * plan_.config.micro_batch * plan_.share.ranks * plan_.config.sequence;
  }
  const Text& text() const { return *text_; }

  /// Batch `number` into tokens and targets [micro_batch, sequence] that lie elsewhere.
  void fill(Size number, std::int32_t* tokens, std::int32_t* targets) const {
    const ByteSpan part = plan_.held_out ? text_->validation() : text_->training();
    for (Size row = 0; row < plan_.config.micro_batch; ++row) {
      const unsigned char* from = part.data() + start(number, row, std::ssize(part));
      for (Size i = 0; i < plan_.config.sequence; ++i) *tokens++ = from[i], *targets++ = from[i + 1];
    }
  }

 private:
  Size start(Size number, Size row, Size bytes) const {
    const BatchConfig& c = plan_.config;
    const Size micro_step = number % c.accumulate;
    const Size sample = (micro_step * plan_.share.ranks + plan_.share.rank) * c.micro_batch + row;
    if (plan_.windows == 0)
      return sample_position(c.seed, c.first_step + number / c.accumulate, sample, bytes - c.sequence);
    const Size window = number * plan_.share.ranks * c.micro_batch + sample;
    return window * plan_.windows_in_all / plan_.windows * c.sequence;
  }

  void fill(Size number) {
    const BatchConfig& c = plan_.config;
    if (number >= plan_.count) return;
    batch_.micro_batch = c.micro_batch, batch_.sequence = c.sequence;
    batch_.step = c.first_step + number / c.accumulate, batch_.micro_step = number % c.accumulate;
    batch_.tokens.resize(static_cast<std::size_t>(c.micro_batch * c.sequence));
    batch_.targets.resize(batch_.tokens.size());
    fill(number, batch_.tokens.data(), batch_.targets.data());
  }

  std::shared_ptr<const Text> text_;
  Plan plan_;
  TokenBatch batch_;
};

}  // namespace detail

constexpr Size sample_position(std::uint64_t seed, Size step, Size sample, Size positions) {
  const PhiloxStream stream{.key = {seed}, .step = step, .sample = sample, .site = detail::data_site};
  // floor(u positions) with u of 64 bits, by halves: exact in 64-bit arithmetic for positions below 2^32
  const auto n = static_cast<std::uint64_t>(positions);
  const std::uint64_t high = philox_bits(stream, 0), low = philox_bits(stream, 1);
  if (n >> 32 != 0) return static_cast<Size>((high << 32 | low) % n);
  return static_cast<Size>((high * n + (low * n >> 32)) >> 32);
}

inline detail::BatchRange batches(std::shared_ptr<const Text> text, const BatchConfig& config, DataShare share) {
  detail::check_batch(config.micro_batch, config.sequence, share);
  require(config.steps >= 0 && config.first_step >= 0,
          "dspp: batches need steps that are not negative, but they are. Change steps.");
  require(config.accumulate >= 1, "dspp: batches need accumulate of at least 1, but it is less. Raise accumulate.");
  if (text->training_bytes <= config.sequence)
    fail(ErrorCode::file, "dspp: batches need at least " + std::to_string(config.sequence + 1) +
                              " bytes to train on (one sequence and its last target), but the text has " +
                              std::to_string(text->training_bytes) + ". Shorten the sequence or give more text.");
  return {std::move(text), {.config = config, .share = share, .count = config.steps * config.accumulate}};
}

inline detail::BatchRange windows(std::shared_ptr<const Text> text, const WindowConfig& config, DataShare share) {
  detail::check_batch(config.micro_batch, config.sequence, share);
  const Size bytes = std::ssize(text->validation());
  const Size all = bytes > 0 ? (bytes - 1) / config.sequence : 0;
  if (all < share.ranks)
    fail(ErrorCode::file, "dspp: windows need at least " + std::to_string(config.sequence * share.ranks + 1) +
                              " held-out bytes (one sequence for each data rank and a last target), but the text has " +
                              std::to_string(bytes) + ". Shorten the sequence or give more text.");
  const Size micro_batch = std::min(config.micro_batch, all / share.ranks);
  const Size row = micro_batch * share.ranks;
  const Size wanted =
      config.at_least_tokens > 0 ? (config.at_least_tokens + config.sequence - 1) / config.sequence : all;
  const Size taken = std::min(round_up(wanted, row), all / row * row);
  return {std::move(text),
          {.config = {.micro_batch = micro_batch, .sequence = config.sequence, .steps = taken / row},
           .share = share,
           .count = taken / row,
           .windows = taken,
           .windows_in_all = all,
           .held_out = true}};
}

}  // namespace dspp
