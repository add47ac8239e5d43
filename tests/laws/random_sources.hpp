// SPDX-License-Identifier: Apache-2.0
/// The law of drawn data: blends of sources, and buckets by length, give every world one order of samples, which a run
/// resumes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/data/sample_order.hpp>
#include <dspp/engine/blend.hpp>
#include <dspp/engine/bucket_batches.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/nn/layer.hpp>
#include <laws/random_tasks.hpp>

namespace dspp::laws {

/// Draws sources and two worlds under P, of which the second resumes where the first stops, and fails with the smallest
/// draw whose order is another than that of one rank, or no order of epochs.
///
/// DSPP_RANDOM_MODELS and DSPP_RANDOM_SEED are those of check_random_models.
template <class P>
void check_random_sources(int draws);

struct DrawnSource {
  Size samples = 1;
  double weight = 1;
};

/// How a run takes the samples.
struct DrawnWorld {
  int data = 1;
  Size micro_batch = 1, accumulate = 1, prefetch = 0;
  bool backwards = false;  ///< the last step first
};

/// Sources that are blended, in the order of an own stride if there is one; or one source, in buckets if they have
/// lengths.
struct DrawnData {
  std::uint64_t seed = 1;
  Size sequence = 4;  ///< of the longest sample
  std::vector<DrawnSource> sources;
  Size stride = 0;
  std::vector<Size> lengths{};  ///< of buckets
  Size tokens = 0;              ///< of a step in buckets, at most
  Size looked_at = 1;           ///< samples of the stream; in buckets, steps
  DrawnWorld worlds[2];
  Size stop = 0;         ///< steps of the first world
  bool by_step = false;  ///< the second one resumes at that step, with the global batch of the first
};

std::string text_of(const DrawnData& data);
DrawnData draw_data(std::uint64_t seed, Size cp);

template <class P>
struct NumberedBatch {
  Tokens<P> tokens;                  // [rows, sequence]
  Input<P, std::int32_t, 1> number;  // [rows]
  constexpr void visit(auto&& f) { f("tokens", tokens), f("number", number); }
};

inline constexpr std::int32_t no_number = -1, no_token = -2;

/// Token `position` of the sample with this number.
constexpr std::int32_t token_of(std::int32_t number, Size position) {
  return (number * 31 + static_cast<std::int32_t>(position) * 7) % 1009;
}

/// Sample n has the number 100000 mark + n, and tokens of it.
struct NumberedSamples {
  template <class P>
  using Batch = NumberedBatch<P>;
  Size samples = 1, longest = 1;
  std::int32_t mark = 0;

  Size size() const { return samples; }
  Size length(Size sample) const { return 1 + (5 * sample + mark) % longest; }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape()); }
  auto padding() const { return std::tuple(no_token, no_number); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> number) const {
    number[0] = 100000 * mark + static_cast<std::int32_t>(sample);
    for (Size i = 0; i < length(sample); ++i) tokens[static_cast<std::size_t>(i)] = token_of(number[0], i);
  }
};
/// In an order of its own.
struct StridingSamples : NumberedSamples {
  Size stride = 1;
  Size sample_at(std::uint64_t seed, Size position) const {
    return (static_cast<Size>(seed % 1000) + position * stride) % samples;
  }
};

// ---------------------------------------------------------------------------------------------------------------------

inline std::string text_of(const DrawnData& data) {
  const auto number = [](auto n) { return std::to_string(n); };
  std::string text = "seed " + number(data.seed) + ": sequence " + number(data.sequence) + ", sources";
  for (const DrawnSource& source : data.sources) text += " " + number(source.samples) + " of " + number(source.weight);
  text += ", stride " + number(data.stride) + ", buckets";
  for (const Size length : data.lengths) text += " " + number(length);
  text += " of " + number(data.tokens) + ", looked at " + number(data.looked_at);
  for (const DrawnWorld& world : data.worlds)
    text += "; data " + number(world.data) + ", micro_batch " + number(world.micro_batch) + ", accumulate " +
            number(world.accumulate) + ", prefetch " + number(world.prefetch) + (world.backwards ? ", backwards" : "");
  return text + "; stop " + number(data.stop) + (data.by_step ? " by step" : "");
}

