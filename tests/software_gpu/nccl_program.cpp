// SPDX-License-Identifier: Apache-2.0
/// A program that links dspp::cuda with NCCL: two ranks with a GPU each train by its collectives, to the loss that they
/// have on one GPU.
#include <cmath>
#include <cstdio>
#include <vector>

#include <dspp/dspp.hpp>
#include <dspp/launch/cuda_rank.hpp>
#include <software_gpu/runtime.hpp>

using namespace dspp;
using P = Policy<Zero<2>, Cuda>;

/// The loss of the third step, or NaN if other collectives ran than `by_nccl` says.
static double loss_on(int gpus, bool by_nccl) {
  software_gpu::set_gpus(gpus);
  double loss = NAN;
  run_ranks_of<P>({.ranks = 2, .timeout_seconds = 60}, [&](World<P>& world) {
    const GptConfig model{.layers = 1, .width = 8, .heads = 2, .vocabulary = 11, .sequence = 4};
    Engine engine(world, Gpt<P>(model), AdamW{.lr = 1e-2}, BatchSizes{.micro_batch = 1, .sequence = 4}, EngineConfig{});
    const auto ids = Tensor<std::int32_t, 2, Cuda>::uninitialized(shape(1, 4), world.memory(), Category::data);
    ids.write([&](std::int32_t* out) {
      for (int i = 0; i < 4; ++i) out[i] = (5 * world.rank() + 3 * i) % 11;
    });
    double last = 0;
    for (int step = 0; step < 3; ++step) last = engine.train_batch(std::vector{Batch<Cuda>{ids, ids, 0}})->loss;
    const bool has_nccl = world.replicas().template get_if<Nccl>() != nullptr;
    if (world.is_first() && has_nccl == by_nccl) loss = last;
  });
  return loss;
}

int main() {
  const double shared = loss_on(1, false), apart = loss_on(2, true);
  std::printf("a loss of %.6f on one GPU, of %.6f by NCCL on two\n", shared, apart);
  return std::abs(shared - apart) < 1e-5 ? 0 : 1;
}
