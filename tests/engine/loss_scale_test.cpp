// SPDX-License-Identifier: Apache-2.0
// The loss scale in training: it only prevents underflow, and an overflow on any rank lowers it.
// labels: thread
#include <limits>

#include <laws/difference.hpp>
#include <laws/poison.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

template <class World, class Engine>
StepReport one_step(World& world, Engine& engine, Size step, double& injected, double poison) {
  StepReport report;
  for (Size a = 0; a < engine.sizes().accumulate; ++a) {
    injected = a == 0 ? poison : 0;
    auto batch = batch_of(world.memory(), step * 12, (a * world.data_size() + world.data_rank()) * 2, 2, 12, 61);
    auto loss = engine.forward(batch);
    engine.backward(loss);
    report = engine.step();
  }
  return report;
}

/// Calls program(world, engine, injected) on every rank, with a model whose gradient has `injected` in it.
template <class P, class Program>
void with_poison(int ranks, const EngineConfig& config, Program program, Size accumulate = 1) {
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    double injected = 0;
    using Model = PoisonedModel<P, true>;
    Engine<Model, AdamW> engine(world, Model(PoisonConfig{.injected = &injected}), AdamW{.lr = 1e-2},
                                {.accumulate = accumulate}, config);
    program(world, engine, injected);
  });
}

/// 40 steps, some of which overflow on one rank: the scale follows the rule, and steps that overflow change nothing
/// else.
template <class P>
void check_rule(int ranks, Size accumulate = 1) {
  CAPTURE(P::zero_stage);
  const LossScaleConfig rule{.initial = 64, .window = 3};
  with_poison<P>(
      ranks, {.clip_norm = 0.1, .bucket_bytes = 512, .loss_scale = rule},
      [&](auto& world, auto& engine, double& injected) {
        LossScale expected(rule);
        Size taken = 0;
        for (Size step = 0; step < 40; ++step) {
          const bool overflows = step * step % 7 == 2;
          const bool here = overflows && static_cast<int>(step % ranks) == world.rank();
          const std::uint64_t before = print_of_state(engine);
          const StepReport report = one_step(world, engine, step, injected, here ? infinite : 0);
          CHECK(report.acted);
          CHECK(report.skipped == overflows);
          CHECK(std::isfinite(report.gradient_norm) == !overflows);
          CHECK(report.loss_scale == expected.value());
          expected.update(overflows);
          taken += !overflows;
          CHECK(engine.loss_scale() == expected.value());
          CHECK(engine.steps() == taken);
          CHECK(engine.skipped_steps() == step + 1 - taken);
          CHECK((print_of_state(engine) == before) == overflows);
        }
        CHECK(engine.loss_scale() != 64);
      },
      accumulate);
}

/// The norm of a first step, that of all its gathered gradients, and the whole gradient of `name`.
struct Gradient {
  double norm = 0, gathered_norm = 0;
  std::vector<float> values{};
};

template <class P>
Gradient gradient_under(const LossScaleConfig& scale, int ranks, Size accumulate, const char* name) {
  Gradient result;
  with_poison<P>(
      ranks, {.loss_scale = scale},
      [&](auto& world, auto& engine, double&) {
        StepReport report;
        for (Size a = 0; a < accumulate; ++a) {
          auto batch = batch_of(world.memory(), 0, (a * world.data_size() + world.data_rank()) * 2, 2, 12, 61);
          auto loss = engine.forward(batch);
          engine.backward(loss);
          double square = 0;
          for (const auto& named : engine.inventory().parameters) {
            if (a + 1 < accumulate) break;
            const auto whole = engine.gather_gradient(named.name->text);
            for (Size i = 0; i < whole.count(); ++i) square += std::pow(static_cast<double>(whole.data()[i]), 2);
            if (named.name->text == name && world.rank() == 0)
              result.values.assign(whole.data(), whole.data() + whole.count());
          }
          if (world.rank() == 0) result.gathered_norm = std::sqrt(square);
          report = engine.step();
        }
        if (world.rank() == 0) result.norm = report.gradient_norm;
      },
      accumulate);
  return result;
}

}  // namespace

TEST_CASE("an overflow on any rank skips the step on all and updates the scale; the state keeps all bits") {
  check_rule<Policy<F16>>(1);
  check_rule<Policy<F16, Zero<1>>>(2);
  check_rule<Policy<F16, Zero<2>>>(3);
  check_rule<Policy<F16, Zero<2>>>(2, 3);
  check_rule<Policy<F16, Zero<3>>>(3);
  check_rule<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>>(4);
}

