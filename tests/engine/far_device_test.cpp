// SPDX-License-Identifier: Apache-2.0
// A step on a device whose host knows values only when it waits for them: how often it waits, and steps that the device
// skips.
// labels: thread
#include <dspp/checkpoint.hpp>

#include <laws/flipped_bits.hpp>
#include <laws/folder.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class P>
std::vector<double> values_of(Engine<TinyModel<P>, AdamW>& engine) {
  std::vector<double> values;
  const auto add = [&](const auto& tensor) {
    if (tensor) tensor.read([&](const auto* host) { values.insert(values.end(), host, host + tensor.count()); });
  };
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets()) {
      auto& state = engine.state().of(b);
      add(b.values), add(state.master), add(state.moments[0]), add(state.moments[1]);
    }
  return values;
}

template <class P>
Batch<DeviceOf<P>> batch_of(World<P>& world, Size step) {
  using Ids = Tensor<std::int32_t, 2, DeviceOf<P>>;
  Batch<DeviceOf<P>> batch{Ids::uninitialized(shape(2, 4), world.memory(), Category::data),
                           Ids::uninitialized(shape(2, 4), world.memory(), Category::data), 2 * world.data_rank()};
  batch.tokens.write([&](std::int32_t* host) {
    for (int i = 0; i < 8; ++i) host[i] = static_cast<std::int32_t>((3 * i + step + world.data_rank()) % 13);
  });
  batch.targets.write([&](std::int32_t* host) {
    for (int i = 0; i < 8; ++i) host[i] = static_cast<std::int32_t>((3 * i + 3 + step) % 13);
  });
  return batch;
}

template <class P, class F>
PendingReport one_micro_step(World<P>& world, Engine<TinyModel<P>, AdamW>& engine, Size step, F before_step) {
  const auto batch = batch_of(world, step);
  auto loss = engine.forward(batch);
  engine.backward(loss);
  before_step();
  return engine.step();
}
template <class P>
PendingReport one_step(World<P>& world, Engine<TinyModel<P>, AdamW>& engine, Size step) {
  return one_micro_step(world, engine, step, [] {});
}

/// A model whose loss has a factor.
template <class P>
struct Scaled : TinyModel<P> {
  const double* factor;

  explicit Scaled(const double* by) : TinyModel<P>(TinyConfig{}), factor(by) {}
  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return TinyModel<P>::loss(ids, targets) * *factor;
  }
};

template <class P>
Engine<TinyModel<P>, AdamW> engine_in(World<P>& world, double largest_norm) {
  return {world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 1e-2},
          EngineConfig{.bucket_bytes = 256, .skip_nonfinite = 1, .largest_norm = largest_norm, .check_ranks = 0}};
}

/// The bytes that the replicas exchange in a step, and whether it was skipped.
template <class P>
std::pair<Size, bool> bytes_of_step(World<P>& world, Engine<TinyModel<P>, AdamW>& engine) {
  const auto& traffic = world.replicas().traffic();
  const auto sent = [&] {
    return traffic.bytes(Collective::all_reduce) + traffic.bytes(Collective::reduce_scatter) +
           traffic.bytes(Collective::all_gather);
  };
  const Size before = sent();
  const bool skipped = one_step(world, engine, 1)->skipped;
  engine.replicas().complete_all();
  return {sent() - before, skipped};
}

template <class P>
void skip_a_step(int ranks) {
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    auto updating = engine_in(world, 1e9), skipping = engine_in(world, 1e-9);
    const auto initial = values_of(updating);
    CHECK(values_of(skipping) == initial);
    const auto [bytes, none] = bytes_of_step(world, updating);
    const auto [bytes_of_skipped, skipped] = bytes_of_step(world, skipping);
    CHECK(!none);
    CHECK(skipped);
    CHECK(bytes_of_skipped == bytes);
    CHECK(values_of(updating) != initial);
    CHECK(values_of(skipping) == initial);
  });
}

}  // namespace

TEST_CASE("a step that the device skips changes no bit, and sends what any step sends") {
  skip_a_step<Policy<F64, Far>>(2);
  skip_a_step<Policy<F64, Zero<1>, Far>>(2);
  skip_a_step<Policy<F64, Zero<2>, Far>>(3);
  skip_a_step<Policy<F64, Zero<3>, Far>>(2);
}

