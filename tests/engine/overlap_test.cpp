// SPDX-License-Identifier: Apache-2.0
// What is gathered ahead, what stays from forward to backward, and Overlap<Off>: the same bits, the planned bytes and
// calls, and the traffic of the formulas.
// labels: engine thread
#include <vector>

#include <dspp/optim.hpp>
#include <laws/delayed_updates.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

Size gathered(const Trained& trained) {
  return trained.ranks[0].replicas.bytes(Collective::all_gather, Purpose::parameter);
}
Size peak(const Trained& trained) {
  return trained.ranks[0].peak;
}

template <class... More>
void check_windows(Cell cell) {
  CAPTURE(cell.ranks);
  const Trained plain = train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell);
  const Size psi = plain.ranks[0].psi, replicas = cell.ranks / plain.facts.tp, part = psi / replicas * (replicas - 1);
  CHECK(gathered(plain) == 2 * cell.accumulate * part);

  cell.prefetch_bytes = 0;
  const Trained none = train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell);
  check_same_bits(none, plain);
  CHECK(gathered(none) == gathered(plain));
  CHECK(peak(none) <= peak(plain));
  cell.prefetch_bytes = psi;
  const Trained all = train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell);
  check_same_bits(all, plain);
  CHECK(gathered(all) == gathered(plain));
  CHECK(peak(all) > peak(plain));
  cell.prefetch_bytes = psi / 3;
  const Trained third = train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell);
  check_same_bits(third, plain);
  CHECK(peak(third) <= peak(all));
  CHECK(peak(third) > peak(none));

  cell.prefetch_bytes = next_unit, cell.live_bytes = psi;
  const Trained once = train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell);
  check_same_bits(once, plain);
  CHECK(gathered(once) == cell.accumulate * part);
  cell.live_bytes = psi / 2;
  const Trained half = train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell);
  check_same_bits(half, plain);
  CHECK(gathered(half) < gathered(plain));
  CHECK(gathered(half) > gathered(once));
  cell.prefetch_bytes = psi;
  check_same_bits(train_as_values<AdamW, Policy<Zero<3>, More...>, More...>(cell), plain);
}

}  // namespace

TEST_CASE("windows of bytes: gathers ahead have the bits and the traffic of those when used; live values come once") {
  check_windows<F64>({.ranks = 2, .steps = 2, .layers = 4});
  check_windows<F64>({.ranks = 3, .accumulate = 2, .steps = 2, .layers = 3});
  check_windows<Bf16>({.ranks = 4, .steps = 2, .layers = 3});
  check_windows<F64, Tp<2>, SequenceParallel>({.ranks = 4, .steps = 2, .layers = 2});
}

TEST_CASE("a stack that runs segments again gathers live blocks once") {
  Cell cell{.ranks = 2, .steps = 2, .layers = 4, .segments = 2};
  const Trained plain = train_as_values<AdamW, Policy<Zero<3>, F64>, F64>(cell);
  cell.live_bytes = cell.prefetch_bytes = plain.ranks[0].psi;
  const Trained live = train_as_values<AdamW, Policy<Zero<3>, F64>, F64>(cell);
  check_same_bits(live, plain);
  CHECK(2 * gathered(live) == plain.ranks[0].psi);
}

TEST_CASE("Overlap<Off> has the bits, the traffic and no more memory, in every stage") {
  const Cell cell{.ranks = 3, .accumulate = 2, .steps = 3, .layers = 3};
  const auto check = [&](const Trained& off, const Trained& on) {
    check_same_bits(off, on);
    for (std::size_t r = 0; r < on.ranks.size(); ++r) {
      CHECK(off.ranks[r].replicas == on.ranks[r].replicas);
      CHECK(off.ranks[r].peak <= on.ranks[r].peak);
    }
  };
  check(train_as_values<AdamW, Policy<Zero<0>, Overlap<Off>, F64>, F64>(cell),
        train_as_values<AdamW, Policy<Zero<0>, F64>, F64>(cell));
  check(train_as_values<AdamW, Policy<Zero<1>, Overlap<Off>, F64>, F64>(cell),
        train_as_values<AdamW, Policy<Zero<1>, F64>, F64>(cell));
  check(train_as_values<AdamW, Policy<Zero<2>, Overlap<Off>, F64>, F64>(cell),
        train_as_values<AdamW, Policy<Zero<2>, F64>, F64>(cell));
  check(train_as_values<AdamW, Policy<Zero<3>, Overlap<Off>, F64>, F64>(cell),
        train_as_values<AdamW, Policy<Zero<3>, F64>, F64>(cell));
}

