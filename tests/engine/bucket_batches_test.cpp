// SPDX-License-Identifier: Apache-2.0
// labels: engine thread
// Batches in buckets: the same steps for every world, padded, resumed at the exact step, trained as on one rank.
#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include <dspp/dspp.hpp>

using namespace dspp;

namespace {

template <class P>
struct SentenceBatch {
  Tokens<P> tokens, targets;
  Input<P, std::int32_t, 1> lengths;
  Size first_sample = 0, accumulate = 0;
  constexpr void visit(auto&& f) { f("tokens", tokens), f("targets", targets), f("lengths", lengths); }
};

/// Sample n has 1 + n mod 11 tokens n, n + 1, ...
struct Sentences {
  template <class P>
  using Batch = SentenceBatch<P>;
  Size samples = 61, offset = 0;

  Size size() const { return samples; }
  Size length(Size sample) const { return 1 + (sample + offset) % 11; }
  auto shapes(const BatchSizes& sizes) const {
    return std::tuple(shape(sizes.sequence), shape(sizes.sequence), shape());
  }
  auto padding() const { return std::tuple(3, ignored_target, 0); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> length_of) const {
    length_of[0] = static_cast<std::int32_t>(length(sample));
    for (std::size_t i = 0; i < static_cast<std::size_t>(length_of[0]); ++i) {
      tokens[i] = static_cast<std::int32_t>(sample) + static_cast<std::int32_t>(i);
      targets[i] = tokens[i] + 1;
    }
  }
};

const data::BucketSizes buckets_of_three{.lengths = {4, 8, 12}, .tokens = 48};

struct Taken {
  std::vector<std::vector<Size>> steps;  // the samples of each, in order
  Size next = 0;
  friend bool operator==(const Taken&, const Taken&) = default;
};

/// The samples of each step. Checks every element of every rank's batches.
template <class P>
Taken taken(int ranks, const data::BucketSizes& sizes, const data::BatchConfig& config) {
  const int data_ranks = ranks / P::cp;
  const Size parts = sizes.accumulate * data_ranks;
  const auto plan = bucket_plan(Sentences{}, sizes);
  std::vector<std::vector<Size>> by_part(static_cast<std::size_t>(config.steps * parts));
  Taken run{std::vector<std::vector<Size>>(static_cast<std::size_t>(config.steps))};
  std::mutex mutex;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    const auto data = batches(world, Sentences{}, plan, config);
    Size number = 0;
    for (const auto& batch : data) {
      const std::lock_guard lock(mutex);
      const Size rows = batch.tokens.shape()[0], own = batch.tokens.shape()[1], length = own * P::cp;
      CHECK((length == 4 || length == 8 || length == 12));
      CHECK(batch.accumulate == sizes.accumulate);
      REQUIRE(batch.lengths.shape() == shape(rows));
      const Size part = number / sizes.accumulate * parts + number % sizes.accumulate * data_ranks + world.data_rank();
      ++number;
      auto& samples = by_part[static_cast<std::size_t>(part)];
      batch.lengths.value().read([&](const std::int32_t* lengths) {
        batch.tokens.value().read([&](const std::int32_t* tokens) {
          batch.targets.value().read([&](const std::int32_t* targets) {
            for (Size i = 0; i < rows * own; ++i) {
              const Size at = world.cp_rank() * own + i % own;
              CHECK(targets[i] == (at < lengths[i / own] ? tokens[i] + 1 : ignored_target));
              if (at >= lengths[i / own]) CHECK(tokens[i] == 3);
              if (at == 0 && lengths[i / own] > 0) samples.push_back(tokens[i]);
            }
            for (Size row = 0; row < rows; ++row) CHECK(lengths[row] <= length);
          });
        });
      });
    }
    const std::lock_guard lock(mutex);
    run.next = data.next_sample(config.steps);
  });
  for (Size part = 0; part < config.steps * parts; ++part) {
    auto& step = run.steps[static_cast<std::size_t>(part / parts)];
    const auto& own = by_part[static_cast<std::size_t>(part)];
    step.insert(step.end(), own.begin(), own.end());
  }
  return run;
}

}  // namespace

TEST_CASE("the steps of buckets are the same for every world, and take each sample once an epoch") {
  const Size steps = bucket_plan(Sentences{}, buckets_of_three).steps();
  const Taken one = taken<Policy<>>(1, buckets_of_three, {.steps = 2 * steps, .seed = 3});
  CHECK(one.next == 122);
  for (const Size epoch : {Size{0}, steps}) {
    std::vector<int> times(61);
    for (Size step = epoch; step < epoch + steps; ++step)
      for (const Size sample : one.steps[static_cast<std::size_t>(step)]) ++times[static_cast<std::size_t>(sample)];
    CHECK(times == std::vector<int>(61, 1));
  }
  data::BucketSizes twice = buckets_of_three;
  twice.accumulate = 2;
  const data::BatchConfig config{.steps = 2 * steps, .seed = 3, .prefetch = 2};
  CHECK(taken<Policy<>>(2, buckets_of_three, config) == one);
  CHECK(taken<Policy<>>(3, twice, config) == one);
  CHECK(taken<Policy<Cp<2>>>(4, buckets_of_three, config) == one);
  CHECK(taken<Policy<>>(4, buckets_of_three, config) == one);
}

