// SPDX-License-Identifier: Apache-2.0
/// Plans of 13 B parameters on one rank and of 10^12 on 512, on nodes of 16: the bytes of one rank, in GB, on its
/// device, its host and its disk, and of a step those that it reads inside of its node and from others.
#include <benchmark/benchmark.h>

#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

namespace {

using namespace dspp;

constexpr GptConfig b13{.layers = 40,
                        .width = 5120,
                        .heads = 40,
                        .vocabulary = 50257,
                        .sequence = 2048,
                        .loss_chunk_tokens = 1024,
                        .recompute_segments = 40};
constexpr GptConfig t1{.layers = 128,
                       .width = 25600,
                       .heads = 160,
                       .vocabulary = 51200,
                       .sequence = 2048,
                       .loss_chunk_tokens = 1024,
                       .recompute_segments = 128};

/// `range(0)`: the micro-batch.
template <const GptConfig& config, int ranks, class... Members>
void headline(benchmark::State& state) {
  using P = Policy<Bf16, Members...>;
  const PlanOptions options{.data = ranks / P::tp, .ranks_per_node = ranks > 1 ? 16 : 0};
  Plan paper;
  for (auto _ : state) {
    paper = plan<Gpt<P>>(config, {.micro_batch = state.range(0), .sequence = config.sequence}, options);
    benchmark::DoNotOptimize(paper);
  }
  const auto count = [&](const char* name, Size bytes) { state.counters[name] = static_cast<double>(bytes) / 1e9; };
  count("device_GB", paper.peak), count("host_GB", paper.host), count("file_GB", paper.disk);
  count("inside_GB", paper.links.inner), count("across_GB", paper.links.outer);
}

using ParametersOnHost = Offload<Parameters, Host>;
using ActivationsOnHost = Offload<Activations, Host>;
using OptimizerOnHost = Offload<Optimizer, Host>;
using OptimizerOnDisk = Offload<Optimizer, Disk>;

}  // namespace

BENCHMARK((headline<b13, 1, Zero<3>>))->Name("13B")->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK((headline<b13, 1, Zero<3>, ParametersOnHost, OptimizerOnHost, ActivationsOnHost>))
    ->Name("13B/host")
    ->Arg(1)
    ->Arg(16)
    ->Unit(benchmark::kMillisecond);
BENCHMARK((headline<b13, 1, Zero<3>, ParametersOnHost, OptimizerOnDisk, ActivationsOnHost>))
    ->Name("13B/host_and_disk")
    ->Arg(16)
    ->Unit(benchmark::kMillisecond);
BENCHMARK((headline<t1, 512, Zero<3>>))->Name("1T")->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK((headline<t1, 512, Zero<3>, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int4>>))
    ->Name("1T/zero_plus_plus")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK((headline<t1, 512, Zero<3>, ParametersOnHost, OptimizerOnDisk, ActivationsOnHost>))
    ->Name("1T/host_and_disk")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK((headline<t1, 512, Zero<2>, Tp<8>, SequenceParallel>))
    ->Name("1T/zero_2_tp_8")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
