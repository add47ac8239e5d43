// SPDX-License-Identifier: Apache-2.0
// Ranks that read different files, as from local disks, throw before anything is changed, with the difference.
// labels: thread races
#include <functional>
#include <memory>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/evaluate.hpp>
#include <laws/folder.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F32, Zero<2>>;

/// The error of every one of three ranks, or "".
std::string sentence_of(const std::function<void(World<P>&)>& program) {
  std::vector<std::string> sentences(3);
  run_ranks_of<P>({.ranks = 3, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    try {
      program(world);
    } catch (const Error& error) {
      sentences[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& sentence : sentences) CHECK(sentence == sentences[0]);
  return sentences[0];
}

/// A checkpoint "s" and weights after `steps` steps at a learning rate.
void save_in(const Folder& folder, int steps, double lr) {
  CHECK(sentence_of([&](World<P>& world) {
          Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = lr}};
          for (int step = 0; step < steps; ++step) {
            auto loss = engine.forward(batch_of(world.memory(), 6 * step, 2 * world.data_rank(), 2, 4, 13));
            engine.backward(loss);
            engine.step();
          }
          save_checkpoint(engine, folder.path.string(), {.tag = "s"});
          save_weights(engine, folder.path.string());
        }) == "");
}

/// Each rank loads from its folder; the error, and whether a rank's state changed.
template <class Load>
std::string load(const std::function<const Folder&(int)>& folder_of, Load load_from) {
  return sentence_of([&](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{}};
    const std::uint64_t before = print_of_state(engine);
    try {
      load_from(engine, folder_of(world.rank()).path.string());
    } catch (const Error&) {
      CHECK(print_of_state(engine) == before);
      throw;
    }
    CHECK(print_of_state(engine) != before);
  });
}

}  // namespace

TEST_CASE("checkpoints of one tag on local disks are compared at every load, weights too") {
  const Folder one, other_step, other_rate, same;
  save_in(one, 2, 0.1);
  save_in(other_step, 3, 0.1);
  save_in(other_rate, 2, 0.2);
  save_in(same, 2, 0.1);
  const auto state = [](auto& engine, const std::string& folder) { load_checkpoint(engine, folder); };
  const auto weights = [](auto& engine, const std::string& folder) { load_weights(engine, folder); };
  for (int odd = 0; odd < 3; ++odd) {
    const std::string on = " on rank " + std::to_string(odd) + " and ";
    const auto from = [&](const Folder& folder) {
      return [&, odd](int rank) -> const Folder& { return rank == odd ? folder : one; };
    };
    CHECK(load(from(same), state) == "");
    CHECK(load(from(same), weights) == "");
    CHECK(load(from(other_step), state) ==
          "dspp: load_checkpoint needs the same on every rank, but 'steps' is 3" + on +
              "2 on the others. Start all ranks with the same program, options and files.");
    CHECK(load(from(other_rate), state).find("but 'learning_rate' is 0.2" + on + "0.1 on the others.") !=
          std::string::npos);
    CHECK(load(from(other_step), weights).find("but 'step' is 3" + on + "2 on the others.") != std::string::npos);
    CHECK(load(from(other_rate), weights).find("but 'digest of the data' is ") != std::string::npos);
  }
}

TEST_CASE("batches of different sizes, seeds or data are found when they are constructed, held-out ones too") {
  struct Choice {
    std::string text = std::string(2000, 'a') + std::string(500, 'b');
    BatchSizes sizes{.micro_batch = 2, .sequence = 8};
    data::BatchConfig config{.steps = 4};
  };
  struct Difference {
    const char* name;
    std::function<void(Choice&)> make;
    bool held_out = false;
  };
  const std::vector<Difference> differences{
      {"micro_batch' is 4", [](Choice& c) { c.sizes.micro_batch = 4; }},
      {"sequence' is 4", [](Choice& c) { c.sizes.sequence = 4; }},
      {"steps' is 5", [](Choice& c) { c.config.steps = 5; }},
      {"accumulate' is 2", [](Choice& c) { c.sizes.accumulate = 2; }},
      {"seed' is 7", [](Choice& c) { c.config.seed = 7; }},
      {"first_step' is 3", [](Choice& c) { c.config.first_step = 3; }},
      {"tokens of the data' is 2251", [](Choice& c) { c.text += "bb"; }},
      {"digest of the data' is ", [](Choice& c) { c.text[77] = 'c'; }},
      {"micro_batch' is 1", [](Choice& c) { c.sizes.micro_batch = 1; }, true},
      {"digest of the data' is ", [](Choice& c) { c.text[2400] = 'c'; }, true},
  };
  for (const Difference& difference : differences)
    for (int odd = 0; odd < 3; ++odd) {
      const std::string sentence = sentence_of([&](World<P>& world) {
        Choice choice;
        if (world.rank() == odd) difference.make(choice);
        auto text = std::make_shared<data::Text>();
        text->bytes.assign(choice.text.begin(), choice.text.end());
        text->training_bytes = std::ssize(text->bytes) * 9 / 10;
        if (!difference.held_out)
          (void)batches(world, std::shared_ptr<const data::Text>(text), choice.sizes, choice.config);
        if (!difference.held_out) return;
        Engine engine{world, TinyModel<P>(TinyConfig{.vocabulary = 256}), AdamW{}};
        evaluate(engine, std::shared_ptr<const data::Text>(text), choice.sizes);
      });
      CAPTURE(sentence);
      CHECK(sentence.rfind(std::string("dspp: ") + (difference.held_out ? "evaluate()" : "batches()") +
                               " needs the same on every rank, but '" + difference.name,
                           0) == 0);
      CHECK(sentence.find(" on rank " + std::to_string(odd) + " and ") != std::string::npos);
    }
}