template <class P>
void wait_for_no_value(std::initializer_list<int> all_ranks, Size check_ranks = 0) {
  for (const int ranks : all_ranks)
    for (const Size accumulate : {1, 3})
      run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
        Engine engine(world, TinyModel<P>(TinyConfig{}), AdamW{}, BatchSizes{.accumulate = accumulate},
                      EngineConfig{.clip_norm = 1, .check_ranks = check_ranks});
        const auto waits = [&] { return far_device::of(world.memory()).waits(); };
        for (Size step = 0; step < 3; ++step) {
          std::vector<Batch<Far>> batches;
          for (Size a = 0; a < accumulate; ++a) batches.push_back(batch_of(world, step));
          const bool checks = engine.rank_check().due();
          CHECK(checks == (check_ranks > 0 && ranks > 1 && step == 0));
          const Size before = waits();
          const auto report = engine.train_batch(batches);
          const Size issued = waits();
          CHECK(report.acted());
          CHECK((issued > before) == checks);
          CHECK(report->gradient_norm > 0);
          CHECK(waits() == issued + 1);
          CHECK(engine.steps() == step + 1);
          CHECK(report->targets == static_cast<double>(8 * accumulate * world.replicas().size()));
          CHECK(waits() == issued + 1);
        }
      });
}

TEST_CASE("inside a step the host waits for nothing") {
  wait_for_no_value<Policy<F64, Far>>({1, 2, 3});
  wait_for_no_value<Policy<F64, Zero<1>, Far>>({2});
  wait_for_no_value<Policy<F64, Zero<2>, Far>>({3});
  wait_for_no_value<Policy<F64, Zero<3>, Tp<2>, Far>>({4});
}

TEST_CASE("inside a step in which no check of the ranks is due the host waits for nothing, under each stage") {
  wait_for_no_value<Policy<F64, Far>>({1, 2}, 100);
  wait_for_no_value<Policy<F64, Zero<1>, Far>>({2}, 100);
  wait_for_no_value<Policy<F64, Zero<2>, Far>>({3}, 100);
  wait_for_no_value<Policy<F64, Zero<3>, Far>>({2}, 100);
  wait_for_no_value<Policy<F64, Zero<3>, Tp<2>, Far>>({4}, 100);
}

namespace {

struct Flip {
  int odd = 0;
  Size step = 0, micro_step = 0;
  bool at_rest = false;  ///< in the sum so far, in memory; else in a reduction's result
};

/// Issues the flip of a bit.
inline void flip_in(Pool&, std::byte* at, Cpu) {
  *at ^= std::byte{4};
}
inline void flip_in(Pool& pool, std::byte* at, Far) {
  far_device::of(pool).issue([at] { *at ^= std::byte{4}; });
}

/// Trains with the default checks until the flip is found: in its step, on every rank, before anything is updated. The
/// step is then taken without it. Returns the sentence.
template <class P>
std::string sentence_of(int ranks, const Flip& flip) {
  std::vector<std::string> sentences(static_cast<std::size_t>(ranks), "no error");
  bool armed = false;  // of the odd rank
  const auto damage = [&](int rank, Purpose purpose, Buffer out) {
    if (rank == flip.odd && purpose == Purpose::gradient && std::exchange(armed, false)) flip_bit(out, 27);
  };
  run_damaged<P>(ranks, damage, [&](World<P>& world) {
    Engine engine(world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 1e-2}, BatchSizes{.accumulate = 3},
                  EngineConfig{.bucket_bytes = 256});
    const auto take = [&](Size step, bool flips_here) {
      PendingReport report;
      for (Size a = 0; a < 3; ++a) {
        const bool flips = flips_here && world.rank() == flip.odd && a == flip.micro_step;
        if (flips && !flip.at_rest) armed = true;
        report = one_micro_step(world, engine, step, [&] {
          engine.replicas().complete_all();
          if (flips && flip.at_rest)
            flip_in(world.memory(), engine.units()[0]->buckets()[0].reduced.data() + 3, DeviceOf<P>());
        });
      }
      report.get();
    };
    for (Size step = 0; step < flip.step; ++step) take(step, false);
    const auto before = values_of(engine);
    try {
      take(flip.step, true);
    } catch (const Error& error) {
      sentences[static_cast<std::size_t>(world.rank())] = error.what();
    }
    CHECK(engine.steps() == flip.step);
    CHECK(values_of(engine) == before);
    take(flip.step, false);
    CHECK(engine.steps() == flip.step + 1);
  });
  for (const std::string& sentence : sentences) CHECK(sentence == sentences[0]);
  return sentences[0];
}

