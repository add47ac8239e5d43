// SPDX-License-Identifier: Apache-2.0
// A loss or gradient that is not finite on any rank changes nothing on any: it ends the run on all with one sentence,
// or skips the step if the configuration or the loss scale of f16 allows it.
// labels: engine
#include <limits>
#include <mutex>

#include <laws/injection_model.hpp>
#include <laws/poison.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct NonFiniteRun {
  int ranks = 1;
  int nonfinite_rank = -1;  ///< -1: none; -2: every rank
  double injected = 0;
  Size accumulate = 1;
};

template <class P, class Engine>
StepReport one_step(World<P>& world, Engine& engine, Size accumulate, Size step, double& injected, double poison) {
  StepReport report;
  for (Size a = 0; a < accumulate; ++a) {
    injected = a == 0 ? poison : 0;
    auto batch = batch_of(world.memory(), step * 12, (a * world.data_size() + world.data_rank()) * 2, 2, 12, 61);
    auto loss = engine.forward(batch);
    engine.backward(loss);
    report = engine.step();
  }
  return report;
}

/// Five steps; between the second and the third one that is not finite, unless nonfinite_rank is -1. Returns the final
/// state per rank.
template <class P, bool Whole>
std::vector<std::uint64_t> train_nonfinite(const NonFiniteRun& run) {
  std::vector<std::uint64_t> prints(static_cast<std::size_t>(run.ranks));
  run_ranks_of<P>(RunOptions{.ranks = run.ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    double injected = 0;
    using Model = PoisonedModel<P, Whole>;
    Engine<Model, AdamW> engine(
        world, Model(PoisonConfig{.injected = &injected}), AdamW{.lr = 1e-2}, {.accumulate = run.accumulate},
        {.clip_norm = 0.1, .bucket_bytes = 512, .skip_nonfinite = needs_loss_scale<ElementOf<P>> ? 0 : 1});
    for (Size step = 0; step < 5; ++step) {
      if (step == 2 && run.nonfinite_rank != -1) {
        const std::uint64_t before = print_of_state(engine);
        const bool here = run.nonfinite_rank == world.rank() || run.nonfinite_rank == -2;
        const StepReport report = one_step(world, engine, run.accumulate, 7, injected, here ? run.injected : 0);
        CHECK(report.acted);
        CHECK(report.skipped);
        CHECK(!std::isfinite(report.gradient_norm));
        CHECK(report.nonfinite.kind == NonFinite::Kind::gradient);
        CHECK(engine.skipped_steps() == 1);
        CHECK(engine.steps() == 2);
        CHECK(print_of_state(engine) == before);
      }
      const StepReport report = one_step(world, engine, run.accumulate, step, injected, 0);
      CHECK(!report.skipped);
    }
    CHECK(engine.steps() == 5);
    prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
  });
  return prints;
}

