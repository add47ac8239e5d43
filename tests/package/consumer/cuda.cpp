// SPDX-License-Identifier: Apache-2.0
/// A program for GPUs that the host's compiler compiles: its kernels are in dspp::cuda.
#include <cstdio>
#include <dspp/dspp.hpp>
#include <dspp/launch/cuda_rank.hpp>
#include <vector>

using namespace dspp;
using P = Policy<Zero<2>, Bf16, Cuda>;

int main() {
  const RunOptions options{.ranks = 2, .timeout_seconds = 60};
  return run<P>(options, [](World<P>& world) {
    const GptConfig model{.layers = 1, .width = 32, .heads = 2, .vocabulary = 61, .sequence = 16};
    Engine engine(world, Gpt<P>(model), AdamW{}, BatchSizes{.micro_batch = 1, .sequence = 16}, EngineConfig{});
    const auto ids = Tensor<std::int32_t, 2, Cuda>::zeros(shape(1, 16), world.memory(), Category::data);
    const double loss = engine.train_batch(std::vector{Batch<Cuda>{ids, ids, 0}})->loss;
    if (world.is_first()) std::printf("consumer: a loss of %.3f\n", loss);
  });
}
