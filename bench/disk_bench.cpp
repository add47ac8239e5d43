// SPDX-License-Identifier: Apache-2.0
/// What Offload<..., Disk> may expect of a disk: io::BlockFile writes and reads blocks of 4 and 32 MiB with headers and
/// checksums, three under way as in a step, on 1 and 2 threads: by io_uring, each with 1 to 16 pieces of 1 MiB under
/// way (`depth`), and by pread and pwrite (depth 0). The best is named, and measured once more, also with the blocks in
/// pages of 4 KiB, as fio's. All settings have the same memory, since rates depend on how its pages lie.
///
/// `fio` is the rate of fio with the same requests, depth and threads on a file of the same folder, in turns with it;
/// `share` is the median of dspp's rate over fio's. Two minutes; DSPP_DISK_ROUNDS: pairs of each (3).
///
/// In the folder DSPP_DISK_FOLDER, or the current one, in files without names.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <dspp/io/block_file.hpp>
#include <dspp/tensor/host_memory.hpp>

namespace {

using namespace dspp;
using io::BlockFile;

constexpr int windows = 3;               // of OffloadFile
constexpr double seconds_of_pass = 0.2;  // about
Size bytes_of_pass = 128_MiB;

std::string folder() {
  const char* const named = std::getenv("DSPP_DISK_FOLDER");
  return named ? named : ".";
}
int rounds() {
  const char* const given = std::getenv("DSPP_DISK_ROUNDS");
  return given ? std::max(1, std::atoi(given)) : 3;
}

struct Setting {
  bool writes = false;
  Size block = 0;
  int depth = 0;  ///< 0: pread and pwrite of whole blocks
  int threads = 0;
  Size request() const { return depth > 0 ? 1_MiB : block; }
  std::string text() const {
    return std::to_string(block / 1_MiB) + " MiB a block, " +
           (depth > 0 ? "io_uring of depth " + std::to_string(depth) : "pread and pwrite") + " on " +
           std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  }
};

/// Memory of windows for the largest block, as a Pool's, or in pages of 4 KiB.
enum class Pages { pool, small };
std::byte* new_memory(Pages pages) {
  constexpr Size bytes = windows * 32_MiB;
  std::byte* const data = detail::take_host_memory(bytes);
  require(data != nullptr, "dspp: bench disk needs 128 MiB of memory, but the system has none. End other programs.");
  if (pages == Pages::small) ::madvise(data, bytes, MADV_NOHUGEPAGE);
  std::fill_n(data, bytes, std::byte{1});
  return data;
}
std::byte* memory_in(Pages pages) {
  static std::byte* const pool = new_memory(Pages::pool);
  static std::byte* const small = new_memory(Pages::small);
  return pages == Pages::pool ? pool : small;
}

/// Passes of dspp.
class Passes {
 public:
  explicit Passes(const Setting& setting, Pages pages = Pages::pool) : setting_(setting), data_(memory_in(pages)) {
    file_.open(folder(), nullptr,
               {.threads = setting.threads, .depth = std::max(setting.depth, 1), .uses_ring = setting.depth > 0});
    file_.extend(bytes_of_pass);
    pass(true);  // what is read, or written once more
  }
  /// Bytes a second.
  double rate() {
    const auto start = std::chrono::steady_clock::now();
    pass(setting_.writes);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return static_cast<double>(bytes_of_pass) / seconds.count();
  }

 private:
  void pass(bool writes) {
    io::Transfer transfers[windows];
    const Size payload = setting_.block - BlockFile::unit;
    for (Size i = 0; i < bytes_of_pass / setting_.block; ++i) {
      io::Transfer& transfer = transfers[i % windows];
      transfer.wait();
      std::byte* const memory = data_ + i % windows * setting_.block;
      transfer = writes ? file_.start_write(i * setting_.block, {i, 1}, memory, payload)
                        : file_.start_read(i * setting_.block, {i, 1}, memory, payload);
    }
    for (io::Transfer& transfer : transfers) transfer.wait();
  }

