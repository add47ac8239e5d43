// SPDX-License-Identifier: Apache-2.0
// labels: checkpoint
// Numbers of a model that no shape shows, and checkpoints of other trainings in the same folder.
#include <doctest/doctest.h>

#include <string>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/llama.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/optim/adamw.hpp>

#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F32>;
constexpr GptConfig small{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4, .dropout = 0.1};

Batch<Cpu> batch_in(World<P>& world) {
  const auto ids = Tensor<std::int32_t, 2>::zeros(shape(1, 4), world.memory(), Category::data);
  return {ids, ids};
}

/// Trains a step of a GPT and saves; or loads into one. Returns the error's sentence.
std::string with_engine(const GptConfig& config, std::uint64_t seed, const auto& f) {
  try {
    run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = seed}, [&](World<P>& world) {
      Engine engine{world, Gpt<P>{config}, AdamW{}};
      engine.backward(engine.forward(batch_in(world)));
      engine.step();
      f(engine);
    });
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a checkpoint of a model with other heads is refused, though all shapes agree") {
  const Folder folder;
  const std::string at = folder.file("c");
  CHECK(with_engine(small, 1, [&](auto& engine) { save_checkpoint(engine, at); }) == "");
  const auto load = [&](auto& engine) { load_checkpoint(engine, at); };
  CHECK(with_engine(small, 1, load) == "");
  GptConfig other = small;
  other.heads = 4;
  CHECK(with_engine(other, 1, load) ==
        "dspp: resuming needs the model that was saved, but '" + at +
            "/step_00000001/state.json' has 'blocks.0.attention heads' 2 and this model 4. Build the model of the "
            "checkpoint, or load_weights() alone.");
  CHECK(with_engine(other, 1, [&](auto& engine) { load_weights(engine, at + "/step_00000001"); }) == "");
  GptConfig more_dropout = small;
  more_dropout.dropout = 0.5;
  CHECK(with_engine(more_dropout, 1, load) == "");
}

TEST_CASE("what layers describe is the same under every strategy, each name once") {
  constexpr LlamaConfig config{
      .layers = 2, .width = 16, .heads = 4, .kv_heads = 2, .ffn_width = 16, .vocabulary = 16, .sequence = 4};
  using Cut = Policy<F32, Zero<3>, Tp<2>, SequenceParallel>;
  Llama<P> whole{config};
  Llama<Cut> cut{config};
  Llama<Cut, Recompute<LlamaBlock<Cut>>> recomputed{config};
  const auto facts = described_facts(whole);
  CHECK(facts.all() == described_facts(cut).all());
  CHECK(facts.all() == described_facts(recomputed).all());
  CHECK(facts.all().size() == 13);  // of two blocks: two epsilons and four numbers of attention; and the last norm's
}

TEST_CASE("a checkpoint of another training is never overwritten, one of the same training is") {
  const Folder folder;
  const std::string at = folder.file("c");
  const auto save = [&](auto& engine) { save_checkpoint(engine, at); };
  CHECK(with_engine(small, 1, save) == "");
  const std::string before = folder.read("c/step_00000001/model.safetensors");
  CHECK(with_engine(small, 2, save) ==
        "dspp: saving needs a name that is free or of this training, but '" + at +
            "/step_00000001' is a checkpoint of another. Give another folder or another tag.");
  CHECK(folder.read("c/step_00000001/model.safetensors") == before);
  CHECK(with_engine(small, 1, save) == "");
  CHECK(with_engine(small, 2, [&](auto& engine) { save_checkpoint(engine, at, {.tag = "mine"}); }) == "");
}
