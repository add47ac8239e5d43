// SPDX-License-Identifier: Apache-2.0
/// Trains one model under ZeRO's four stages on MPI ranks with sums in MPI's own order. Rank 0 prints for each a line
/// "stage", the losses and norms of every step and a checksum of every parameter, all bit for bit.
#include <mpi.h>

#include <cstdio>
#include <vector>

#include <dspp/base/crc32c.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/plan/plan.hpp>
#include <dspp/zero/full_tensors.hpp>

using namespace dspp;

static constexpr GptConfig config{.layers = 2, .width = 32, .heads = 4, .vocabulary = 61, .sequence = 8};
static constexpr Size micro_batch = 2, bucket_bytes = 16384;

template <class P>
static void check_traffic(World<P>& world, const Traffic& measured) {
  const Plan paper = plan<Gpt<P>>(config, {.micro_batch = micro_batch, .sequence = config.sequence},
                                  {.data = world.data_size(),
                                   .bucket_bytes = bucket_bytes,
                                   .sum_order = SumOrder::transport,
                                   .rank = world.place()});
  if (paper.replica_traffic != measured)
    fail(ErrorCode::state, "dspp: mpi_stages needs the traffic that was planned, but measured another.");
}

template <class P>
static void train(World<P>& world) {
  if (world.is_first()) std::printf("stage\n");
  Engine engine{world, Gpt<P>{config}, AdamW{.lr = 1e-2},
                EngineConfig{.clip_norm = 0.5, .bucket_bytes = bucket_bytes, .check_ranks = 2}};
  Batch<Cpu> batch{Tensor<std::int32_t, 2>::zeros(shape(micro_batch, config.sequence), world.memory(), Category::data),
                   Tensor<std::int32_t, 2>::zeros(shape(micro_batch, config.sequence), world.memory(), Category::data),
                   world.data_rank() * micro_batch};
  for (Size step = 0; step < 6; ++step) {
    for (Size i = 0; i < batch.tokens.count(); ++i) {
      const Size at = (step * 7 + world.rank() * 13 + i * i) % config.vocabulary;
      batch.tokens.data()[i] = static_cast<std::int32_t>(at);
      batch.targets.data()[i] = static_cast<std::int32_t>((at * 5 + 1) % config.vocabulary);
    }
    auto loss = engine.forward(batch);
    engine.backward(loss);
    const StepReport done = engine.step();
    if (step == 0) engine.replicas().complete_all();
    if (step == 0) check_traffic(world, world.replicas().traffic().without(Purpose::check));
    if (world.is_first()) std::printf("loss %a norm %a\n", done.loss, done.gradient_norm);
  }
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    if (world.is_first()) std::printf("%s %08x\n", named.name->text.c_str(), crc32c(whole.data(), whole.bytes()));
  }
  std::fflush(stdout);
}

template <int Stage>
static int run_stage() {
  using P = Policy<F32, Zero<Stage>>;
  const RunOptions options{.threads_per_rank = 1, .seed = 5, .timeout_seconds = 60, .sum_order = SumOrder::transport};
  return run<P>(options, train<P>);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // once for the four worlds
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int failed = run_stage<0>() + run_stage<1>() + run_stage<2>() + run_stage<3>();
  MPI_Finalize();
  return failed;
}
