// SPDX-License-Identifier: Apache-2.0
/// Steps of a GPT (6 layers, 384 wide, 6 heads, 4 rows of 256, on each rank) with and without a region in the Pool, by
/// turns: the pace with it over that without, and what the Pool has reserved after the steps, over its peak.
///
/// A rank has one thread. Steps of the default job's size come too, in which a request costs more beside the products.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

namespace {

using namespace dspp;

struct Job {
  GptConfig model{.layers = 6, .width = 384, .heads = 6, .vocabulary = 256, .sequence = 256};
  int ranks = 1;
  int steps = 12;
};
struct Run {
  double step = 0, share = 0;  // seconds of the median step, and reserved bytes over the peak
};

template <class P>
Run run_once(const Job& job, bool with_region) {
  Run run;
  run_ranks_of<P>({.ranks = job.ranks, .threads_per_rank = 1}, [&](World<P>& world) {
    world.memory().lay_out_steps(with_region);
    Engine engine{world, Gpt<P>(job.model), AdamW{}};
    const auto tokens = [&] {
      auto ids = Tensor<std::int32_t, 2>::uninitialized(shape(4, job.model.sequence), world.memory(), Category::data,
                                                        "tokens");
      for (Size i = 0; i < ids.count(); ++i) ids.data()[i] = static_cast<std::int32_t>(i * 31 % 251);
      return ids;
    };
    std::vector<double> seconds;
    for (int step = 0; step < job.steps; ++step) {
      const auto start = std::chrono::steady_clock::now();
      const Batch<Cpu> batch{tokens(), tokens()};
      engine.backward(engine.forward(batch));
      engine.step();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    if (!world.is_first()) return;
    const auto middle = seconds.begin() + job.steps / 2 + 1;  // the first steps are slower
    std::nth_element(seconds.begin() + 3, middle, seconds.end());
    run = {*middle, static_cast<double>(world.memory().reserved()) / static_cast<double>(world.memory().peak())};
  });
  return run;
}

template <class P>
void region(benchmark::State& state, Job job) {
  constexpr int pairs = 5;
  for (auto _ : state) {
    std::vector<double> paces;
    Run without, with;
    for (int i = 0; i < pairs; ++i) {
      without = run_once<P>(job, false), with = run_once<P>(job, true);
      paces.push_back(without.step / with.step);
    }
    std::sort(paces.begin(), paces.end());
    state.SetIterationTime(with.step);
    state.counters["pace"] = paces[pairs / 2];
    state.counters["pace_least"] = paces.front();
    state.counters["pace_most"] = paces.back();
    state.counters["reserved_over_peak"] = with.share;
    state.counters["reserved_over_peak_without"] = without.share;
  }
}

template <class P>
void measure(const char* name, const Job& job) {
  benchmark::RegisterBenchmark(name, region<P>, job)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Job two, recomputed, small;
  two.ranks = recomputed.ranks = small.ranks = 2;
  recomputed.model.recompute_segments = 6;
  small.model = {.layers = 4, .width = 104, .heads = 4, .vocabulary = 256, .sequence = 64};
  small.steps = 200;
  measure<Policy<F32>>("f32", {});
  measure<Policy<F32, Zero<3>>>("f32/zero3", two);
  measure<Policy<Bf16, Zero<2>>>("bf16/zero2", two);
  measure<Policy<Bf16, Zero<3>>>("bf16/zero3/recomputed", recomputed);
  measure<Policy<Bf16, Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>>("bf16/zero3/recomputed/offloaded",
                                                                                      recomputed);
  measure<Policy<Bf16, Zero<2>>>("small", small);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
