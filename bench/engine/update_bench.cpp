// SPDX-License-Identifier: Apache-2.0
/// Steps of a GPT whose update is a large part of them, with and without Delayed<1>, Speculative or ZenFlow, by turns:
/// the pace with it over that without, that of a rank with the second thread for all its work, and the pace that there
/// would be if the update cost nothing.
///
/// A rank has one thread, and its updates another one: on a machine of two cores that is one rank.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

namespace {

using namespace dspp;

constexpr GptConfig model{.layers = 6, .width = 512, .heads = 8, .vocabulary = 16384, .sequence = 64};
constexpr int steps = 20, warm = 4;  // as many rounds of ZenFlow as there are between its selections

struct Run {
  double step = 0, update = 0;  // seconds of a step, and of that its step(), which updates
};

template <class P>
Run run_once(Size rows, int threads) {
  Run run;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = threads}, [&](World<P>& world) {
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
    // Means, since a step in four of ZenFlow has more to do.
    const auto mean = [](const std::vector<double>& of) {
      return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size());
    };
    run = {mean(all), mean(updates)};
  });
  return run;
}

template <class Without, class With>
void compare(benchmark::State& state, Size rows) {
  constexpr int rounds = 5;
  for (auto _ : state) {
    std::vector<double> paces, of_two_threads;
    Run without, with;
    for (int i = 0; i < rounds; ++i) {
      without = run_once<Without>(rows, 1), with = run_once<With>(rows, 1);
      paces.push_back(without.step / with.step);
      of_two_threads.push_back(without.step / run_once<Without>(rows, 2).step);
    }
    std::sort(paces.begin(), paces.end());
    std::sort(of_two_threads.begin(), of_two_threads.end());
    state.SetIterationTime(with.step);
    state.counters["pace"] = paces[rounds / 2];
    state.counters["pace_least"] = paces.front();
    state.counters["pace_most"] = paces.back();
    state.counters["pace_of_two_threads"] = of_two_threads[rounds / 2];
    state.counters["pace_without_update"] = without.step / (without.step - without.update);
    state.counters["update_share"] = without.update / without.step;
    state.counters["update_share_with"] = with.update / with.step;
  }
}

template <class With, class... P>
void measure_one(const char* name, const std::string& of, Size rows) {
  benchmark::RegisterBenchmark((of + name).c_str(), compare<Policy<P...>, Policy<P..., With>>, rows)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}
template <class... P>
void measure(const std::string& of, Size rows) {
  measure_one<Delayed<1>, P...>("/delayed", of, rows);
  measure_one<Speculative, P...>("/speculative", of, rows);
  measure_one<ZenFlow, P...>("/zenflow", of, rows);
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
