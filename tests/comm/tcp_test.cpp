// SPDX-License-Identifier: Apache-2.0
// labels: comm
// Ranks are forked processes on loopback.
#include <laws/async_progress.hpp>
#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/tcp_processes.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The results of every rank: an all-reduce, a reduce-scatter, an all-gather and a broadcast of noise.
template <class T, class C>
std::vector<T> results(C& c, Size count) {
  std::vector<T> x = contributions<T>(c.rank(), count, 5), all;
  const std::vector<T> wide = contributions<T>(c.rank(), count * c.size(), 6);
  std::vector<T> slice(static_cast<std::size_t>(count)), whole(wide.size());
  all_reduce(c, all_of(x), Purpose::gradient);
  reduce_scatter(c, all_of(wide), all_of(slice), Purpose::gradient);
  all_gather(c, all_of(std::as_const(x)), all_of(whole), Purpose::parameter);
  broadcast(c, all_of(whole), c.size() - 1, Purpose::parameter);
  for (const auto* part : {&x, &slice, &whole}) all.insert(all.end(), part->begin(), part->end());
  return all;
}

/// Each process runs thread ranks, too, and compares its own with the one of its number.
template <class T>
void check_same_as_threads(Tcp& tcp, Size count) {
  const std::vector<T> here = results<T>(tcp, count);
  const Traffic traffic = tcp.traffic();
  ThreadsWorld::run(tcp.size(), [&](Threads& thread) {
    const std::vector<T> there = results<T>(thread, count);
    if (thread.rank() != tcp.rank()) return;
    CHECK(same_bits(here, there));
    CHECK(thread.traffic() == traffic);
  });
}

}  // namespace

TEST_CASE("TCP ranks have the bits and the traffic of thread ranks") {
  for (int ranks : {1, 2, 3, 4})
    for (Size count : {1, 1000, 300'007})
      TcpRanksWorld::run(ranks, [&](Tcp& tcp) { check_same_as_threads<bf16>(tcp, count); });
}

TEST_CASE("Tcp obeys the laws of a communicator") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<TcpRanksWorld>(ranks);
}

TEST_CASE("Tcp with progress threads obeys the laws of a communicator, and completes operations while ranks compute") {
  for (int ranks : {1, 2, 3}) check_communicator_laws<TcpProgressWorld>(ranks);
  check_random_programs<TcpProgressWorld>(3, 5);
  for (int ranks : {2, 3}) {
    TcpProgressWorld::run(ranks, [](Tcp& c) { operations_complete_while_the_rank_computes(c); });
    TcpRanksWorld::run(ranks, [](Tcp& c) { operations_wait_for_the_rank(c); });
  }
}

TEST_CASE("copies of several tiles between TCP ranks arrive whole") {
  constexpr Size count = 2'500'001;  // of f32: three tiles of 4 MB
  TcpRanksWorld::run(3, [](Tcp& c) {
    all_gather_gives_every_contribution<float>(c, count);
    all_to_all_takes_parts_of_any_size<float>(c, count / 2);
    broadcast_gives_the_roots_values<float>(c, count);
    what_is_sent_is_received<float>(c, count / 2);
  });
}

TEST_CASE("groups of TCP ranks that are a part of the world obey the laws of a communicator") {
  check_sums_of<float, RecordedWorld<TcpSubgroupWorld>>(2);
  check_copies_of<bf16, RecordedWorld<TcpSubgroupWorld>>(2);
}

TEST_CASE("random programs run on TCP ranks, of all ranks and of parts") {
  check_random_programs<ErasedWorld<TcpRanksWorld>>(3, 10);
  check_random_programs<TcpSubgroupWorld>(2, 10);
}

TEST_CASE("waits in different orders across groups of TCP ranks do not deadlock") {
  check_all_passed(on_tcp_ranks(Mesh(Degrees{.data = 2, .tp = 2}), [](TcpWorld& world) {
    AnyCommunicator a = world.groups().world, b = world.groups()[Axis::Tp];
    for (int round = 0; round < 100; ++round) {
      std::vector<float> x = contributions<float>(a.rank(), 50, round),
                         y = contributions<float>(b.rank(), 60'000, round);
      Pending<> p = a.start_all_reduce(all_of(x), Purpose::gradient);
      Pending<> q = b.start_all_reduce(all_of(y), Purpose::gradient);
      (a.rank() % 2 == 0 ? p : q).wait();
      (a.rank() % 2 == 0 ? q : p).wait();
      CHECK(same_bits(x, sums<float>(a.size(), 50, round)));
      CHECK(same_bits(y, sums<float>(2, 60'000, round)));
    }
  }));
}

TEST_CASE("TCP ranks of one machine share a node, and sum in rank order") {
  check_all_passed(on_tcp_ranks(Mesh(Degrees{.data = 3}), [](TcpWorld& world) {
    CHECK(world.nodes().count() == 1);
    CHECK(world.groups().node == NodePlace{0, 1, world.rank(), 3});
    CHECK(world.groups().world.sum_order() == SumOrder::rank);
  }));
}
