// SPDX-License-Identifier: Apache-2.0
/// A Gpt trained over NCCL's twin in software, in the time that its streams keep.
#pragma once

#include <dspp/engine/engine.hpp>
#include <dspp/models/gpt.hpp>

#include <laws/device_communicator.hpp>
#include <laws/training_run.hpp>

namespace dspp::laws {

#if !DSPP_HAS_NVCC()
/// Steps of a small Gpt on some ranks with a GPU each; from the second on, streams keep time at these rates.
struct TimedTraining {
  static constexpr GptConfig config{.layers = 10, .width = 32, .heads = 2, .vocabulary = 32, .sequence = 8};
  static constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 8};
  static constexpr int ranks = 2;

  /// Rates at which a step of Policy<Zero<3>, F32> computes for about a second, and moves for about half of one.
  static Rates rates() {
    const Plan paper = plan<Gpt<Policy<Zero<3>, F32>>>(config, sizes, {.data = ranks, .check_ranks = 0});
    return {.flops_per_second = paper.flops(),
            .bytes_per_second = 2.0 * static_cast<double>(paper.replica_traffic.total())};
  }
  template <class P = Policy<Zero<3>, F32>>
  static Plan plan_at(const Rates& rates) {
    return plan<Gpt<P>>(config, sizes, {.data = ranks, .check_ranks = 0, .rates = rates});
  }
  /// After a first step, f(engine, step) on each rank; step() takes one more.
  template <class P, class F>
  static void run(F f) {
    using OnCuda = rebind<Gpt<P>, Cuda>;
    const Rates at = rates();
    on_nccl_ranks(Mesh(Degrees{.data = ranks}), [&](NcclRank& own, Groups<Cuda>& groups) {
      const Mesh mesh(Degrees{.data = ranks});
      const int rank = groups.world.rank();
      World<typename OnCuda::policy> world(mesh, rank, groups, own.pool, 1, own.nccl->groups().node, own.host_group());
      Engine engine{world, OnCuda{config}, AdamW{}, sizes, EngineConfig{.check_ranks = 0}};
      const auto step = [&] {
        const auto batch = batch_of<Cuda>(own.pool, 0, 2 * rank, 2, 8, 32);
        engine.backward(engine.forward(batch));
        static_cast<void>(engine.step().get());
      };
      const auto keep_time = [&](const Rates& kept) {
        world.host().barrier();
        if (rank == 0) software_gpu::begin_times(kept.flops_per_second, kept.bytes_per_second);
        world.host().barrier();
      };
      step();
      keep_time(at);
      f(engine, step);
      keep_time({});
    });
  }
};
#endif

}  // namespace dspp::laws