inline DrawnData draw_data(std::uint64_t seed, Size cp) {
  detail::Dice dice(seed + 31);
  DrawnData drawn{.seed = seed, .sequence = cp * dice.from(1, 6)};
  const bool buckets = dice.one_in(2);
  const bool far = !buckets && dice.one_in(5);  // beyond what an order keeps at once
  const Size sources = buckets ? 1 : dice.from(1, 5);
  for (Size k = 0; k < sources; ++k)
    drawn.sources.push_back({dice.from(1, dice.of<Size>({3, 20, 90})), dice.of({1.0, 0.5, 3.0, 0.07, 11.0})});
  if (!buckets && dice.one_in(3)) drawn.stride = dice.from(1, 7);
  for (Size length = cp; buckets && length < drawn.sequence; length += cp)
    if (dice.one_in(2)) drawn.lengths.push_back(length);
  if (buckets) drawn.lengths.push_back(drawn.sequence), drawn.tokens = drawn.sequence * dice.from(1, 6);
  drawn.looked_at = far ? dice.from(5000, 9000) : buckets ? dice.from(1, 40) : dice.from(1, 200);
  drawn.by_step = dice.one_in(3);
  for (DrawnWorld& world : drawn.worlds) {
    world.data = static_cast<int>(dice.from(1, 4));
    world.micro_batch = far ? dice.from(200, 300) : dice.from(1, 5);
    world.accumulate = dice.from(1, 3), world.prefetch = dice.of<Size>({0, 1, 2, 4}), world.backwards = dice.one_in(3);
  }
  if (drawn.by_step) drawn.worlds[1] = drawn.worlds[0];
  const DrawnWorld& first = drawn.worlds[0];
  drawn.stop =
      dice.from(0, buckets ? drawn.looked_at : drawn.looked_at / (first.micro_batch * first.accumulate * first.data));
  return drawn;
}

namespace detail {

/// What a world took.
struct TakenSamples {
  std::vector<std::vector<std::int32_t>> steps{};  ///< the numbers of each, in the order of the global batch
  Size next = 0;
  std::uint64_t digest = 0;
  std::string fault{};