TEST_CASE("of quantized reductions in two hops, Overlap<Off> has the bits and the traffic, and no more memory") {
  const Cell cell{.ranks = 4, .accumulate = 2, .steps = 3, .layers = 3, .ranks_per_node = 2};
  const auto check = [&]<class... P>(P...) {
    const Trained on = train_as_values<AdamW, Policy<P..., F64>, F64>(cell);
    const Trained off = train_as_values<AdamW, Policy<P..., Overlap<Off>, F64>, F64>(cell);
    check_same_bits(off, on);
    for (std::size_t r = 0; r < on.ranks.size(); ++r) {
      CHECK(off.ranks[r].node == on.ranks[r].node);
      CHECK(off.ranks[r].across == on.ranks[r].across);
      CHECK(off.ranks[r].peak <= on.ranks[r].peak);
    }
  };
  check(Zero<1>(), ReduceAs<Int8>());
  check(Zero<2>(), ReduceAs<Int4, LoCo>());
  check(Zero<3>(), SecondaryShards<Node>(), ReduceAs<Int4>());
}

TEST_CASE("a step that is given up with reductions in flight, in two hops too, leaves nothing of itself") {
  Cell cell{.ranks = 4, .steps = 3, .ranks_per_node = 2};
  using P = Policy<F64>;
  const auto check = [&]<class Q>(Q) {
    const auto course = [&](bool gives_up) {
      return course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
        for (int step = 0; step < cell.steps; ++step) {
          take_step(world, engine, cell, step, course, [] {});
          if (step > 0) continue;
          auto batch = batch_of(world.memory(), 0, 0, 2, cell.sequence, small_gpt().vocabulary);
          if (gives_up) engine.backward(engine.forward(batch));
          engine.restart(1);
        }
      });
    };
    check_same_course(course(true), course(false));
  };
  check(Policy<F64, Zero<2>>());
  check(Policy<F64, Zero<2>, ReduceAs<Int4>>());
  check(Policy<F64, Zero<3>, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int8>>());
}