  Setting setting_;
  std::byte* data_;
  BlockFile file_;
};

/// fio on a file of its own.
class Fio {
 public:
  Fio() {
    if (std::system("fio --version >/dev/null 2>&1") != 0) return;
    if (calls_.open(folder(), true, file_) == EINVAL) calls_.open(folder(), false, file_), direct_ = false;
    if (file_ < 0 || calls_.extend(file_, 0, bytes_of_pass) != 0) return;
    is_there_ = rate({.writes = true, .block = 32_MiB, .depth = 0, .threads = 1}) > 0;
  }
  Fio(const Fio&) = delete;
  Fio& operator=(const Fio&) = delete;
  ~Fio() {
    if (file_ >= 0) calls_.close(file_);
  }
  bool is_there() const { return is_there_; }
  /// Bytes a second; 0 if it says none.
  double rate(const Setting& setting) const {
    const std::string part = std::to_string(bytes_of_pass / setting.threads);
    std::ostringstream command;
    command << "fio --name=dspp --thread --group_reporting --output-format=terse --terse-version=3 --gtod_reduce=1"
            << " --fallocate=none --invalidate=0 --overwrite=1 --filename=/proc/" << ::getpid() << "/fd/" << file_
            << " --direct=" << direct_ << " --rw=" << (setting.writes ? "write" : "read")
            << " --bs=" << setting.request() << " --numjobs=" << setting.threads << " --size=" << part
            << " --offset_increment=" << part << " --ioengine=" << (setting.depth > 0 ? "io_uring" : "psync")
            << " --iodepth=" << std::max(setting.depth, 1) << " 2>/dev/null";
    std::FILE* const out = ::popen(command.str().c_str(), "r");
    if (out == nullptr) return 0;
    std::string text;
    for (int c = std::fgetc(out); c != EOF; c = std::fgetc(out)) text.push_back(static_cast<char>(c));
    ::pclose(out);
    std::istringstream fields(text);  // the 7th is the KiB/s of reads, the 48th that of writes
    std::string field;
    for (int i = setting.writes ? 48 : 7; i > 0; --i) std::getline(fields, field, ';');
    return 1024 * std::atof(field.c_str());
  }

 private:
  io::BlockCalls calls_;
  int file_ = -1;
  bool direct_ = true, is_there_ = false;
};
std::unique_ptr<Fio> fio;

/// Medians of pairs, in turns.
struct Measured {
  double rate = 0, fio = 0, share = 0, least_share = 0, most_share = 0;
};
double median(std::vector<double>& sorted) {
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}
Measured measure(const Setting& setting, int pairs, Pages pages = Pages::pool) {
  Passes passes(setting, pages);
  std::vector<double> own, of_fio, shares;
  for (int i = 0; i < pairs; ++i) {
    const double before = fio->is_there() && i % 2 == 1 ? fio->rate(setting) : 0;
    own.push_back(passes.rate());
    if (!fio->is_there()) continue;
    of_fio.push_back(i % 2 == 1 ? before : fio->rate(setting));
    shares.push_back(own.back() / of_fio.back());
  }
  Measured measured{.rate = median(own)};
  if (fio->is_there())
    measured.fio = median(of_fio), measured.share = median(shares), measured.least_share = shares.front(),
    measured.most_share = shares.back();
  return measured;
}

struct Best {
  double rate = 0;
  Setting setting;
};
Best best[2];  // of reads and writes

void run(benchmark::State& state, const Setting& setting) {
  for (auto _ : state) {
    const Measured measured = measure(setting, rounds());
    state.SetIterationTime(static_cast<double>(bytes_of_pass) / measured.rate);
    state.counters["bytes_per_second"] = measured.rate;
    if (fio->is_there()) state.counters["fio"] = measured.fio, state.counters["share"] = measured.share;
    Best& so_far = best[setting.writes];
    if (measured.rate > so_far.rate) so_far = {measured.rate, setting};
  }
}

void sweep() {
  BlockFile file;
  file.open(folder());
  std::printf("transfers: %s%s\n", file.way().c_str(), file.is_direct() ? ", direct" : ", through the system's cache");
  const Setting first{.writes = true, .block = 32_MiB, .depth = file.uses_ring() ? 8 : 0, .threads = 1};
  const double steps = Passes(first).rate() * seconds_of_pass / static_cast<double>(64_MiB);
  bytes_of_pass = std::clamp<Size>(static_cast<Size>(steps), 2, 32) * 64_MiB;
  fio = std::make_unique<Fio>();
  if (!fio->is_there()) std::printf("fio was not found (package fio): no comparison\n");
  for (const bool writes : {true, false})
    for (const Size block : {4_MiB, 32_MiB})
      for (const int depth : {0, 1, 8, 16})
        for (const int threads : {1, 2}) {
          if (depth > 0 && !file.uses_ring()) continue;
          const Setting setting{writes, block, depth, threads};
          const std::string name = std::string(writes ? "write" : "read") + "/MiB:" + std::to_string(block / 1_MiB) +
                                   "/depth:" + std::to_string(depth) + "/threads:" + std::to_string(threads);
          benchmark::RegisterBenchmark(name.c_str(), run, setting)
              ->UseManualTime()
              ->Iterations(1)
              ->Unit(benchmark::kMillisecond);
        }
}

void say_best() {
  for (const bool writes : {true, false}) {
    if (best[writes].rate <= 0) continue;
    const char* const what = writes ? "write" : "read";
    std::printf("best %s: %s\n", what, best[writes].setting.text().c_str());
    for (const Pages pages : {Pages::pool, Pages::small}) {
      const Measured again = measure(best[writes].setting, 3 * rounds(), pages);
      std::printf("  in %s %.0f MB/s", pages == Pages::pool ? "a Pool's memory" : "pages of 4 KiB", again.rate / 1e6);
      if (fio->is_there())
        std::printf(", %.2f of fio's %.0f MB/s (%.2f to %.2f of %d pairs)", again.share, again.fio / 1e6,
                    again.least_share, again.most_share, 3 * rounds());
      std::printf("\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  sweep();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  say_best();
  fio.reset();
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
