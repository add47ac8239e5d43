// SPDX-License-Identifier: Apache-2.0
// Failures of a thread world: each ends as an error with a sentence on every rank, within a second, never as a hang.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>

#include <laws/without_sites.hpp>

using namespace dspp;

namespace {

struct Outcome {
  bool threw = false;
  ErrorCode code = ErrorCode::state;
  std::string sentence;
  double seconds = 0;
};

Outcome outcome_of(const std::function<void()>& f) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    f();
  } catch (const Error& e) {
    outcome = {true, e.code(), laws::without_sites(e.what()), 0};
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

/// Runs f(rank) on plain threads: only the test itself aborts or leaves.
std::vector<Outcome> on_threads(int ranks, const std::function<void(int)>& f) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = outcome_of([&] { f(r); }); });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

void check_all(const std::vector<Outcome>& outcomes, ErrorCode code, const std::string& sentence) {
  for (const Outcome& o : outcomes) {
    CHECK(o.threw);
    CHECK(o.code == code);
    CHECK(o.sentence == sentence);
    CHECK(o.seconds < 1.0);
  }
}

using Call = std::function<void(Threads&, std::vector<float>&)>;

/// Rank `odd` of `ranks` makes a different seventh call.
void check_mismatch(int ranks, int odd, const Call& call, const Call& other, const std::string& sentence) {
  CAPTURE(sentence);
  ThreadGroup group(ranks, {.name = "axis Data", .timeout_seconds = 30});
  const auto outcomes = on_threads(ranks, [&](int rank) {
    Threads c = group.communicator(rank);
    for (int i = 0; i < 6; ++i) c.barrier();
    std::vector<float> x(1000, 1.0f);
    try {
      (rank == odd ? other : call)(c, x);
    } catch (...) {
      CHECK(x == std::vector<float>(1000, 1.0f));  // the error came before any data was accessed
      throw;
    }
  });
  check_all(outcomes, ErrorCode::mismatch, sentence);
  const auto later = on_threads(ranks, [&](int rank) { group.communicator(rank).barrier(); });
  check_all(later, ErrorCode::mismatch, sentence);
}

void reduce_100(Threads& c, std::vector<float>& x) {
  all_reduce(c, buffer(x.data(), 100), Purpose::gradient);
}
void gather_100(Threads& c, std::vector<float>& x) {
  const ConstBuffer in = buffer(x.data(), 100);
  std::vector<float> out(static_cast<std::size_t>(100 * c.size()));
  all_gather(c, in, buffer(out.data(), 100 * c.size()), Purpose::gradient);
}

std::string differ(int rank, const std::string& a, const std::string& b) {
  return "dspp: the ranks of axis Data call different collectives, the 7th of this group: rank 0 calls " + a +
         ", but rank " + std::to_string(rank) + " calls " + b +
         ". Make every rank call the same operations in the same order.";
}

}  // namespace

TEST_CASE("ranks that call different collectives get one sentence that names both sides") {
  for (int ranks : {2, 3, 4}) {
    check_mismatch(ranks, 1, reduce_100, gather_100, differ(1, "all_reduce(f32 x 100)", "all_gather(f32 x 100)"));
    check_mismatch(ranks, 0, reduce_100, gather_100, differ(1, "all_gather(f32 x 100)", "all_reduce(f32 x 100)"));
    check_mismatch(
        ranks, ranks - 1, reduce_100, [](Threads& c, std::vector<float>&) { c.barrier(); },
        differ(ranks - 1, "all_reduce(f32 x 100)", "barrier"));
  }
}

TEST_CASE("ranks that call with different counts get one sentence") {
  const Call other = [](Threads& c, std::vector<float>& x) { all_reduce(c, buffer(x.data(), 101), Purpose::gradient); };
  for (int ranks : {2, 3, 4}) {
    check_mismatch(ranks, ranks - 1, reduce_100, other,
                   differ(ranks - 1, "all_reduce(f32 x 100)", "all_reduce(f32 x 101)"));
  }
}

