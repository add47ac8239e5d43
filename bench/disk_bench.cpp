// SPDX-License-Identifier: Apache-2.0
/// What Offload<..., Disk> may expect of a disk: 256 MiB are written and read in blocks of 1 to 64 MiB, with 1 to 4 of
/// them under way on 1 to 4 threads (io::BlockFile: direct transfers with headers and checksums), and the best is
/// named. `raw` is the median rate of a loop of pread or pwrite with the same blocks and no header, in turns with it,
/// and `share` the file's part of that.
///
/// In the folder DSPP_DISK_FOLDER, or the current one.
#include <benchmark/benchmark.h>
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <dspp/io/block_file.hpp>

#include "ops/alternate.hpp"

namespace {

using namespace dspp;
using io::BlockFile;

constexpr Size total = 256_MiB;

std::string folder() {
  const char* const named = std::getenv("DSPP_DISK_FOLDER");
  return named ? named : ".";
}

struct Best {
  double rate = 0;
  std::string how;
};
Best best[2];  // of writes and reads

/// Blocks that are aligned as a file needs them, one after the other.
struct Blocks {
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory;
  Blocks(Size count, Size bytes) {
    for (Size i = 0; i < count; ++i) {
      memory.emplace_back(static_cast<std::byte*>(std::aligned_alloc(BlockFile::unit, bytes)), std::free);
      std::fill_n(memory.back().get(), bytes, static_cast<std::byte>(i + 1));
    }
  }
};

void transfer(benchmark::State& state, bool writes) {
  const Size block = state.range(0) * 1_MiB, depth = state.range(1), count = total / block;
  const Size payload = block - BlockFile::unit;
  Blocks blocks(depth, block);
  BlockFile file;
  file.open(folder(), nullptr, static_cast<int>(state.range(2)));
  file.extend(total);
  io::BlockCalls calls;
  int raw = -1;
  if (calls.open(folder(), true, raw) != 0 && calls.open(folder(), false, raw) != 0)
    return state.SkipWithError("no file");
  calls.extend(raw, 0, total);
  const auto by_file = [&](bool write) {
    std::vector<io::Transfer> under_way(static_cast<std::size_t>(depth));
    for (Size i = 0; i < count; ++i) {
      io::Transfer& slot = under_way[static_cast<std::size_t>(i % depth)];
      slot.wait();
      std::byte* const memory = blocks.memory[static_cast<std::size_t>(i % depth)].get();
      slot = write ? file.start_write(i * block, {i, 1}, memory, payload)
                   : file.start_read(i * block, {i, 1}, memory, payload);
    }
    for (io::Transfer& slot : under_way) slot.wait();
  };
  const auto by_calls = [&](bool write) {
    for (Size i = 0; i < count; ++i)
      for (Size at = 0, done = 0; at < block; at += done) {
        std::byte* const memory = blocks.memory[0].get() + at;
        const int error = write ? calls.write(raw, memory, block - at, i * block + at, done)
                                : calls.read(raw, memory, block - at, i * block + at, done);
        if (error != 0 || done <= 0) return state.SkipWithError("the disk refuses a transfer");
      }
  };
  by_file(true), by_calls(true);  // what is read
  for (auto _ : state) {
    const auto medians = bench::alternate(
        3, [&] { by_file(writes); }, [&] { by_calls(writes); });
    state.SetIterationTime(medians[0]);
    const double rate = static_cast<double>(total) / medians[0];
    state.counters["bytes_per_second"] = rate;
    state.counters["raw"] = static_cast<double>(total) / medians[1];
    state.counters["share"] = medians[1] / medians[0];
    if (rate > best[writes ? 0 : 1].rate)
      best[writes ? 0 : 1] = {rate, std::to_string(state.range(0)) + " MiB a block, " + std::to_string(depth) +
                                        " under way, " + std::to_string(state.range(2)) + " threads"};
  }
  calls.close(raw);
}

void write(benchmark::State& state) {
  transfer(state, true);
}
void read(benchmark::State& state) {
  transfer(state, false);
}

void sweep(benchmark::internal::Benchmark* of) {
  for (const Size mebibytes : {1, 4, 16, 64})
    for (const Size depth : {1, 2, 4})
      for (const Size threads : {1, 2, 4})
        if (threads <= depth) of->Args({mebibytes, depth, threads});
  of->ArgNames({"MiB", "under_way", "threads"})->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
}
BENCHMARK(write)->Apply(sweep);
BENCHMARK(read)->Apply(sweep);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  for (int i = 0; i < 2; ++i)
    if (best[i].rate > 0)
      std::printf("best %s: %.0f MB/s with %s\n", i == 0 ? "write" : "read", best[i].rate / 1e6, best[i].how.c_str());
}