TEST_CASE(
    "progress threads leave bits, traffic and memory as they are, in every stage and by node, ranks x2 the cores") {
  const auto check = [&]<class P>(P, int ranks, int ranks_per_node = 0) {
    Cell cell{.ranks = ranks, .steps = 3, .bucket_elements = 40'000, .layers = 2, .width = 96};
    cell.ranks_per_node = ranks_per_node, cell.async_progress = AsyncProgress::off;
    const Trained off = train_as_values<AdamW, P, F64>(cell);
    cell.async_progress = AsyncProgress::on;
    const Trained on = train_as_values<AdamW, P, F64>(cell);
    check_same_bits(on, off);
    for (std::size_t r = 0; r < on.ranks.size(); ++r) {
      CHECK(on.ranks[r].replicas == off.ranks[r].replicas);
      CHECK(on.ranks[r].peak == off.ranks[r].peak);
    }
  };
  for (int ranks : {2, 3, 4}) check(Policy<Zero<0>, F64>(), ranks);
  check(Policy<Zero<1>, F64>(), 2);
  check(Policy<Zero<2>, F64>(), 3);
  check(Policy<Zero<3>, F64>(), 4);
  check(Policy<Zero<3>, SecondaryShards<Node>, F64>(), 4, 2);
  check(Policy<Zero<2>, ReduceAs<Int8>, F64>(), 4, 2);
}

TEST_CASE("by node: the same windows over secondary shards, shards within nodes and quantized traffic") {
  Cell cell{.ranks = 4, .accumulate = 2, .steps = 2, .layers = 3, .ranks_per_node = 2};
  const auto check = [&]<class P>(P) {
    const Trained plain = train_as_values<AdamW, P, F64>(cell);
    Cell windows = cell;
    windows.prefetch_bytes = windows.live_bytes = plain.ranks[0].psi;
    check_same_bits(train_as_values<AdamW, P, F64>(windows), plain);
    windows.live_bytes = 0, windows.prefetch_bytes /= 2;
    check_same_bits(train_as_values<AdamW, P, F64>(windows), plain);
  };
  check(Policy<Zero<3>, SecondaryShards<Node>, F64>());
  check(Policy<Zero<3>, Shards<Within<Node>>, F64>());
  check(Policy<Zero<3>, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int4>, F64>());
}

TEST_CASE("values that stayed are not those of the step before: forwards without backward, evaluations, and both") {
  const GptConfig model{.layers = 3, .width = 16, .heads = 2, .vocabulary = 16, .sequence = 8};
  const auto losses_with = [&](Size live_bytes) {
    std::vector<double> losses;
    using P = Policy<Zero<3>, F64>;
    run<P>({.ranks = 2}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 2, .sequence = 8};
      Engine engine{world, Gpt<P>{model}, AdamW{.lr = 0.05}, sizes,
                    EngineConfig{.prefetch_bytes = live_bytes, .live_bytes = live_bytes}};
      const Size engine_state = world.memory().live_by_category()[Category::parameters];
      std::vector<double> own;
      for (Size step = 0; step < 4; ++step) {
        const auto batch = batch_of<Cpu>(world.memory(), 4 * step, 2 * world.rank(), 2, 8, 16);
        own.push_back(engine.value_of(engine.forward(batch)));  // and no backward
        own.push_back(engine.eval_batch(batch).mean);
        const auto loss = engine.forward(batch);
        own.push_back(engine.value_of(loss));
        if (step == 2) own.push_back(engine.eval_batch(batch).mean);
        if (step == 2) continue;
        engine.backward(loss);
        const StepReport report = engine.step();
        CHECK(!report.skipped);
        CHECK(world.memory().live_by_category()[Category::parameters] == engine_state);
        own.push_back(engine.eval_batch(batch).mean);
      }
      if (world.rank() == 0) losses = own;
    });
    return losses;
  };
  const std::vector<double> plain = losses_with(0);
  CHECK(losses_with(1 << 20) == plain);
  CHECK(losses_with(6000) == plain);
}

TEST_CASE("a number of bytes below zero is an error in one sentence") {
  const auto refused = [](const EngineConfig& config) { check_engine_config(config); };
  CHECK_THROWS_WITH_AS(refused({.prefetch_bytes = -2}),
                       "dspp: Engine needs prefetch_bytes and live_bytes of at least 0, but got less. Raise them, or "
                       "leave them out.",
                       Error);
  CHECK_THROWS_AS(refused({.live_bytes = -1}), Error);
  CHECK_NOTHROW(refused({.prefetch_bytes = 0}));
}

