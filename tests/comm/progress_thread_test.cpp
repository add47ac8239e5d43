// SPDX-License-Identifier: Apache-2.0
// labels: thread races
#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm/progress_thread.hpp>
#include <laws/async_progress.hpp>
#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/sentence_of.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;
using Found = dspp::detail::ProgressThread::Found;

namespace {

/// The axis Data of a mesh of 2 x ranks, both groups at once, and a progress thread for each rank of the world.
struct ProgressSubgroupWorld {
  template <class F>
  static void run(int ranks, F f) {
    ThreadWorld world(Mesh(Degrees{.data = ranks, .tp = 2}), {.timeout_seconds = 60});
    run_ranks(world.group(), [&](int rank) {
      const ProgressOfRank progress(world.group(), rank);
      AnyCommunicator c = world.groups(rank)[Axis::Data];
      f(c);
    });
  }
};

/// Returns within 30 s whether `holds()`.
template <class Holds>
bool soon(Holds holds) {
  for (int i = 0; i < 30'000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

}  // namespace

TEST_CASE("Threads with progress threads obeys the laws of a communicator") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<ProgressWorld>(ranks);
  check_communicator_laws<ProgressSubgroupWorld>(2);
}

TEST_CASE("random programs run on threads with progress threads, of all ranks and of parts") {
  check_random_programs<ErasedWorld<ProgressWorld>>(3, 20);
  check_random_programs<ProgressSubgroupWorld>(2, 20);
}

TEST_CASE("an operation of threads completes while its rank computes, and without a progress thread it does not") {
  for (int ranks : {2, 3, 4}) {
    ProgressWorld::run(ranks, [](Threads& c) { operations_complete_while_the_rank_computes(c); });
    ThreadsWorld::run(ranks, [](Threads& c) { operations_wait_for_the_rank(c); });
  }
}

TEST_CASE("traffic is read while operations are under way, and is that of ranks without progress threads at the end") {
  ProgressWorld::run(2, [](Threads& c) {
    const Size before = c.traffic().bytes(Collective::all_reduce, Purpose::gradient);
    std::vector<float> x(100'000, 1), y(100'000, 2);
    Pending<> first = c.start_all_reduce(all_of(x), Purpose::gradient),
              second = c.start_all_reduce(all_of(y), Purpose::gradient);
    Size seen = before;
    CHECK(soon([&] {
      const Size now = c.traffic().bytes(Collective::all_reduce, Purpose::gradient);
      CHECK(now >= seen);
      seen = now;
      return second.is_complete();
    }));
    first.wait(), second.wait();
    CHECK(c.traffic().bytes(Collective::all_reduce, Purpose::gradient) - before == 2 * 100'000 * Size{sizeof(float)});
  });
}

TEST_CASE("more operations than there are slots, of which none is waited for in order") {
  ProgressWorld::run(3, [](Threads& c) {
    for (int round = 0; round < 5; ++round) {
      std::vector<std::vector<float>> all;
      for (int i = 0; i < 40; ++i) all.push_back(contributions<float>(c.rank(), 20'000 + i, i));
      std::vector<Pending<>> pending;
      for (auto& x : all) pending.push_back(c.start_all_reduce(all_of(x), Purpose::gradient));
      for (std::size_t i = pending.size(); i > 0; --i) pending[i - 1].wait();
      for (int i = 0; i < 40; ++i) CHECK(same_bits(all[static_cast<std::size_t>(i)], sums<float>(3, 20'000 + i, i)));
    }
  });
}

TEST_CASE("a rank that fails, or calls something else, stops those whose progress threads wait for it") {
  const auto sentence_with = [](bool progress, auto rank_1) {
    ThreadGroup group(2, {.timeout_seconds = 60});
    return sentence_of([&] {
      run_ranks(group, [&](int rank) {
        if (progress) group.start_progress(rank);
        Threads c = group.communicator(rank);
        std::vector<float> x(50'000, 1);
        if (rank == 1) return rank_1(c, x);
        Pending<> pending = c.start_all_reduce(all_of(x), Purpose::gradient);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        pending.wait();
      });
    });
  };
  const auto fails = [](Threads&, std::vector<float>&) { fail(ErrorCode::usage, "dspp: rank 1 gives up."); };
  const auto other = [](Threads& c, std::vector<float>& x) {
    Pending<> pending = c.start_broadcast(all_of(x), 0, Purpose::gradient);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pending.wait();
  };
  const auto gives_up = [](Threads& c, std::vector<float>& x) {
    Pending<> pending = c.start_all_reduce(all_of(x), Purpose::gradient);
    fail(ErrorCode::usage, "dspp: rank 1 gives up.");
  };
  for (bool progress : {false, true}) {
    CHECK(sentence_with(progress, fails) == "dspp: rank 1 gives up.");
    CHECK(sentence_with(progress, gives_up) == "dspp: rank 1 gives up.");
    CHECK(sentence_with(progress, other)
              .find("call different collectives, the 1st of this group: rank 0 calls "
                    "all_reduce(f32 x 50000)") != std::string::npos);
  }
}

TEST_CASE("what is under way when a progress thread stops, its rank completes") {
  ThreadGroup group(2, {.timeout_seconds = 60});
  run_ranks(group, [&](int rank) {
    Threads c = group.communicator(rank);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x = contributions<float>(rank, 200'000, round);
      group.start_progress(rank);
      Pending<> pending = c.start_all_reduce(all_of(x), Purpose::gradient);
      if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
      group.stop_progress(rank);
      pending.wait();
      CHECK(same_bits(x, sums<float>(2, 200'000, round)));
    }
  });
}

TEST_CASE("a progress thread sleeps while there is nothing, gives its turns, and ends if it cannot go on") {
  dspp::detail::ProgressThread progress;
  CHECK(!progress.turn());
  progress.begin(1 << 20);
  progress.stop();
  CHECK(!progress.is_running());

  std::atomic<int> calls{0}, left{0};
  progress.start([&] {
    ++calls;
    return left > 0 ? (--left, Found::moved) : Found::nothing;
  });
  CHECK(progress.is_running());
  CHECK(soon([&] { return calls == 1; }));
  {
    const auto turn = progress.turn();
    CHECK(turn);
    left = 5;
    progress.begin(100);  // not worth it
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(calls == 1);
  {
    const auto turn = progress.turn();
    progress.begin(64 * 1024);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(calls == 1);
  }
  CHECK(soon([&] { return calls == 7; }));
  progress.stop();

  progress.start([&]() -> Found {
    ++calls;
    throw std::bad_alloc();
  });
  CHECK(soon([&] { return calls == 8; }));
  CHECK(progress.turn());
  progress.stop();
  CHECK(calls == 8);
}

TEST_CASE("the choices have names") {
  for (const auto choice : {AsyncProgress::automatic, AsyncProgress::off, AsyncProgress::on})
    CHECK(async_progress_named("--async-progress", name_of(choice)) == choice);
  CHECK(sentence_of([] { async_progress_named("--async-progress", "yes"); }) ==
        "dspp: --async-progress needs auto, on or off, but got 'yes'. Write --async-progress on.");
}
