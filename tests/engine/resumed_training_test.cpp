// SPDX-License-Identifier: Apache-2.0
// Trainings on buckets and on documents that stop in mid-epoch, and go on from their checkpoint in a new engine.
// labels: engine thread
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/data/shard_writer.hpp>
#include <dspp/dspp.hpp>
#include <dspp/engine/token_samples.hpp>

#include <laws/difference.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64, Zero<2>>;

/// A run of `ranks` that ends after step `end`. It saves in `folder` after every step in `saves`, and goes on from
/// its newest checkpoint if `resumes`.
struct Part {
  std::string folder;
  int ranks = 3;
  Size end = 0;
  std::vector<Size> saves{};
  bool resumes = false;
};

/// The losses of the steps of a part. `make_engine(world)` and `batches_from(world, config)` belong together.
template <class MakeEngine, class BatchesFrom>
std::vector<double> losses_of(const Part& part, const MakeEngine& make_engine, const BatchesFrom& batches_from) {
  std::vector<double> losses;
  run_ranks_of<P>({.ranks = part.ranks, .threads_per_rank = 1, .seed = 9}, [&](World<P>& world) {
    auto engine = make_engine(world);
    data::BatchConfig config{.seed = 3, .prefetch = 2};
    if (part.resumes) {
      const TrainingPosition from = load_checkpoint(*engine, part.folder).position;
      config.seed = from.seed, config.first_sample = from.next_sample, config.data_digest = from.data_digest;
    }
    const Size begin = engine->steps();
    config.steps = part.end - begin;
    const auto data = batches_from(world, config);
    for (Size step = begin; step < part.end; ++step) {
      const StepReport report = engine->train_batch(data.step(step - begin));
      if (world.is_first()) losses.push_back(report.loss);
      if (std::ranges::find(part.saves, step + 1) == part.saves.end()) continue;
      save_checkpoint(*engine, part.folder,
                      {.position = {.next_sample = data.next_sample(step + 1 - begin),
                                    .seed = config.seed,
                                    .data_digest = data.data_digest()}});
    }
  });
  return losses;
}

/// A training of `end` steps on three ranks is that of its first `stop` steps and of the others, resumed: losses and
/// last checkpoint in all bits on three ranks, and to rounding on one and two.
template <class MakeEngine, class BatchesFrom>
void check_resumed(Size stop, Size end, const MakeEngine& make_engine, const BatchesFrom& batches_from) {
  const Folder folder;
  const auto run = [&](const Part& part) { return losses_of(part, make_engine, batches_from); };
  const auto whole = run({.folder = folder.file("whole"), .end = end, .saves = {end}});
  REQUIRE(std::ssize(whole) == end);
  const std::vector<double> first(whole.begin(), whole.begin() + stop), rest(whole.begin() + stop, whole.end());
  for (const int ranks : {3, 1, 2}) {
    CAPTURE(ranks);
    const std::string parts = folder.file("parts" + std::to_string(ranks));
    // the stopped run goes on for a step that is lost
    const auto before = run({.folder = parts, .end = stop + 1, .saves = {stop}});
    CHECK(std::equal(first.begin(), first.end(), before.begin()));
    const auto after = run({.folder = parts, .ranks = ranks, .end = end, .saves = {end}, .resumes = true});
    CHECK(worst_difference(after, rest) < 1e-12);
    if (ranks != 3) continue;
    CHECK(after == rest);
    const std::string tag = "step_" + std::string(8 - std::to_string(end).size(), '0') + std::to_string(end) + "/";
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK(folder.read("parts3/" + tag + file) == folder.read("whole/" + tag + file));
  }
}

// ---- buckets --------------------------------------------------------------------------------------------------------

template <class Q>
struct LineBatch {
  Tokens<Q> tokens, targets;
  Size first_sample = 0, accumulate = 0;
  constexpr void visit(auto&& f) { f("tokens", tokens), f("targets", targets); }
};

/// Sample n has 1 + n mod 11 tokens.
struct Lines {
  template <class Q>
  using Batch = LineBatch<Q>;

  Size size() const { return 61; }
  Size length(Size sample) const { return 1 + sample % 11; }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape(sizes.sequence)); }
  auto padding() const { return std::tuple(3, ignored_target); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(length(sample)); ++i) {
      tokens[i] = static_cast<std::int32_t>((sample * sample + 3 * static_cast<Size>(i)) % 13);
      targets[i] = (tokens[i] + 4) % 13;
    }
  }
};

