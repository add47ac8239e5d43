// SPDX-License-Identifier: Apache-2.0
// The strategy matrix for all optimizers but AdamW, and for averages of weights: the one-rank curve, the bits of stage
// 0, the cost of the plan.
// labels: engine thread
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim.hpp>
#include <laws/folder.hpp>
#include <laws/stages.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// One engine for all stages, which it is given as values.
template <class O, int Stage, class... More>
Trained train_stage(const Cell& cell) {
  using Model = Gpt<Policy<Zero<Stage>, More...>>;
  const Trained trained = laws::detail::train_as<typename Model::policy, Gpt<Policy<More...>>, O>(cell);
  CAPTURE(Stage);
  check_run(trained);
  for (int r = 0; r < cell.ranks; ++r)
    check_plan(plan_of<Model, O>(cell, r), trained.ranks[static_cast<std::size_t>(r)], r);
  return trained;
}

/// Bytes of updates that all ranks read, along the replicas and along Tp.
Size moved(const Trained& trained, Traffic RankRecord::*group) {
  Size bytes = 0;
  for (const RankRecord& rank : trained.ranks) bytes += (rank.*group).bytes(Collective::all_gather, Purpose::update);
  return bytes;
}

// In constant expressions, too: a moment less of each matrix, its updates gathered, its products counted.
template <class O>
constexpr Plan paper = plan<Gpt<Policy<F64, Zero<1>, Tp<2>>>, O>(small_gpt(), {.micro_batch = 2, .sequence = 8},
                                                                 {.data = 2});
static_assert(paper<Muon>.resident < paper<Lamb>.resident);
static_assert(paper<Muon>.replica_traffic.bytes(Purpose::update) > 0);
static_assert(paper<Muon>.traffic_along.tp.bytes(Purpose::update) > 0);
static_assert(paper<Muon>.backward_flops > paper<Lamb>.backward_flops);
static_assert(paper<Lamb>.replica_traffic.bytes(Purpose::update) == 0);

/// The matrices of both blocks: 12 width^2 elements each.
constexpr Size matrices = 2 * 12 * 24 * 24;

/// Of losses, and of parameters over the largest.
struct Gaps {
  double losses = 1e-9, parameters = 1e-7;
};

template <class O, class... More>
Trained check_split(const Cell& cell, const Trained& one, const Gaps& gaps = {}) {
  CAPTURE(cell.ranks);
  const Trained stage0 = train_stage<O, 0, More...>(cell);
  CHECK(relative_gap(stage0.losses, one.losses) <= gaps.losses);
  CHECK(parameter_gap(stage0, one) <= gaps.parameters);
  check_same_bits(train_stage<O, 3, More...>(cell), stage0);
  return stage0;
}

template <class O>
void check_curves() {
  const Trained one = train_on<Cpu, Gpt<Policy<F64>>, O>({.steps = 2});
  const auto losses = train_on<Cpu, Gpt<Policy<F64>>, O>({.steps = 13}).losses;
  CHECK(losses.back() < 0.99 * losses.front());  // of the same samples
  check_split<O, F64>({.ranks = 1, .steps = 2}, one);
  check_split<O, F64>({.ranks = 3, .steps = 2}, one);
  const Trained accumulated = train_stage<O, 0, F64>({.ranks = 3, .accumulate = 2, .steps = 2});
  CHECK(relative_gap(accumulated.losses, one.losses) <= 1e-9);
  CHECK(parameter_gap(accumulated, one) <= 1e-7);
  if constexpr (dspp::detail::asks_for_matrices<O>) check_split<O, F64, Tp<2>>({.ranks = 4, .steps = 2}, one);
  check_split<O, F64, Tp<2>, SequenceParallel>({.ranks = 4, .steps = 2}, one);
  check_split<O, F64, Cp<2>>({.ranks = 4, .steps = 2}, one);
  check_same_bits(train_on<Far, Gpt<Policy<F64, Zero<3>>>, O>({.ranks = 3, .steps = 2}),
                  train_stage<O, 3, F64>({.ranks = 3, .steps = 2}));
}

