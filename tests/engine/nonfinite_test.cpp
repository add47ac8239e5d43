// SPDX-License-Identifier: Apache-2.0
// A gradient that is not finite on any one rank skips the step on all ranks, and changes nothing.
// labels: engine
#include <limits>

#include <laws/poison.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct Illness {
  int ranks = 1;
  int sick_rank = -1;  ///< -1: nobody; -2: every rank
  double dose = 0;
  Size accumulate = 1;
};

template <class P, class Engine>
StepReport one_step(World<P>& world, Engine& engine, Size accumulate, Size step, double& dose, double poison) {
  StepReport report;
  for (Size a = 0; a < accumulate; ++a) {
    dose = a == 0 ? poison : 0;
    auto batch = batch_of(world.memory(), step * 12, (a * world.data_size() + world.data_rank()) * 2, 2, 12, 61);
    auto loss = engine.forward(batch);
    engine.backward(loss);
    report = engine.step();
  }
  return report;
}

/// Five steps; between the second and the third an ill one, unless nobody is sick. Returns the final state per rank.
template <class P, bool Whole>
std::vector<std::uint64_t> train_ill(const Illness& illness) {
  std::vector<std::uint64_t> prints(static_cast<std::size_t>(illness.ranks));
  run_ranks_of<P>(
      RunOptions{.ranks = illness.ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
        double dose = 0;
        using Model = PoisonedModel<P, Whole>;
        Engine<Model, AdamW> engine(world, Model(PoisonConfig{.dose = &dose}), AdamW{.lr = 1e-2},
                                    {.accumulate = illness.accumulate, .clip_norm = 0.1, .bucket_bytes = 512});
        for (Size step = 0; step < 5; ++step) {
          if (step == 2 && illness.sick_rank != -1) {
            const std::uint64_t before = print_of_state(engine);
            const bool sick = illness.sick_rank == world.rank() || illness.sick_rank == -2;
            const StepReport report = one_step(world, engine, illness.accumulate, 7, dose, sick ? illness.dose : 0);
            CHECK(report.acted);
            CHECK(report.skipped);
            CHECK(!std::isfinite(report.gradient_norm));
            CHECK(engine.skipped_steps() == 1);
            CHECK(engine.steps() == 2);
            CHECK(print_of_state(engine) == before);
          }
          const StepReport report = one_step(world, engine, illness.accumulate, step, dose, 0);
          CHECK(!report.skipped);
        }
        CHECK(engine.steps() == 5);
        prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
      });
  return prints;
}

/// Every rank in turn is sick, with each kind of value; training ends as if the ill step had not been.
template <class P, bool Whole = true>
void check_every_rank(int ranks, Size accumulate = 1) {
  CAPTURE(P::zero_stage);
  CAPTURE(P::tp);
  const auto healthy = train_ill<P, Whole>({.ranks = ranks, .accumulate = accumulate});
  const double doses[] = {not_a_number, infinite, -infinite};
  for (int sick = 0; sick < ranks; ++sick) {
    CAPTURE(sick);
    CHECK(train_ill<P, Whole>({ranks, sick, doses[sick % 3], accumulate}) == healthy);
  }
}

}  // namespace

TEST_CASE(
    "under every stage a non-finite gradient on any data rank skips the step on all, state untouched in all bits") {
  check_every_rank<Policy<Bf16>>(3);
  check_every_rank<Policy<Bf16, Zero<1>>>(3);
  check_every_rank<Policy<Bf16, Zero<2>>>(3);
  check_every_rank<Policy<Bf16, Zero<3>>>(3);
  check_every_rank<Policy<Bf16, Zero<2>>>(2, 3);
}

TEST_CASE("so it is in f16: hysteresis keeps the loss scale over a first overflow, training ends in the same bits") {
  check_every_rank<Policy<F16>>(2);
  check_every_rank<Policy<F16, Zero<3>>>(3);
  check_every_rank<Policy<F16, Zero<2>>>(2, 3);
  check_every_rank<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>, false>(4);
}

TEST_CASE("so does one on any tensor rank, in parameters that are cut over Tp and in those that are whole") {
  check_every_rank<Policy<F64, Zero<1>, Tp<2>>, true>(2);
  check_every_rank<Policy<F64, Zero<1>, Tp<2>>, false>(2);
  check_every_rank<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>, true>(4);
  check_every_rank<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>, false>(4, 2);
}

TEST_CASE("finite gradients whose sum overflows skip the step too") {
  const double large = 3e38;
  for (int ranks : {2, 4})
    CHECK(train_ill<Policy<Bf16, Zero<2>>, true>({ranks, -2, large}) ==
          train_ill<Policy<Bf16, Zero<2>>, true>({ranks}));
}
