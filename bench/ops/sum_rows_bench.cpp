// SPDX-License-Identifier: Apache-2.0
/// The sum of all rows, a bias's gradient, of 2048 rows in f32. Between two rounds 64 MB are written, so that little of
/// them is in a cache.
#include <benchmark/benchmark.h>

#include <vector>

#include <dspp/ops/arithmetic.hpp>

#include "alternate.hpp"

namespace {

using namespace dspp;

void sum_rows(benchmark::State& state) {
  Pool pool;
  bench::use_threads(static_cast<int>(state.range(0)));
  auto x = Tensor<float, 2>::uninitialized(shape(2048, state.range(1)), pool);
  x.fill(0.5);
  auto sum = Tensor<float, 1>::zeros(shape(state.range(1)), pool);
  std::vector<char> other(64 << 20);
  for (auto _ : state) {
    const auto seconds = bench::alternate(
        15,
        [&] {
          for (char& byte : other) ++byte;
          benchmark::ClobberMemory();
        },
        [&] { ops::sum_rows_into(sum, Write::overwrite, x); });
    state.SetIterationTime(seconds[1]);
    state.counters["gb_per_second"] = static_cast<double>(x.bytes()) / seconds[1] / 1e9;
  }
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const int threads : {1, 2})
    for (const int columns : {384, 768, 1152, 1536}) b->Args({threads, columns});
  b->ArgNames({"threads", "columns"})->Iterations(1)->UseManualTime();
}

BENCHMARK(sum_rows)->Apply(sizes);

}  // namespace
