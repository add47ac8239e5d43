// SPDX-License-Identifier: Apache-2.0
// labels: mpi
// Announced calls of MPI ranks. Run by mpirun on 1, 2, 3 and 4 ranks: every process runs every test.
#include <laws/announced_calls.hpp>
#include <laws/mpi_worlds.hpp>
#include <laws/without_sites.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("calls that MPI ranks announce are compared, and move and count nothing") {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
    MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 60, .sum_order = order});
    announced_calls_move_and_count_nothing(HostGroup(world.groups().world));
    announced_messages_concern_two_ranks(HostGroup(world.groups().world));
    a_rank_that_polls_sees_an_operation_complete(HostGroup(world.groups().world));
  }
}

TEST_CASE("announced calls of MPI ranks that differ are an error of every rank that polls") {
  if (mpi_ranks() == 1) return;
  MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 60});
  const std::string sentence = sentence_of_announced(
      HostGroup(world.groups().world), [](HostGroup& g, bool first) { return announce_all_reduce(g, first ? 5 : 6); });
  INFO(sentence);
  CHECK(sentence.find("rank 0 calls all_reduce(f32 x 5)") != std::string::npos);
  CHECK(sentence.find("rank 1 calls all_reduce(f32 x 6)") != std::string::npos);
  world.end(5);
}

TEST_CASE("a call that one MPI rank announces and the others make is an error that says so") {
  if (mpi_ranks() == 1) return;
  MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 60});
  std::vector<float> x(5);
  const std::string sentence = sentence_of_announced(HostGroup(world.groups().world), [&](HostGroup& g, bool first) {
    return first ? announce_all_reduce(g, 5) : g.communicator().start_all_reduce(all_of(x), Purpose::gradient);
  });
  INFO(sentence);
  CHECK(sentence.find("all_reduce(f32 x 5) on its device") != std::string::npos);
  world.end(5);
}

TEST_CASE("an MPI rank that aborts an announced call stops the others with its sentence") {
  if (mpi_ranks() == 1) return;
  MpiWorld world(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = 60});
  const std::string sentence = sentence_of_announced(HostGroup(world.groups().world), [](HostGroup& g, bool first) {
    Pending<> pending = announce_all_reduce(g, 5);
    if (first) g.abort(Error(ErrorCode::usage, "dspp: rank 0 needs a thing, but there is none. Get one."));
    return pending;
  });
  INFO(sentence);
  CHECK(sentence.find("but rank 0 failed: dspp: rank 0 needs a thing") != std::string::npos);
  world.end(5);
}
