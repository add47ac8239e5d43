// SPDX-License-Identifier: Apache-2.0
// Delayed<1>: updates that run beside the next step have the bits of a training that is given the parameters by hand.
// labels: engine thread
#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/offload_states.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/optim.hpp>

#include <laws/delayed_updates.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class O, class... Members>
struct Of {
  /// `More`: what the engine is given as values.
  template <class... More>
  static void check(const Cell& cell) {
    check_delayed<Policy<Members...>, Policy<Members..., More..., Delayed<1>>, Policy<Members..., More...>, O>(cell);
  }
};

}  // namespace

TEST_CASE("a delayed update has the bits of the reference, under every stage and precision") {
  Of<AdamW, F64>::check<Zero<0>>({.ranks = 1, .steps = 5});
  Of<AdamW, F64>::check<Zero<0>>({.ranks = 2, .steps = 4});
  Of<AdamW, F64>::check<Zero<1>>({.ranks = 3, .steps = 4});
  Of<AdamW, F64>::check<Zero<2>>({.ranks = 2, .accumulate = 2, .steps = 4});
  Of<AdamW, F64>::check<Zero<3>>({.ranks = 4, .steps = 4});
  Of<AdamW, Bf16>::check<Zero<1>>({.ranks = 2, .steps = 4});
  Of<AdamW, Bf16>::check<Zero<3>>({.ranks = 3, .accumulate = 2, .steps = 4});
  Of<AdamW, F64, Tp<2>>::check<Zero<2>>({.ranks = 4, .steps = 3});
}

TEST_CASE("a delayed update beside what is offloaded, by node, and by other optimizers") {
  Of<AdamW, Bf16>::check<Zero<2>, Offload<Optimizer, Host>>({.ranks = 2, .steps = 4});
  Of<AdamW, Bf16>::check<Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>({.ranks = 2, .steps = 4});
  Of<AdamW, Bf16>::check<Zero<3>, SecondaryShards<Node>>({.ranks = 4, .steps = 3, .ranks_per_node = 2});
  Of<AdamW, Bf16>::check<Zero<2>, Shards<Within<Node>>>({.ranks = 4, .steps = 3, .ranks_per_node = 2});
  Of<Sgd, F64>::check<Zero<1>>({.ranks = 2, .steps = 4});
}

TEST_CASE("the first updates of a training are not delayed, and a skipped step changes nothing") {
  for (Size after = 1; after < 5; ++after)
    Of<AdamW, F64>::check<Zero<2>>({.ranks = 2, .steps = 4, .delay_after = after});
  const LossScaleConfig overflows{.initial = 1 << 24, .window = 2, .hysteresis = 1};
  Of<AdamW, F16>::check<Zero<2>>({.ranks = 2, .steps = 12, .loss_scale = overflows});
}

TEST_CASE("the bytes and the traffic of delayed updates are the plan's, and stages share their bits") {
  const Cell cell{.ranks = 3, .steps = 4};
  const auto check = [&]<class... P>(P...) {
    const Trained whole = train_as_values<AdamW, Policy<Zero<0>, Delayed<1>, P...>, P...>(cell);
    check_same_bits(train_as_values<AdamW, Policy<Zero<1>, Delayed<1>, P...>, P...>(cell), whole);
    check_same_bits(train_as_values<AdamW, Policy<Zero<2>, Delayed<1>, P...>, P...>(cell), whole);
    const Trained split = train_as_values<AdamW, Policy<Zero<3>, Delayed<1>, P...>, P...>(cell);
    check_same_bits(split, whole);
    const Trained at_once = train_as_values<AdamW, Policy<Zero<3>, P...>, P...>(cell);
    CHECK(split.losses != at_once.losses);
    for (std::size_t r = 0; r < split.ranks.size(); ++r) CHECK(split.ranks[r].replicas == at_once.ranks[r].replicas);
    const RankRecord &own = split.ranks[0], &others = at_once.ranks[0];
    const Size slice = own.psi / 3, gradient = slice / split.facts.element * split.facts.gradient;
    CHECK(own.resident - others.resident == slice + gradient + 8 * StepScalars::count);
  };
  check(F64());
  check(Bf16());
}