template <class Z, class... Cut>
void find_flips(int ranks, std::initializer_list<bool> at_rests) {
  for (const bool at_rest : at_rests)
    for (const Size step : {0, 2})  // the first checks the ranks
      for (const Size micro_step : {0, 1, 2}) {
        const Flip flip{static_cast<int>(micro_step) % ranks, step, micro_step, at_rest};
        const std::string sentence = sentence_of<Policy<F64, Z, Cut..., Far>>(ranks, flip);
        CAPTURE(sentence);
        CHECK(sentence == sentence_of<Policy<F64, Z, Cut...>>(ranks, flip));
        const bool unchanged = at_rest || step > 0;
        CHECK(sentence.rfind(unchanged ? "dspp: a reduced gradient needs to stay unchanged until the update, but on "
                                       : "dspp: a reduced gradient needs to be the sum over the replicas, but that of ",
                             0) == 0);
        CHECK(sentence.find(" on rank " + std::to_string(flip.odd) + " ") != std::string::npos);
        CHECK(sentence.find(", in step " + std::to_string(step + 1) + ". Nothing was updated") != std::string::npos);
      }
}

}  // namespace

TEST_CASE("a bit flipped in a reduced gradient on the device is found there in its step, with the Cpu's sentence") {
  find_flips<Zero<1>>(2, {false});
  find_flips<Zero<2>>(3, {false, true});
  find_flips<Zero<3>>(2, {false, true});
  find_flips<Zero<3>, Tp<2>>(4, {true});
}

namespace {
/// Losses, norms and the state after steps whose targets weigh 0 to 3.
template <class P>
std::vector<double> train_weighed() {
  std::vector<double> seen;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    auto engine = engine_in(world, 0);
    std::vector<double> own;
    for (Size step = 0; step < 3; ++step) {
      auto batch = batch_of(world, step);
      batch.target_weights = Tensor<float, 2, DeviceOf<P>>::uninitialized(shape(2, 4), world.memory(), Category::data);
      batch.target_weights.write([&](float* host) {
        for (Size i = 0; i < 8; ++i) host[i] = static_cast<float>((i + step + world.rank()) % 4);
      });
      const Size waits = far_device::waits(world.memory());
      const auto report = engine.train_batch(batch);
      CHECK(far_device::waits(world.memory()) == waits);
      own.push_back(report->loss), own.push_back(report->gradient_norm), own.push_back(report->targets);
    }
    const auto values = values_of(engine);
    own.insert(own.end(), values.begin(), values.end());
    if (world.is_first()) seen = own;
  });
  return seen;
}
}  // namespace

TEST_CASE("targets that weigh have the Cpu's bits on the device") {
  const auto near = train_weighed<Policy<F64, Zero<2>>>();
  CHECK(near[2] == 24);  // of 16 targets
  CHECK(train_weighed<Policy<F64, Zero<2>, Far>>() == near);
}

