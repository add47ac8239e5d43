// SPDX-License-Identifier: Apache-2.0
// labels: engine thread
// Sources of a user's own: one stream of samples for every world, cut as the fields say.
#include <doctest/doctest.h>

#include <laws/own_source.hpp>
#include <support/far_device.hpp>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <dspp/dspp.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Taken {
  std::vector<Size> samples;  // in the order of the stream
  Size next = 0;
};

/// The samples that a run takes. Checks every element of every rank's batches, and that all ranks of Cp and Tp agree.
template <class P>
Taken taken(int ranks, const BatchSizes& sizes, const data::BatchConfig& config, const PatchSource& source = {}) {
  const int data_ranks = ranks / (P::tp * P::cp);
  const Size global = sizes.micro_batch * sizes.accumulate * data_ranks, own = source.patches / P::cp;
  Taken run;
  run.samples.assign(static_cast<std::size_t>(global * config.steps), -1);
  std::mutex mutex;
  run_ranks_of<P>(RunOptions{.ranks = ranks}, [&](World<P>& world) {
    const auto data = batches(world, source, sizes, config);
    CHECK(data.size() == config.steps * sizes.accumulate);
    Size number = 0;
    for (const auto& batch : data) {
      const std::lock_guard lock(mutex);
      REQUIRE(batch.pixels.shape() == shape(sizes.micro_batch, own, source.pixels));
      REQUIRE(batch.labels.shape() == shape(sizes.micro_batch, own));
      const Size step = number / sizes.accumulate, micro = number++ % sizes.accumulate;
      batch.weight.value().read([&](const float* weight) {
        batch.labels.value().read([&](const std::int32_t* labels) {
          batch.pixels.value().read([&](const float* pixels) {
            for (Size row = 0; row < sizes.micro_batch; ++row) {
              const auto sample = static_cast<Size>(weight[row]);
              for (Size i = 0; i < own; ++i) {
                const Size patch = world.cp_rank() * own + i;
                CHECK(labels[row * own + i] == sample + patch);
                for (Size j = 0; j < source.pixels; ++j)
                  CHECK(pixels[(row * own + i) * source.pixels + j] == PatchSource::pixel(sample, patch, j));
              }
              const Size place = step * global + (micro * data_ranks + world.data_rank()) * sizes.micro_batch + row;
              Size& there = run.samples[static_cast<std::size_t>(place)];
              CHECK((there == -1 || there == sample));
              there = sample;
            }
          });
        });
      });
    }
    const std::lock_guard lock(mutex);
    run.next = data.next_sample(config.steps);
  });
  return run;
}

template <class P>
std::string refusal(auto make, int ranks = 1) {
  try {
    run_ranks_of<P>(RunOptions{.ranks = ranks},
                    [&](World<P>& world) { batches(world, make(world.rank()), {.micro_batch = 2}, {.steps = 2}); });
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Tokens k, k + 1, ... for sample k.
struct Counting {
  template <class P>
  using Batch = dspp::Batch<DeviceOf<P>>;
  Size size(const BatchSizes& sizes) const { return 32 - sizes.sequence; }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape(sizes.sequence)); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(sample) + static_cast<std::int32_t>(i), targets[i] = tokens[i] + 1;
  }
};

struct Unprinted {  // without a fingerprint: three samples are compared
  template <class Q>
  using Batch = PairBatch<Q>;
  int rank = 0;
  Size size() const { return 9; }
  auto shapes() const { return std::tuple(shape(2), shape(2), shape()); }
  void fill(Size sample, std::span<float> left, std::span<float>, std::span<std::int32_t> match) const {
    left[1] = sample == 8 ? static_cast<float>(rank) : 0;
    match[0] = static_cast<std::int32_t>(sample);
  }
};
struct Flat : Unprinted {
  auto shapes() const { return std::tuple(shape(), shape(2), shape()); }
};
struct Doubles : Unprinted {
  void fill(Size, std::span<float>, std::span<double>, std::span<std::int32_t>) const {}
};

}  // namespace

