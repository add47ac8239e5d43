// SPDX-License-Identifier: Apache-2.0
/// AdamW over a flat range next to the machine's bandwidth: a loop that reads and writes the same arrays, each once,
/// and computes next to nothing. `share` is that loop's time over AdamW's; `gb_per_second` counts what is read and
/// written. Of 2048 elements, which the first-level cache holds, it is what AdamW computes for.
#include <benchmark/benchmark.h>

#include <type_traits>

#include <dspp/ops/update.hpp>
#include <dspp/optim/adamw.hpp>

#include "alternate.hpp"

namespace {

using namespace dspp;

/// The least that moves the arrays of a range: one addition for each that is read.
template <class T, class G, class S>
void move_once(const FlatRange<T, G, S>& range) {
  S* const values = cpu::accumulating(range);
  cpu::parallel_for(range.count, 16384, [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const S sum = static_cast<S>(range.gradient[i]) + values[i] + range.moments[0][i] + range.moments[1][i];
      values[i] = range.moments[0][i] = range.moments[1][i] = sum;
      if constexpr (!std::is_same_v<T, S>) range.parameter[i] = T::from_bits(static_cast<std::uint16_t>(i));
    }
  });
}

template <class T>
Tensor<T, 1> filled(Size count, Pool& pool, double value) {
  auto x = Tensor<T, 1>::uninitialized(shape(count), pool);
  x.fill(static_cast<T>(value));
  return x;
}

/// T: parameters and gradients; bf16 has masters in f32.
template <class T>
void adamw(benchmark::State& state) {
  constexpr bool own_master = std::is_same_v<T, float>;
  const Size count = state.range(1), times = (Size{1} << 24) / count;
  Pool pool;
  bench::use_threads(static_cast<int>(state.range(0)));
  const auto gradient = filled<T>(count, pool, 1e-3), parameter = filled<T>(count, pool, 0.5);
  const auto m = filled<float>(count, pool, 0), v = filled<float>(count, pool, 1e-6);
  const auto master = filled<float>(own_master ? 1 : count, pool, 0.5);
  const FlatRange<T, T, float> range{
      gradient.data(), parameter.data(), own_master ? nullptr : master.data(), {m.data(), v.data()}, count};
  const auto ranges = [&](const auto& f) { f(range, RangeSettings{}); };
  Size step = 0;
  for (auto _ : state) {
    const auto seconds = bench::alternate(
        7,
        [&] {
          for (Size i = 0; i < times; ++i) move_once(range);
        },
        [&] {
          for (Size i = 0; i < times; ++i)
            update_ranges<T, T, float, Cpu>(pool, AdamW{}, ranges, {.step = ++step, .lr = 1e-3});
        });
    const double elements = static_cast<double>(count * times);
    state.SetIterationTime(seconds[1]);
    state.counters["ns_an_element"] = seconds[1] / elements * 1e9;
    state.counters["gb_per_second"] = static_cast<double>(detail::moved_bytes(range) * times) / seconds[1] / 1e9;
    state.counters["share"] = seconds[0] / seconds[1];
  }
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "elements"})->Args({1, 2048})->Args({1, 1 << 24})->Args({2, 1 << 24});
  b->Iterations(1)->UseManualTime();
}

BENCHMARK(adamw<float>)->Name("adamw/f32")->Apply(sizes);
BENCHMARK(adamw<bf16>)->Name("adamw/bf16")->Apply(sizes);

}  // namespace
