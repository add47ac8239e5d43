// SPDX-License-Identifier: Apache-2.0
/// Steps of a GPT whose update is a large part of them, with and without Delayed<1>, by turns: the pace with it over
/// that without, and the pace that it would have if the update cost nothing.
///
/// A rank has one thread, and its updates another one: on a machine of two cores that is one rank.
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

constexpr GptConfig model{.layers = 6, .width = 512, .heads = 8, .vocabulary = 16384, .sequence = 64};
constexpr int steps = 14, warm = 4;

struct Run {
  double step = 0, update = 0;  // seconds of the median step, and of that its step(), which updates
};

template <class P>
Run run_once(Size rows) {
  Run run;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(model), AdamW{}, EngineConfig{.delay_after = 0}};
    const auto tokens = [&] {
      auto ids =
          Tensor<std::int32_t, 2>::uninitialized(shape(rows, model.sequence), world.memory(), Category::data, "tokens");
      for (Size i = 0; i < ids.count(); ++i) ids.data()[i] = static_cast<std::int32_t>(i * 31 % model.vocabulary);
      return ids;
    };
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    std::vector<double> all, updates;
    for (int step = 0; step < steps; ++step) {
      const auto start = Clock::now();
      const Batch<Cpu> batch{tokens(), tokens()};
      engine.backward(engine.forward(batch));
      const auto before = Clock::now();
      engine.step();
      if (step >= warm) updates.push_back(since(before)), all.push_back(since(start));
    }
    const auto median = [](std::vector<double>& of) {
      std::nth_element(of.begin(), of.begin() + std::ssize(of) / 2, of.end());
      return of[of.size() / 2];
    };
    run = {median(all), median(updates)};
  });
  return run;
}

template <class Without, class With>
void delayed(benchmark::State& state, Size rows) {
  constexpr int pairs = 5;
  for (auto _ : state) {
    std::vector<double> paces;
    Run without, with;
    for (int i = 0; i < pairs; ++i) {
      without = run_once<Without>(rows), with = run_once<With>(rows);
      paces.push_back(without.step / with.step);
    }
    std::sort(paces.begin(), paces.end());
    state.SetIterationTime(with.step);
    state.counters["pace"] = paces[pairs / 2];
    state.counters["pace_least"] = paces.front();
    state.counters["pace_most"] = paces.back();
    state.counters["pace_without_update"] = without.step / (without.step - without.update);
    state.counters["update_share"] = without.update / without.step;
    state.counters["update_share_delayed"] = with.update / with.step;
  }
}

template <class... P>
void measure(const char* name, Size rows) {
  benchmark::RegisterBenchmark(name, delayed<Policy<P...>, Policy<P..., Delayed<1>>>, rows)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const Size rows : {1, 4}) {
    measure<F32>(rows == 1 ? "f32/64_tokens" : "f32/256_tokens", rows);
    measure<Bf16>(rows == 1 ? "bf16/64_tokens" : "bf16/256_tokens", rows);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