TEST_CASE("an overflow at the minimum is one error on every rank and changes nothing: training can continue") {
  const EngineConfig config{.bucket_bytes = 512, .loss_scale = {.initial = 2, .hysteresis = 1}};
  with_poison<Policy<F16, Zero<2>>>(3, config, [](auto& world, auto& engine, double& injected) {
    CHECK(one_step(world, engine, 0, injected, infinite).skipped);
    CHECK(engine.loss_scale() == 1);
    CHECK(!one_step(world, engine, 1, injected, 0).skipped);
    const std::uint64_t before = print_of_state(engine);
    try {
      one_step(world, engine, 2, injected, world.rank() == 2 ? infinite : 0);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::state);
      CHECK(std::string(error.what()).substr(0, 90) ==
            "dspp: training in f16 needs gradients that are finite at some loss scale, but at the minim");
    }
    CHECK(print_of_state(engine) == before);
    CHECK(engine.steps() == 1);
    CHECK(engine.skipped_steps() == 1);
    CHECK(engine.loss_scale() == 1);
    CHECK(!one_step(world, engine, 3, injected, 0).skipped);
    CHECK(engine.steps() == 2);
  });
}

TEST_CASE("norms are those of the gathered gradients, and both are those of the loss, whatever its scale") {
  using P = Policy<F16, Zero<2>>;
  for (Size accumulate : {1, 3})
    for (int ranks : {1, 2}) {
      const Gradient plain = gradient_under<P>({.fixed = 1}, ranks, accumulate, "inside.norm.weight");
      for (const LossScaleConfig& scale : {LossScaleConfig{}, LossScaleConfig{.fixed = 1000}}) {
        const Gradient scaled = gradient_under<P>(scale, ranks, accumulate, "inside.norm.weight");
        CHECK(scaled.norm == doctest::Approx(scaled.gathered_norm).epsilon(1e-6));
        CHECK(difference(scaled.norm, plain.norm, plain.norm) < 0x1p-8);
        CHECK(difference_to_largest(scaled.values, plain.values) < 0x1p-8);
      }
    }
}

TEST_CASE("gradients that underflow in f16 do not under a larger scale") {
  const auto zeros = [](double scale) {
    const Gradient gradient = gradient_under<Policy<F16>>({.fixed = scale}, 1, 1, "tokens.weight");
    return std::count(gradient.values.begin(), gradient.values.end(), 0.0f);
  };
  CHECK(zeros(0x1p-12) > 100);  // as if the loss were 4096 times smaller
  CHECK(zeros(65536) == 0);
}

TEST_CASE("a static scale is constant; other precisions have scale 1; restart() resets a dynamic scale") {
  with_poison<Policy<F16>>(2, {.loss_scale = {.fixed = 256}}, [](auto& world, auto& engine, double& injected) {
    for (Size step = 0; step < 5; ++step) {
      CHECK(one_step(world, engine, step, injected, step == 3 ? 0 : infinite).skipped == (step != 3));
      CHECK(engine.loss_scale() == 256);
    }
    CHECK(engine.steps() == 1);
  });
  with_poison<Policy<Bf16>>(1, {.skip_nonfinite = 1}, [](auto& world, auto& engine, double& injected) {
    CHECK(one_step(world, engine, 0, injected, infinite).loss_scale == 1);
    CHECK(engine.loss_scale() == 1);
  });
  with_poison<Policy<F16>>(1, {.loss_scale = {.hysteresis = 1}}, [](auto& world, auto& engine, double& injected) {
    CHECK(one_step(world, engine, 0, injected, infinite).skipped);
    CHECK(engine.loss_scale() == 32768);
    engine.restart(0);
    CHECK(engine.loss_scale() == 65536);
  });
}

TEST_CASE("a loss scale under another precision is refused, not ignored") {
  const auto configured = [] {
    with_poison<Policy<Bf16>>(1, {.loss_scale = {.fixed = 256}}, [](auto&, auto&, double&) {});
  };
  CHECK_THROWS_WITH_AS(configured(),
                       "dspp: Engine needs F16 for a loss scale, since the other precisions' is 1, but one is "
                       "configured. Use F16 or leave loss_scale out.",
                       Error);
}