TEST_CASE("a training that goes on from a save has the bits of the one that saved") {
  using P = Policy<Bf16>;
  using Q = Policy<Bf16, Zero<2>, Delayed<1>>;
  const Folder folder;
  const std::string path = folder.path.string();
  const Cell cell{.ranks = 2, .steps = 6};
  const Course whole = course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
    for (int step = 0; step < cell.steps; ++step) {
      take_step(world, engine, cell, step, course, [] {});
      if (step == 2) save_checkpoint(engine, path);
    }
  });
  const Course resumed = course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
    take_step(world, engine, cell, 9, course, [] {});  // under way while others are loaded
    take_step(world, engine, cell, 8, course, [] {});
    course = {};
    load_checkpoint(engine, path);
    for (int step = 3; step < cell.steps; ++step) take_step(world, engine, cell, step, course, [] {});
  });
  CHECK(same_bits(resumed.losses, {whole.losses.begin() + 3, whole.losses.end()}));
  CHECK(resumed.parameters == whole.parameters);
}

TEST_CASE("what else reads or moves the parameters has the update, and evaluation does not") {
  using P = Policy<F32>;
  using Q = Policy<F32, Zero<1>, Delayed<1>>;
  const Cell cell{.ranks = 2, .steps = 4};
  const auto with = [&](auto f) {
    return course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        take_step(world, engine, cell, step, course, [] {});
        f(world, engine, step);
      }
    });
  };
  const Course delayed = with([](auto&, auto&, int) {});
  const auto evaluate_batch = [&](auto& world, auto& engine, int step) {
    auto batch = batch_of(world.memory(), step, 0, 2, cell.sequence, 61);
    engine.eval_batch(batch);
  };
  check_same_course(with(evaluate_batch), delayed);
  const Course ended = with([](auto&, auto& engine, int) { engine.end_update(); });
  CHECK(ended.losses != delayed.losses);
  check_same_course(with([](auto&, auto& engine, int) { offload_states(engine), reload_states(engine); }), ended);
  check_same_course(with([](auto&, auto& engine, int) { offload_states(engine); }), ended);
  check_same_course(with([](auto&, auto& engine, int) {
                      WeightAverage average(engine, 0.5);
                      average.within([] {});
                    }),
                    ended);
  const Course once = with([](auto&, auto& engine, int step) { step == 1 ? engine.end_update() : void(); });
  check_same_course(with([](auto&, auto& engine, int step) {
                      if (step != 1) return;
                      const auto& named = engine.inventory().parameters.front();
                      const auto whole = engine.gather_parameter(named.name->text);
                      set_parameter(engine, named.name->text,
                                    std::vector<double>(whole.data(), whole.data() + whole.count()));
                    }),
                    once);
}

TEST_CASE(
    "a step that throws leaves the same parameters on every rank, and one that has begun refuses to end updates") {
  using P = Policy<F64>;
  const Cell cell{.ranks = 2, .steps = 5};
  const auto with_spike = [&]<class Q>(Q) {
    return course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        if (step == 2) {
          auto batch = batch_of(world.memory(), 0, 0, 2, cell.sequence, small_gpt().vocabulary);
          batch.targets.fill(ignored_target);
          engine.backward(engine.forward(batch));
          CHECK_THROWS_AS(engine.step(), Error);
        }
        take_step(world, engine, cell, step, course, [&] {
          if (step > 0) CHECK_THROWS_AS(engine.end_update(), Error);
        });
      }
    });
  };
  const Course whole = with_spike(Policy<F64, Delayed<1>>());
  check_same_course(with_spike(Policy<F64, Zero<1>, Delayed<1>>()), whole);
  check_same_course(with_spike(Policy<F64, Zero<2>, Delayed<1>>()), whole);
  check_same_course(with_spike(Policy<F64, Zero<3>, Delayed<1>>()), whole);
}

TEST_CASE("delayed updates are refused where they cannot be") {
  using P = Policy<F32, Delayed<1>>;
  CHECK(sentence_of([] {
          run_ranks_of<P>({.ranks = 1}, [](World<P>& world) {
            Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, EngineConfig{.delay_after = -1}};
          });
        }).find("dspp: Engine needs a delay_after of at least 0") != std::string::npos);
  CHECK(sentence_of([] {
          run_ranks_of<P>({.ranks = 2}, [](World<P>& world) {
            Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, EngineConfig{.delay_after = world.rank()}};
          });
        }).find("delay_after") != std::string::npos);
}