/// A step that throws on two ranks, and then each call that finishes it.
template <class P>
void throw_late() {
  const Folder folder;
  using OfP = Engine<TinyModel<P>, AdamW>;
  struct Call {
    const char* name;
    std::function<void(World<P>&, OfP&)> make;
  };
  const Call calls[] = {
      {"forward", [](World<P>& world, OfP& engine) { engine.forward(batch_of(world, 2)); }},
      {"train_batch", [](World<P>& world, OfP& engine) { engine.train_batch(std::vector{batch_of(world, 2)}); }},
      {"no_grad", [](World<P>&, OfP& engine) { engine.no_grad([](auto&, auto&) { return 0; }); }},
      {"all_reduce_mean", [](World<P>&, OfP& engine) { engine.all_reduce_mean(1.0); }},
      {"set_parameter",
       [](World<P>&, OfP& engine) { set_parameter(engine, "inside.norm.weight", std::vector<double>(8, 2.0)); }},
      {"save_weights", [&](World<P>&, OfP& engine) { save_weights(engine, folder.file("late")); }},
      {"load_weights", [&](World<P>&, OfP& engine) { load_weights(engine, folder.file("weights")); }},
      {"save_checkpoint", [&](World<P>&, OfP& engine) { save_checkpoint(engine, folder.file("late")); }},
      {"load_checkpoint", [&](World<P>&, OfP& engine) { load_checkpoint(engine, folder.file("checkpoints")); }},
      {"resume", [](World<P>&, OfP& engine) { engine.resume({.learning_rate = 1}); }},
      {"eval_batch", [](World<P>& world, OfP& engine) { engine.eval_batch(batch_of(world, 2)); }},
      {"gather_parameter", [](World<P>&, OfP& engine) { engine.gather_parameter("tokens.weight"); }},
      {"progress", [](World<P>&, OfP& engine) { engine.progress(); }},
      {"steps", [](World<P>&, OfP& engine) { engine.steps(); }},
      {"weights", [](World<P>&, OfP& engine) { engine.weights(); }},
      {"state", [](World<P>&, OfP& engine) { engine.state(); }},
      {"restart", [](World<P>&, OfP& engine) { engine.restart(0); }},
  };
  const auto is_spike = [](const Error& error) {
    return std::string_view(error.what()).find("gradient norms of at most") != std::string_view::npos;
  };
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    auto other = engine_in(world, 0);
    one_step(world, other, 0).get();
    save_weights(other, folder.file("weights"));
    save_checkpoint(other, folder.file("checkpoints"));
  });
  for (const bool reads : {true, false})
    for (const Call& call : calls)
      run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
        CAPTURE(call.name);
        OfP engine(world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 1e-2},
                   EngineConfig{.largest_norm = 1e-9, .check_ranks = 0});
        const auto initial = values_of(engine);
        int thrown = 0;
        const auto report = one_step(world, engine, 1);
        const auto counted = [&](auto f) {
          try {
            f();
          } catch (const Error& error) {
            CHECK(is_spike(error));
            ++thrown;
          }
        };
        if (reads) counted([&] { report.get(); });
        counted([&] { call.make(world, engine); });
        CHECK(thrown == 1);  // once: the engine goes on
        counted([&] { report.get(); });
        CHECK(thrown == 2);  // the report keeps it
        if (reads) return;   // the call did what it does
        CHECK(engine.steps() == 0);
        CHECK(values_of(engine) == initial);
      });
}

TEST_CASE("what a step throws is thrown by its report, and at the latest by the next step, read or save") {
  throw_late<Policy<F64, Far>>();
  throw_late<Policy<F64, Zero<1>, Far>>();
  throw_late<Policy<F64, Tp<2>, Far>>();
}

TEST_CASE("reports are kept while later steps are taken, and those of an engine that is gone say so") {
  using P = Policy<F64, Far>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    std::vector<PendingReport> reports;
    std::vector<double> losses;
    {
      auto reading = engine_in(world, 0), running = engine_in(world, 0);
      for (Size step = 0; step < 4; ++step) {
        losses.push_back(one_step(world, reading, step)->loss);
        reports.push_back(one_step(world, running, step));
      }
    }
    for (std::size_t step = 0; step < 3; ++step) CHECK(reports[step]->loss == losses[step]);
    CHECK(reports[3].acted());
    CHECK_THROWS_WITH_AS(reports[3].get(),
                         "dspp: a step's report needs its engine until the step is finished, but the engine was "
                         "destroyed. Read the report before.",
                         Error);
  });
}

TEST_CASE("a loss that is not finite is found with its rank, and with its module where the batch is still there") {
  using P = Policy<F64, Far>;
  for (const Size bad : {0, 1})
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      double factor = 1;
      Engine engine(world, Scaled<P>(&factor), AdamW{}, BatchSizes{.accumulate = 2},
                    EngineConfig{.skip_nonfinite = 1, .check_ranks = 0});
      PendingReport report;
      for (Size a = 0; a < 2; ++a) {
        factor = a == bad && world.rank() == 1 ? std::nan("") : 1;
        const auto batch = batch_of(world, a);
        auto loss = engine.forward(batch);
        engine.backward(loss);
        report = engine.step();
      }
      CHECK(report->skipped);
      CHECK(report->nonfinite.kind == NonFinite::Kind::output);
      CHECK(report->nonfinite.rank == 1);
      CHECK(report->nonfinite.name.empty() == (bad == 0));
    });
}

