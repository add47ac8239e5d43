// SPDX-License-Identifier: Apache-2.0
#include <laws/announced_calls.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The sentence that stops two thread ranks.
template <class Call>
std::string sentence_of(Call call) {
  std::string all[2];
  const ThreadGroup group(2, {.timeout_seconds = 60});
  run_ranks(group, [&](int rank) {
    all[rank] = sentence_of_announced(HostGroup(AnyCommunicator(group.communicator(rank))), call);
  });
  CHECK(all[0] == all[1]);
  return all[0];
}

using doctest::Contains;

}  // namespace

TEST_CASE("calls that thread ranks announce are compared, and move and count nothing") {
  for (int ranks : {1, 2, 3})
    ErasedWorld<ThreadsWorld>::run(ranks, [](AnyCommunicator& c) {
      announced_calls_move_and_count_nothing(HostGroup(c));
      announced_messages_concern_two_ranks(HostGroup(c));
      a_rank_that_polls_sees_an_operation_complete(HostGroup(c));
    });
}

TEST_CASE("announced calls that differ are an error of every rank that polls") {
  const std::string counts =
      sentence_of([](HostGroup& g, bool first) { return announce_all_reduce(g, first ? 5 : 6); });
  CHECK(counts.find("rank 0 calls all_reduce(f32 x 5)") != std::string::npos);
  CHECK(counts.find("rank 1 calls all_reduce(f32 x 6)") != std::string::npos);
  std::vector<float> x(5);
  const std::string mixed = sentence_of([&](HostGroup& g, bool first) {
    return first ? announce_all_reduce(g, 5) : g.communicator().start_all_reduce(all_of(x), Purpose::gradient);
  });
  CHECK(mixed.find("rank 0 calls all_reduce(f32 x 5) on its device") != std::string::npos);
  CHECK(mixed.find("rank 1 calls all_reduce(f32 x 5) through the host") != std::string::npos);
}

TEST_CASE("a rank that polls is told at once of one that ended, and names one that does not come") {
  const ThreadGroup group(2, {.timeout_seconds = 60});
  CHECK_THROWS_WITH_AS(run_ranks(group,
                                 [&](int rank) {
                                   if (rank == 1) return;
                                   HostGroup host{AnyCommunicator(group.communicator(0))};
                                   const Pending<> pending = announce_all_reduce(host, 5);
                                   for (;;) host.poll();
                                 }),
                       doctest::Contains("but rank 1 has ended"), Error);
  const ThreadGroup other(2, {.timeout_seconds = 60});
  HostGroup host{AnyCommunicator(other.communicator(0))};
  Pending<> pending = announce_all_reduce(host, 5);
  CHECK_THROWS_WITH_AS(host.expire(), doctest::Contains("needs rank 1 in all_reduce(f32 x 5)"), Error);
  CHECK_THROWS_AS(pending.wait(), Error);
}

TEST_CASE("a rank that aborts an announced call stops the others with its sentence") {
  const std::string sentence = sentence_of([](HostGroup& g, bool first) {
    Pending<> pending = announce_all_reduce(g, 5);
    if (first) g.abort(Error(ErrorCode::usage, "dspp: rank 0 needs a thing, but there is none. Get one."));
    return pending;
  });
  CHECK(sentence.find("but rank 0 failed: dspp: rank 0 needs a thing") != std::string::npos);
}

TEST_CASE("a host group is of threads, of MPI ranks, of TCP ranks or of one") {
  CHECK_THROWS_WITH_AS(HostGroup{AnyCommunicator(Recorder<>(0, 2))}, doctest::Contains("host group of threads"), Error);
  CHECK(HostGroup{AnyCommunicator()}.size() == 1);
}
