// SPDX-License-Identifier: Apache-2.0
// set_optimizer in mid-run: the steps after it have the bits of an engine that was made with that optimizer.
// labels: engine
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/schedule.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr OneCycle cycle{.min_lr = 1e-3, .max_lr = 5e-2, .first_steps = 3, .min_momentum = 0.6, .max_momentum = 0.95};

AdamW optimizer_at(Size step) {
  return {.lr = cycle(step), .beta1 = cycle.momentum(step), .beta2 = 0.99};
}

struct Seen {
  std::vector<double> losses{};
  std::uint64_t print = 0;  ///< of values, masters and moments of rank 0
};

/// Steps [0, 6) of a cycle, in pieces of `piece` steps, each with a new engine from the checkpoint of the one before.
/// Each step sets the optimizer, or none does and a piece has that of its first step.
template <class P>
Seen train(int ranks, Size piece, bool sets) {
  const Folder folder;
  Seen seen;
  for (Size first = 0; first < 6; first += piece)
    run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = 3}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 4 / ranks, .sequence = 6};
      Engine engine{world, TinyModel<P>(TinyConfig{}), optimizer_at(first), sizes};
      if (first > 0) load_checkpoint(engine, folder.file("run"));
      for (Size step = first; step < first + piece; ++step) {
        if (sets) engine.set_optimizer(optimizer_at(step));
        engine.set_learning_rate(cycle(step));
        const auto batch = batch_of(world.memory(), 4 * step, sizes.micro_batch * world.rank(), sizes.micro_batch, 6,
                                    TinyConfig{}.vocabulary);
        const double loss = StepReport(engine.train_batch(batch)).loss;
        if (world.is_first()) seen.losses.push_back(loss);
      }
      save_checkpoint(engine, folder.file("run"));
      if (world.is_first()) seen.print = print_of_state(engine);
    });
  return seen;
}

template <class P>
void check_momenta(int ranks) {
  const Seen set = train<P>(ranks, 6, true), made = train<P>(ranks, 1, false), resumed = train<P>(ranks, 2, true);
  CHECK(set.losses == made.losses);
  CHECK(set.print == made.print);
  CHECK(resumed.losses == made.losses);
  CHECK(resumed.print == made.print);
  CHECK(train<P>(ranks, 6, false).print != made.print);  // the momenta count
}

}  // namespace

TEST_CASE("momenta that change in mid-run have the bits of engines that were made with them, and resume") {
  check_momenta<Policy<F64>>(1);
  check_momenta<Policy<Bf16, Zero<3>>>(2);
}

TEST_CASE("an optimizer that cannot be is refused in mid-run, and the one before stays") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 1e-2}, BatchSizes{.micro_batch = 2, .sequence = 6}};
    const std::string said = sentence_of([&] { engine.set_optimizer(AdamW{.lr = 1e-2, .beta1 = 1.5}); });
    CHECK(said.find("beta1") != std::string::npos);
    engine.train_batch(batch_of(world.memory(), 0, 0, 2, 6, TinyConfig{}.vocabulary));
  });
}
