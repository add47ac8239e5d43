// SPDX-License-Identifier: Apache-2.0
// Whole models whose steps a GPU repeats by graphs: the bits of steps that are issued launch by launch.
// labels: cuda
#include <kernels/cuda_memory.cuh>

#include <dspp/launch/cuda_rank.hpp>

#include <dspp/models/recompute.hpp>
#include <dspp/models/tiled_mlp.hpp>

#include <laws/small_llama.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

#if !DSPP_HAS_NVCC()
namespace {

/// Losses and state of eight steps, of which with graphs the last six have to be captured or repeated.
template <class Model, class Config>
std::vector<std::uint64_t> trained(const Config& config, bool graphs, bool weighs) {
  using P = typename Model::policy;
  std::vector<std::uint64_t> seen;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, Model(config), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 3000, .graphs = graphs});
    software_gpu::graph_counts();
    for (Size step = 0; step < 8; ++step) {
      auto batch = batch_of<Cuda>(world.memory(), 4 * step, 0, 2, 12, 61);
      if (weighs) {
        batch.target_weights = Tensor<float, 2, Cuda>::uninitialized(shape(2, 12), world.memory(), Category::data);
        batch.target_weights.write([&](float* host) {
          for (Size i = 0; i < 24; ++i) host[i] = static_cast<float>((i + step) % 3);
        });
      }
      const double loss = engine.train_batch(batch)->loss;
      seen.emplace_back();
      std::memcpy(&seen.back(), &loss, sizeof loss);
    }
    seen.push_back(print_of_state(engine));
    CHECK(software_gpu::graph_counts().launched == (graphs ? 12 : 0));
  });
  return seen;
}
template <class Model, class Config>
void check_repeats(const Config& config, bool weighs = false) {
  CHECK(trained<Model>(config, true, weighs) == trained<Model>(config, false, weighs));
}

}  // namespace

TEST_CASE("a Gpt with recomputed blocks, tiles, a loss in chunks, dropout and weights of targets repeats its steps") {
  GptConfig config = small_gpt(0.1);
  config.loss_chunk_tokens = 5;
  using F = Policy<F32, Cuda>;
  check_repeats<Gpt<F, Recompute<GptBlock<F, TiledMlp<Mlp<F>, 3>>>>>(config);
  check_repeats<Gpt<Policy<Bf16, Zero<3>, Cuda>>>(small_gpt(0.1), true);
}

TEST_CASE("a Llama with windows and scaled angles repeats its steps") {
  Cell cell;
  cell.llama_options = true;
  using Model = Llama<Policy<Bf16, Cuda>>;
  check_repeats<Model>(config_of<Model>(cell));
}
#endif
