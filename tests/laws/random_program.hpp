// SPDX-License-Identifier: Apache-2.0
/// Random sequences of collectives, the same on every rank, run by ranks that dawdle.
#pragma once

#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "communicator.hpp"

namespace dspp::laws {

/// A program that every rank derives from the same seed: operations of random kinds, types and sizes, some under way at
/// once; each rank dawdles differently.
template <class C>
class RandomProgram {
 public:
  RandomProgram(C& c, unsigned seed) : c_(c), program_(seed), dawdle_(seed * 31u + static_cast<unsigned>(c.rank())) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      switch (program_() % 3) {
        case 0: step<float>(i); break;
        case 1: step<bf16>(i); break;
        default: step<std::int64_t>(i); break;
      }
      pause();
    }
  }

 private:
  template <class T>
  void step(int salt) {
    const Size count = static_cast<Size>(program_() % 200);
    const int n = c_.size();
    const auto kind = static_cast<int>(program_() % 7), other = static_cast<int>(program_() % 1000);
    std::vector<T> x = contributions<T>(c_.rank(), count, salt), y;
    if (kind == 0) {
      all_reduce(c_, all_of(x), Purpose::gradient);
      CHECK(sums_of(c_, x, salt));
    } else if (kind == 1) {
      y.resize(static_cast<std::size_t>(count * n));
      Pending<> pending = c_.start_all_gather(all_of(std::as_const(x)), all_of(y), Purpose::parameter);
      pause();
      pending.wait();
      CHECK(same_bits(y, concatenation<T>(n, count, salt)));
    } else if (kind == 2) {
      const int root = other % n;
      broadcast(c_, all_of(x), root, Purpose::parameter);
      CHECK(same_bits(x, contributions<T>(root, count, salt)));
    } else if (kind == 3) {
      pendings_may_be_waited_for_in_any_order(c_, other % 20);
    } else if (kind == 4) {
      all_to_all_takes_parts_of_any_size<T>(c_, count);
    } else if (kind == 5) {
      what_is_sent_is_received<T>(c_, count);
    } else {
      c_.barrier();
    }
  }

  void pause() {
    const auto choice = dawdle_() % 64;
    if (choice == 0) std::this_thread::sleep_for(std::chrono::microseconds(dawdle_() % 200));
    if (choice < 8) std::this_thread::yield();
  }

  C& c_;
  std::mt19937 program_;
  std::mt19937 dawdle_;
};

template <class World>
void check_random_programs(int ranks, int programs) {
  CAPTURE(ranks);
  World::run(ranks, [programs](auto& c) {
    for (int k = 0; k < programs; ++k) RandomProgram(c, static_cast<unsigned>(k)).run(8);
  });
}

}  // namespace dspp::laws
