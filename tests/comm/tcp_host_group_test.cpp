// SPDX-License-Identifier: Apache-2.0
// labels: comm
// Announced calls of TCP ranks: forked processes on loopback.
#include <laws/announced_calls.hpp>
#include <laws/tcp_processes.hpp>
#include <laws/without_sites.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// What each of `ranks` processes is told if rank 0 announces `call(group, true)` and the others `call(group, false)`.
template <class Call>
std::vector<std::string> sentences_of(int ranks, Call call, double timeout_seconds = 60) {
  std::vector<std::string> all;
  for (const EndedProcess& one : on_tcp_ranks(
           Mesh(Degrees{.data = ranks}),
           [&](TcpWorld& world) {
             HostGroup group(world.groups().world);
             const Pending<> pending = call(group, group.rank() == 0);
             for (;;) group.poll();
           },
           timeout_seconds)) {
    CHECK(one.status == 0);
    all.push_back(one.said);
  }
  return all;
}

bool says(const std::string& sentence, const std::string& text) {
  INFO(sentence);
  CHECK(sentence.rfind("dspp: ", 0) == 0);
  return sentence.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("calls that TCP ranks announce are compared, and move and count nothing") {
  for (int ranks : {1, 2, 3, 4})
    check_all_passed(on_tcp_ranks(Mesh(Degrees{.data = ranks}), [](TcpWorld& world) {
      announced_calls_move_and_count_nothing(HostGroup(world.groups().world));
      announced_messages_concern_two_ranks(HostGroup(world.groups().world));
      a_rank_that_polls_sees_an_operation_complete(HostGroup(world.groups().world));
    }));
}

TEST_CASE("announced calls of TCP ranks that differ are an error of every rank that polls") {
  for (int ranks : {2, 3, 4}) {
    const auto all =
        sentences_of(ranks, [](HostGroup& g, bool first) { return announce_all_reduce(g, first ? 5 : 6); });
    for (const std::string& one : all) {
      CHECK(says(one, "rank 0 calls all_reduce(f32 x 5)"));
      CHECK(says(one, "rank 1 calls all_reduce(f32 x 6)"));
    }
  }
}

TEST_CASE("a call that one TCP rank announces and the others make is an error that says so") {
  std::vector<float> x(5);
  const auto all = sentences_of(3, [&](HostGroup& g, bool first) {
    return first ? announce_all_reduce(g, 5) : g.communicator().start_all_reduce(all_of(x), Purpose::gradient);
  });
  for (const std::string& one : all) CHECK(says(one, "rank 0 calls all_reduce(f32 x 5) on its device"));
}

TEST_CASE("a TCP rank that aborts an announced call stops the others with its sentence") {
  const auto all = sentences_of(3, [](HostGroup& g, bool first) {
    Pending<> pending = announce_all_reduce(g, 5);
    if (first) g.abort(Error(ErrorCode::usage, "dspp: rank 0 needs a thing, but there is none. Get one."));
    return pending;
  });
  for (const std::string& one : all) CHECK(says(one, "but rank 0 failed: dspp: rank 0 needs a thing"));
}

TEST_CASE("a TCP rank that polls is told at once of one that ended, and names one that does not come") {
  const auto ended = on_tcp_ranks(Mesh(Degrees{.data = 3}), [](TcpWorld& world) {
    if (world.rank() == 1) return;
    HostGroup group(world.groups().world);
    const Pending<> pending = announce_all_reduce(group, 5);
    for (;;) group.poll();
  });
  for (int r : {0, 2}) CHECK(says(ended[static_cast<std::size_t>(r)].said, "but rank 1 has ended"));
  const auto late = on_tcp_ranks(Mesh(Degrees{.data = 2}), [](TcpWorld& world) {
    HostGroup group(world.groups().world);
    std::vector<float> x(1);
    if (world.rank() == 1) group.communicator().start_receive(all_of(x), 0, Purpose::activation).wait();
    Pending<> pending = announce_all_reduce(group, 5);
    CHECK_THROWS_AS(group.expire(), Error);
    pending.wait();
  });
  CHECK(late[0].status == 0);
  CHECK(says(late[0].said, "rank 0 needs rank 1 in all_reduce(f32 x 5)"));
  CHECK(late[0].said == late[1].said);
}
