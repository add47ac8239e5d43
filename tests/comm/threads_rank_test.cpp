// SPDX-License-Identifier: Apache-2.0
// A rank alone with its table: what it keeps alive, when it releases it, and its sentences about missing ranks.
// labels: thread races optimised
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>

using namespace dspp;
using namespace dspp::detail;

namespace {

struct Ranks {
  explicit Ranks(int size)
      : failures(std::make_shared<ThreadFailureState>(size)),
        table(std::make_shared<ThreadTable>(failures, "the world", size == 1 ? std::vector{0} : std::vector{0, 1})),
        first(std::make_shared<ThreadRank>(table, 0, WaitPolicy{0, 1, std::chrono::milliseconds(100)})) {}
  Pending<> barrier() const {
    first->open(Collective::barrier, Purpose::scalar);
    return first->publish();
  }
  std::shared_ptr<ThreadFailureState> failures;
  std::shared_ptr<ThreadTable> table;
  std::shared_ptr<ThreadRank> first;
};

}  // namespace

TEST_CASE("a rank lives until its last operation was waited for") {
  Ranks ranks(1);
  const std::weak_ptr<ThreadRank> rank = ranks.first;
  const std::vector<ThreadRank*>& active = ranks.failures->wait_slot(0).active;
  Pending<> a = ranks.barrier(), b = ranks.barrier();
  ranks.first.reset();
  a.wait();
  CHECK(active.size() == 1);
  CHECK_FALSE(rank.expired());
  b.wait();
  CHECK(active.empty());
  CHECK(rank.expired());
}

TEST_CASE("after a failure a rank releases its memory once no other reads it") {
  const Ranks ranks(2);
  ranks.table->busy[1].now.store(true);
  std::atomic<bool> back = false;
  std::thread waits([&] {
    Pending<> pending = ranks.barrier();
    ranks.failures->fail(ErrorCode::aborted, "dspp: a test", 1);
    CHECK_THROWS_WITH_AS(pending.wait(), "dspp: a test", Error);
    back = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(back);
  ranks.table->busy[1].now.store(false);
  waits.join();
  CHECK(back);
}

TEST_CASE("a rank with every slot taken reports whether other ranks have yet to call or to read its oldest operation") {
  for (const bool comes : {false, true}) {
    CAPTURE(comes);
    const Ranks ranks(2);
    if (comes) ranks.table->progress(1).posted.store(operations_in_flight);
    std::vector<Pending<>> pendings;
    for (std::uint64_t i = 0; i < operations_in_flight; ++i) pendings.push_back(ranks.barrier());
    std::string sentence;
    try {
      ranks.first->open(Collective::barrier, Purpose::scalar);
    } catch (const Error& error) {
      sentence = error.what();
    }
    CHECK(sentence.starts_with("dspp: rank 0 needs rank 1 in barrier, the 1st operation of the world"));
    CHECK(sentence.find(comes ? "waited 0.1 s and it did not finish it." : "waited 0.1 s and it did not come.") !=
          std::string::npos);
  }
}

TEST_CASE("a rank that runs ahead waits before it overwrites a call that the others have not read") {
  const ThreadWorld world(Mesh(Degrees{.data = 2}), {.timeout_seconds = 30});
  run_ranks(world.group(), [&](int rank) {
    RankGroups groups = world.groups(rank);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    constexpr int many = 2 * static_cast<int>(operations_in_flight) + 1;
    std::vector<float> x(many, 1);
    std::vector<Pending<>> pendings;
    for (int i = 0; i < many; ++i)
      pendings.push_back(
          i % 2 == 0 ? groups.world.start_all_reduce(buffer(&x[static_cast<std::size_t>(i)], 1), Purpose::scalar)
                     : groups.world.start_broadcast(buffer(&x[static_cast<std::size_t>(i)], 1), 0, Purpose::scalar));
    for (Pending<>& pending : pendings) pending.wait();
    for (int i = 0; i < many; ++i) CHECK(x[static_cast<std::size_t>(i)] == (i % 2 == 0 ? 2 : 1));
    CHECK(groups.world.traffic().calls(Collective::all_reduce) == many / 2 + 1);
    CHECK(groups.world.traffic().calls(Collective::broadcast) == many / 2);
  });
}