TEST_CASE("a plan at given rates says how much of the traffic computation hides") {
  constexpr GptConfig config{.layers = 12, .width = 64, .heads = 4, .sequence = 64};
  constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 64};
  const auto seconds = [&]<class P>(P, double bytes_per_second) {
    const PlanOptions options{.data = 8, .rates = {.flops_per_second = 1e12, .bytes_per_second = bytes_per_second}};
    return plan<Gpt<P>>(config, sizes, options).seconds;
  };
  using Three = Policy<Zero<3>>;
  const StepSeconds fast = seconds(Three(), 1e12), slow = seconds(Three(), 1e9);
  CHECK(fast.computing == slow.computing);
  CHECK(relative_gap({1000 * fast.moving}, {slow.moving}) < 1e-12);
  CHECK(fast.hidden() > 0.8);
  CHECK(slow.hideable() < 1);
  CHECK(slow.hidden() <= slow.hideable() + 1e-12);
  CHECK(slow.hidden() > 0.7 * slow.hideable());
  const StepSeconds off = seconds(Policy<Zero<3>, Overlap<Off>>(), 1e12);
  CHECK(off.moving == fast.moving);
  CHECK(relative_gap({off.waiting}, {off.moving}) < 1e-12);
  // Under every stage: reductions beside backward, gathers of updated values beside the next forward.
  for (const StepSeconds& each :
       {seconds(Policy<Zero<0>>(), 1e11), seconds(Policy<Zero<1>>(), 1e11), seconds(Policy<Zero<2>>(), 1e11)}) {
    CHECK(relative_gap({each.moving}, {fast.moving * 10 * 2 / 3}) < 1e-9);
    CHECK(each.hidden() > 0.85);
  }
  const StepSeconds off_one = seconds(Policy<Zero<1>, Overlap<Off>>(), 1e11);
  CHECK(relative_gap({off_one.waiting}, {off_one.moving}) < 1e-12);
  // Of quantized reductions in two hops, too.
  constexpr double bytes_per_second = 1e11;
  const auto by_node = [&]<class P>(P, Size layers = 12) {
    GptConfig of = config;
    of.layers = layers;
    const PlanOptions options{.data = 8,
                              .ranks_per_node = 4,
                              .bucket_bytes = 64_KiB,
                              .rates = {.flops_per_second = 1e12, .bytes_per_second = bytes_per_second}};
    return plan<Gpt<P>>(of, sizes, options);
  };
  const Plan hops = by_node(Policy<Zero<2>, ReduceAs<Int4>>());
  const auto gathers_of = [&](const Plan& paper) {
    return static_cast<double>(paper.replica_traffic.bytes(Purpose::parameter)) / bytes_per_second;
  };
  const double gathers = gathers_of(hops), reductions = hops.seconds.moving - gathers;
  const double block = gathers - gathers_of(by_node(Policy<Zero<2>, ReduceAs<Int4>>(), 11));
  // Of gathers at most the root's and the first block's are waited for, which forward reads at once.
  const double root = gathers - 12 * block;
  CHECK(hops.seconds.waiting - root - block < 0.1 * reductions);
  const StepSeconds hops_off = by_node(Policy<Zero<2>, ReduceAs<Int4>, Overlap<Off>>()).seconds;
  CHECK(relative_gap({hops_off.waiting}, {hops.seconds.moving}) < 1e-12);
  const StepSeconds none = plan<Gpt<Three>>(config, sizes, {.data = 8}).seconds;
  CHECK(none.step() == 0);
  CHECK_THROWS_WITH_AS(plan<Gpt<Three>>(config, sizes, {.data = 8, .rates = {.bytes_per_second = 1}}),
                       "dspp: plan needs both rates above 0, or neither, but got others. Name both.", Error);
}

TEST_CASE("what moves in a plan's time is what its replicas' traffic says, by node and in two operations, too") {
  constexpr GptConfig config{.layers = 3, .width = 64, .heads = 4, .sequence = 64};
  constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 64};
  const auto check = [&]<class P>(P, PlanOptions options) {
    options.rates = {.flops_per_second = 1e12, .bytes_per_second = 1};
    const Plan paper = plan<Gpt<P>>(config, sizes, options);
    Size bytes = 0;
    for (const Traffic& of : {paper.replica_traffic, paper.node_traffic, paper.across_traffic})
      bytes += of.bytes(Purpose::parameter) + of.bytes(Purpose::gradient);
    CHECK(relative_gap({paper.seconds.moving}, {static_cast<double>(bytes)}) < 1e-12);
  };
  const PlanOptions flat{.data = 8}, nodes{.data = 8, .ranks_per_node = 4},
      ring{.data = 8, .sum_order = SumOrder::transport};
  for (const PlanOptions& options : {flat, nodes, ring}) {
    check(Policy<Zero<0>>(), options);
    check(Policy<Zero<1>>(), options);
    check(Policy<Zero<3>>(), options);
    check(Policy<Zero<3>, SecondaryShards<Node>>(), options);
    check(Policy<Zero<3>, Shards<Within<Node>>>(), options);
    check(Policy<Zero<2>, ReduceAs<Int4>>(), options);
    check(Policy<Zero<3>, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int8>>(), options);
  }
}