TEST_CASE("a report is a value: what is bound to a temporary lives on") {
  static_assert(std::is_same_v<decltype(std::declval<PendingReport>().get()), StepReport>);
  static_assert(std::is_same_v<decltype(std::declval<const PendingReport&>().get()), const StepReport&>);
  static_assert(!std::is_convertible_v<PendingReport, StepReport&>);
  using P = Policy<F64, Far>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    auto engine = engine_in(world, 0);
    const StepReport& converted = one_step(world, engine, 0);
    const auto& got = one_step(world, engine, 1).get();
    CHECK(converted.acted);
    CHECK(got.acted);
    CHECK(converted.loss != got.loss);
  });
}

TEST_CASE("under F16 an overflow that nobody has read lowers the scale before the next seed, as on the Cpu") {
  const auto scales = []<class D>(D) {
    using P = Policy<F16, Zero<1>, D>;
    std::vector<double> seen;
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      double factor = 1;
      Engine engine(world, Scaled<P>(&factor), AdamW{},
                    EngineConfig{.loss_scale = {.initial = 1024, .window = 2, .hysteresis = 1}, .check_ranks = 0});
      std::vector<PendingReport> reports;
      for (Size step = 0; step < 6; ++step) {
        factor = step == 1 && world.rank() == 1 ? 1e6 : 1;
        const auto batch = batch_of(world, step);
        auto loss = engine.forward(batch);
        engine.backward(loss);
        reports.push_back(engine.step());
      }
      if (!world.is_first()) {
        for (const PendingReport& report : reports) report.get();
        return;
      }
      for (const PendingReport& report : reports)
        seen.insert(seen.end(), {report->loss_scale, report->loss, static_cast<double>(report->skipped)});
      seen.push_back(static_cast<double>(engine.steps()));
    });
    return seen;
  };
  const auto far = scales(Far()), cpu = scales(Cpu());
  CHECK(far == cpu);
  CHECK(far[3 * 1 + 2] == 1);  // skipped
  CHECK(far[3 * 2] == 512);
  CHECK(far.back() == 5);
}

TEST_CASE("errors of counts are thrown where the step is finished, on every rank, and no target is one of them") {
  using P = Policy<F64, Far>;
  for (const bool ignored : {false, true})
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      Engine engine(world, TinyModel<P>(TinyConfig{}), AdamW{}, EngineConfig{.check_ranks = 0});
      auto batch = batch_of(world, 0);
      batch.targets.fill(ignored ? ignored_target : 1);
      auto loss = engine.forward(batch);
      engine.backward(loss);
      const auto report = engine.step();
      std::string said = "no error";
      try {
        report.get();
      } catch (const Error& error) {
        said = error.what();
      }
      CHECK(said == (ignored ? "dspp: step needs a target that counts, but all of the global batch are ignored or "
                               "weigh 0. Leave it out."
                             : "no error"));
      CHECK(engine.steps() == (ignored ? 0 : 1));
    });
}

TEST_CASE("of several micro-steps in flight the first loss that is not finite is named by its rank") {
  using P = Policy<F64, Far>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    double factor = 1;
    Engine engine(world, Scaled<P>(&factor), AdamW{}, BatchSizes{.accumulate = 2},
                  EngineConfig{.skip_nonfinite = 1, .check_ranks = 0});
    auto one = engine.micro_step(), two = engine.micro_step();
    const auto batch = batch_of(world, 0), other = batch_of(world, 1);
    const auto first = engine.forward(one, batch);
    factor = world.rank() == 1 ? std::nan("") : 1;
    const auto second = engine.forward(two, other);
    engine.backward(two, second);
    engine.step();
    engine.backward(one, first);
    const StepReport report = engine.step();
    CHECK(report.skipped);
    CHECK(report.nonfinite.rank == 1);
  });
}
