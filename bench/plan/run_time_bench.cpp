// SPDX-License-Identifier: Apache-2.0
/// The time of a plan at run time: one rank of 512 that train a Llama of 70 B parameters. `peak_GB` is the rank's
/// planned peak, `parameters_B` the model's size.
#include <benchmark/benchmark.h>

#include <dspp/models/llama.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/plan/plan.hpp>
#include <dspp/plan/table.hpp>

namespace {

using namespace dspp;

constexpr int ranks = 512;
constexpr LlamaConfig llama_70b{
    .layers = 80, .width = 8192, .heads = 64, .kv_heads = 8, .ffn_width = 28672, .vocabulary = 128256};
constexpr BatchSizes sizes{.micro_batch = 1, .sequence = 8192};

template <class P, class Block = LlamaBlock<P>>
void plan_70b(benchmark::State& state) {
  Plan paper;
  for (auto _ : state) {
    paper = plan<Llama<P, Block>>(llama_70b, sizes, {.data = ranks / (P::tp * P::cp)});
    benchmark::DoNotOptimize(paper);
  }
  state.counters["peak_GB"] = static_cast<double>(paper.peak) / 1e9;
  state.counters["parameters_B"] = static_cast<double>(paper.parameters) / 1e9;
}

void table_of_a_plan(benchmark::State& state) {
  using P = Policy<Zero<3>, Bf16>;
  const Plan paper = plan<Llama<P>>(llama_70b, sizes, {.data = ranks});
  for (auto _ : state) benchmark::DoNotOptimize(table_of(paper));
}

using Sharded = Policy<Zero<3>, Bf16>;
using Split = Policy<Zero<3>, Bf16, Tp<8>, SequenceParallel>;

}  // namespace

BENCHMARK(plan_70b<Sharded>)->Name("zero_3")->Unit(benchmark::kMillisecond);
BENCHMARK(plan_70b<Split>)->Name("zero_3_tp_8")->Unit(benchmark::kMillisecond);
BENCHMARK((plan_70b<Split, Recompute<LlamaBlock<Split>>>))
    ->Name("zero_3_tp_8_recomputed")
    ->Unit(benchmark::kMillisecond);
BENCHMARK(table_of_a_plan)->Unit(benchmark::kMicrosecond);
