// SPDX-License-Identifier: Apache-2.0
// labels: mpi
// Run by mpirun on 1, 2, 3 and 4 ranks: every process runs every test.

#include <laws/async_progress.hpp>
#include <laws/communicator.hpp>
#include <laws/mpi_worlds.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The results of every rank: an all-reduce, a reduce-scatter and an all-gather of noise.
template <class T, class C>
std::vector<T> results(C& c, Size count) {
  std::vector<T> x = contributions<T>(c.rank(), count, 5), all;
  const std::vector<T> wide = contributions<T>(c.rank(), count * c.size(), 6);
  std::vector<T> slice(static_cast<std::size_t>(count)), whole(wide.size());
  if constexpr (!std::is_same_v<T, std::uint8_t>) {
    all_reduce(c, all_of(x), Purpose::gradient);
    reduce_scatter(c, all_of(wide), all_of(slice), Purpose::gradient);
  }
  all_gather(c, all_of(std::as_const(x)), all_of(whole), Purpose::parameter);
  broadcast(c, all_of(whole), c.size() - 1, Purpose::parameter);
  for (const auto* part : {&x, &slice, &whole}) all.insert(all.end(), part->begin(), part->end());
  return all;
}

/// Runs thread ranks in this process, which is itself an MPI rank, and compares the two.
template <class T>
void check_same_as_threads(Size count) {
  const int ranks = mpi_ranks();
  MpiRanksWorld::run(ranks, [&](Mpi& mpi) {
    const std::vector<T> here = results<T>(mpi, count);
    ThreadsWorld::run(ranks, [&](Threads& thread) {
      const std::vector<T> there = results<T>(thread, count);
      if (thread.rank() != mpi.rank()) return;
      CHECK(same_bits(here, there));
      CHECK(thread.traffic() == mpi.traffic());
    });
  });
}

}  // namespace

TEST_CASE("MPI ranks have the bits and the traffic of thread ranks, in every type") {
  for (Size count : {1, 1000, 300'007}) {
    check_same_as_threads<double>(count);
    check_same_as_threads<float>(count);
    check_same_as_threads<bf16>(count);
    check_same_as_threads<f16>(count);
    check_same_as_threads<std::int32_t>(count);
    check_same_as_threads<std::int64_t>(count);
    check_same_as_threads<std::uint8_t>(count);
  }
}

TEST_CASE("Mpi with progress threads obeys the laws of a communicator, and completes operations while ranks compute") {
  const int ranks = mpi_ranks();
  check_communicator_laws<MpiProgressWorld>(ranks);
  check_random_programs<MpiProgressWorld>(ranks, 5);
  if (ranks == 1) return;
  MpiProgressWorld::run(ranks, [](Mpi& c) { operations_complete_while_the_rank_computes(c); });
  MpiRanksWorld::run(ranks, [](Mpi& c) { operations_wait_for_the_rank(c); });
}

TEST_CASE("waits in different orders across groups of MPI ranks do not deadlock") {
  if (mpi_ranks() % 2 != 0) return;
  MpiWorld world(Mesh(Degrees{.data = mpi_ranks() / 2, .tp = 2}), {.timeout_seconds = 20});
  AnyCommunicator a = world.groups().world, b = world.groups()[Axis::Tp];
  for (int round = 0; round < 100; ++round) {
    std::vector<float> x = contributions<float>(a.rank(), 50, round), y = contributions<float>(b.rank(), 60'000, round);
    Pending<> p = a.start_all_reduce(all_of(x), Purpose::gradient);
    Pending<> q = b.start_all_reduce(all_of(y), Purpose::gradient);
    (a.rank() % 2 == 0 ? p : q).wait();
    (a.rank() % 2 == 0 ? q : p).wait();
    CHECK(same_bits(x, sums<float>(a.size(), 50, round)));
    CHECK(same_bits(y, sums<float>(2, 60'000, round)));
  }
}

TEST_CASE("a pending operation of MPI ranks outlives its handle and its world") {
  std::vector<float> x = contributions<float>(0, 0);
  Pending<> pending;
  int rank = 0;
  {
    MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 20});
    rank = world.rank();
    x = contributions<float>(rank, 100);
    AnyCommunicator c = world.groups().world;
    pending = c.start_all_reduce(all_of(x), Purpose::gradient);
  }
  pending.wait();
  CHECK(same_bits(x, sums<float>(mpi_ranks(), 100)));
}

TEST_CASE("Mpi obeys the laws of a communicator") {
  check_communicator_laws<MpiRanksWorld>(mpi_ranks());
}

TEST_CASE("Mpi erased and recorded obeys the laws of a communicator, and moves what was planned") {
  check_communicator_laws<ErasedWorld<MpiRanksWorld>>(mpi_ranks());
  check_communicator_laws<RecordedWorld<MpiRanksWorld>>(mpi_ranks());
}

TEST_CASE("MPI ranks of one machine share a node, and report the order of their sums") {
  const int hosts = mpi_hosts(), on_each = mpi_ranks() / hosts;
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
    const MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 20, .sum_order = order});
    CHECK(world.nodes().count() == hosts);
    CHECK(world.groups().node ==
          NodePlace{world.rank() / on_each, hosts, world.rank() % on_each, on_each, hosts > 1 ? on_each : 0});
    CHECK(world.groups().world.sum_order() == (mpi_ranks() == 1 ? SumOrder::exact : order));
    AnyCommunicator on_node = world.groups().node_replicas, across = world.groups().across_nodes;
    CHECK(on_node.size() == (hosts > 1 ? on_each : 1));
    CHECK(across.size() == hosts);
    float there = static_cast<float>(world.rank()), everywhere = there;
    all_reduce(on_node, buffer(&there, 1), Purpose::scalar);
    all_reduce(across, buffer(&everywhere, 1), Purpose::scalar);
    const int first = world.rank() / on_each * on_each, place = world.rank() % on_each;
    int of_node = hosts > 1 ? 0 : world.rank(), of_place = 0;
    for (int i = 0; hosts > 1 && i < on_each; ++i) of_node += first + i;
    for (int i = 0; i < hosts; ++i) of_place += hosts > 1 ? place + i * on_each : world.rank();
    CHECK(there == static_cast<float>(of_node));
    CHECK(everywhere == static_cast<float>(of_place));
  }
}

TEST_CASE("MPI ranks make the digest of a sum in rank order") {
  const MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 20});
  auto c = world.groups().world;
  const Size slice = 1000, all = slice * mpi_ranks();
  std::vector<float> in(static_cast<std::size_t>(all), 0.5f), out(static_cast<std::size_t>(slice));
  SumDigest digest;
  reduce_scatter(c, buffer(std::as_const(in).data(), all), buffer(out.data(), slice), PurposeAt().with_digest(&digest));
  CHECK(digest.made == (mpi_ranks() > 1));
}

TEST_CASE("random programs on MPI ranks end with the right bits") {
  check_random_programs<RecordedWorld<MpiRanksWorld>>(mpi_ranks(), 200);
}

TEST_CASE("the communicators of an axis of MPI ranks obey the laws of a communicator") {
  if (mpi_ranks() % 2 == 0) check_communicator_laws<MpiSubgroupWorld>(mpi_ranks() / 2);
}
