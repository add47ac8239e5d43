// SPDX-License-Identifier: Apache-2.0
/// Training throughput of a small GPT (6 layers, 384 wide, 6 heads, sequence 256, batch 8, vocabulary 256) next to its
/// GEMM limit: the provider's time for the step's products alone, on the same threads, alternating with the steps.
///
/// The batch of 8 is shared among the ranks. The limit counts attention's products without the causal mask, and nothing
/// but products: no update, no communication.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>

#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

#include "ops/alternate.hpp"
#include "ops/gpt_products.hpp"
#include "ops/provider.hpp"

namespace {

using namespace dspp;

constexpr bench::GptExtents baby;
constexpr GptConfig baby_config{.layers = static_cast<int>(baby.layers),
                                .width = baby.width,
                                .heads = baby.heads,
                                .vocabulary = baby.vocabulary,
                                .sequence = baby.sequence};

Tensor<std::int32_t, 2> random_tokens(Size rows, Pool& pool, std::uint32_t seed) {
  auto ids = Tensor<std::int32_t, 2>::uninitialized(shape(rows, baby.sequence), pool, Category::data, "tokens");
  std::mt19937 random(seed);
  for (Size i = 0; i < ids.count(); ++i) ids.data()[i] = static_cast<std::int32_t>(random() % 256);
  return ids;
}

struct Seconds {
  double limit = 0, step = 0;
};

/// Medians of a step and of its products; every rank takes part in both, and both end at a barrier.
template <class P>
Seconds time_rank(World<P>& world) {
  using T = typename P::Element;
  const Size rows = baby.batch / world.data_size();
  bench::GptExtents mine = baby;
  mine.batch = rows;
  const auto products = bench::step_products(mine);
  bench::Operands<T> operands(products);
  Engine engine{world, Gpt<P>(baby_config), AdamW{}};
  const auto seed = static_cast<std::uint32_t>(2 * world.rank());
  const Batch<Cpu> batch{random_tokens(rows, world.memory(), seed), random_tokens(rows, world.memory(), seed + 1)};
  const auto seconds = bench::alternate(
      7,
      [&] {
        for (const bench::StepProduct& product : products)
          for (Size i = 0; i < product.times; ++i) bench::by_provider(product.product, operands);
        world.all().barrier();
      },
      [&] {
        auto loss = engine.forward(batch);
        engine.backward(loss);
        engine.step();
        world.all().barrier();
      });
  return {seconds[0], seconds[1]};
}

template <class P>
void train(benchmark::State& state) {
  const RunOptions options{.ranks = static_cast<int>(state.range(0)),
                           .threads_per_rank = static_cast<int>(state.range(1))};
  for (auto _ : state) {
    Seconds seconds;
    run_ranks_of<P>(options, [&](World<P>& world) {
      const Seconds mine = time_rank(world);
      if (world.is_first()) seconds = mine;
    });
    state.SetIterationTime(seconds.step);
    const auto tokens = static_cast<double>(baby.tokens());
    state.counters["tokens_per_second"] = tokens / seconds.step;
    state.counters["limit_tokens_per_second"] = tokens / seconds.limit;
    state.counters["share"] = seconds.limit / seconds.step;
  }
  state.SetLabel(bench::provider_name<typename P::Element>());
}

template <class P>
void register_all(const char* name) {
  benchmark::RegisterBenchmark(name, train<P>)
      ->ArgNames({"ranks", "threads"})
      ->Args({1, 2})
      ->Args({2, 1})
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  register_all<Policy<Zero<2>, F32>>("train/f32");
  register_all<Policy<Zero<2>, Bf16>>("train/bf16");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