/// Every rank in turn has each kind of value; training ends as without that step.
template <class P, bool Whole = true>
void check_every_rank(int ranks, Size accumulate = 1) {
  CAPTURE(P::zero_stage);
  CAPTURE(P::tp);
  const auto sound = train_nonfinite<P, Whole>({.ranks = ranks, .accumulate = accumulate});
  const double values[] = {not_a_number, infinite, -infinite};
  for (int here = 0; here < ranks; ++here) {
    CAPTURE(here);
    CHECK(train_nonfinite<P, Whole>({ranks, here, values[here % 3], accumulate}) == sound);
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

TEST_CASE("the same in f16: hysteresis keeps the loss scale at a first overflow, training ends in the same bits") {
  check_every_rank<Policy<F16>>(2);
  check_every_rank<Policy<F16, Zero<3>>>(3);
  check_every_rank<Policy<F16, Zero<2>>>(2, 3);
  check_every_rank<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>, false>(4);
}

TEST_CASE("the same for any tensor rank, in parameters that are cut over Tp and in those that are whole") {
  check_every_rank<Policy<F64, Zero<1>, Tp<2>>, true>(2);
  check_every_rank<Policy<F64, Zero<1>, Tp<2>>, false>(2);
  check_every_rank<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>, true>(4);
  check_every_rank<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>, false>(4, 2);
}

TEST_CASE("finite gradients whose sum overflows skip the step too") {
  const double large = 3e38;
  for (int ranks : {2, 4})
    CHECK(train_nonfinite<Policy<Bf16, Zero<2>>, true>({ranks, -2, large}) ==
          train_nonfinite<Policy<Bf16, Zero<2>>, true>({ranks}));
}

namespace {

/// The error of each rank in place of a step, and whether it changed anything there.
struct Ended {
  std::vector<std::string> sentences;
  bool untouched = true;

  /// The one sentence of all ranks.
  std::string sentence() const {
    for (const std::string& other : sentences) CHECK(other == sentences[0]);
    return sentences[0];
  }
};

/// Two steps, and a third that `inject(engine, injected, rank)` makes not finite: it must throw. Then it is removed;
/// if `goes_on`, the next step is as without the failed one.
template <class P, class Inject>
Ended end_of(int ranks, Inject inject, EngineConfig config = {}, bool goes_on = true, Size accumulate = 1) {
  Ended ended{std::vector<std::string>(static_cast<std::size_t>(ranks)), true};
  std::mutex mutex;
  config.bucket_bytes = 512;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Injection injected;
    using Model = InjectionModel<P>;
    Engine<Model, AdamW> engine(world, Model(InjectionConfig{.injected = &injected}), AdamW{.lr = 1e-2},
                                {.accumulate = accumulate}, config);
    const auto step = [&](Size number) {
      std::vector<Batch<Cpu>> batches;
      for (Size a = 0; a < accumulate; ++a)
        batches.push_back(batch_of(world.memory(), number * 12, (a * world.data_size() + world.data_rank()) * 2, 2,
                                   12 / P::cp, 61, world.cp().rank() * (12 / P::cp)));
      return engine.train_batch(batches);
    };
    for (Size i = 0; i < 2; ++i) CHECK(!step(i)->skipped);
    inject(engine, injected, world.rank());
    const std::uint64_t before = print_of_state(engine);
    std::string said = "no error";
    try {
      step(2);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::state);
      said = error.what();
    }
    bool untouched = print_of_state(engine) == before && engine.steps() == 2 && engine.at_step_boundary();
    injected = {};
    if (goes_on) untouched = untouched && !step(3)->skipped && engine.steps() == 3;
    const std::lock_guard lock(mutex);
    ended.sentences[static_cast<std::size_t>(world.rank())] = said;
    ended.untouched = ended.untouched && untouched;
  });
  return ended;
}

bool says(const std::string& sentence, const std::string& part) {
  return sentence.find(part) != std::string::npos;
}

constexpr double kinds[] = {not_a_number, infinite, -infinite};

/// Every layer in turn is not finite on every rank in turn: the sentence names both.
template <class P>
void check_every_layer(int ranks, Size accumulate = 1, const EngineConfig& config = {}) {
  CAPTURE(P::zero_stage);
  CAPTURE(ranks);
  for (int layer = 0; layer < injection_layers; ++layer)
    for (int here = 0; here < ranks; ++here) {
      CAPTURE(layer);
      CAPTURE(here);
      const Ended ended = end_of<P>(
          ranks,
          [&](auto&, Injection& injected, int rank) {
            if (rank == here) injected.output[static_cast<std::size_t>(layer)] = kinds[(layer + here) % 3];
          },
          config, true, accumulate);
      const std::string sentence = ended.sentence();
      CAPTURE(sentence);
      const int first = here - here % P::tp;  // the ranks along Tp have one loss
      CHECK(says(sentence, "dspp: training needs losses that are finite, but in step 3 that of rank " +
                               std::to_string(first) + " is "));
      CHECK(says(sentence, "the first value that is not finite comes from '" + std::to_string(layer) + ".inject'"));
      CHECK(ended.untouched);
    }
}

}  // namespace

TEST_CASE("an output that is not finite ends the run on all ranks, before the update, and names rank and module") {
  check_every_layer<Policy<F32>>(1);
  check_every_layer<Policy<F32>>(2);
  check_every_layer<Policy<Bf16, Zero<2>>>(3, 3);
  check_every_layer<Policy<F32, Zero<3>, Cp<2>>>(4, 2);
}

TEST_CASE("the same in f16, where no loss scale helps") {
  check_every_layer<Policy<F16, Zero<3>>>(1);
  check_every_layer<Policy<F16, Zero<3>>>(2, 2, {.loss_scale = {.fixed = 256}});
}

