// SPDX-License-Identifier: Apache-2.0
// labels: comm
// TCP ranks that are lost, hang, end or throw in the middle: a sentence on every rank. Ranks are forked processes.
#include <sys/socket.h>

#include <functional>
#include <thread>

#include <dspp/comm/tcp/failure_state.hpp>
#include <dspp/launch/run_tcp.hpp>

#include <laws/announced_calls.hpp>
#include <laws/tcp_processes.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Operation {
  std::string name;
  std::function<void(AnyCommunicator&)> call;
};

/// The operations of a communicator, which every rank calls, and a call that is announced.
std::vector<Operation> operations() {
  static std::vector<float> a(1200, 1.0f), b(4800);
  static constexpr auto on = [](std::vector<float>& x, Size count) { return buffer(x.data(), count); };
  const Purpose p = Purpose::gradient;
  return {{"all_reduce", [=](AnyCommunicator& c) { all_reduce(c, on(a, 1200), p); }},
          {"reduce_scatter", [=](AnyCommunicator& c) { reduce_scatter(c, on(a, 12 * c.size()), on(b, 12), p); }},
          {"all_gather", [=](AnyCommunicator& c) { all_gather(c, on(a, 1200), on(b, 1200 * c.size()), p); }},
          {"all_to_all", [=](AnyCommunicator& c) { all_to_all(c, on(a, 12 * c.size()), on(b, 12 * c.size()), p); }},
          {"broadcast", [=](AnyCommunicator& c) { broadcast(c, on(a, 1200), c.size() - 1, p); }},
          {"barrier", [](AnyCommunicator& c) { c.barrier(); }},
          {"all_reduce", [](AnyCommunicator& c) {
             HostGroup group(c);
             announce_all_reduce(group, 5).wait();
           }}};
}

/// What rank `odd` of `ranks` does after two operations of each, and what the others are told in the third.
std::vector<EndedProcess> with_an_odd_rank(int ranks, int odd, const Operation& operation,
                                           const std::function<void()>& does, double timeout_seconds) {
  return on_tcp_ranks(
      Mesh(Degrees{.data = ranks}),
      [&](TcpWorld& world) {
        AnyCommunicator c = world.groups().world;
        for (int i = 0; i < 2; ++i) operation.call(c);
        if (c.rank() == odd) return does();
        operation.call(c);
      },
      timeout_seconds);
}

void check_others(const std::vector<EndedProcess>& all, int odd, const std::string& what, double within) {
  for (int r = 0; r < static_cast<int>(all.size()); ++r) {
    const EndedProcess& one = all[static_cast<std::size_t>(r)];
    if (r == odd) continue;
    CAPTURE(r);
    INFO(one.said);
    CHECK(one.status == 0);
    CHECK(one.seconds < within);
    CHECK(one.said.rfind("dspp: ", 0) == 0);
    CHECK(one.said.find(what) != std::string::npos);
    CHECK(one.said.find("rank " + std::to_string(odd)) != std::string::npos);
  }
}

template <class F>
void each_case(F f) {
  for (const int ranks : {2, 3, 4})
    for (int odd = 0; odd < ranks; odd += std::max(1, ranks - 1))  // the first and the last
      for (const Operation& operation : operations()) {
        CAPTURE(ranks);
        CAPTURE(odd);
        CAPTURE(operation.name);
        f(ranks, odd, operation);
      }
}

}  // namespace

TEST_CASE("a TCP rank that is killed is named by all others at once, with the operation") {
  each_case([](int ranks, int odd, const Operation& operation) {
    const auto all = with_an_odd_rank(
        ranks, odd, operation, [] { raise(SIGKILL); }, 60);
    CHECK(all[static_cast<std::size_t>(odd)].status == 128 + SIGKILL);
    check_others(all, odd, "in " + operation.name, 5);
    check_others(all, odd, "rank " + std::to_string(odd) + " closed its connection. Look for what ended it", 5);
  });
}

TEST_CASE("a TCP rank that ends, or throws, is named by all others with its sentence") {
  each_case([](int ranks, int odd, const Operation& operation) {
    const auto ended = with_an_odd_rank(
        ranks, odd, operation, [] {}, 60);
    check_others(ended, odd, "but rank " + std::to_string(odd) + " has ended", 5);
    const auto thrown = with_an_odd_rank(
        ranks, odd, operation, [] { fail(ErrorCode::usage, "dspp: a rank needs a thing, but has none. Get one."); },
        60);
    check_others(thrown, odd, "failed: dspp: a rank needs a thing, but has none. Get one.", 5);
  });
}

TEST_CASE("a TCP rank that does not come is named after the timeout") {
  const std::vector<Operation> all = operations();
  for (const std::size_t i : {0, 4, 5, 6}) {
    CAPTURE(all[i].name);
    const auto late = with_an_odd_rank(
        3, 1, all[i], [] { std::this_thread::sleep_for(std::chrono::seconds(1)); }, 0.3);
    check_others(late, 1, "needs rank 1 in " + all[i].name, 8);
    check_others(late, 1, "but waited 0.3 s and it did not come", 8);
  }
}

