// SPDX-License-Identifier: Apache-2.0
// ZenFlow: important rows in each step, the others in rounds: by hand, under every stage, and beside other members.
// labels: engine thread
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <thread>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/offload_states.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/optim.hpp>

#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>
#include <laws/zenflow_updates.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("random schedules have the course of one by hand, skipped steps among them") {
  std::mt19937 random(14);
  const auto draw = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  using P = Policy<F64>;
  for (int i = 0; i < (sanitizer == Sanitizer::none ? 8 : 2); ++i) {
    CAPTURE(i);
    const Size interval = draw(1, 4);
    Cell cell{.ranks = draw(1, 3), .accumulate = draw(1, 2), .steps = 12, .clip_norm = draw(0, 1) * 0.2};
    cell.zenflow = {.topk_ratio = draw(0, 6) * 0.1,
                    .update_interval = interval,
                    .select_interval = interval * draw(1, 3),
                    .full_warm_up_steps = draw(0, 3),
                    .overlap_step = draw(0, 2) > 0};
    CAPTURE(cell.zenflow.topk_ratio);
    CAPTURE(cell.zenflow.select_interval);
    if (i % 2 == 1) {
      auto norms = zenflow_course<P, P>(cell).norms;
      std::sort(norms.begin(), norms.end());
      cell.largest_norm = norms[norms.size() * 2 / 3];
    }
    const Course by_hand = zenflow_by_hand<P, P>(cell);
    CHECK((std::count(by_hand.skipped.begin(), by_hand.skipped.end(), 1) > 0) == (cell.largest_norm > 0));
    check_close_courses(zenflow_course<P, Policy<F64, Zero<0>, ZenFlow>>(cell), by_hand);
    check_close_courses(zenflow_course<P, Policy<F64, Zero<3>, ZenFlow>>(cell), by_hand);
  }
}

TEST_CASE("with masters, and loss scales that overflow, the course is that of one by hand, to their rounding") {
  Cell cell{.ranks = 2, .steps = 12};
  cell.zenflow = {.topk_ratio = 0.1, .update_interval = 2, .select_interval = 12};
  using W = Policy<Bf16>;
  check_close_courses(zenflow_course<W, Policy<Bf16, Zero<2>, ZenFlow>>(cell), zenflow_by_hand<W, W>(cell), 1e-3, 3e-4);
  cell.loss_scale = {.initial = 1 << 18, .window = 2, .hysteresis = 1};
  using H = Policy<F16>;
  const Course by_hand = zenflow_by_hand<H, H>(cell);
  check_close_courses(zenflow_course<H, Policy<F16, Zero<3>, ZenFlow>>(cell), by_hand, 1e-3, 3e-4);
  CHECK(std::count(by_hand.skipped.begin() + 2, by_hand.skipped.end(), 1) > 0);
}

namespace {
thread_local bool is_lane = true;

/// AdamW, but in a lane each range waits first.
struct SlowInLanes {
  static constexpr int moment_count = 2;
  double lr = 1e-3;
  template <class S>
  AdamW::Rule<S> rule(const UpdateScalars& scalars) const {
    if (is_lane) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    return AdamW{.lr = lr}.rule<S>(scalars);
  }
};
}  // namespace

TEST_CASE("an update that takes longer than a round has the bits of one that does not") {
  Cell cell{.ranks = 2, .steps = 7, .check_ranks = 0};
  cell.zenflow = {.topk_ratio = 0.1, .update_interval = 2, .select_interval = 12};
  using P = Policy<F64>;
  const auto course = [&]<class O>(O) {
    return course_of<P, Policy<F64, Zero<1>, ZenFlow>, O>(cell, [&](auto& world, auto& engine, Course& course) {
      is_lane = false;
      for (int step = 0; step < cell.steps; ++step) take_step(world, engine, cell, step, course, [] {});
    });
  };
  check_same_course(course(SlowInLanes()), course(AdamW()));
}

TEST_CASE("rows that Tp cuts are those of the whole matrix") {
  Cell cell{.ranks = 2, .steps = 9, .clip_norm = 0};
  cell.zenflow = {.topk_ratio = 0.3, .update_interval = 2, .select_interval = 4};
  const Course by_hand = zenflow_by_hand<Policy<F64>, Policy<F64>>(cell);
  cell.ranks = 4;
  using Of = Policy<F64, Tp<2>>;
  check_close_courses(zenflow_course<Of, Policy<F64, Tp<2>, Zero<1>, ZenFlow>>(cell), by_hand);
  using Split = Policy<F64, Tp<2>, SequenceParallel>;
  check_close_courses(zenflow_course<Split, Policy<F64, Tp<2>, SequenceParallel, Zero<3>, ZenFlow>>(cell), by_hand);
}

