// SPDX-License-Identifier: Apache-2.0
/// Batches of tokens to train on, the same for every world size, and consecutive windows to evaluate on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/batch_range.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/data/text.hpp>

namespace dspp::data {

/// Evaluation windows, which do not overlap; with a limit, windows of that many tokens in total, evenly spaced.
struct WindowConfig {
  Size at_least_tokens = 0;  ///< enough windows for this many, rounded up; 0: all that fit
};

/// Random sequences of the training part: steps x accumulate batches, this rank's share of each. Sample g of a step's
/// global batch is the same for every number of ranks: g = (micro_step ranks + rank) micro_batch + row.
///
/// Memory   shares the text; one batch of 8 micro_batch sequence bytes, rewritten by every step of the iteration
/// Throws   Error(file) if the training part is shorter than one sequence and its last target; Error(usage)
/// Example  for (const TokenBatch& batch : batches(text, sizes, {.steps = 100})) ...
BatchRange batches(std::shared_ptr<const Text> text, const BatchSizes& sizes, const BatchConfig& config = {},
                   DataShare share = {});

/// The windows of the validation part: every rank gets equally many batches of equal size, so the mean of their losses
/// is the mean over all windows. The remainder, less than one batch per rank, is dropped; if there are fewer windows
/// than micro_batch x ranks, the batches are smaller. The sizes' accumulate is ignored.
///
/// Throws   Error(file) if the validation part has less than one window per rank; Error(usage)
BatchRange windows(std::shared_ptr<const Text> text, const BatchSizes& sizes, const WindowConfig& config = {},
                   DataShare share = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

void check_batch(const BatchSizes& sizes, DataShare share);
void check_training(const BatchSizes& sizes, const BatchConfig& config, DataShare share);

/// Names for the error of data that are too short for a sequence, or for a window per rank.
struct Source {
  const char* units;  // "bytes"
  const char* whole;  // "the text has"
};
inline constexpr Source text_source{"bytes", "the text has"};

[[noreturn]] void refuse_short(const char* who, Size needed, const std::string& what, const std::string& why, Size got,
                               const Source& source);

void check_length(Size tokens, Size sequence, const Source& source);
BatchRange::Plan window_plan(Size tokens, const BatchSizes& sizes, const WindowConfig& config, DataShare share,
                             const Source& source);

/// Reads a part of a text, which lives as long as the reader.
BatchRange::Read read_bytes(std::shared_ptr<const Text> text, bool held_out);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void check_batch(const BatchSizes& sizes, DataShare share) {
  require(sizes.micro_batch >= 1, "dspp: batches need a micro-batch of at least 1, but it is less. Raise micro_batch.");
  require(sizes.sequence >= 1, "dspp: batches need a sequence of at least 1, but it is less. Raise sequence.");
  require(share.ranks >= 1 && share.rank >= 0 && share.rank < share.ranks,
          "dspp: batches need a data rank in [0, ranks), but it is outside. Pass the rank and size of the data axis.");
}

DSPP_INLINE void check_training(const BatchSizes& sizes, const BatchConfig& config, DataShare share) {
  check_batch(sizes, share);
  require(config.steps >= 0 && config.first_step >= 0 && config.first_sample >= 0,
          "dspp: batches need steps that are not negative, but they are. Change steps.");
  require(sizes.accumulate >= 1, "dspp: batches need accumulate of at least 1, but it is less. Raise accumulate.");
  require(config.first_step == 0 || config.first_sample == 0,
          "dspp: batches need first_step or first_sample, but got both. Leave out one.");
  Size global_batch = 0, samples = 0;
  const bool too_far = __builtin_mul_overflow(sizes.micro_batch, sizes.accumulate, &global_batch) ||
                       __builtin_mul_overflow(global_batch, share.ranks, &global_batch) ||
                       __builtin_add_overflow(config.first_step, config.steps, &samples) ||
                       __builtin_mul_overflow(samples, global_batch, &samples) ||
                       __builtin_add_overflow(samples, config.first_sample, &samples);
  require(!too_far,
          "dspp: batches need samples that 63 bits count, but the last ones are beyond. Lower first_step, steps or the "
          "batch.",
          ErrorCode::usage, {{"first_step", config.first_step}, {"first_sample", config.first_sample}});
}

DSPP_INLINE void refuse_short(const char* who, Size needed, const std::string& what, const std::string& why, Size got,
                              const Source& source) {
  fail(ErrorCode::file, std::string("dspp: ") + who + " need at least " + std::to_string(needed) + " " + what + " (" +
                            why + "), but " + source.whole + " " + std::to_string(got) +
                            ". Shorten the sequence or give more text.");
}

DSPP_INLINE void check_length(Size tokens, Size sequence, const Source& source) {
  if (tokens <= sequence)
    refuse_short("batches", sequence + 1, std::string(source.units) + " to train on",
                 "one sequence and its last target", tokens, source);
}

DSPP_INLINE BatchRange::Plan window_plan(Size tokens, const BatchSizes& sizes, const WindowConfig& config,
                                         DataShare share, const Source& source) {
  check_batch(sizes, share);
  const Size all = tokens > 0 ? (tokens - 1) / sizes.sequence : 0;
  if (all < share.ranks)
    refuse_short("windows", sizes.sequence * share.ranks + 1, std::string("held-out ") + source.units,
                 "one sequence for each data rank and a last target", tokens, source);
  const Size micro_batch = std::min(sizes.micro_batch, all / share.ranks);
  const Size row = micro_batch * share.ranks;
  const Size wanted = config.at_least_tokens > 0 ? (config.at_least_tokens + sizes.sequence - 1) / sizes.sequence : all;
  const Size taken = std::min(round_up(wanted, row), all / row * row);
  return {.sizes = {.micro_batch = micro_batch, .sequence = sizes.sequence},
          .config = {.steps = taken / row},
          .share = share,
          .count = taken / row,
          .tokens = tokens,
          .windows = taken,
          .windows_in_all = all};
}

DSPP_INLINE BatchRange::Read read_bytes(std::shared_ptr<const Text> text, bool held_out) {
  return [owned = std::move(text), held_out](Size first, Size count, std::int32_t* out) {
    const ByteSpan part = held_out ? owned->validation() : owned->training();
    std::copy_n(part.data() + first, count, out);
  };
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE BatchRange batches(std::shared_ptr<const Text> text, const BatchSizes& sizes, const BatchConfig& config,
                               DataShare share) {
  detail::check_training(sizes, config, share);
  detail::check_length(text->training_bytes, sizes.sequence, detail::text_source);
  BatchRange::Plan plan{.sizes = sizes, .config = config, .share = share, .count = config.steps * sizes.accumulate};
  plan.tokens = text->training_bytes;
  plan.print = text->digest();
  const Size global_batch = sizes.micro_batch * sizes.accumulate * share.ranks;
  if (config.first_sample % global_batch != 0)
    fail(ErrorCode::usage, "dspp: batches of a text need a first_sample that the global batch divides, but " +
                               std::to_string(config.first_sample) + " is not a multiple of " +
                               std::to_string(global_batch) + ". Keep the global batch of the run before.");
  plan.config.first_step += std::exchange(plan.config.first_sample, 0) / global_batch;
  return {detail::read_bytes(std::move(text), false), plan};
}

DSPP_INLINE BatchRange windows(std::shared_ptr<const Text> text, const BatchSizes& sizes, const WindowConfig& config,
                               DataShare share) {
  auto plan = detail::window_plan(std::ssize(text->validation()), sizes, config, share, detail::text_source);
  plan.print = text->digest();
  return {detail::read_bytes(std::move(text), true), plan};
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
