// SPDX-License-Identifier: Apache-2.0
/// Thread collectives from 1 KB to 256 MB on 2 and 4 ranks. bytes_per_second counts the whole buffer once per call: x
/// of all_reduce, in of reduce_scatter, out of all_gather. `memory` is a plain copy by one rank: the machine's limit.
#include <benchmark/benchmark.h>

#include <cstring>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>

namespace {

using namespace dspp;

/// The buffers of one rank: the whole buffer and its slice.
struct Memory {
  std::vector<float> whole, slice;
  Memory(Size bytes, int ranks)
      : whole(static_cast<std::size_t>(bytes / 4), 1.0f), slice(whole.size() / static_cast<std::size_t>(ranks)) {}
  Buffer all() { return buffer(whole.data(), static_cast<Size>(whole.size())); }
  Buffer part() { return buffer(slice.data(), static_cast<Size>(slice.size())); }
};

/// Times `collective` on rank 0, the benchmark's own thread; the other ranks make the same number of calls.
template <class Call>
void run(benchmark::State& state, Call collective) {
  const auto ranks = static_cast<int>(state.range(0));
  const Size bytes = state.range(1);
  ThreadGroup group(ranks);
  const auto calls = static_cast<Size>(state.max_iterations);
  std::vector<std::thread> others;
  for (int r = 1; r < ranks; ++r) {
    others.emplace_back([&, r] {
      Threads c = group.communicator(r);
      Memory memory(bytes, ranks);
      c.barrier();
      for (Size i = 0; i < calls; ++i) collective(c, memory);
    });
  }
  Threads c = group.communicator(0);
  Memory memory(bytes, ranks);
  c.barrier();
  for (auto _ : state) collective(c, memory);
  for (std::thread& t : others) t.join();
  state.SetBytesProcessed(static_cast<Size>(state.iterations()) * bytes);
}

void all_reduce_threads(benchmark::State& state) {
  run(state, [](Threads& c, Memory& m) { all_reduce(c, m.all(), Purpose::gradient); });
}

void reduce_scatter_threads(benchmark::State& state) {
  run(state, [](Threads& c, Memory& m) { reduce_scatter(c, m.all(), m.part(), Purpose::gradient); });
}

void all_gather_threads(benchmark::State& state) {
  run(state, [](Threads& c, Memory& m) { all_gather(c, m.part(), m.all(), Purpose::parameter); });
}

void memory(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> from(bytes, 1), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<Size>(state.iterations()) * state.range(0));
}

void sizes(benchmark::internal::Benchmark* b) {
  for (Size ranks : {2, 4}) {
    for (Size bytes = 1 << 10; bytes <= 256 << 20; bytes *= 8) b->Args({ranks, bytes});
    b->Args({ranks, 64 << 20});
  }
  b->ArgNames({"ranks", "bytes"})->UseRealTime();
}

BENCHMARK(all_reduce_threads)->Apply(sizes);
BENCHMARK(reduce_scatter_threads)->Apply(sizes);
BENCHMARK(all_gather_threads)->Apply(sizes);
BENCHMARK(memory)->ArgName("bytes")->Arg(1 << 10)->Arg(1 << 20)->Arg(64 << 20)->Arg(256 << 20);

}  // namespace