TEST_CASE("ranks that call with different element types get one sentence") {
  const Call other = [](Threads& c, std::vector<float>&) {
    std::vector<bf16> y(100);
    all_reduce(c, buffer(y.data(), 100), Purpose::gradient);
  };
  for (int ranks : {2, 3, 4})
    check_mismatch(ranks, 1, reduce_100, other, differ(1, "all_reduce(f32 x 100)", "all_reduce(bf16 x 100)"));
}

TEST_CASE("ranks that call with different roots get one sentence") {
  const auto from = [](int root) {
    return [root](Threads& c, std::vector<float>& x) { broadcast(c, buffer(x.data(), 10), root, Purpose::parameter); };
  };
  for (int ranks : {2, 3, 4}) {
    check_mismatch(ranks, 1, from(0), from(1), differ(1, "broadcast(f32 x 10, root 0)", "broadcast(f32 x 10, root 1)"));
  }
}

TEST_CASE("ranks that call with different lists of pairs get one sentence that names the pair") {
  const auto list = [](std::vector<Size> counts) {
    return [counts](Threads& c, std::vector<float>& x) {
      std::vector<float> out(1000);
      std::vector<ScatterPair> pairs;
      for (Size n : counts) pairs.push_back({buffer(x.data(), n * c.size()), buffer(out.data(), n)});
      reduce_scatter(c, pairs, Purpose::gradient);
    };
  };
  check_mismatch(2, 1, list({10, 20, 30}), list({10, 21, 30}),
                 differ(1, "reduce_scatter(3 pairs, the 2nd f32 x 40)", "reduce_scatter(3 pairs, the 2nd f32 x 42)"));
  check_mismatch(3, 2, list({10, 20}), list({10}),
                 differ(2, "reduce_scatter(2 pairs, the 2nd f32 x 60)", "reduce_scatter(f32 x 30)"));
  check_mismatch(2, 1, list({10}), list({}), differ(1, "reduce_scatter(f32 x 20)", "reduce_scatter(0 pairs)"));
}

TEST_CASE("ranks that wait for one another in different groups get one sentence") {
  ThreadGroup world(3, {.timeout_seconds = 30});
  ThreadGroup data = world.subgroup("axis Data", {0, 1}), tp = world.subgroup("axis Tp", {1, 0});
  const auto outcomes = on_threads(2, [&](int rank) {
    Threads c = rank == 0 ? data.communicator(0) : tp.communicator(0);
    std::vector<float> x(100);
    reduce_100(c, x);
  });
  const std::string a = "rank 0 waits in all_reduce(f32 x 100), the 1st operation of axis Data";
  const std::string b = "rank 1 waits in all_reduce(f32 x 100), the 1st operation of axis Tp";
  const std::string start = "dspp: the ranks wait for one another in different groups: ";
  const std::string end = ". Make every rank call the same operations of its groups in the same order.";
  const bool from_0 = outcomes[0].sentence == start + a + ", but " + b + end;
  check_all(outcomes, ErrorCode::mismatch, start + (from_0 ? a + ", but " + b : b + ", but " + a) + end);
}

TEST_CASE("ranks whose parts of an all-to-all do not match get one sentence that names both sides") {
  const auto parts = [](Size sent, Size received) {
    return [sent, received](Threads& c, std::vector<float>& x) {
      std::vector<float> out(1000);
      const std::vector<Size> to(static_cast<std::size_t>(c.size()), sent),
          from(static_cast<std::size_t>(c.size()), received);
      all_to_all(c, buffer(x.data(), sent * c.size()), buffer(out.data(), received * c.size()), {to, from},
                 Purpose::gradient);
    };
  };
  check_mismatch(2, 1, parts(10, 10), parts(11, 10),
                 differ(1, "all_to_all(f32 x 20) with 10 to and 10 from rank 1",
                        "all_to_all(f32 x 22) with 11 to and 10 from rank 0"));
  check_mismatch(4, 1, parts(10, 10), parts(10, 9),
                 differ(1, "all_to_all(f32 x 40) with 10 to and 10 from rank 1",
                        "all_to_all(f32 x 40) with 10 to and 9 from rank 0"));
}

