// SPDX-License-Identifier: Apache-2.0
/// dspp's matrix products next to the best provider's own figure, shape by shape and for a whole training step of the
/// baby GPT (6 layers, width 384): the step's figure for the provider is the workload's GEMM limit.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "alternate.hpp"
#include "gpt_products.hpp"
#include "provider.hpp"

namespace {

using namespace dspp;
using namespace dspp::bench;

template <class T>
void by_dspp(const cpu::Product& p, Operands<T>& x) {
  cpu::gemm(p, x.narrow.data(), x.narrow.data(), cpu::Finish<T>{.c = x.narrow_result.data()});
}

void report(benchmark::State& state, double flops, double provider_seconds, double dspp_seconds) {
  state.SetIterationTime(dspp_seconds);
  state.counters["dspp_gflops"] = flops / dspp_seconds / 1e9;
  state.counters["provider_gflops"] = flops / provider_seconds / 1e9;
  state.counters["share"] = provider_seconds / dspp_seconds;
}

template <class T>
void one_shape(benchmark::State& state, const StepProduct& step) {
  Operands<T> operands({step});
  use_threads(static_cast<int>(state.range(0)));
  const int repeats = std::max(1, static_cast<int>(4e8 / step.flops()));
  for (auto _ : state) {
    const auto seconds = alternate(
        7,
        [&] {
          for (int i = 0; i < repeats; ++i) by_provider(step.product, operands);
        },
        [&] {
          for (int i = 0; i < repeats; ++i) by_dspp(step.product, operands);
        });
    report(state, step.flops() * repeats, seconds[0], seconds[1]);
  }
  state.SetLabel(provider_name<T>());
}

/// The list of products back to back, with `tokens_per_second` of both.
template <class T>
void whole_step(benchmark::State& state) {
  const GptExtents gpt;
  const std::vector<StepProduct> list = step_products(gpt);
  Operands<T> operands(list);
  use_threads(static_cast<int>(state.range(0)));
  double flops = 0;
  for (const StepProduct& step : list) flops += step.flops() * static_cast<double>(step.times);
  const auto run = [&](const auto& multiply) {
    for (const StepProduct& step : list)
      for (Size i = 0; i < step.times; ++i) multiply(step.product, operands);
  };
  for (auto _ : state) {
    const auto seconds = alternate(
        3, [&] { run(by_provider<T>); }, [&] { run(by_dspp<T>); });
    report(state, flops, seconds[0], seconds[1]);
    const double tokens = static_cast<double>(gpt.tokens());
    state.counters["limit_tokens_per_second"] = tokens / seconds[0];
    state.counters["dspp_tokens_per_second"] = tokens / seconds[1];
  }
  state.SetLabel(provider_name<T>());
}

template <class T>
void register_all(const std::string& type) {
  std::vector<StepProduct> shapes = step_products(GptExtents{});
  add_linear(shapes, "rows of 1024", 1024, 1024, 1024, 1);  // which collide in the cache: the provider reads them so
  for (const StepProduct& step : shapes)
    benchmark::RegisterBenchmark(("matmul/" + type + "/" + step.name).c_str(), one_shape<T>, step)
        ->ArgName("threads")
        ->Arg(1)
        ->Arg(2)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark(("gemm_limit/" + type).c_str(), whole_step<T>)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  register_all<float>("f32");
  register_all<bf16>("bf16");
  register_all<f16>("f16");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
