// SPDX-License-Identifier: Apache-2.0
/// dspp's matrix products next to the best provider's own figure, shape by shape and for a whole training step of the
/// baby GPT (6 layers, width 384): the step's figure for the provider is the workload's GEMM limit.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>

#include <dspp/ops/cpu/gemm.hpp>

#include "alternate.hpp"
#include "gpt_products.hpp"

namespace {

using namespace dspp;
using bench::StepProduct;

/// Operands large enough for every product of a list, in T and in the type it computes in.
template <class T>
struct Operands {
  explicit Operands(const std::vector<StepProduct>& list) {
    Size largest = 0;
    for (const StepProduct& step : list) {
      const cpu::Product& p = step.product;
      largest = std::max({largest, p.m * p.k, p.k * p.n, p.m * p.n});
    }
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Size i = 0; i < largest; ++i) wide.push_back(static_cast<Compute<T>>(normal(random)));
    for (const auto value : wide) narrow.push_back(T(value));
    result.resize(wide.size());
    narrow_result.resize(wide.size());
  }
  std::vector<Compute<T>> wide, result;
  std::vector<T> narrow, narrow_result;
};

template <class T>
const char* provider_name() {
#ifdef DSPP_WITH_ONEDNN
  if (std::is_same_v<T, bf16> && cpu::onednn_has_bf16()) return "oneDNN bf16";
  if (!std::is_same_v<T, double>) return std::is_same_v<T, bf16> ? "oneDNN f32, for want of bf16" : "oneDNN";
#endif
  return std::is_same_v<T, bf16> ? "Eigen f32, for want of bf16" : "Eigen";
}

/// One call of the provider, which uses threads as it sees fit.
template <class T>
void by_provider(const cpu::Product& p, Operands<T>& x) {
#ifdef DSPP_WITH_ONEDNN
  if constexpr (std::is_same_v<T, bf16>)
    if (cpu::onednn_has_bf16())
      return cpu::gemm_onednn_primitive(p, x.narrow.data(), x.narrow.data(), x.result.data(), Write::overwrite);
#endif
  cpu::gemm_direct(p, x.wide.data(), x.wide.data(), x.result.data(), Write::overwrite);
}

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
  bench::use_threads(static_cast<int>(state.range(0)));
  const int repeats = std::max(1, static_cast<int>(4e8 / step.flops()));
  for (auto _ : state) {
    const auto seconds = bench::alternate(
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

/// The list of products back to back; with `tokens_per_second` of both.
template <class T>
void whole_step(benchmark::State& state) {
  const bench::GptExtents gpt;
  const std::vector<StepProduct> list = bench::step_products(gpt);
  Operands<T> operands(list);
  bench::use_threads(static_cast<int>(state.range(0)));
  double flops = 0;
  for (const StepProduct& step : list) flops += step.flops() * static_cast<double>(step.times);
  const auto run = [&](const auto& multiply) {
    for (const StepProduct& step : list)
      for (Size i = 0; i < step.times; ++i) multiply(step.product, operands);
  };
  for (auto _ : state) {
    const auto seconds = bench::alternate(
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
  for (const StepProduct& step : bench::step_products(bench::GptExtents{}))
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
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