/// Scaled losses: steps that overflow change nothing, under every stage.
template <class O>
void check_scaled() {
  const Trained one = train_stage<O, 0, F16>({.ranks = 1, .steps = 2});
  check_split<O, F16>({.ranks = 3, .steps = 2}, one, {1e-4, 1e-2});
  const Cell accumulated{.ranks = 2, .accumulate = 2, .steps = 2};
  check_same_bits(train_stage<O, 1, F16>(accumulated), train_stage<O, 0, F16>(accumulated));
  check_same_bits(train_stage<O, 3, F16>(accumulated), train_stage<O, 2, F16>(accumulated));
  const Cell cell{.ranks = 2, .steps = 8, .loss_scale = {.initial = 0x1p24}};
  const Trained whole = train_on<Cpu, Gpt<Policy<F16>>, O>(cell);
  const Size skipped = whole.ranks[0].skipped;
  CHECK(skipped > 2);
  CHECK(skipped < 8);
  CHECK(whole.ranks[0].loss_scale == std::ldexp(0x1p24, 1 - static_cast<int>(skipped)));
  const Trained far = train_on<Far, Gpt<Policy<F16, Zero<3>>>, O>(cell);
  CHECK(far.losses == whole.losses);
  CHECK(far.parameters == whole.parameters);
  for (const RankRecord& record : far.ranks) {
    CHECK(record.skipped == skipped);
    CHECK(record.loss_scale == whole.ranks[0].loss_scale);
  }
}

}  // namespace

TEST_CASE("f64: Muon's one-rank curve under stages, Tp, sequences and Cp, at the cost of the plan, and far") {
  check_curves<Muon>();
}

TEST_CASE("f64: Lamb's one-rank curve under stages, Tp, sequences and Cp, at the cost of the plan, and far") {
  check_curves<Lamb>();
}

TEST_CASE("f16: Muon and Lamb share the stages' bits at the cost of the plan, and skip the same steps far and near") {
  check_scaled<Muon>();
  check_scaled<Lamb>();
}

namespace {
/// An optimizer of elements with one moment: every stage gives one set of bits.
template <class O>
void check_elements(const Gaps& gaps) {
  const Trained one = train_on<Cpu, Gpt<Policy<F64>>, O>({.steps = 3});
  const auto check = [&](const Cell& cell) {
    CAPTURE(cell.ranks);
    const std::array<Trained, 4> stages{train_stage<O, 0, F64>(cell), train_stage<O, 1, F64>(cell),
                                        train_stage<O, 2, F64>(cell), train_stage<O, 3, F64>(cell)};
    check_stage_bits(stages, gaps.parameters);
    CHECK(relative_gap(stages[0].losses, one.losses) <= gaps.losses);
    CHECK(parameter_gap(stages[0], one) <= gaps.parameters);
    for (int stage : {0, 1}) {
      const RankRecord& record = stages[static_cast<std::size_t>(stage)].ranks[0];
      CHECK(record.state[Category::optimizer] == record.psi / (stage == 0 ? 1 : cell.ranks));
    }
  };
  check({.ranks = 1, .steps = 3});
  check({.ranks = 3, .steps = 3});
  check({.ranks = 2, .accumulate = 3, .steps = 3});
}
}  // namespace

TEST_CASE(
    "f64: Adagrad and MomentumSgd follow their one-rank curves under every stage, at the cost of the plan; the second "
    "far") {
  check_elements<Adagrad>({});
  check_elements<MomentumSgd>({});
  const Cell cell{.ranks = 2, .steps = 2};
  check_same_bits(train_on<Far, Gpt<Policy<F64, Zero<3>>>, MomentumSgd>(cell), train_stage<MomentumSgd, 3, F64>(cell));
}

TEST_CASE("f64: Lion has one set of bits under every stage, at the cost of the plan") {
  check_elements<Lion>(
      {.parameters = 0.06});  // a gradient that is rounding has any sign: three steps of 0.01 both ways
}