TEST_CASE("where all rows are important, or all are updated at once, the bits are those without") {
  using W = Policy<Bf16>;
  check_like_without<Policy<F64>, Policy<F64, Zero<1>, ZenFlow>, Policy<F64, Zero<1>>>({.ranks = 2, .steps = 7});
  check_like_without<W, Policy<Bf16, Zero<2>, ZenFlow>, Policy<Bf16, Zero<2>>>(
      {.ranks = 2, .accumulate = 2, .steps = 7});
  check_like_without<W, Policy<Bf16, Zero<3>, Gradients<Bf16>, ZenFlow>, Policy<Bf16, Zero<3>, Gradients<Bf16>>>(
      {.ranks = 3, .accumulate = 2, .steps = 7});
  check_like_without<Policy<F64>, Policy<F64, ZenFlow>, Policy<F64>, Sgd>({.ranks = 1, .steps = 7});
  Cell overflows{.ranks = 2, .steps = 12, .loss_scale = {.initial = 1 << 24, .window = 2, .hysteresis = 1}};
  check_like_without<Policy<F16>, Policy<F16, Zero<2>, ZenFlow>, Policy<F16, Zero<2>>>(overflows);
}

TEST_CASE("stages share their bits, and bytes and traffic are the plan's") {
  Cell cell{.ranks = 3, .steps = 9};
  const auto check = [&]<class... P>(P...) {
    const Trained whole = train_as_values<AdamW, Policy<Zero<0>, ZenFlow, P...>, P...>(cell);
    check_same_bits(train_as_values<AdamW, Policy<Zero<1>, ZenFlow, P...>, P...>(cell), whole);
    check_same_bits(train_as_values<AdamW, Policy<Zero<2>, ZenFlow, P...>, P...>(cell), whole);
    const Trained split = train_as_values<AdamW, Policy<Zero<3>, ZenFlow, P...>, P...>(cell);
    check_same_bits(split, whole);
    check_same_bits(
        train_as_values<AdamW, Policy<Zero<3>, ZenFlow, Offload<Optimizer, Host>, Offload<Parameters, Host>, P...>,
                        P...>(cell),
        whole);
    return split;
  };
  for (const bool overlaps : {false, true}) {
    cell.zenflow = {.topk_ratio = 0.2, .update_interval = 2, .select_interval = 4, .overlap_step = overlaps};
    check(F64());
    const Trained split = check(Bf16());
    const Trained without = train_as_values<AdamW, Policy<Bf16, Zero<3>>, Bf16>(cell);
    CHECK(split.losses != without.losses);
    const RankRecord &own = split.ranks[0], &others = without.ranks[0];
    CHECK(own.replicas == others.replicas);
    const Size owned = own.psi / 3 / split.facts.element;
    CHECK(own.resident - others.resident > owned * (overlaps ? 8 : 4));
  }
}

TEST_CASE("without a matrix that is trained, the bits are those without") {
  Cell cell{.ranks = 2, .steps = 6, .clip_norm = 1e-4};
  const auto is_matrix = [](std::string_view name) {
    return name.ends_with("weight") && name.find("norm") == std::string_view::npos;
  };
  cell.groups = {{.name = "matrices", .contains = is_matrix, .frozen = true}};
  check_same_bits(train_as_values<AdamW, Policy<F64, Zero<2>, ZenFlow>, F64>(cell),
                  train_as_values<AdamW, Policy<F64, Zero<2>>, F64>(cell));
}

TEST_CASE("beside what travels by node and quantized, stages share their bits") {
  Cell cell{.ranks = 4, .steps = 7, .ranks_per_node = 2};
  cell.zenflow = {.topk_ratio = 0.2, .update_interval = 2, .select_interval = 4};
  using P = Policy<Bf16>;
  const auto same = [&]<class Q, class R>(Q, R) {
    check_same_course(zenflow_course<P, Q>(cell), zenflow_course<P, R>(cell));
  };
  same(Policy<Bf16, Zero<3>, SecondaryShards<Node>, ZenFlow>(), Policy<Bf16, Zero<3>, ZenFlow>());
  same(Policy<Bf16, Zero<3>, Shards<Within<Node>>, ZenFlow>(), Policy<Bf16, Zero<1>, Shards<Within<Node>>, ZenFlow>());
  same(Policy<Bf16, Zero<2>, ReduceAs<Int8>, ZenFlow>(),
       Policy<Bf16, Zero<2>, ReduceAs<Int8>, ZenFlow, Overlap<Off>>());
}

TEST_CASE("a training that goes on from a save has the bits of the one that saved") {
  const auto check = [&]<class P, class Q>(P, Q, bool overlaps) {
    const Folder folder;
    const std::string path = folder.path.string();
    Cell cell{.ranks = 2, .steps = 11};
    cell.zenflow = {.topk_ratio = 0.2, .update_interval = 3, .select_interval = 3, .overlap_step = overlaps};
    const Course whole = course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        take_step(world, engine, cell, step, course, [] {});
        if (step == 5) save_checkpoint(engine, path);
      }
    });
    const Course resumed = course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < 3; ++step) take_step(world, engine, cell, step, course, [] {});
      course = {};
      load_checkpoint(engine, path);
      for (int step = 6; step < cell.steps; ++step) take_step(world, engine, cell, step, course, [] {});
    });
    CHECK(same_bits(resumed.losses, {whole.losses.begin() + 6, whole.losses.end()}));
    CHECK(resumed.parameters == whole.parameters);
  };
  check(Policy<Bf16>(), Policy<Bf16, Zero<2>, ZenFlow>(), true);
  check(Policy<F64>(), Policy<F64, Zero<3>, ZenFlow>(), false);
}

