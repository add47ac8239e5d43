// SPDX-License-Identifier: Apache-2.0
#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("Threads obeys the laws of a communicator") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<ThreadsWorld>(ranks);
}

TEST_CASE("Threads erased and recorded obeys the laws of a communicator, and moves what was planned") {
  for (int ranks : {1, 2, 3, 4}) {
    check_communicator_laws<ErasedWorld<ThreadsWorld>>(ranks);
    check_communicator_laws<RecordedWorld<ThreadsWorld>>(ranks);
  }
}

TEST_CASE("the communicators of an axis obey the laws of a communicator") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<SubgroupWorld>(ranks);
}

TEST_CASE("1000 random programs end with the right bits on ranks that dawdle") {
  check_random_programs<RecordedWorld<ThreadsWorld>>(2, 400);
  check_random_programs<RecordedWorld<ThreadsWorld>>(3, 300);
  check_random_programs<RecordedWorld<ErasedWorld<ThreadsWorld>>>(4, 300);
}

TEST_CASE("a group serves one set of threads after another") {
  ThreadGroup group(2);
  for (int round = 0; round < 3; ++round) {
    run_ranks(group, [&](int rank) {
      Threads c = group.communicator(rank);
      all_reduce_sums_in_rank_order<float>(c, 100);
    });
  }
}

TEST_CASE("a pending operation outlives its handle and its group") {
  std::vector<float> x[2] = {contributions<float>(0, 100), contributions<float>(1, 100)};
  std::vector<Pending<>> pendings;
  {
    ThreadGroup group(2);
    for (int r = 0; r < 2; ++r)
      pendings.push_back(group.communicator(r).start_all_reduce(all_of(x[r]), Purpose::gradient));
  }
  std::thread other([&] { pendings[1].wait(); });
  pendings[0].wait();
  other.join();
  for (int r = 0; r < 2; ++r) CHECK(same_bits(x[r], sums<float>(2, 100)));
}

TEST_CASE("waits in different orders across groups do not deadlock") {
  ThreadGroup world(2, {.timeout_seconds = 20});
  ThreadGroup other = world.subgroup("axis Data", {0, 1});
  run_ranks(world, [&](int rank) {
    Threads a = world.communicator(rank), b = other.communicator(rank);
    for (int round = 0; round < 100; ++round) {
      std::vector<float> x = contributions<float>(rank, 50, round), y = contributions<float>(rank, 60, round);
      Pending<> p = a.start_all_reduce(all_of(x), Purpose::gradient);
      Pending<> q = b.start_all_reduce(all_of(y), Purpose::gradient);
      (rank == 0 ? p : q).wait();
      (rank == 0 ? q : p).wait();
      CHECK(same_bits(x, sums<float>(2, 50, round)));
      CHECK(same_bits(y, sums<float>(2, 60, round)));
    }
  });
}