TEST_CASE("samples of an own source are one stream of epochs, whatever shares and cuts them") {
  const Taken one = taken<Policy<>>(1, {.micro_batch = 12}, {.steps = 5, .seed = 3});
  REQUIRE(one.samples.size() == 60);
  for (Size p = 0; p < 60; ++p) CHECK(one.samples[static_cast<std::size_t>(p)] == data::sample_at(3, p, 17));
  CHECK(one.next == 60);
  for (const Size prefetch : {0, 1, 3}) {
    CAPTURE(prefetch);
    const data::BatchConfig config{.steps = 5, .seed = 3, .prefetch = prefetch};
    CHECK(taken<Policy<>>(2, {.micro_batch = 6}, config).samples == one.samples);
    CHECK(taken<Policy<>>(3, {.micro_batch = 2, .accumulate = 2}, config).samples == one.samples);
    CHECK(taken<Policy<Cp<2>>>(2, {.micro_batch = 4, .accumulate = 3}, config).samples == one.samples);
    CHECK(taken<Policy<Cp<2>, Tp<2>>>(4, {.micro_batch = 12}, config).samples == one.samples);
    CHECK(taken<Policy<Cp<4>>>(4, {.micro_batch = 12}, config).samples == one.samples);
    CHECK(taken<Policy<F32, Far>>(2, {.micro_batch = 6}, config).samples == one.samples);
  }
}

TEST_CASE("a run over an own source resumes at the exact sample, with other ranks and another global batch") {
  const Taken whole = taken<Policy<>>(1, {.micro_batch = 10}, {.steps = 9});
  Taken run = taken<Policy<>>(3, {.micro_batch = 5, .accumulate = 2}, {.steps = 2});
  CHECK(run.next == 60);
  const Taken rest = taken<Policy<Cp<2>>>(4, {.micro_batch = 3}, {.steps = 5, .first_sample = run.next});
  CHECK(rest.next == 90);
  run.samples.insert(run.samples.end(), rest.samples.begin(), rest.samples.end());
  CHECK(run.samples == whole.samples);
}

TEST_CASE("a source of tokens trains a model of tokens, with the same losses for every number of ranks") {
  constexpr GptConfig config{.layers = 1, .width = 8, .heads = 2, .vocabulary = 33, .sequence = 6};
  const auto losses = [&](int ranks) {
    std::vector<double> all;
    run_ranks_of<Policy<F64>>(RunOptions{.ranks = ranks}, [&](World<Policy<F64>>& world) {
      const BatchSizes sizes{.micro_batch = 4 / ranks, .sequence = 6, .accumulate = 2};
      Engine engine{world, Gpt<Policy<F64>>(config), AdamW{.lr = 1e-2}, sizes};
      const auto data = batches(world, Counting{}, sizes, {.steps = 3, .prefetch = 1});
      for (Size step = 0; step < 3; ++step) {
        const auto report = engine.train_batch(data.step(step));
        if (world.is_first()) all.push_back(report->loss);
      }
    });
    return all;
  };
  const auto one = losses(1), two = losses(2);
  REQUIRE(one.size() == 3);
  CHECK(one[2] < one[0]);
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(one[i] - two[i]) < 1e-12);
}

