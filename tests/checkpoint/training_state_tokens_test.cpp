// SPDX-License-Identifier: Apache-2.0
// A training on token files that is saved and resumed equals the uninterrupted one, bit for bit, under context
// parallelism.
// labels: engine
#include <bit>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/data/token_files_writer.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/evaluate.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64, Zero<2>, Cp<2>>;

/// 33 samples of 6 tokens of the model's vocabulary in three files: the fifth step ends an epoch.
void write_tokens(const std::string& folder, Size tokens = 199) {
  data::TokenFilesWriter writer(folder, {.size = TinyConfig{}.vocabulary, .tokenizer = 1}, 70);
  for (Size i = 0; i < tokens; ++i) writer.append(std::vector{token(i / 10, i % 10, TinyConfig{}.vocabulary)});
  writer.finish();
}

/// A run: resume or begin, take steps, save or not.
struct Task {
  std::string from{}, to{};
  Size steps = 3;
  Size micro_batch = 2;
  int ranks = 4;
};

/// The results of each rank.
struct Seen {
  std::vector<double> losses{};
  std::uint64_t print = 0;  ///< of values, masters and moments
  double held_out = 0;
  Size next_sample = 0;
};

std::vector<Seen> work_on(const std::string& tokens, const Task& task) {
  std::vector<Seen> all(static_cast<std::size_t>(task.ranks));
  const RunOptions options{.ranks = task.ranks, .threads_per_rank = 1, .seed = 3, .timeout_seconds = 60};
  run_ranks_of<P>(options, [&](World<P>& world) {
    Seen& seen = all[static_cast<std::size_t>(world.rank())];
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 0.05}, BatchSizes{.accumulate = 2}};
    TrainingPosition position{.seed = 5};
    if (!task.from.empty()) position = load_checkpoint(engine, task.from).position;
    const auto data =
        batches(world, data::TokenFiles{tokens}, {.micro_batch = task.micro_batch, .sequence = 6, .accumulate = 2},
                {.steps = task.steps,
                 .seed = position.seed,
                 .first_sample = position.next_sample,
                 .data_digest = position.data_digest});
    position.data_digest = data.data_digest();
    for (Size step = 0; step < task.steps; ++step) seen.losses.push_back(engine.train_batch(data.step(step))->loss);
    position.next_sample = data.next_sample(task.steps);
    if (!task.to.empty()) save_checkpoint(engine, task.to, {.tag = "checkpoint", .position = position});
    const auto held_out = std::make_shared<const data::TokenShards>(data::TokenFiles{tokens});
    seen.held_out = evaluate(engine, held_out, {.micro_batch = 2, .sequence = 6}).loss;
    seen.print = print_of_state(engine), seen.next_sample = position.next_sample;
  });
  return all;
}

}  // namespace

TEST_CASE("a training on token files saved and resumed in a new engine equals the uninterrupted one, in every bit") {
  const Folder folder;
  const std::string tokens = folder.file("tokens"), checkpoints = folder.file("checkpoints");
  write_tokens(tokens);
  const std::vector<Seen> whole = work_on(tokens, {.steps = 6});
  work_on(tokens, {.to = checkpoints});
  const std::vector<Seen> resumed = work_on(tokens, {.from = checkpoints});
  for (std::size_t r = 0; r < whole.size(); ++r) {
    CAPTURE(r);
    CHECK(resumed[r].losses == std::vector<double>(whole[r].losses.begin() + 3, whole[r].losses.end()));
    CHECK(resumed[r].print == whole[r].print);
    CHECK(resumed[r].held_out == whole[r].held_out);
    CHECK(resumed[r].next_sample == 48);
  }
  CHECK(whole[0].losses.front() != whole[0].losses.back());
}

TEST_CASE("with another number of ranks it takes the same samples, and the loss on held-out tokens is the same") {
  const Folder folder;
  const std::string tokens = folder.file("tokens"), checkpoints = folder.file("checkpoints");
  write_tokens(tokens);
  const std::vector<Seen> whole = work_on(tokens, {.steps = 6});
  work_on(tokens, {.to = checkpoints});
  const std::vector<Seen> one_replica = work_on(tokens, {.from = checkpoints, .micro_batch = 4, .ranks = 2});
  CHECK(one_replica[0].next_sample == 48);
  CHECK(one_replica[0].held_out == doctest::Approx(whole[0].held_out).epsilon(1e-10));
  const std::vector<Seen> half_as_many = work_on(tokens, {.from = checkpoints, .steps = 6, .ranks = 2});
  CHECK(half_as_many[0].next_sample == 48);
}

TEST_CASE("a checkpoint holds the digest of its data: other token files are refused") {
  const Folder folder;
  const std::string tokens = folder.file("tokens"), others = folder.file("others");
  write_tokens(tokens), write_tokens(others, 205);
  work_on(tokens, {.to = folder.file("checkpoints")});
  const std::string said = sentence_of([&] { work_on(others, {.from = folder.file("checkpoints")}); });
  CHECK(said.find("batches() needs the data of the run that it resumes") != std::string::npos);
}
