// SPDX-License-Identifier: Apache-2.0
/// Ways to make communicators of each model, for the laws and for tests of higher floors.
#pragma once

#include <doctest/doctest.h>

#include <utility>

#include <dspp/comm.hpp>

namespace dspp::laws {

struct SelfWorld {
  template <class F>
  static void run(int ranks, F f) {
    REQUIRE(ranks == 1);
    Self c;
    f(c);
  }
};

struct ThreadsWorld {
  template <class F>
  static void run(int ranks, F f) {
    ThreadGroup group(ranks, {.timeout_seconds = 60});
    run_ranks(group, [&](int rank) {
      Threads c = group.communicator(rank);
      f(c);
    });
  }
};

/// While it lives, the rank has a progress thread.
class ProgressOfRank {
 public:
  ProgressOfRank(ThreadGroup group, int rank) : group_(std::move(group)), rank_(rank) { group_.start_progress(rank_); }
  ProgressOfRank(const ProgressOfRank&) = delete;
  ProgressOfRank& operator=(const ProgressOfRank&) = delete;
  ~ProgressOfRank() { group_.stop_progress(rank_); }

 private:
  ThreadGroup group_;
  int rank_;
};

/// Threads with a progress thread each.
struct ProgressWorld {
  template <class F>
  static void run(int ranks, F f) {
    ThreadGroup group(ranks, {.timeout_seconds = 60});
    run_ranks(group, [&](int rank) {
      const ProgressOfRank progress(group, rank);
      Threads c = group.communicator(rank);
      f(c);
    });
  }
};

/// Threads that sum in ring order: a transport without rank order.
struct RingWorld {
  template <class F>
  static void run(int ranks, F f) {
    ThreadGroup group(ranks, {.timeout_seconds = 60, .sum_order = SumOrder::transport});
    run_ranks(group, [&](int rank) {
      Threads c = group.communicator(rank);
      f(c);
    });
  }
};

/// The axis Data of a mesh of 2 x ranks, both groups at once: communicators of subgroups.
struct SubgroupWorld {
  template <class F>
  static void run(int ranks, F f) {
    ThreadWorld world(Mesh(Degrees{.data = ranks, .tp = 2}), {.timeout_seconds = 60});
    run_ranks(world.group(), [&](int rank) {
      AnyCommunicator c = world.groups(rank)[Axis::Data];
      f(c);
    });
  }
};

template <class World>
struct ErasedWorld {
  template <class F>
  static void run(int ranks, F f) {
    World::run(ranks, [&](auto& inner) {
      AnyCommunicator c(inner);
      f(c);
    });
  }
};

/// Also requires that planned traffic equals counted traffic.
template <class World>
struct RecordedWorld : World {
  template <class F>
  static void run(int ranks, F f) {
    World::run(ranks, [&](auto& inner) {
      const Traffic before = inner.traffic();
      Recorder<std::remove_cvref_t<decltype(inner)>> c(inner);
      f(c);
      CHECK(c.traffic() == c.inner().traffic() - before);
    });
  }
};

}  // namespace dspp::laws