TEST_CASE("a send and a receive that differ give one sentence that names both") {
  ThreadGroup group(3, {.name = "axis Pp", .timeout_seconds = 30});
  const auto outcomes = on_threads(3, [&](int rank) {
    Threads c = group.communicator(rank);
    std::vector<float> x(100);
    if (rank == 0) c.barrier();
    if (rank == 1) receive(c, buffer(x.data(), 99), 2, Purpose::activation);
    if (rank == 2) send(c, buffer(x.data(), 100), 1, Purpose::activation);
  });
  check_all(outcomes, ErrorCode::mismatch,
            "dspp: the ranks of the channel from rank 2 to rank 1 call different collectives, the 1st of this group: "
            "rank 2 calls send(f32 x 100), but rank 1 calls receive(f32 x 99). Make every rank call the same "
            "operations in the same order.");
}

TEST_CASE("ranks that all receive first get one sentence about the deadlock") {
  ThreadGroup group(2, {.timeout_seconds = 30});
  const auto outcomes = on_threads(2, [&](int rank) {
    Threads c = group.communicator(rank);
    std::vector<float> x(100);
    receive(c, buffer(x.data(), 100), 1 - rank, Purpose::activation);
    send(c, buffer(x.data(), 100), 1 - rank, Purpose::activation);
  });
  const std::string start = "dspp: the ranks wait for one another in different groups: rank ";
  CHECK(outcomes[0].sentence.find(start) == 0);
  CHECK(outcomes[0].sentence.find("rank 1 waits in receive(f32 x 100), the 1st operation of the channel from rank 0 to "
                                  "rank 1") != std::string::npos);
  check_all(outcomes, ErrorCode::mismatch, outcomes[0].sentence);
}

TEST_CASE("a rank that waits to receive from a rank that has ended gets a sentence") {
  ThreadGroup group(2, {.timeout_seconds = 30});
  const auto outcomes = on_threads(2, [&](int rank) {
    Threads c = group.communicator(rank);
    std::vector<float> x(100);
    if (rank == 1) return group.leave(rank);
    receive(c, buffer(x.data(), 100), 1, Purpose::activation);
  });
  CHECK(outcomes[0].code == ErrorCode::peer_lost);
  CHECK(outcomes[0].sentence ==
        "dspp: rank 0 needs rank 1 in receive(f32 x 100), the 1st operation of the channel from rank 1 to rank 0, but "
        "rank 1 has ended. Make every rank call the same operations.");
}

TEST_CASE("a failed rank stops the others at once, in any wait") {
  for (int ranks : {2, 3, 4}) {
    ThreadGroup group(ranks, {.timeout_seconds = 30});
    ThreadGroup pair = group.subgroup("axis Tp", {0, ranks - 1});
    const auto outcomes = on_threads(ranks, [&](int rank) {
      if (rank == ranks - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        CHECK(group.abort(rank, "the disk is full"));
      }
      Threads c = rank == 0 ? pair.communicator(0) : group.communicator(rank);
      std::vector<float> x(100);
      reduce_100(c, x);
    });
    check_all(outcomes, ErrorCode::aborted,
              "dspp: every rank needs all the others, but rank " + std::to_string(ranks - 1) +
                  " failed: the disk is full. All ranks stop.");
    CHECK(group.culprit() == ranks - 1);
    CHECK_FALSE(group.abort(0, "later"));
  }
}

