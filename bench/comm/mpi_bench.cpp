// SPDX-License-Identifier: Apache-2.0
/// MPI ranks against thread ranks and against MPI's own MPI_Allreduce, 1 KB to 256 MB, two ranks. bytes_per_second
/// counts the whole buffer once per call. `in_turns` alternates calls of the two sum orders: medians of both and their
/// ratio, and dspp's barrier, which exchanges fingerprints alone, against MPI_Barrier. Started alone, the benchmark
/// starts itself under mpirun.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>
#include <dspp/comm/mpi/world.hpp>
#include <dspp/launch/launch.hpp>

namespace {

using namespace dspp;

/// An order of rank 0, which measures, to the other ranks: `calls` of a kind.
enum class Kind : Size { all_reduce, reduce_scatter, all_gather, barrier, open_mpi_all_reduce, end };
using Order = std::array<Size, 4>;  // kind, bytes, calls, whether each is made in both sum orders

/// The buffers of one rank: the whole buffer and its slice.
struct Memory {
  std::vector<float> whole, slice;
  Memory(Size bytes, int ranks)
      : whole(static_cast<std::size_t>(bytes / 4), 1.0f), slice(whole.size() / static_cast<std::size_t>(ranks)) {}
  Buffer all() { return buffer(whole.data(), static_cast<Size>(whole.size())); }
  Buffer part() { return buffer(slice.data(), static_cast<Size>(slice.size())); }
};

MpiWorld *world = nullptr, *by_mpi = nullptr;  // in rank order, and by MPI's own collectives

template <Communicator C>
void call(C& c, Kind kind, Memory& m) {
  switch (kind) {
    case Kind::all_reduce: return all_reduce(c, m.all(), Purpose::gradient);
    case Kind::reduce_scatter: return reduce_scatter(c, m.all(), m.part(), Purpose::gradient);
    case Kind::all_gather: return all_gather(c, m.part(), m.all(), Purpose::parameter);
    case Kind::barrier: return c.barrier();
    case Kind::open_mpi_all_reduce:
      MPI_Allreduce(MPI_IN_PLACE, m.whole.data(), static_cast<int>(m.whole.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      return;
    case Kind::end: return;
  }
}

/// The median seconds of both sum orders; by MPI, a barrier is MPI_Barrier. The ranks synchronise before each call.
std::array<double, 2> call_in_turns(Kind kind, Memory& m, Size rounds) {
  using Clock = std::chrono::steady_clock;
  AnyCommunicator in_order = world->groups().world, own = by_mpi->groups().world;
  std::array<std::vector<double>, 2> seconds;
  for (Size round = -1; round < rounds; ++round)  // the first warms up
    for (const std::size_t way : {0u, 1u}) {
      in_order.barrier();
      const auto start = Clock::now();
      if (way == 0)
        call(in_order, kind, m);
      else if (kind == Kind::barrier)
        MPI_Barrier(MPI_COMM_WORLD);
      else
        call(own, kind, m);
      if (round >= 0) seconds[way].push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
  std::array<double, 2> medians{};
  for (const std::size_t way : {0u, 1u}) {
    const auto middle = seconds[way].begin() + std::ssize(seconds[way]) / 2;
    std::nth_element(seconds[way].begin(), middle, seconds[way].end());
    medians[way] = *middle;
  }
  return medians;
}

/// The loop of the other ranks: they sleep until an order comes.
void serve() {
  AnyCommunicator c = world->groups().world;
  for (;;) {
    int there = 0;
    MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (there == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    Order order{};
    MPI_Recv(order.data(), 4, MPI_INT64_T, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const auto kind = static_cast<Kind>(order[0]);
    if (kind == Kind::end) return;
    Memory memory(order[1], c.size());
    if (order[3] != 0) {
      call_in_turns(kind, memory, order[2]);
      continue;
    }
    c.barrier();
    for (Size i = 0; i < order[2]; ++i) call(c, kind, memory);
  }
}

void give(const Order& order) {
  for (int r = 1; r < world->mesh().world_size(); ++r) MPI_Send(order.data(), 4, MPI_INT64_T, r, 0, MPI_COMM_WORLD);
}

template <Kind kind>
void on_mpi(benchmark::State& state) {
  AnyCommunicator c = world->groups().world;
  Memory memory(state.range(0), c.size());
  give({static_cast<Size>(kind), state.range(0), static_cast<Size>(state.max_iterations), 0});
  c.barrier();
  for (auto _ : state) call(c, kind, memory);
  state.SetBytesProcessed(static_cast<Size>(state.iterations()) * state.range(0));
}

template <Kind kind>
void in_turns(benchmark::State& state) {
  Memory memory(state.range(0), world->mesh().world_size());
  const Size rounds = std::clamp<Size>((Size{1} << 31) / std::max<Size>(state.range(0), 1), 21, 401);
  for (auto _ : state) {
    give({static_cast<Size>(kind), state.range(0), rounds, 1});
    const auto [in_order, own] = call_in_turns(kind, memory, rounds);
    state.SetIterationTime(own);
    state.counters["rank_order_us"] = 1e6 * in_order;
    state.counters["by_mpi_us"] = 1e6 * own;
    state.counters["ratio"] = in_order / own;
  }
}

/// As many thread ranks in the process of rank 0, while the other processes sleep.
template <Kind kind>
void on_threads(benchmark::State& state) {
  const int ranks = world->mesh().world_size();
  ThreadGroup group(ranks);
  const auto calls = static_cast<Size>(state.max_iterations);
  std::vector<std::thread> others;
  for (int r = 1; r < ranks; ++r) {
    others.emplace_back([&, r] {
      Threads c = group.communicator(r);
      Memory memory(state.range(0), ranks);
      c.barrier();
      for (Size i = 0; i < calls; ++i) call(c, kind, memory);
    });
  }
  Threads c = group.communicator(0);
  Memory memory(state.range(0), ranks);
  c.barrier();
  for (auto _ : state) call(c, kind, memory);
  for (std::thread& t : others) t.join();
  state.SetBytesProcessed(static_cast<Size>(state.iterations()) * state.range(0));
}

void sizes(benchmark::internal::Benchmark* b) {
  for (Size bytes : {1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20}) b->Arg(bytes);
  b->ArgName("bytes")->UseRealTime()->Repetitions(3)->ReportAggregatesOnly();
}

void sizes_in_turns(benchmark::internal::Benchmark* b) {
  for (Size bytes : {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) b->Arg(bytes);
  b->ArgName("bytes")->UseManualTime()->Iterations(1)->Repetitions(1);
}

void declare() {
  benchmark::RegisterBenchmark("in_turns_all_reduce", in_turns<Kind::all_reduce>)->Apply(sizes_in_turns);
  benchmark::RegisterBenchmark("in_turns_reduce_scatter", in_turns<Kind::reduce_scatter>)->Apply(sizes_in_turns);
  benchmark::RegisterBenchmark("in_turns_all_gather", in_turns<Kind::all_gather>)->Apply(sizes_in_turns);
  benchmark::RegisterBenchmark("in_turns_barrier", in_turns<Kind::barrier>)
      ->Arg(0)
      ->ArgName("bytes")
      ->UseManualTime()
      ->Iterations(1);
  benchmark::RegisterBenchmark("all_reduce_threads", on_threads<Kind::all_reduce>)->Apply(sizes);
  benchmark::RegisterBenchmark("all_reduce_mpi", on_mpi<Kind::all_reduce>)->Apply(sizes);
  benchmark::RegisterBenchmark("MPI_Allreduce", on_mpi<Kind::open_mpi_all_reduce>)->Apply(sizes);
  benchmark::RegisterBenchmark("reduce_scatter_threads", on_threads<Kind::reduce_scatter>)->Apply(sizes);
  benchmark::RegisterBenchmark("reduce_scatter_mpi", on_mpi<Kind::reduce_scatter>)->Apply(sizes);
  benchmark::RegisterBenchmark("all_gather_threads", on_threads<Kind::all_gather>)->Apply(sizes);
  benchmark::RegisterBenchmark("all_gather_mpi", on_mpi<Kind::all_gather>)->Apply(sizes);
}

/// Replaces this process by mpirun with two ranks; returns only if mpirun cannot be started.
int start_ranks(int argc, char** argv) {
  for (const char* name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(name, "1", 1);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  std::vector<const char*> arguments = {DSPP_MPIRUN, "-n", "2"};
  for (int i = 0; i < argc; ++i) arguments.push_back(argv[i]);
  arguments.push_back(nullptr);
  execv(DSPP_MPIRUN, const_cast<char**>(arguments.data()));
  std::perror("dspp: the benchmark needs mpirun, but it could not be started");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Launch launch = this_launch();
  if (launch.by.empty()) return start_ranks(argc, argv);
  const MpiSession session;
  MpiWorld ranks(Mesh(Degrees{.data = launch.size}));
  MpiWorld ranks_by_mpi(Mesh(Degrees{.data = launch.size}), {.sum_order = SumOrder::transport});
  world = &ranks;
  by_mpi = &ranks_by_mpi;
  if (ranks.rank() > 0) return serve(), 0;
  declare();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  give({static_cast<Size>(Kind::end), 0, 0, 0});
  return 0;
}