TEST_CASE("memory of an operation that failed between TCP ranks is not touched any more, whatever is under way") {
  static constexpr std::size_t count = 20'000'000;  // 80 MB: a poll takes at most 8, and the sockets hold a few
  const auto all = on_tcp_ranks(Mesh(Degrees{.data = 2}), [](TcpWorld& world) {
    AnyCommunicator c = world.groups().world;
    if (c.rank() == 1) {  // takes a part, and goes
      std::vector<float> x(count);
      const Pending<> taken = c.start_broadcast(all_of(x), 0, Purpose::parameter);
      for (int i = 0; i < 3; ++i) HostGroup(c).poll();
      raise(SIGKILL);
    }
    auto x = std::make_unique<std::vector<float>>(count, 1.0f);
    Pending<> sent = c.start_broadcast(all_of(*x), 0, Purpose::parameter);
    std::string said;
    try {
      sent.wait();
    } catch (const Error& error) {
      said = error.what();
    }
    x.reset();  // unmapped: what reads it now ends this process
    for (int i = 0; i < 100; ++i) CHECK_THROWS_AS(HostGroup(c).poll(), Error);
    CHECK(said.find("rank 1 closed its connection") != std::string::npos);
  });
  CHECK(all[0].status == 0);
}

TEST_CASE("a pending operation of TCP ranks outlives its handle and its world") {
  const HeldPort port;
  const auto all = in_processes(3, [&](int rank) -> std::string {
    std::vector<float> x(100, 1.0f);
    Pending<> pending;
    {
      TcpWorld world(Mesh(Degrees{.data = 3}), {.rank = rank, .size = 3, .port = port.port()}, 20);
      AnyCommunicator c = world.groups().world;
      pending = c.start_all_reduce(all_of(x), Purpose::gradient);
      world.leave();
    }
    pending.wait();
    CHECK(x == std::vector<float>(100, 3.0f));
    return "";
  });
  check_all_passed(all);
}

namespace {

/// A connection between two ranks.
struct Ends {
  int of[2];
  Ends() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, of) == 0); }
  int operator[](int end) const { return of[end]; }
};

/// Rank `rank` of three, with its connections to ranks 0, 1 and 2; -1 where there is none.
std::unique_ptr<dspp::detail::TcpFailureState> state_of(int rank, int first, int second, int third) {
  std::vector<dspp::detail::Socket> sockets;
  for (const int file : {first, second, third}) sockets.emplace_back(file);
  return std::make_unique<dspp::detail::TcpFailureState>(rank, std::move(sockets), 10.0);
}

}  // namespace

TEST_CASE("a TCP rank receives the failure for which another one ends before that end, whoever failed first") {
  const Ends to_first, between;
  // Rank 0 has sent its failure to rank 1, and not yet to rank 2.
  const auto fails = state_of(0, -1, to_first[0], -1);
  const auto ends = state_of(1, to_first[1], -1, between[0]);
  const auto receives = state_of(2, -1, between[1], -1);
  fails->fail({ErrorCode::aborted, "dspp: rank 0 failed: want of a thing.", 0, true, ErrorCode::usage, "want"});
  for (int i = 0; i < 10 && !ends->failed(); ++i) fails->poll(), ends->poll(100);
  REQUIRE(ends->failed());
  ends->end();
  for (int i = 0; i < 10 && !receives->has_ended(1); ++i) ends->poll(), receives->poll(100);
  REQUIRE(receives->has_ended(1));
  REQUIRE(receives->failed());
  CHECK(receives->failure().sentence == "dspp: rank 0 failed: want of a thing.");
  CHECK(receives->failure().culprit == 0);
  CHECK(receives->failure().own_code == ErrorCode::usage);
}

TEST_CASE("a TCP rank that learns of a lost one from another rank throws that rank's sentence") {
  const Ends to_lost, between;
  const auto sees = state_of(0, -1, to_lost[0], between[0]);  // rank 1 is lost before it is heard of here
  const auto receives = state_of(2, between[1], -1, -1);
  dspp::detail::Socket(to_lost[1]).close();
  sees->poll(1000);
  for (int i = 0; i < 10 && !receives->failed(); ++i) sees->poll(), receives->poll(100);
  REQUIRE(receives->failed());
  CHECK(receives->failure().sentence.find("rank 0 needs rank 1, but rank 1 closed its connection.") !=
        std::string::npos);
  for (const auto* state : {sees.get(), receives.get()}) {
    std::string said;
    try {
      std::rethrow_exception(dspp::detail::error_of(state->failure()));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::peer_lost);
      said = error.what();
    }
    CHECK(said == receives->failure().sentence);
  }
}