TEST_CASE("a rank that ended stops the ranks that wait for it, now or later") {
  for (int ranks : {2, 3, 4}) {
    ThreadGroup group(ranks, {.timeout_seconds = 30});
    auto outcomes = on_threads(ranks, [&](int rank) {
      Threads c = group.communicator(rank);
      c.barrier();
      if (rank == 1) return group.leave(rank);
      std::vector<float> x(100);
      reduce_100(c, x);
    });
    CHECK_FALSE(outcomes[1].threw);
    outcomes.erase(outcomes.begin() + 1);
    for (const Outcome& o : outcomes) {
      CHECK(o.sentence.find("needs rank 1 in all_reduce(f32 x 100), the 2nd operation of the world, but rank 1 has "
                            "ended. Make every rank call the same operations.") != std::string::npos);
    }
    check_all(outcomes, ErrorCode::peer_lost, outcomes[0].sentence);
  }
}

TEST_CASE("a rank that ends after its last operation disturbs no other rank") {
  for (int round = 0; round < 200; ++round) {
    ThreadGroup group(3, {.timeout_seconds = 30});
    run_ranks(group, [&](int rank) {
      Threads c = group.communicator(rank);
      std::vector<float> x(1000, 1.0f);
      broadcast(c, buffer(x.data(), 1000), 0, Purpose::parameter);
      all_reduce(c, buffer(x.data(), 1000), Purpose::gradient);
      CHECK(x[999] == 3.0f);
    });
  }
}

TEST_CASE("a rank that does not call is named after the timeout") {
  for (int ranks : {2, 4}) {
    ThreadGroup group(ranks, {.name = "axis Data", .timeout_seconds = 0.2});
    std::vector<Outcome> outcomes = on_threads(ranks, [&](int rank) {
      if (rank > 0 && rank != 2) return;
      Threads c = group.communicator(rank);
      std::vector<float> x(100);
      reduce_100(c, x);
    });
    CHECK(outcomes[0].seconds > 0.19);
    CHECK(outcomes[0].seconds < 0.9);
    CHECK(outcomes[0].code == ErrorCode::peer_lost);
    if (ranks == 2) {
      CHECK(outcomes[0].sentence ==
            "dspp: rank 0 needs rank 1 in all_reduce(f32 x 100), the 1st operation of axis Data, but waited 0.2 s and "
            "it did not come. Look for what keeps them, or raise timeout_seconds.");
    } else {
      CHECK(outcomes[0].sentence.find(" needs rank 1 and rank 3 in all_reduce(f32 x 100), the 1st operation of axis "
                                      "Data, but waited 0.2 s and they did not come.") != std::string::npos);
      CHECK(outcomes[2].sentence == outcomes[0].sentence);
    }
    const auto late = on_threads(1, [&](int) { group.communicator(1).barrier(); });
    check_all(late, ErrorCode::peer_lost, outcomes[0].sentence);
  }
}

TEST_CASE("a rank that posts and does not continue is named as not finishing") {
  ThreadGroup group(2, {.timeout_seconds = 0.2});
  std::vector<float> x(100), y(100);
  Threads away = group.communicator(1);
  Pending<> pending = away.start_all_reduce(buffer(y.data(), 100), Purpose::gradient);
  const auto outcomes = on_threads(1, [&](int) {
    Threads c = group.communicator(0);
    reduce_100(c, x);
  });
  CHECK(outcomes[0].code == ErrorCode::peer_lost);
  CHECK(outcomes[0].sentence.find("waited 0.2 s and it did not finish it.") != std::string::npos);
  CHECK(outcome_of([&] { pending.wait(); }).sentence == outcomes[0].sentence);
}

TEST_CASE("stack unwinding abandons a pending operation, and the others' error names its rank") {
  ThreadGroup group(2, {.timeout_seconds = 30});
  const auto outcomes = on_threads(2, [&](int rank) {
    Threads c = group.communicator(rank);
    std::vector<float> x(100);
    Pending<> pending = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
    if (rank == 1) fail(ErrorCode::file, "dspp: mine.");
    pending.wait();
  });
  CHECK(outcomes[1].sentence == "dspp: mine.");
  CHECK(outcomes[0].code == ErrorCode::peer_lost);
  CHECK(outcomes[0].sentence ==
        "dspp: the other ranks need rank 1 in all_reduce(f32 x 100), the 1st operation of the world, but "
        "it gave up after an exception. See the error of rank 1.");
  CHECK(outcomes[0].seconds < 1.0);
}

