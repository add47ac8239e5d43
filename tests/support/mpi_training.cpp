// SPDX-License-Identifier: Apache-2.0
/// Trains a GPT whose sequences are split over two context-parallel ranks: mpi_training [ranks as threads]. Rank 0
/// prints all ranks' losses of every step and the norm, then a checksum of every parameter, all bit for bit.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <dspp/base/crc32c.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/zero/full_tensors.hpp>

using namespace dspp;
using P = Policy<Zero<3>, F32, Cp<2>>;

static std::shared_ptr<const data::Text> some_text() {
  auto text = std::make_shared<data::Text>();
  for (unsigned i = 0; i < 4000; ++i) text->bytes.push_back(static_cast<unsigned char>('a' + i * i % 97 % 26));
  text->training_bytes = 4000;
  return text;
}

static void train(World<P>& world) {
  constexpr GptConfig config{.layers = 2, .width = 16, .heads = 4, .vocabulary = 128, .sequence = 16, .dropout = 0.1};
  Engine engine{world, Gpt<P>{config}, AdamW{.lr = 1e-2}, BatchSizes{.accumulate = 2}, EngineConfig{.clip_norm = 0.5}};
  const auto data =
      batches(world, some_text(), {.micro_batch = 2, .sequence = config.sequence, .accumulate = 2}, {.steps = 10});
  for (Size step = 0; step < 10; ++step) {
    const StepReport done = engine.train_batch(data.step(step));
    std::vector<double> losses(static_cast<std::size_t>(world.size()));
    losses[static_cast<std::size_t>(world.rank())] = done.loss;
    all_reduce(world.all(), buffer(losses.data(), world.size()), Purpose::scalar);
    if (!world.is_first()) continue;
    std::printf("step %lld:", static_cast<long long>(step));
    for (const double loss : losses) std::printf(" %a", loss);
    std::printf(" norm %a\n", done.gradient_norm);
  }
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    if (world.is_first()) std::printf("%s %08x\n", named.name->text.c_str(), crc32c(whole.data(), whole.bytes()));
  }
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  const RunOptions options{
      .ranks = argc > 1 ? std::atoi(argv[1]) : 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60};
  return run<P>(options, train);
}