TEST_CASE("any parameter that is not finite ends the run, under every precision, without skipped steps") {
  const auto check = [](auto policy, int ranks) {
    using P = decltype(policy);
    const std::vector<std::string> names{"tokens.weight", "0.norm.weight", "0.norm.bias",   "0.inject.weight",
                                         "1.norm.weight", "2.norm.bias",   "3.norm.weight", "3.norm.bias"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i];
      CAPTURE(name);
      const bool used = !says(name, "inject");  // nothing depends on that of Inject
      const Ended ended = end_of<P>(
          ranks,
          [&](auto& engine, Injection& injected, int) {
            auto whole = engine.gather_parameter(name);
            whole.data()[whole.count() / 2] = static_cast<std::decay_t<decltype(*whole.data())>>(kinds[i % 3]);
            set_parameter(engine, name, std::span(whole.data(), static_cast<std::size_t>(whole.count())));
            if (!used) injected.loss = not_a_number;
          },
          {.skip_nonfinite = 10}, false);
      CHECK(says(ended.sentence(), "dspp: training needs parameters that are finite, but in step 3 '" + name +
                                       "' holds a value that is not."));
      CHECK(ended.untouched);
    }
  };
  check(Policy<F32>{}, 1);
  check(Policy<Bf16, Zero<2>>{}, 2);
  check(Policy<F16, Zero<3>>{}, 3);
  check(Policy<F64, Zero<1>, Tp<2>>{}, 4);
}

TEST_CASE("a loss that is not finite ends the run on any rank, even with finite gradients") {
  const auto check = [](auto policy, int ranks) {
    using P = decltype(policy);
    for (int here = 0; here < ranks; here += P::tp)
      for (const double kind : kinds) {
        CAPTURE(here);
        const Ended ended = end_of<P>(ranks, [&](auto&, Injection& injected, int rank) {
          if (rank / P::tp == here / P::tp) injected.loss = kind;
        });
        CHECK(says(ended.sentence(), "but in step 3 that of rank " + std::to_string(here) + " is " +
                                         (std::isinf(kind) ? "infinite" : "NaN") +
                                         ", and the first value that is not finite comes from 'tokens'"));
        CHECK(ended.untouched);
      }
  };
  check(Policy<F32>{}, 3);
  check(Policy<F16, Zero<3>>{}, 2);
  check(Policy<F64, Zero<1>, Tp<2>>{}, 4);
}

TEST_CASE("a gradient that is not finite under finite losses ends the run, and its parameter is named") {
  const auto check = [](auto policy, int ranks) {
    using P = decltype(policy);
    for (int here = 0; here < ranks; ++here) {
      std::vector<std::string> said(static_cast<std::size_t>(ranks));
      run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
        double injected = 0;
        using Model = PoisonedModel<P, true>;
        Engine<Model, AdamW> engine(world, Model(PoisonConfig{.injected = &injected}), AdamW{.lr = 1e-2});
        one_step(world, engine, 1, 0, injected, 0);
        const std::uint64_t before = print_of_state(engine);
        try {
          one_step(world, engine, 1, 1, injected, world.rank() == here ? kinds[here % 3] : 0);
        } catch (const Error& error) {
          said[static_cast<std::size_t>(world.rank())] = error.what();
        }
        CHECK(print_of_state(engine) == before);
        CHECK(!one_step(world, engine, 1, 1, injected, 0).skipped);
        CHECK(engine.skipped_steps() == 0);
      });
      for (const std::string& sentence : said)
        CHECK(sentence ==
              "dspp: training needs gradients that are finite, but in step 2 all losses are and gradients are not, "
              "first in backward that of 'inside.poison.weight'. No rank has updated anything. Look at that batch, "
              "lower the learning rate, or let EngineConfig::skip_nonfinite leave some such steps out.");
    }
  };
  check(Policy<Bf16>{}, 2);
  check(Policy<Bf16, Zero<2>>{}, 3);
  check(Policy<F64, Zero<3>, Tp<2>, SequenceParallel>{}, 4);
}

TEST_CASE("skip_nonfinite limits consecutive skipped steps, and a step that is taken resets the count") {
  using P = Policy<Bf16, Zero<2>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Injection injected;
    using Model = InjectionModel<P>;
    Engine<Model, AdamW> engine(world, Model(InjectionConfig{.injected = &injected}), AdamW{.lr = 1e-2},
                                EngineConfig{.skip_nonfinite = 2});
    const auto step = [&](bool nonfinite) {
      injected.output[2] = nonfinite && world.rank() == 1 ? not_a_number : 0;
      return engine.train_batch(std::vector{batch_of(world.memory(), 0, 2 * world.rank(), 2, 12, 61)});
    };
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 2; ++i) {
        const std::uint64_t before = print_of_state(engine);
        const StepReport report = step(true);
        CHECK(report.skipped);
        CHECK(report.nonfinite.kind == NonFinite::Kind::output);
        CHECK(report.nonfinite.name == "2.inject");
        CHECK(report.nonfinite.rank == 1);
        CHECK(print_of_state(engine) == before);
      }
      CHECK(!step(false)->skipped);
    }
    CHECK(engine.skipped_steps() == 4);
    for (int i = 0; i < 2; ++i) CHECK(step(true)->skipped);
    std::string said;
    try {
      step(true);
    } catch (const Error& error) {
      said = error.what();
    }
    CHECK(says(said, "but in step 3, after 2 skipped before it, that of rank 1 is NaN, and the first value"));
    CHECK(engine.skipped_steps() == 6);
    CHECK(engine.steps() == 2);
  });
}