TEST_CASE("an operation that cannot be completed does not throw from its destructor") {
  ThreadGroup group(2, {.timeout_seconds = 0.1});
  const auto outcomes = on_threads(1, [&](int) {
    Threads c = group.communicator(0);
    std::vector<float> x(100);
    { const Pending<> forgotten = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient); }
    c.barrier();
  });
  CHECK(outcomes[0].code == ErrorCode::peer_lost);
}

TEST_CASE("run_ranks throws the error of the rank to blame") {
  for (int ranks : {1, 2, 3, 4}) {
    const Outcome o = outcome_of([&] {
      ThreadGroup group(ranks, {.timeout_seconds = 30});
      run_ranks(group, [&](int rank) {
        Threads c = group.communicator(rank);
        c.barrier();
        std::vector<float> x(100);
        Pending<> pending = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
        if (rank == ranks - 1) fail(ErrorCode::file, "dspp: a file is gone.");
        pending.wait();
      });
    });
    CHECK(o.code == ErrorCode::file);
    CHECK(o.sentence == "dspp: a file is gone.");
    CHECK(o.seconds < 1.0);
  }
}

TEST_CASE("after a failure no rank reads memory that its owner has freed") {
  for (int round = 0; round < 60; ++round) {
    ThreadGroup group(3, {.timeout_seconds = 30});
    const auto outcomes = on_threads(3, [&](int rank) {
      Threads c = group.communicator(rank);
      if (rank == 2) {
        std::vector<float> x(1 << 20, 1.0f);
        Pending<> pending = c.start_all_reduce(buffer(x.data(), 1 << 20), Purpose::gradient);
        std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
        group.abort(2, "it was told to");
        pending.wait();
      }
      for (;;) {
        std::vector<float> x(1 << 20, 1.0f), y(1 << 18);
        all_reduce(c, buffer(x.data(), 1 << 20), Purpose::gradient);
        const ConstBuffer in = buffer(y.data(), 1 << 18);
        std::vector<float> whole(3 << 18);
        all_gather(c, in, buffer(whole.data(), 3 << 18), Purpose::parameter);
      }
    });
    check_all(outcomes, ErrorCode::aborted,
              "dspp: every rank needs all the others, but rank 2 failed: it was told to. All ranks stop.");
  }
}

TEST_CASE("a group of no ranks, a rank outside it and a timeout of 0 are errors") {
  CHECK(outcome_of([] { ThreadGroup group(0); }).code == ErrorCode::usage);
  CHECK(outcome_of([] { ThreadGroup(2).communicator(2); }).code == ErrorCode::usage);
  CHECK(outcome_of([] { ThreadGroup(2).subgroup("axis Tp", {0, 2}); }).code == ErrorCode::usage);
  CHECK(outcome_of([] { ThreadGroup(2, {.timeout_seconds = 0}); }).code == ErrorCode::usage);
  CHECK(outcome_of([] { ThreadGroup(2, {.heartbeat_seconds = 0}); }).code == ErrorCode::usage);
  CHECK(outcome_of([] { ThreadGroup(2).communicator(-1); }).code == ErrorCode::usage);
  ThreadGroup long_timeout(2, {.timeout_seconds = 1e300});  // more than a clock counts
  run_ranks(long_timeout, [&](int rank) { long_timeout.communicator(rank).barrier(); });
  CHECK(long_timeout.abort(1, ""));
  CHECK(outcome_of([&] {
          long_timeout.communicator(0).barrier();
        }).sentence.starts_with("dspp: every rank needs all the others, but rank 1 failed: "));
}
