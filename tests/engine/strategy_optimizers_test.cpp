// SPDX-License-Identifier: Apache-2.0
// The strategy matrix for optimizers that ask for norms or whole matrices: the one-rank curve, the bits of stage 0, the
// cost of the plan.
// labels: engine thread
#include <utility>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim.hpp>
#include <laws/folder.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// One engine for all stages, which it is given as values.
template <class O, int Stage, class... More>
Trained train_stage(const Cell& cell) {
  using Model = Gpt<Policy<Zero<Stage>, More...>>;
  const Trained trained = train_on<Cpu, Model, O>(cell);
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

template <class O, class... More>
void check_every_stage_of(const Cell& cell, const Trained& one, double tolerance) {
  CAPTURE(cell.ranks);
  const Trained stage0 = train_stage<O, 0, More...>(cell);
  CHECK(relative_gap(stage0.losses, one.losses) <= tolerance);
  CHECK(parameter_gap(stage0, one) <= 100 * tolerance);
  check_same_bits(train_stage<O, 1, More...>(cell), stage0);
  check_same_bits(train_stage<O, 3, More...>(cell), stage0);
}

/// The matrices of both blocks: 12 width^2 elements each.
constexpr Size matrices = 2 * 12 * 24 * 24;

}  // namespace

TEST_CASE("f64: Muon and Lamb follow their one-rank curves under every stage, at the cost of their plans") {
  const Trained muon = train_on<Cpu, Gpt<Policy<F64>>, Muon>({.steps = 4});
  const Trained lamb = train_on<Cpu, Gpt<Policy<F64>>, Lamb>({.steps = 4});
  for (const int ranks : {1, 2, 3, 4}) {
    check_every_stage_of<Muon, F64>({.ranks = ranks, .steps = 4}, muon, 1e-9);
    check_every_stage_of<Lamb, F64>({.ranks = ranks, .steps = 4}, lamb, 1e-9);
  }
  CHECK(muon.losses.back() < muon.losses.front());
  CHECK(lamb.losses.back() < lamb.losses.front());
}

TEST_CASE("f64 over Tp: norms and matrices are those of whole parameters") {
  check_every_stage_of<Muon, F64, Tp<2>>({.ranks = 4, .steps = 4}, train_on<Cpu, Gpt<Policy<F64>>, Muon>({.steps = 4}),
                                         1e-9);
  check_every_stage_of<Lamb, F64, Tp<2>>({.ranks = 4, .steps = 4}, train_on<Cpu, Gpt<Policy<F64>>, Lamb>({.steps = 4}),
                                         1e-9);
}

TEST_CASE("Muon keeps one moment of a matrix and gathers its updates once") {
  const Trained stage0 = train_stage<Muon, 0, F64>({.ranks = 3, .steps = 1});
  const Trained stage1 = train_stage<Muon, 1, F64>({.ranks = 3, .steps = 1});
  const Trained adamw = train_on<Cpu, Gpt<Policy<F64>>, AdamW>({.ranks = 3, .steps = 1});
  CHECK(adamw.ranks[0].state[Category::optimizer] - stage0.ranks[0].state[Category::optimizer] >= 8 * matrices);
  CHECK(moved(stage0, &RankRecord::replicas) == 0);
  const Size bytes = moved(stage1, &RankRecord::replicas);
  CHECK(bytes >= 2 * 8 * matrices);  // two of three parts, on each of three ranks
  CHECK(bytes < 2 * 8 * matrices * 1.1);
}

TEST_CASE("bf16: a Muon with masters follows its plan, and resumes under another stage bit for bit") {
  const Cell cell{.ranks = 2, .accumulate = 2, .steps = 3};
  const Trained stage2 = train_stage<Muon, 2, Bf16>(cell), stage3 = train_stage<Muon, 3, Bf16>(cell);
  check_same_bits(stage2, stage3);
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

TEST_CASE("on a far device Muon and Lamb have the Cpu's bits") {
  const Cell cell{.ranks = 2, .steps = 2};
  using Model = Gpt<Policy<F64, Zero<1>>>;
  check_same_bits(train_on<Far, Model, Muon>(cell), train_on<Cpu, Model, Muon>(cell));
  check_same_bits(train_on<Far, Model, Lamb>(cell), train_on<Cpu, Model, Lamb>(cell));
}