TEST_CASE("what reads, sets or moves the parameters has all updates, and evaluation does not") {
  using P = Policy<F32>;
  using Q = Policy<F32, Zero<1>, ZenFlow>;
  Cell cell{.ranks = 2, .steps = 8};
  cell.zenflow = {.topk_ratio = 0.2, .update_interval = 2, .select_interval = 4};
  const auto with = [&]<class R>(R, auto f) {
    return course_of<P, R, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        take_step(world, engine, cell, step, course, [] {});
        f(world, engine, step);
      }
    });
  };
  const Course plain = with(Q(), [](auto&, auto&, int) {});
  check_same_course(with(Q(),
                         [&](auto& world, auto& engine, int step) {
                           auto batch = batch_of(world.memory(), step, 0, 2, cell.sequence, 61);
                           engine.eval_batch(batch);
                         }),
                    plain);
  check_same_course(with(Q(),
                         [](auto&, auto& engine, int) {
                           auto& bucket = engine.units()[0]->trained_buckets().first[0];
                           static_cast<void>(engine.state().of(bucket));
                         }),
                    plain);
  // Each step then updates all rows.
  const auto ends = [](auto&, auto& engine, int) { engine.end_update(); };
  check_same_course(with(Q(), ends), with(Policy<F32, Zero<1>>(), ends));
  const Course once = with(Q(), [](auto&, auto& engine, int step) { step == 3 ? engine.end_update() : void(); });
  CHECK(once.losses != plain.losses);
  const auto moved = [](auto&, auto& engine, int step) {
    step == 3 ? (offload_states(engine), reload_states(engine)) : void();
  };
  check_same_course(with(Q(), moved), once);
  check_same_course(with(Q(), [](auto&, auto& engine, int step) { step == 3 ? offload_states(engine) : void(); }),
                    once);
  check_same_course(with(Q(),
                         [](auto&, auto& engine, int step) {
                           if (step != 3) return;
                           const auto& named = engine.inventory().parameters.front();
                           const auto whole = engine.gather_parameter(named.name->text);
                           set_parameter(engine, named.name->text,
                                         std::vector<double>(whole.data(), whole.data() + whole.count()));
                         }),
                    once);
}

TEST_CASE("a step that throws leaves the course, and one that has begun refuses to end updates") {
  using P = Policy<F64>;
  Cell cell{.ranks = 2, .steps = 8};
  cell.zenflow = {.topk_ratio = 0.2, .update_interval = 2, .select_interval = 4};
  const auto course = [&]<class Q>(Q, bool with_spikes) {
    return course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        if (with_spikes && step > 0) {
          auto batch = batch_of(world.memory(), 0, 0, 2, cell.sequence, small_gpt().vocabulary);
          batch.targets.fill(ignored_target);
          engine.backward(engine.forward(batch));
          CHECK_THROWS_AS(engine.end_update(), Error);
          CHECK_THROWS_AS(engine.step(), Error);
        }
        take_step(world, engine, cell, step, course, [] {});
      }
    });
  };
  const Course whole = course(Policy<F64, ZenFlow>(), false);
  check_same_course(course(Policy<F64, ZenFlow>(), true), whole);
  check_same_course(course(Policy<F64, Zero<2>, ZenFlow>(), true), whole);
  check_same_course(course(Policy<F64, Zero<3>, ZenFlow>(), true), whole);
}

TEST_CASE("numbers that cannot be are refused") {
  using P = Policy<F32, ZenFlow>;
  const auto sentence = [](auto config_of_rank) {
    return sentence_of([&] {
      run_ranks_of<P>({.ranks = 2}, [&](World<P>& world) {
        Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, EngineConfig{.zenflow = config_of_rank(world.rank())}};
      });
    });
  };
  const auto starts = [](const std::string& text, const char* begin) { return text.find(begin) != std::string::npos; };
  for (const double ratio : {-0.1, 1.5, std::nan("")})
    CHECK(starts(sentence([&](int) { return ZenFlowConfig{.topk_ratio = ratio}; }), "a topk_ratio from 0 to 1"));
  CHECK(starts(sentence([](int) { return ZenFlowConfig{.full_warm_up_steps = -1}; }),
               "full_warm_up_steps of at least 0"));
  for (const Size interval : {0, -3, 3})
    CHECK(starts(sentence([&](int) { return ZenFlowConfig{.update_interval = interval, .select_interval = 16}; }),
                 "a select_interval that is a multiple"));
  CHECK(starts(sentence([](int rank) { return ZenFlowConfig{.update_interval = 1 + rank, .select_interval = 2}; }),
               "zenflow.update_interval"));
}
