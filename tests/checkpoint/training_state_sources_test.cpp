// SPDX-License-Identifier: Apache-2.0
// A training on a source of one's own, or a blend, that is saved and resumed equals the uninterrupted one: in every bit
// on as many ranks, and to rounding on others.
// labels: engine
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/blend.hpp>
#include <dspp/engine/source_batches.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64, Zero<2>>;

/// Samples of tokens of the model's vocabulary.
struct Sentences {
  template <class Q>
  using Batch = dspp::Batch<DeviceOf<Q>>;
  Size samples = 29, first = 0;
  Size size() const { return samples; }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape(sizes.sequence)); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = token(first + sample, static_cast<Size>(i), TinyConfig{}.vocabulary);
      targets[i] = token(first + sample, static_cast<Size>(i) + 1, TinyConfig{}.vocabulary);
    }
  }
};

constexpr BatchSizes sizes_of(int ranks) {
  return {.micro_batch = 12 / ranks, .sequence = 6};
}

Blend<Sentences> blend(double weight) {
  return Blend<Sentences>({{Sentences{}, weight}, {Sentences{.samples = 11, .first = 40}, 1 - weight}}, sizes_of(1));
}

struct Seen {
  std::vector<double> losses{};
  std::uint64_t print = 0;  ///< of values, masters and moments of rank 0
};

/// Steps from the checkpoint, or from the start, that end with one.
template <class Source>
Seen work_on(const Source& source, const std::string& folder, Size steps, int ranks, bool resumes) {
  Seen seen;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = 3}, [&](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 0.03}, sizes_of(ranks)};
    TrainingPosition position{.seed = 5};
    if (resumes) position = load_checkpoint(engine, folder).position;
    const auto data = batches(world, source, sizes_of(ranks),
                              {.steps = steps,
                               .seed = position.seed,
                               .first_sample = position.next_sample,
                               .prefetch = 1,
                               .data_digest = position.data_digest});
    for (Size step = 0; step < steps; ++step) {
      const double loss = engine.train_batch(data.step(step))->loss;
      if (world.is_first()) seen.losses.push_back(loss);
    }
    position.next_sample = data.next_sample(steps), position.data_digest = data.data_digest();
    save_checkpoint(engine, folder, {.tag = "checkpoint", .position = position});
    if (world.is_first()) seen.print = print_of_state(engine);
  });
  return seen;
}

template <class Source>
void check_resumes(const Source& source) {
  const Folder folder;
  const Seen whole = work_on(source, folder.file("whole"), 7, 2, false);
  for (const int ranks : {2, 3}) {  // 7 steps of 12 samples: more than an epoch of each source
    CAPTURE(ranks);
    Seen parts = work_on(source, folder.file("parts" + std::to_string(ranks)), 3, 2, false);
    const Seen rest = work_on(source, folder.file("parts" + std::to_string(ranks)), 4, ranks, true);
    parts.losses.insert(parts.losses.end(), rest.losses.begin(), rest.losses.end());
    CHECK(worst_difference(parts.losses, whole.losses) < 1e-12);
    if (ranks == 2) CHECK(parts.losses == whole.losses);
    if (ranks == 2) CHECK(rest.print == whole.print);
  }
}

}  // namespace

TEST_CASE("a training on an own source resumes in every bit, and with other ranks") {
  check_resumes(Sentences{});
}

TEST_CASE("a training on a blend resumes in every bit, and with other ranks, but not with other weights") {
  check_resumes(blend(0.75));
  const Folder folder;
  work_on(blend(0.75), folder.file("run"), 2, 2, false);
  const std::string said = sentence_of([&] { work_on(blend(0.7), folder.file("run"), 2, 2, true); });
  CHECK(said.find("batches() needs the data of the run that it resumes") != std::string::npos);
}
