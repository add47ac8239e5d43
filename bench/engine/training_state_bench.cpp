// SPDX-License-Identifier: Apache-2.0
/// Saving and loading a checkpoint of a GPT-2 of 42 M parameters (f32: 505 MB), alternating with plain writing and
/// fsync, and plain reading, of as many bytes in the same folder. A share is the rate divided by the plain rate.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

#include "../ops/alternate.hpp"

namespace {

using namespace dspp;

constexpr int rounds = 5;
constexpr GptConfig config{.layers = 12, .width = 512, .heads = 8, .vocabulary = 8192, .sequence = 256};

/// A folder beside the program, removed at the end.
class Folder {
 public:
  Folder() : path_(std::filesystem::current_path() / ("states-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Size bytes_in(const std::string& folder) {
  Size bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<Size>(entry.file_size());
  return bytes;
}

void require_all(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("dspp: the benchmark could not ") + what);
}

/// Writes a file in blocks of a MiB and syncs it.
void write_plain(const std::string& path, Size bytes) {
  static const std::vector<char> block(1 << 20, 'x');
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (Size at = 0; at < bytes; at += std::ssize(block)) {
    const auto count = static_cast<std::size_t>(std::min(std::ssize(block), bytes - at));
    require_all(write(file, block.data(), count) == static_cast<ssize_t>(count), "write a file");
  }
  require_all(fsync(file) == 0 && close(file) == 0, "bring a file to the disk");
}

/// Reads the file, which may be in the page cache, as checkpoints may be.
void read_plain(const std::string& path) {
  static std::vector<char> block(1 << 20);
  const int file = open(path.c_str(), O_RDONLY);
  ssize_t count = 0;
  while ((count = read(file, block.data(), block.size())) > 0) benchmark::DoNotOptimize(block.data());
  require_all(count == 0 && close(file) == 0, "read a file");
}

template <class P>
void states(benchmark::State& state) {
  const Folder folder;
  const std::string saved = folder.path() + "/training", plain = folder.path() + "/plain";
  for (auto _ : state) {
    std::array<double, 4> seconds{};
    Size bytes = 0;
    run_ranks_of<P>({.ranks = static_cast<int>(state.range(0))}, [&](World<P>& world) {
      Engine engine{world, Gpt<P>(config), AdamW{}};
      save_checkpoint(engine, saved, {.tag = "state"});
      if (world.is_first()) bytes = bytes_in(saved + "/state");
      const auto alone = [&](auto&& work) {
        if (world.is_first()) work();
        world.all().barrier();
      };
      const auto mine = bench::alternate(
          rounds, [&] { save_checkpoint(engine, saved, {.tag = "state"}); }, [&] { load_checkpoint(engine, saved); },
          [&] { alone([&] { write_plain(plain, bytes); }); }, [&] { alone([&] { read_plain(plain); }); });
      if (world.is_first()) seconds = mine;
    });
    const auto rate = [&](double time) { return static_cast<double>(bytes) / time / 1e6; };
    state.SetIterationTime(seconds[0]);
    state.counters["state_MB"] = static_cast<double>(bytes) / 1e6;
    state.counters["save_MB_per_s"] = rate(seconds[0]);
    state.counters["load_MB_per_s"] = rate(seconds[1]);
    state.counters["save_share"] = seconds[2] / seconds[0];
    state.counters["load_share"] = seconds[3] / seconds[1];
  }
}

template <class P>
void declare(const char* name, int ranks) {
  benchmark::RegisterBenchmark(name, states<P>)
      ->ArgName("ranks")
      ->Arg(ranks)
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  declare<Policy<Zero<0>>>("states/zero_0", 1);
  declare<Policy<Zero<3>>>("states/zero_3", 2);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