TEST_CASE("a stopped run in buckets resumes at the exact step, by steps or by samples, with other ranks") {
  const Taken whole = taken<Policy<>>(1, buckets_of_three, {.steps = 25});
  for (const Size stop : {1, 8, 12, 20}) {
    CAPTURE(stop);
    const Taken before = taken<Policy<>>(2, buckets_of_three, {.steps = stop});
    const std::vector<std::vector<Size>> rest(whole.steps.begin() + stop, whole.steps.end());
    const Taken by_samples = taken<Policy<>>(3, buckets_of_three, {.steps = 25 - stop, .first_sample = before.next});
    CHECK(by_samples.steps == rest);
    CHECK(by_samples.next == whole.next);
    CHECK(taken<Policy<>>(1, buckets_of_three, {.steps = 25 - stop, .first_step = stop}).steps == rest);
  }
}

namespace {
/// The mean of the counted tokens' losses, by a table of bigrams.
template <class P>
struct Bigrams : Layer<P> {
  Embedding<P> embed{80, 8};
  ColumnParallel<Linear, P> head{8, 80};
  Dropout<P> dropout{0.2};
  constexpr explicit Bigrams(Size) {}
  constexpr void visit(auto&& f) { f("embed", embed), f("head", head), f("dropout", dropout); }
  constexpr Loss<P> loss(const SentenceBatch<P>& batch) const {
    return cross_entropy<P>(head(dropout(embed(batch.tokens))), batch.targets, 80);
  }
  constexpr SentenceBatch<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    SentenceBatch<P> batch;
    const auto ids = [&] {
      return Tensor<std::int32_t, 2, D>::uninitialized(shape(sizes.micro_batch, sizes.sequence / P::cp), memory,
                                                       Category::data);
    };
    batch.tokens = ids(), batch.targets = ids();
    batch.lengths = Tensor<std::int32_t, 1, D>::uninitialized(shape(sizes.micro_batch), memory, Category::data);
    return batch;
  }
};

template <class P>
std::vector<double> losses(int ranks, Size accumulate) {
  std::vector<double> all;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    data::BucketSizes sizes = buckets_of_three;
    sizes.accumulate = accumulate;
    const auto buckets = bucket_plan(Sentences{}, sizes);
    const int data_ranks = world.data_size();
    Size largest = 0;
    for (const auto& bucket : buckets.buckets()) {
      const Plan paper = plan<Bigrams<P>>(Size{1}, buckets.sizes_of(bucket, data_ranks), {.data = data_ranks});
      largest = std::max(largest, paper.peak);
    }
    Engine engine{world, Bigrams<P>(1), AdamW{.lr = 1e-2}, buckets.engine_sizes(data_ranks), {.check_ranks = 1}};
    const auto data = batches(world, Sentences{}, buckets, {.steps = 14});
    for (Size step = 0; step < 14; ++step) {
      const auto report = engine.train_batch(data.step(step));
      if (world.is_first()) all.push_back(report->loss);
    }
    CHECK(world.memory().peak() == largest);
  });
  return all;
}
}  // namespace

TEST_CASE("batches of every bucket train with the losses of one rank, dropout too, at the largest plan's memory") {
  const auto one = losses<Policy<F64>>(1, 1);
  REQUIRE(one.size() == 14);
  const auto same = [&](const std::vector<double>& other) {
    REQUIRE(other.size() == one.size());
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(other[i] - one[i]) < 1e-12);
  };
  same(losses<Policy<F64, Zero<2>>>(3, 1));
  same(losses<Policy<F64, Zero<1>, Cp<2>>>(4, 2));
  same(losses<Policy<F64>>(4, 4));  // more batches than the samples of a step: some are padding alone
}

TEST_CASE("other buckets, plans and lengths on a rank are refused") {
  using P = Policy<>;
  const auto refusal = [](auto plan_of, int ranks = 2) -> std::string {
    try {
      run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
        const auto data = batches(world, Sentences{}, plan_of(world.rank()), {.steps = 12});
        for (const auto& batch : data) CHECK(batch.tokens.shape()[1] <= 12);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(refusal([](int) { return bucket_plan(Sentences{}, buckets_of_three); }) == "no error");
  CHECK(refusal([](int rank) {
          return bucket_plan(Sentences{}, {.lengths = {4, 8, 12}, .tokens = 48 + rank});
        }).find("'tokens of a step' is 49 on rank 1 and 48 on rank 0.") != std::string::npos);
  CHECK(refusal([](int rank) { return bucket_plan(Sentences{.offset = 11 * rank}, buckets_of_three); }) == "no error");
  CHECK(refusal([](int rank) {
          return bucket_plan(Sentences{.offset = rank}, buckets_of_three);
        }).find("'samples in") != std::string::npos);
  CHECK(refusal([](int) { return bucket_plan(Sentences{.samples = 60}, buckets_of_three); }, 1) ==
        "dspp: batches in buckets need the plan of their own source, but its samples are another number (samples of "
        "the plan 60, of the source 61). Make it by bucket_plan(source, sizes).");
  CHECK(refusal([](int) { return bucket_plan(Sentences{.offset = 6}, buckets_of_three); }, 1)
            .find("dspp: batches in buckets need the plan of their own source, but sample ") == 0);
}