TEST_CASE("a gradient of zeros is an error on all ranks, not a step that only decays the weights") {
  const auto check = [](auto policy, int ranks) {
    using P = decltype(policy);
    run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      const Injection injected;
      using Model = InjectionModel<P>;
      for (const bool meant : {false, true}) {
        Engine<Model, AdamW> engine(world, Model(InjectionConfig{.injected = &injected, .frozen = true}),
                                    AdamW{.lr = 1e-2}, EngineConfig{.zero_gradients = meant});
        const auto step = [&] {
          return engine.train_batch(std::vector{batch_of(world.memory(), 0, 2 * world.data_rank(), 2, 12, 61)});
        };
        const std::uint64_t before = print_of_state(engine);
        if (meant) {
          CHECK(step()->gradient_norm == 0);
          CHECK(engine.steps() == 1);
        } else {
          CHECK_THROWS_WITH_AS(step(),
                               "dspp: training needs a gradient, but in step 1 that of every parameter is zero in all "
                               "elements, under every rank's loss. No rank has updated anything. Let the loss depend "
                               "on the parameters, raise a loss scale under which gradients vanish, or set "
                               "EngineConfig::zero_gradients where such steps are meant.",
                               Error);
          CHECK(print_of_state(engine) == before);
        }
      }
    });
  };
  check(Policy<F32>{}, 1);
  check(Policy<Bf16, Zero<2>>{}, 2);
  check(Policy<F16, Zero<3>>{}, 2);
}

TEST_CASE("a gradient norm that jumps over the largest allowed ends the run, or is skipped, on all ranks") {
  using P = Policy<F32>;
  run_ranks_of<P>({.ranks = 3, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    for (const Size allowed : {0, 1}) {
      double injected = 0;
      using Model = PoisonedModel<P, true>;
      Engine<Model, AdamW> engine(world, Model(PoisonConfig{.injected = &injected}), AdamW{.lr = 1e-2},
                                  EngineConfig{.skip_nonfinite = allowed, .largest_norm = 1000});
      CHECK(!one_step(world, engine, 1, 0, injected, 0).skipped);
      const std::uint64_t before = print_of_state(engine);
      const double spike = world.rank() == 1 ? 24000 : 0;
      if (allowed > 0) {
        const StepReport report = one_step(world, engine, 1, 1, injected, spike);
        CHECK(report.skipped);
        CHECK(report.gradient_norm > 23999);
        CHECK(report.nonfinite.name.empty());
      }
      std::string said = "no error";
      try {
        one_step(world, engine, 1, 1, injected, spike);
      } catch (const Error& error) {
        said = error.what();
      }
      CHECK(said.starts_with("dspp: training needs gradient norms of at most EngineConfig::largest_norm, 1000.0000"));
      CHECK(says(said, ", but in step 2 it is 24000."));
      CHECK(print_of_state(engine) == before);
      CHECK(engine.skipped_steps() == allowed);
      CHECK(!one_step(world, engine, 1, 1, injected, 0).skipped);
    }
  });
}

TEST_CASE(
    "a gradient whose square no moment can hold ends the run, or is skipped, on all ranks, unless it is clipped") {
  using P = Policy<F32>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    for (const double clip_norm : {0.0, 1.0}) {
      double injected = 0;
      using Model = PoisonedModel<P, true>;
      Engine<Model, AdamW> engine(world, Model(PoisonConfig{.injected = &injected}), AdamW{.lr = 1e-2},
                                  EngineConfig{.clip_norm = clip_norm});
      CHECK(!one_step(world, engine, 1, 0, injected, 0).skipped);
      const std::uint64_t before = print_of_state(engine);
      const double spike = world.rank() == 1 ? 1e22 : 0;
      std::string said;
      try {
        one_step(world, engine, 1, 1, injected, spike);
      } catch (const Error& error) {
        said = error.what();
      }
      CHECK(said.starts_with("dspp: training needs gradients whose squares an optimizer's moments can hold") ==
            (clip_norm == 0));
      CHECK((print_of_state(engine) == before) == (clip_norm == 0));
      CHECK(!one_step(world, engine, 1, 1, injected, 0).skipped);
      require_finite_parameters(engine, "saving", true);
    }
  });
}