template <class Q>
struct Bigrams : Layer<Q> {
  Embedding<Q> embed{13, 8};
  Dropout<Q> dropout{0.2};
  ColumnParallel<Linear, Q> head{8, 13};
  constexpr void visit(auto&& f) { f("embed", embed), f("dropout", dropout), f("head", head); }
  constexpr Loss<Q> loss(const LineBatch<Q>& batch) const {
    return cross_entropy<Q>(head(dropout(embed(batch.tokens))), batch.targets, 13);
  }
};

// ---- documents ------------------------------------------------------------------------------------------------------

template <class Q>
struct Reader : Layer<Q> {
  Embedding<Q> tokens, positions;
  SelfAttention<Q> attention;
  Dropout<Q> dropout{0.1};
  ColumnParallel<Linear, Q> head;
  constexpr explicit Reader(Size width)
      : tokens(10, width), positions(8, width), attention({.width = width, .heads = 2}), head(width, 10) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("positions", positions), f("attention", attention), f("dropout", dropout), f("head", head);
  }
  constexpr Loss<Q> loss(const DocumentBatch<Q>& batch) const {
    const auto x = tokens(batch.tokens) + positions(batch.positions);
    return cross_entropy<Q>(head(x + dropout(attention(x, Documents{batch.documents}))), batch.targets, 10);
  }
};

/// 25 samples of 8 tokens, in documents that end with 0.
std::shared_ptr<const data::TokenShards> documents_in(const Folder& folder) {
  data::TokenShardWriter writer(folder.file("tokens"), {10, 1});
  for (Size i = 0; i < 202; ++i) writer.append(std::vector{static_cast<std::int32_t>(i * i % 61 % 10)});
  writer.commit();
  return std::make_shared<const data::TokenShards>(std::vector{folder.file("tokens")});
}

}  // namespace

TEST_CASE("a training in buckets that stops in mid-epoch goes on in a new engine in all bits, with other ranks too") {
  const auto buckets = bucket_plan(Lines{}, {.lengths = {4, 8, 12}, .tokens = 48});
  const Size epoch = buckets.steps();
  REQUIRE(epoch > 6);
  check_resumed(
      5, epoch + 3,
      [&](World<P>& world) {
        return std::make_unique<Engine<Bigrams<P>, AdamW>>(world, Bigrams<P>(), AdamW{.lr = 1e-2},
                                                           buckets.engine_sizes(world.data_size()));
      },
      [&](World<P>& world, const data::BatchConfig& config) { return batches(world, Lines{}, buckets, config); });
}

TEST_CASE("a training on documents that stops in mid-epoch goes on in a new engine in all bits, with other ranks too") {
  const Folder folder;
  const DocumentSamples source(documents_in(folder), {.end = 0});
  const auto sizes = [](World<P>& world) { return BatchSizes{.micro_batch = 6 / world.data_size(), .sequence = 8}; };
  check_resumed(
      2, 7,  // 42 samples, of 25 in an epoch
      [&](World<P>& world) {
        return std::make_unique<Engine<Reader<P>, AdamW>>(world, Reader<P>(8), AdamW{.lr = 1e-2}, sizes(world));
      },
      [&](World<P>& world, const data::BatchConfig& config) { return batches(world, source, sizes(world), config); });
}

TEST_CASE("a training on documents has the peak and the traffic of its plan, and takes batches that a program fills") {
  const Folder folder;
  const DocumentSamples source(documents_in(folder), {.end = 0});
  const BatchSizes sizes{.micro_batch = 2, .sequence = 8, .accumulate = 2};
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [&](World<P>& world) {
    const Plan paper = plan<Reader<P>>(Size{8}, sizes, {.data = 2, .rank = world.place()});
    Engine engine{world, Reader<P>(8), AdamW{}, sizes};
    CHECK(world.memory().live() == paper.resident);
    const auto before = world.traffic();
    {
      const auto data = batches(world, source, sizes, {.steps = 2});
      engine.train_batch(data.step(0)).get();
      engine.replicas().complete_all();
      CHECK((world.traffic() - before).without(Purpose::check).total() == paper.traffic().total());
      engine.train_batch(data.step(1)).get();
    }
    CHECK(world.memory().peak() == paper.peak);
    CHECK(world.memory().peak_by_category()[Category::data] == paper.by_category[Category::data]);

    auto own = DocumentBatch<P>::new_batch(sizes, world.memory());
    own.visit([](const char*, Tokens<P>& field) { field.value().fill(1); });
    CHECK(engine.eval_batch(own).counted == 16);
    CHECK(world.memory().peak() == paper.peak);
  });
}
