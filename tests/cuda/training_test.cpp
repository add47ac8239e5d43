// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/dspp.hpp>
#include <dspp/launch/cuda_rank.hpp>
#include <kernels/cuda_kernels.cuh>

#include <laws/difference.hpp>

using namespace dspp;

namespace {

template <class P>
std::vector<double> losses_of(int ranks, Size steps) {
  std::vector<double> losses;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    const GptConfig config{.layers = 2, .width = 16, .heads = 2, .vocabulary = 29, .sequence = 12};
    Engine engine(world, Gpt<P>(config), AdamW{.lr = 1e-2}, BatchSizes{.micro_batch = 2, .sequence = 12},
                  EngineConfig{.clip_norm = 1});
    for (Size step = 0; step < steps; ++step) {
      using Ids = Tensor<std::int32_t, 2, DeviceOf<P>>;
      Batch<DeviceOf<P>> batch{Ids::uninitialized(shape(2, 12), world.memory(), Category::data),
                               Ids::uninitialized(shape(2, 12), world.memory(), Category::data), 2 * world.data_rank()};
      const auto id = [&](Size i) { return static_cast<std::int32_t>((7 * i + step + 11 * world.data_rank()) % 29); };
      batch.tokens.write([&](std::int32_t* host) {
        for (int i = 0; i < 24; ++i) host[i] = id(i);
      });
      batch.targets.write([&](std::int32_t* host) {
        for (int i = 0; i < 24; ++i) host[i] = id(i + 1);
      });
      const auto report = engine.train_batch(std::vector{batch});
      if (world.is_first()) losses.push_back(report->loss);
    }
  });
  return losses;
}

}  // namespace

TEST_CASE("a Gpt trains on a GPU as on the Cpu") {
  const auto on_cpu = losses_of<Policy<F32>>(1, 10), on_gpu = losses_of<Policy<F32, Cuda>>(1, 10);
  REQUIRE(on_gpu.size() == on_cpu.size());
  for (std::size_t i = 0; i < on_cpu.size(); ++i) CHECK(laws::close(on_gpu[i], on_cpu[i], 1e-5));
}