TEST_CASE("ranks with other samples, fingerprints or shapes are refused, and so are spans that no field has") {
  using P = Policy<>;
  CHECK(refusal<P>([](int) { return PatchSource{}; }, 2) == "no error");
  CHECK(refusal<P>([](int rank) { return PatchSource{.samples = 17 + rank}; }, 2) ==
        "dspp: batches() needs the same on every rank, but 'samples' is 18 on rank 1 and 17 on rank 0. Start all ranks "
        "with the same program, options and files.");
  CHECK(refusal<P>([](int rank) { return PatchSource{.print = rank == 2 ? 1u : 0u}; }, 3) ==
        "dspp: batches() needs the same on every rank, but 'digest of the data' is 0000000000000001 on rank 2 and "
        "0000000000000000 on the others. Start all ranks with the same program, options and files.");
  CHECK(refusal<P>([](int rank) { return PatchSource{.patches = 4 + rank}; }, 2) ==
        "dspp: batches() needs the same on every rank, but 'bytes of a sample's 'pixels'' is 60 on rank 1 and 48 on "
        "rank 0. Start all ranks with the same program, options and files.");
  CHECK(refusal<P>([](int) { return PatchSource{.samples = 0}; }) ==
        "dspp: batches need a source with at least one sample, but its size is less (size 0). Give it samples.");
  CHECK(refusal<Policy<Cp<3>>>([](int) { return PatchSource{}; }, 3) ==
        "dspp: a batch needs a sequence that the Cp degree divides, but 'pixels' has 4 positions and Cp is 3. Change "
        "the sequence or Cp<n>.");
  CHECK(refusal<P>([](int) { return PatchSource{.pixels = 0}; }) ==
        "dspp: a source needs extents of at least 1, but a sample of 'pixels' has one of 0. Leave the field out of "
        "visit, or change shapes().");
  CHECK(refusal<P>([](int) { return Unprinted{}; }, 2) == "no error");
  CHECK(refusal<P>([](int rank) { return Unprinted{rank}; }, 2).find("'digest of the data' is ") != std::string::npos);
  CHECK(refusal<P>([](int) { return Flat{}; }) ==
        "dspp: a source needs spans and shapes as the fields of its batch are, but 'left' has 1 extents a sample and "
        "elements of f32, and its span 0 and f32. Give both in the order of visit.");
  CHECK(refusal<P>([](int) { return Doubles{}; }) ==
        "dspp: a source needs spans and shapes as the fields of its batch are, but 'right' has 1 extents a sample and "
        "elements of f32, and its span 1 and f64. Give both in the order of visit.");
}

namespace {
/// Its stream is not wrapped.
struct Endless : PatchSource {
  Size sample_at(std::uint64_t, Size position) const { return position; }
};

/// A batch that no engine takes: tensors, which no placement says how to cut.
struct Rows {
  template <class P>
  struct Batch {
    Tensor<float, 2> features;
    Tensor<float, 1> target;
    constexpr void visit(auto&& f) { f("features", features), f("target", target); }
  };
  Size size() const { return 4; }
  auto shapes() const { return std::tuple(shape(4), shape()); }
  void fill(Size sample, std::span<float> features, std::span<float> target) const {
    for (std::size_t i = 0; i < 4; ++i) features[i] = static_cast<float>(sample) + 0.25f * static_cast<float>(i);
    target[0] = static_cast<float>(sample);
  }
};
}  // namespace

TEST_CASE("a sample_at that leaves the source is an error where it does") {
  using P = Policy<>;
  const auto read = [](Size steps) {
    run_ranks_of<P>({}, [&](World<P>& world) {
      for (const auto& batch : batches(world, Endless{{.samples = 6}}, {.micro_batch = 3}, {.steps = steps}))
        CHECK(batch.weight.shape() == shape(3));
    });
  };
  CHECK_NOTHROW(read(2));
  CHECK_THROWS_WITH_AS(read(3),
                       "dspp: a source's sample_at needs to give samples in [0, 6), but gave 6 for position 6. Change "
                       "it, or size().",
                       Error);
}

TEST_CASE("Cp cuts no plain tensor of a batch of one's own") {
  using P = Policy<Cp<2>>;
  run_ranks_of<P>({.ranks = 2}, [](World<P>& world) {
    for (const auto& batch : batches(world, Rows{}, {.micro_batch = 2}, {.steps = 2})) {
      REQUIRE(batch.features.shape() == shape(2, 4));
      batch.features.read([&](const float* features) {
        batch.target.read([&](const float* target) {
          for (Size i = 0; i < 8; ++i) CHECK(features[i] == target[i / 4] + 0.25f * static_cast<float>(i % 4));
        });
      });
    }
  });
}