  std::vector<std::int32_t> all() const {
    std::vector<std::int32_t> numbers;
    for (const auto& step : steps) numbers.insert(numbers.end(), step.begin(), step.end());
    return numbers;
  }
};

/// The numbers in a rank's batch, without rows of padding; and a fault unless the tokens are theirs.
template <class P>
std::vector<std::int32_t> numbers_in(const NumberedBatch<P>& batch, Size cp_rank, const DrawnData& data,
                                     std::string& fault) {
  std::vector<std::int32_t> found;
  const Size rows = batch.tokens.shape()[0], own = batch.tokens.shape()[1];
  batch.number.value().read([&](const std::int32_t* numbers) {
    batch.tokens.value().read([&](const std::int32_t* tokens) {
      for (Size i = 0; i < rows; ++i) {
        const bool padding = numbers[i] == no_number;
        const NumberedSamples source{.longest = data.sequence, .mark = numbers[i] / 100000};
        const Size length = padding ? 0 : source.length(numbers[i] % 100000);
        for (Size j = 0, at = cp_rank * own; j < own; ++j, ++at)
          if (tokens[i * own + j] != (at < length ? token_of(numbers[i], at) : no_token)) fault = "other tokens; ";
        if (!padding) found.push_back(numbers[i]);
      }
    });
  });
  return found;
}

/// The steps [config.first_step, + config.steps) of a world, as batches_of(world) has them.
template <class P, class BatchesOf>
TakenSamples taken(const DrawnData& data, const DrawnWorld& like, Size steps, BatchesOf batches_of) {
  TakenSamples all{std::vector<std::vector<std::int32_t>>(static_cast<std::size_t>(steps))};
  const Size parts = like.accumulate * like.data;
  std::vector<std::vector<std::int32_t>> of_parts(static_cast<std::size_t>(steps * parts));
  std::mutex mutex;
  run_ranks_of<P>({.ranks = static_cast<int>(like.data * P::cp * P::tp), .threads_per_rank = 1}, [&](World<P>& world) {
    const auto batches = batches_of(world);
    std::string fault;
    for (Size i = 0; i < steps; ++i) {
      const Size step = like.backwards ? steps - 1 - i : i;
      Size part = step * parts + world.data_rank();
      for (const auto& batch : batches.step(step)) {
        auto numbers = numbers_in<P>(batch, world.cp_rank(), data, fault);
        const std::lock_guard lock(mutex);
        auto& own = of_parts[static_cast<std::size_t>(part)];
        if (!own.empty() && own != numbers) fault += "ranks along Cp have other samples; ";
        own = std::move(numbers);
        part += like.data;
      }
    }
    const std::lock_guard lock(mutex);
    all.next = batches.next_sample(steps), all.digest = batches.data_digest(), all.fault += fault;
  });
  for (Size part = 0; part < steps * parts; ++part) {
    const auto& own = of_parts[static_cast<std::size_t>(part)];
    auto& step = all.steps[static_cast<std::size_t>(part / parts)];
    step.insert(step.end(), own.begin(), own.end());
  }
  return all;
}

inline bool is_prefix(const std::vector<std::int32_t>& whole, const std::vector<std::int32_t>& other) {
  const std::size_t both = std::min(whole.size(), other.size());
  return std::equal(other.begin(), other.begin() + static_cast<long>(both), whole.begin());
}

/// Whether each run of `samples` of the numbers is all of them, the last one as far as it goes.
inline bool is_of_epochs(const std::vector<std::int32_t>& numbers, Size samples) {
  for (std::size_t begin = 0; begin < numbers.size(); begin += static_cast<std::size_t>(samples)) {
    const std::size_t end = std::min(numbers.size(), begin + static_cast<std::size_t>(samples));
    std::vector<std::int32_t> epoch(numbers.begin() + static_cast<long>(begin),
                                    numbers.begin() + static_cast<long>(end));
    std::sort(epoch.begin(), epoch.end());
    if (std::adjacent_find(epoch.begin(), epoch.end()) != epoch.end()) return false;
    if (epoch.front() < 0 || epoch.back() >= samples) return false;
  }
  return true;
}

/// That any prefix has each source's part of the weights, to within one sample, and each source is read in epochs.
inline std::string blend_fault(const DrawnData& data, const std::vector<std::int32_t>& numbers) {
  double sum = 0;
  for (const DrawnSource& source : data.sources) sum += source.weight;
  std::vector<std::vector<std::int32_t>> of_source(data.sources.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    of_source[static_cast<std::size_t>(numbers[i] / 100000)].push_back(numbers[i] % 100000);
    for (std::size_t k = 0; k < of_source.size(); ++k) {
      const double part = data.sources[k].weight / sum * static_cast<double>(i + 1);
      if (std::abs(static_cast<double>(of_source[k].size()) - part) > 1 + 1e-9)
        return "after " + std::to_string(i + 1) + " samples source " + std::to_string(k) + " has another part";
    }
  }
  for (std::size_t k = 0; k < of_source.size(); ++k) {
    const Size samples = data.sources[k].samples;
    if (data.stride == 0 && !is_of_epochs(of_source[k], samples))
      return "source " + std::to_string(k) + " is not read in epochs";
    StridingSamples own;
    own.samples = samples, own.stride = data.stride;
    for (std::size_t i = 0; data.stride > 0 && i < of_source[k].size(); ++i)
      if (of_source[k][i] != own.sample_at(dspp::data::seed_of_stream(data.seed, k), static_cast<Size>(i)))
        return "source " + std::to_string(k) + " is not read in its order";
  }
  return {};
}

/// That a step is of one bucket and within the bound, and that the steps of an epoch have each sample once.
inline std::string bucket_fault(const DrawnData& data, const std::vector<std::vector<std::int32_t>>& steps) {
  const NumberedSamples source{.longest = data.sequence};
  std::vector<std::int32_t> numbers;
  for (const auto& step : steps) {
    Size longest = 0, most = 0;
    for (const std::int32_t number : step) {
      const Size length = *std::lower_bound(data.lengths.begin(), data.lengths.end(), source.length(number));
      if (longest > 0 && length != longest) return "a step is of two buckets";
      longest = length, most += length;
    }
    if (step.empty() || most > data.tokens) return "a step has no samples, or more tokens than the bound";
    numbers.insert(numbers.end(), step.begin(), step.end());
  }
  return is_of_epochs(numbers, data.sources[0].samples) ? std::string() : "an epoch has a sample twice";
}

/// That the worlds take what one rank does, and the second one goes on where the first one stops.
/// `taken_by(like, steps, config)` runs a world.
template <class TakenBy>
std::string order_fault(const DrawnData& data, bool buckets, TakenBy taken_by) {
  const DrawnWorld &first = data.worlds[0], &second = data.worlds[1];
  const auto global = [](const DrawnWorld& world) { return world.micro_batch * world.accumulate * world.data; };
  const DrawnWorld alone{.micro_batch = data.looked_at / 3 + 1};
  const TakenSamples one = taken_by(alone, buckets ? data.looked_at : 4, data::BatchConfig{});
  if (!one.fault.empty()) return "on one rank: " + one.fault;
  // A blend has no end, and its batches no padding.
  const auto misses = [&](const TakenSamples& taken, Size samples) {
    return !buckets && std::ssize(taken.all()) != samples;
  };
  if (misses(one, 4 * alone.micro_batch)) return "on one rank: samples are missing";
  if (std::string fault = buckets ? bucket_fault(data, one.steps) : blend_fault(data, one.all()); !fault.empty())
    return fault;
  const TakenSamples before = taken_by(first, data.stop, data::BatchConfig{});
  if (!before.fault.empty()) return before.fault;
  if (misses(before, data.stop * global(first))) return "samples are missing";
  if (before.digest != one.digest) return "another digest of the data";
  if (!is_prefix(one.all(), before.all())) return "another order than on one rank";
  data::BatchConfig config{.data_digest = before.digest};
  (data.by_step ? config.first_step : config.first_sample) = data.by_step ? data.stop : before.next;
  const Size seen = std::ssize(before.all()), rest = std::max<Size>(0, std::ssize(one.all()) - seen);
  const Size steps = buckets ? data.looked_at - data.stop : rest / global(second) + 1;
  const TakenSamples after = taken_by(second, steps, config);
  if (!after.fault.empty()) return after.fault;
  if (misses(after, steps * global(second))) return "samples are missing where a run was resumed";
  TakenSamples both = before;
  both.steps.insert(both.steps.end(), after.steps.begin(), after.steps.end());
  if (buckets && (both.steps != one.steps || after.next != one.next))
    return "other steps than on one rank where a run was resumed";
  return is_prefix(one.all(), both.all()) ? std::string() : "another order than on one rank where a run was resumed";
}

template <class P, class S>
std::string blended_fault(const DrawnData& data, S like) {
  std::vector<typename Blend<S>::Part> parts;
  for (std::size_t k = 0; k < data.sources.size(); ++k) {
    S& source = parts.emplace_back(typename Blend<S>::Part{like, data.sources[k].weight}).source;
    source.samples = data.sources[k].samples, source.mark = static_cast<std::int32_t>(k);
  }
  return order_fault(data, false, [&](const DrawnWorld& world, Size steps, data::BatchConfig config) {
    const BatchSizes sizes{.micro_batch = world.micro_batch, .sequence = data.sequence, .accumulate = world.accumulate};
    config.steps = steps, config.seed = data.seed, config.prefetch = world.prefetch;
    const Blend<S> blend(parts, sizes);
    return taken<P>(data, world, steps, [&](World<P>& ranks) { return batches(ranks, blend, sizes, config); });
  });
}

template <class P>
std::string in_buckets_fault(const DrawnData& data) {
  const NumberedSamples source{.samples = data.sources[0].samples, .longest = data.sequence};
  return order_fault(data, true, [&](const DrawnWorld& world, Size steps, data::BatchConfig config) {
    config.steps = steps, config.seed = data.seed, config.prefetch = world.prefetch;
    const auto plan =
        bucket_plan(source, {.lengths = data.lengths, .tokens = data.tokens, .accumulate = world.accumulate});
    return taken<P>(data, world, steps, [&](World<P>& ranks) { return batches(ranks, source, plan, config); });
  });
}

template <class P>
std::string fault_of_data(const DrawnData& data) {
  try {
    if (!data.lengths.empty()) return in_buckets_fault<P>(data);
    if (data.stride == 0) return blended_fault<P>(data, NumberedSamples{.longest = data.sequence});
    StridingSamples striding;
    striding.longest = data.sequence, striding.stride = data.stride;
    return blended_fault<P>(data, striding);
  } catch (const Error& error) {
    return error.what();
  }
}

/// Takes away from the draw what it can while it still fails.
inline DrawnData shrink_data(DrawnData data, const std::function<bool(const DrawnData&)>& fails) {
  const auto keep_if_it_fails = [&](auto change) {
    DrawnData smaller = data;
    change(smaller);
    if (!fails(smaller)) return false;
    data = smaller;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    if (data.sources.size() > 1) smaller |= keep_if_it_fails([](DrawnData& d) { d.sources.pop_back(); });
    if (data.lengths.size() > 1) smaller |= keep_if_it_fails([](DrawnData& d) { d.lengths.erase(d.lengths.begin()); });
    if (data.stride > 0) smaller |= keep_if_it_fails([](DrawnData& d) { d.stride = 0; });
    if (data.stop > 0) smaller |= keep_if_it_fails([](DrawnData& d) { d.stop /= 2; });
    for (const int i : {0, 1}) {
      const auto one = [&](auto change) { return keep_if_it_fails([&](DrawnData& d) { change(d.worlds[i]); }); };
      const DrawnWorld& world = data.worlds[i];
      if (data.by_step) continue;  // both are one world
      if (world.prefetch > 0) smaller |= one([](DrawnWorld& w) { w.prefetch = 0; });
      if (world.backwards) smaller |= one([](DrawnWorld& w) { w.backwards = false; });
      if (world.data > 1) smaller |= one([](DrawnWorld& w) { w.data = 1; });
      if (world.accumulate > 1) smaller |= one([](DrawnWorld& w) { w.accumulate = 1; });
      if (world.micro_batch > 1) smaller |= one([](DrawnWorld& w) { w.micro_batch = 1; });
    }
  }
  return data;
}

}  // namespace detail

template <class P>
void check_random_sources(int draws) {
  const std::uint64_t from = detail::number_from("DSPP_RANDOM_SEED", 1);
  const std::uint64_t count = detail::number_from("DSPP_RANDOM_MODELS", static_cast<std::uint64_t>(draws));
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    const DrawnData data = draw_data(seed, P::cp);
    const std::string fault = detail::fault_of_data<P>(data);
    if (fault.empty()) continue;
    const DrawnData small =
        detail::shrink_data(data, [](const DrawnData& d) { return !detail::fault_of_data<P>(d).empty(); });
    FAIL("DSPP_RANDOM_SEED=" << seed << " differs: " << fault << "\n  drawn:  " << text_of(data)
                             << "\n  shrunk: " << text_of(small) << "\n  where:  " << detail::fault_of_data<P>(small));
  }
}

}  // namespace dspp::laws
