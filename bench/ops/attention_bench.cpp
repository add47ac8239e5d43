// SPDX-License-Identifier: Apache-2.0
/// Attention, forward and backward, next to the provider's matrix products of the same operations.
///
/// `dspp_gflops` counts the useful operations (7 products over the unmasked pairs); `product_gflops` is the provider's
/// speed on one head's whole scores, q k^T, on as many threads.
#include <benchmark/benchmark.h>

#include <random>

#include <dspp/ops/attention.hpp>
#include <dspp/ops/cpu/gemm/tiles.hpp>

#include "alternate.hpp"

namespace {

using namespace dspp;

struct Extents {
  Size batch, sequence, heads, head_dim;
  AttentionRule mask;
};

template <class T>
T random_tensor_value(std::mt19937& random) {
  return T(std::normal_distribution<float>()(random));
}

template <class T, int Rank>
Tensor<T, Rank> random_tensor(const Shape<Rank>& shape, Pool& pool) {
  static std::mt19937 random(1);
  auto x = Tensor<T, Rank>::uninitialized(shape, pool);
  for (Size i = 0; i < x.count(); ++i) x.data()[i] = random_tensor_value<T>(random);
  return x;
}

template <class T>
void attention(benchmark::State& state, Extents e) {
  Pool pool;
  bench::use_threads(static_cast<int>(state.range(0)));
  const Size width = e.heads * e.head_dim;
  const auto qkv = random_tensor<T>(shape(e.batch, e.sequence, 3, width), pool);
  const auto dy = random_tensor<T>(shape(e.batch, e.sequence, width), pool);
  const auto scores = Tensor<Compute<T>, 3>::uninitialized(shape(e.batch * e.heads, e.sequence, e.sequence), pool);
  const auto rows = random_tensor<Compute<T>>(shape(e.batch * e.heads, e.sequence, e.head_dim), pool);
  const cpu::Product one{e.sequence,     e.sequence, e.head_dim, Transpose::no,
                         Transpose::yes, e.head_dim, e.head_dim, e.sequence};
  const auto result = ops::attention(qkv, e.heads, e.mask);
  for (auto _ : state) {
    const auto seconds = bench::alternate(
        5,
        [&] {
          cpu::parallel_for(rows[0], 1, [&](Size i, Size) {
            const cpu::OneThread inside_providers;
            const auto* head = rows.data() + i * e.sequence * e.head_dim;
            cpu::gemm_direct(one, head, head, scores.data() + i * e.sequence * e.sequence, Write::overwrite);
          });
        },
        [&] { benchmark::DoNotOptimize(ops::attention(qkv, e.heads, e.mask)); },
        [&] {
          benchmark::DoNotOptimize(
              ops::attention_vjp(qkv, result.y, result.log_sum_exp, e.heads, e.mask, Tensor<T, 3>(dy)));
        });
    const double whole = 2.0 * static_cast<double>(rows.count() * e.sequence);
    const double seen = e.mask.mask == AttentionMask::full
                            ? 1.0
                            : static_cast<double>(e.sequence + 1) / (2 * static_cast<double>(e.sequence));
    const double product = whole / seconds[0], both = 7 * whole * seen / (seconds[1] + seconds[2]);
    state.SetIterationTime(seconds[1] + seconds[2]);
    state.counters["dspp_gflops"] = both / 1e9;
    state.counters["forward_gflops"] = 2 * whole * seen / seconds[1] / 1e9;
    state.counters["backward_gflops"] = 5 * whole * seen / seconds[2] / 1e9;
    state.counters["product_gflops"] = product / 1e9;
    state.counters["share"] = both / product;
  }
}

template <class T>
void register_all(const std::string& type) {
  constexpr AttentionRule causal{AttentionMask::causal}, full{AttentionMask::full};
  const std::pair<const char*, Extents> cases[] = {{"baby_gpt/causal", {8, 256, 6, 64, causal}},
                                                   {"baby_gpt/full", {8, 256, 6, 64, full}},
                                                   {"head_dim_32/causal", {8, 256, 8, 32, causal}},
                                                   {"sequence_1024/causal", {2, 1024, 4, 64, causal}},
                                                   {"width_1024/causal", {2, 256, 16, 64, causal}}};
  for (const auto& [name, extents] : cases)
    benchmark::RegisterBenchmark(("attention/" + type + "/" + name).c_str(), attention<T>, extents)
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