namespace {

/// Row E1: every rank in turn has each kind of value in the first, a middle and the last element of its gradient.
template <class P, bool Whole>
int skip_everywhere(int ranks) {
  int of_rank = 0;
  std::mutex mutex;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    double injected = 0;
    Size element = 0;
    using Model = PoisonedModel<P, Whole>;
    Engine<Model, AdamW> engine(world, Model(PoisonConfig{.injected = &injected, .element = &element}),
                                AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 512, .loss_scale = {.fixed = 256}});
    one_step(world, engine, 1, 0, injected, 0);
    const std::uint64_t before = print_of_state(engine);
    const Size last = (Whole ? 24 : 24 / P::tp) - 1;
    Size skipped = 0;
    for (int here = 0; here < ranks; ++here)
      for (const Size at : {Size{0}, last / 2, last})
        for (const double kind : kinds) {
          element = at;
          const StepReport report = one_step(world, engine, 1, 1, injected, world.rank() == here ? kind : 0);
          CHECK(report.skipped);
          CHECK(report.nonfinite.name == "inside.poison.weight");
          CHECK(print_of_state(engine) == before);
          CHECK(engine.steps() == 1);
          CHECK(engine.skipped_steps() == ++skipped);
        }
    CHECK(!one_step(world, engine, 1, 1, injected, 0).skipped);
    const std::lock_guard lock(mutex);
    of_rank = static_cast<int>(skipped);
  });
  return of_rank;
}

}  // namespace

TEST_CASE("E1: a value that is not finite in any element on any rank skips the step on all, counted and named") {
  int injected = 0;
  injected += skip_everywhere<Policy<F16>, true>(3);
  injected += skip_everywhere<Policy<F16, Zero<1>>, true>(4);
  injected += skip_everywhere<Policy<F16, Zero<2>>, true>(4);
  injected += skip_everywhere<Policy<F16, Zero<3>>, true>(4);
  injected += skip_everywhere<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>, true>(4);
  injected += skip_everywhere<Policy<F16, Zero<3>, Tp<2>, SequenceParallel>, false>(4);
  CHECK(injected >= 200);
}

namespace {

/// Row E3: a step whose gradient is not finite on rank 1 of 2, in each precision, with and without skipping in the
/// configuration: it changes no bit on any rank, for every value.
template <class T>
void never_taken(bool skips, const EngineConfig& config) {
  using P = Policy<T, Zero<2>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    for (const double kind : kinds) {
      double injected = 0;
      using Model = PoisonedModel<P, true>;
      Engine<Model, AdamW> engine(world, Model(PoisonConfig{.injected = &injected}), AdamW{.lr = 1e-2}, config);
      CHECK(!one_step(world, engine, 1, 0, injected, 0).skipped);
      const std::uint64_t before = print_of_state(engine);
      bool stopped = false;
      try {
        const StepReport report = one_step(world, engine, 1, 1, injected, world.rank() == 1 ? kind : 0);
        CHECK(report.skipped);
        CHECK(report.nonfinite.name == "inside.poison.weight");
      } catch (const Error& error) {
        stopped = true;
        CHECK(error.code() == ErrorCode::state);
        CHECK(says(error.what(), " needs gradients that are finite"));
      }
      CHECK(stopped == !skips);
      CHECK(engine.skipped_steps() == (skips ? 1 : 0));
      CHECK(engine.steps() == 1);
      CHECK(print_of_state(engine) == before);
      CHECK(!one_step(world, engine, 1, 1, injected, 0).skipped);
      CHECK(engine.steps() == 2);
      require_finite_parameters(engine, "a test");
    }
  });
}

}  // namespace

TEST_CASE("E3: under every configuration a gradient that is not finite is skipped and counted, or an error") {
  const EngineConfig stop{.bucket_bytes = 512}, skip{.bucket_bytes = 512, .skip_nonfinite = 1};
  never_taken<F64>(false, stop);
  never_taken<F64>(true, skip);
  never_taken<F32>(false, stop);
  never_taken<F32>(true, skip);
  never_taken<Bf16>(false, stop);
  never_taken<Bf16>(true, skip);
  // in f16 the loss scale's rule skips until its minimum
  const LossScaleConfig least{.initial = 1, .hysteresis = 1};
  never_taken<F16>(false, {.bucket_bytes = 512, .loss_scale = least});
  never_taken<F16>(true, stop);
}
