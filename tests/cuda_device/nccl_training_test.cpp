// SPDX-License-Identifier: Apache-2.0
// A Gpt trained over NCCL's collectives, on their twin in software.
// labels: cuda
#include <kernels/nccl.cuh>

#include <algorithm>
#include <cmath>

#include <dspp/observe/overlap.hpp>

#include <laws/device_communicator.hpp>
#include <laws/nccl_training.hpp>
#include <laws/one_rank_curves.hpp>

#if !DSPP_HAS_NVCC()
using namespace dspp;
using namespace dspp::laws;

namespace {

template <class... P>
using ModelOn = Gpt<Policy<F32, P...>>;

template <class Model>
Trained train_over_nccl(const Cell& cell) {
  using Q = typename Model::policy;
  using OnCuda = rebind<Model, Cuda>;
  using P = typename OnCuda::policy;
  Trained trained{.cell = cell, .facts = facts_of<Q>(cell.accumulate)};
  trained.ranks.resize(static_cast<std::size_t>(cell.ranks));
  const Mesh mesh = mesh_of<P>(cell.ranks);
  const auto train_rank = [&](NcclRank& own, Groups<Cuda>& groups) {
    const int rank = groups.world.rank();
    World<P> world(mesh, rank, groups, own.pool, cell.seed, own.nccl->groups().node, own.host_group());
    laws::detail::train_rank<P, OnCuda, AdamW>(world, cell, &dspp::detail::replica_config<Q>,
                                               trained.ranks[static_cast<std::size_t>(rank)], trained);
  };
  on_nccl_ranks(mesh, train_rank, {}, 60, cell.ranks_per_node);
  laws::detail::gather_curves(trained, P::tp);
  return trained;
}

template <class Model>
std::vector<Plan> plans_of(const Cell& cell) {
  std::vector<Plan> plans;
  for (int r = 0; r < cell.ranks; ++r) plans.push_back(plan_of<rebind<Model, Cuda>>(cell, r));
  return plans;
}

template <class Model>
Trained train_over_nccl(const Cell& cell, const Trained& one_rank) {
  Trained trained = train_over_nccl<Model>(cell);
  laws::detail::check_outcome(trained, plans_of<Model>(cell), one_rank, 1e-5);
  return trained;
}

/// With members for nodes, whose traffic is not that of the formulas.
template <class... Members>
Trained train_by_node(const Cell& cell, const Trained& one_rank, double tolerance) {
  using Model = ModelOn<Zero<3>, Members...>;
  Trained trained = train_over_nccl<Model>(cell);
  CHECK(relative_gap(trained.losses, one_rank.losses) <= tolerance);
  check_run(trained);
  const std::vector<Plan> plans = plans_of<Model>(cell);
  for (std::size_t r = 0; r < plans.size(); ++r) check_plan(plans[r], trained.ranks[r], static_cast<int>(r));
  return trained;
}

}  // namespace

TEST_CASE("over NCCL the stages follow the one-rank curve, in the same bits, with the planned bytes and traffic") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 2});
  const Cell cell{.ranks = 3, .steps = 2, .sum_order = SumOrder::transport};
  const Trained all = train_over_nccl<ModelOn<>>(cell, one);
  check_same_bits(train_over_nccl<ModelOn<Zero<2>>>(cell, one), all);
  check_same_bits(train_over_nccl<ModelOn<Zero<3>>>(cell, one), all);
  CHECK(software_gpu::live_nccl_communicators() == 0);
}

TEST_CASE("over NCCL two axes, each with its communicators, follow the one-rank curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 2});
  train_over_nccl<ModelOn<Zero<2>, Tp<2>, SequenceParallel>>({.ranks = 4, .steps = 2, .sum_order = SumOrder::transport},
                                                             one);
}

TEST_CASE("over NCCL shards by node and quantized traffic train as on the Cpu, with the planned bytes and traffic") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 2});
  const Cell cell{.ranks = 4, .steps = 2, .sum_order = SumOrder::transport, .ranks_per_node = 2};
  train_by_node<Shards<Within<Node>>>(cell, one, 1e-5);
  train_by_node<SecondaryShards<Node>>(cell, one, 1e-5);
  train_by_node<SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int4>>(cell, one, 0.02);
  CHECK(software_gpu::live_nccl_communicators() == 0);
}

TEST_CASE("over NCCL ZeRO's traffic runs beside computation, in the time that work takes at the plan's rates") {
  using P = Policy<Zero<3>, F32>;
  const auto times_of_a_step = [](auto member) {
    software_gpu::Times times;
    TimedTraining::run<decltype(member)>([&](auto& engine, auto step) {
      step();
      engine.steps();
      engine.world().host().barrier();
      if (engine.world().rank() == 0) times = software_gpu::times_of(0);
    });
    return times;
  };
  const software_gpu::Times on = times_of_a_step(P());
  CHECK(on.end - on.computing < 0.2 * on.moving);
  const software_gpu::Times off = times_of_a_step(Policy<Zero<3>, F32, Overlap<Off>>());
  CHECK(off.end - off.computing > 0.99 * off.moving);
  const StepSeconds planned = TimedTraining::plan_at(TimedTraining::rates()).seconds;
  CHECK(std::abs(planned.moving - on.moving) < 0.01 * on.moving);
  CHECK(std::abs(planned.hidden() - (1 - (on.end - on.computing) / on.moving)) < 0.02);
  // By the intervals of the two streams.
  const OverlapTime measured = overlap_of(on.messages, on.products), without = overlap_of(off.messages, off.products);
  CHECK(std::abs(measured.under_way - on.moving) < 1e-6 * on.moving);
  CHECK(std::abs(planned.hidden() - measured.hidden / measured.under_way) < 0.02);
  CHECK(without.hidden < 0.01 * without.under_way);
}

TEST_CASE("over NCCL stages 0 to 2 reduce beside backward, and gather updated values beside the next step's forward") {
  const auto check = [](auto policy) {
    using P = decltype(policy);
    CAPTURE(P::zero_stage);
    software_gpu::Times times;
    TimedTraining::run<P>([&](auto& engine, auto step) {
      for (int i = 0; i < 3; ++i) step();
      engine.replicas().complete_all();
      float value = 0;  // reading waits for the streams
      Cuda::to_host(engine.world().memory(), &value,
                    static_cast<const float*>(engine.units()[0]->buckets()[0].values.data()), 1);
      engine.world().host().barrier();
      if (engine.world().rank() == 0) times = software_gpu::times_of(0);
    });
    // Of a step between others: the messages of each are as many.
    std::vector<Interval>& all = times.messages;
    std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    REQUIRE(all.size() % 3 == 0);
    const auto a_step = static_cast<std::ptrdiff_t>(all.size() / 3);
    const std::vector<Interval> of_second(all.begin() + a_step, all.begin() + 2 * a_step);
    const OverlapTime measured = overlap_of(of_second, times.products);
    const StepSeconds planned = TimedTraining::plan_at<P>(TimedTraining::rates()).seconds;
    CHECK(std::abs(planned.moving - measured.under_way) < 0.01 * planned.moving);
    CHECK(std::abs(planned.hidden() - measured.hidden / measured.under_way) < 0.02);
    return measured.hidden / measured.under_way;
  };
  CHECK(check(Policy<Zero<0>, F32>()) > 0.8);
  CHECK(check(Policy<Zero<1>, F32>()) > 0.8);
  CHECK(check(Policy<Zero<2>, F32>()) > 0.8);
  CHECK(check(Policy<Zero<2>, F32, Overlap<Off>>()) < 0.01);
}

#endif