namespace {
/// An average of AdamW's weights: every stage gives one set of bits at the cost of its plan, near that of one rank.
template <class... More>
Trained check_averages(const Cell& cell, const Trained& one, double tolerance) {
  CAPTURE(cell.ranks);
  using O = Averaged<AdamW>;
  const std::array<Trained, 4> stages{train_stage<O, 0, More...>(cell), train_stage<O, 1, More...>(cell),
                                      train_stage<O, 2, More...>(cell), train_stage<O, 3, More...>(cell)};
  check_stage_bits(stages, tolerance);
  for (const Trained& stage : stages) {
    CHECK(gap_of(stage.averages, one.averages) <= tolerance);
    CHECK(gap_of(stage.averages, stage.parameters) > 1e-3);
  }
  return stages[3];
}
}  // namespace

TEST_CASE("an average is that of one rank under every stage and world, at the cost of the plan, and on a far device") {
  using O = Averaged<AdamW>;
  const Trained one = train_on<Cpu, Gpt<Policy<F64>>, O>({.steps = 3});
  for (const int ranks : {1, 2, 3}) check_averages<F64>({.ranks = ranks, .steps = 3}, one, 1e-9);
  check_averages<F64>({.ranks = 2, .accumulate = 3, .steps = 3}, one, 1e-9);
  check_averages<F64, Tp<2>, SequenceParallel>({.ranks = 4, .steps = 3}, one, 1e-9);
  const Trained cut = check_averages<F64, Cp<2>>({.ranks = 4, .steps = 3}, one, 1e-9);
  laws::detail::check_far(train_on<Far, Gpt<Policy<F64, Zero<3>, Cp<2>>>, O>(cut.cell), cut);
  const Trained rounded = train_stage<O, 0, Bf16>({.ranks = 1, .steps = 3});
  const Trained narrow = check_averages<Bf16>({.ranks = 2, .steps = 3}, rounded, 2e-2);  // 1.2e-2 was measured
  laws::detail::check_far(train_on<Far, Gpt<Policy<Bf16, Zero<3>>>, O>(narrow.cell), narrow);
}

TEST_CASE("Muon keeps one moment of a matrix and gathers its updates once") {
  const Trained stage0 = train_stage<Muon, 0, F64>({.ranks = 3, .steps = 1});
  const Trained split = train_stage<Muon, 3, F64>({.ranks = 3, .steps = 1});
  const Size psi = stage0.ranks[0].psi, saved = 2 * psi - stage0.ranks[0].state[Category::optimizer];
  CHECK(saved >= 8 * matrices);
  CHECK(saved < 8 * matrices * 1.1);
  CHECK(moved(stage0, &RankRecord::replicas) == 0);
  const Size bytes = moved(split, &RankRecord::replicas);
  CHECK(bytes >= 2 * 8 * matrices);  // two of three parts, on each of three ranks
  CHECK(bytes < 2 * 8 * matrices * 1.1);
}

TEST_CASE("bf16: Muon with masters resumes under another stage bit for bit") {
  const Folder folder;
  using P = Policy<Bf16>;
  const auto go_on = [&](Size from, Size to, const StageRule& rule) {
    std::map<std::string, std::vector<float>> parameters;
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .seed = 4}, [&](World<P>& world) {
      Engine<Gpt<P>, Muon> engine(world, Gpt<P>(small_gpt()), Muon{.lr = 1e-2}, BatchSizes{}, EngineConfig{},
                                  ReplicaConfig{.rule = rule});
      if (from > 0) load_checkpoint(engine, folder.file("c"));
      for (Size i = from; i < to; ++i) {
        engine.backward(engine.forward(batch_of(world.memory(), 4 * i, 2 * world.rank(), 2, 12, 61)));
        engine.step();
      }
      save_checkpoint(engine, folder.file(from > 0 || to == 2 ? "c" : "whole"));
      for (const auto& named : engine.inventory().parameters) {
        const auto whole = engine.gather_parameter(named.name->text);
        if (world.is_first()) parameters[named.name->text].assign(whole.data(), whole.data() + whole.count());
      }
    });
    return parameters;
  };
  const auto uninterrupted = go_on(0, 4, stage_rule<1>);
  go_on(0, 2, stage_rule<1>);
  CHECK(go_on(2, 4, stage_rule<3>) == uninterrupted);
  CHECK(folder.read("c/step_00000004/optimizer.safetensors") ==
        folder.read("whole/step_00000004/optimizer.safetensors"));
}
