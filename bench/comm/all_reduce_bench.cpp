// SPDX-License-Identifier: Apache-2.0
/// Thread collectives from 1 KB to 256 MB on 2 and 4 ranks. bytes_per_second counts the whole buffer once per call: x
/// of all_reduce, in of reduce_scatter, out of all_gather.
///
/// `share` is that of the bound: the time that the least traffic takes at the rate of ranks that pass over a buffer at
/// the same time, in turns with the collective. all_reduce reads and writes x of every rank where it lies, as ranks do
/// that scale theirs; the other two read (write) it of every rank, and write (read) it once: part of what copies of it
/// to another buffer move. Where ranks outnumber cores, both wait.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>

#include "../ops/alternate.hpp"

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

/// Times `collective` on rank 0, the benchmark's own thread, in turns with the bound; the other ranks make the same
/// calls. `traffic` is the collective's in bytes of the buffer, over all ranks.
template <class Call>
void run(benchmark::State& state, Call collective, bool in_place, double traffic) {
  const auto ranks = static_cast<int>(state.range(0));
  const Size bytes = state.range(1);
  ThreadGroup group(ranks);
  std::array<double, 2> seconds{};
  const auto one_rank = [&](int rank) {
    Threads c = group.communicator(rank);
    Memory memory(bytes, ranks);
    std::vector<float> copied(memory.whole.size());
    const int times = static_cast<int>(std::clamp<Size>((4 << 20) / bytes, 1, 256));
    const auto medians = bench::alternate(
        9,
        [&] {
          c.barrier();
          for (int i = 0; i < times; ++i) {
            if (in_place)
              for (float& x : memory.whole) x *= 0.999f;
            else
              std::memcpy(copied.data(), memory.whole.data(), static_cast<std::size_t>(bytes));
            benchmark::DoNotOptimize(copied.data());
            benchmark::ClobberMemory();
          }
          c.barrier();
        },
        [&] {
          c.barrier();
          for (int i = 0; i < times; ++i) collective(c, memory);
          c.barrier();
        });
    if (rank == 0) seconds = {medians[0] / times, medians[1] / times};
  };
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (int r = 1; r < ranks; ++r) others.emplace_back(one_rank, r);
    one_rank(0);
    for (std::thread& t : others) t.join();
    state.SetIterationTime(seconds[1]);
    state.counters["share"] = seconds[0] * traffic / (2.0 * ranks) / seconds[1];
    state.counters["bytes_per_second"] =
        benchmark::Counter(static_cast<double>(bytes) / seconds[1], {}, benchmark::Counter::kIs1024);
  }
}

void all_reduce_threads(benchmark::State& state) {
  const auto ranks = static_cast<double>(state.range(0));
  run(
      state, [](Threads& c, Memory& m) { all_reduce(c, m.all(), Purpose::gradient); }, true, 2 * ranks);
}

void reduce_scatter_threads(benchmark::State& state) {
  const auto ranks = static_cast<double>(state.range(0));
  run(
      state, [](Threads& c, Memory& m) { reduce_scatter(c, m.all(), m.part(), Purpose::gradient); }, false, ranks + 1);
}

void all_gather_threads(benchmark::State& state) {
  const auto ranks = static_cast<double>(state.range(0));
  run(
      state, [](Threads& c, Memory& m) { all_gather(c, m.part(), m.all(), Purpose::parameter); }, false, ranks + 1);
}

void sizes(benchmark::internal::Benchmark* b) {
  for (Size ranks : {2, 4}) {
    for (Size bytes = 1 << 10; bytes <= 256 << 20; bytes *= 8) b->Args({ranks, bytes});
    b->Args({ranks, 64 << 20});
  }
  b->ArgNames({"ranks", "bytes"})->Iterations(1)->UseManualTime();
}

BENCHMARK(all_reduce_threads)->Apply(sizes);
BENCHMARK(reduce_scatter_threads)->Apply(sizes);
BENCHMARK(all_gather_threads)->Apply(sizes);

}  // namespace
