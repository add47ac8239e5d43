// SPDX-License-Identifier: Apache-2.0
/// What a progress thread does for a communicator, and what does not happen without one.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include <dspp/comm/communicator.hpp>
#include <laws/contributions.hpp>

namespace dspp::laws {

/// Whether an operation of each kind completes within that time in which the rank does not call its communicator.
template <Communicator C>
bool completes_within(C& c, double seconds) {
  constexpr Size count = 30'000;  // of f32: enough for a progress thread to be woken
  using Clock = std::chrono::steady_clock;
  std::vector<float> x = contributions<float>(c.rank(), count, 5), slice(count), all(count * c.size());
  const std::vector<float> wide = contributions<float>(c.rank(), count * c.size(), 6), sum = x;
  Pending<> pending[] = {c.start_all_reduce(all_of(x), Purpose::gradient),
                         c.start_reduce_scatter(all_of(wide), all_of(slice), Purpose::gradient),
                         c.start_all_gather(all_of(sum), all_of(all), Purpose::parameter)};
  const auto are_complete = [&] {
    bool each = true;
    for (const Pending<>& p : pending) each = each && p.is_complete();
    return each;
  };
  const auto begin = Clock::now();
  const auto waited = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (!are_complete() && waited() < seconds) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool were_complete = are_complete();
  for (Pending<>& p : pending) p.wait();
  CHECK(same_bits(x, sums<float>(c.size(), count, 5)));
  CHECK(same_bits(slice, sums<float>(c.size(), count, 6, count * c.rank())));
  for (int r = 0; r < c.size(); ++r)
    CHECK(same_bits(std::vector<float>(all.begin() + count * r, all.begin() + count * (r + 1)),
                    contributions<float>(r, count, 5)));
  c.barrier();
  return were_complete;
}

template <Communicator C>
void operations_complete_while_the_rank_computes(C& c) {
  CHECK(completes_within(c, 30));
}

/// So that the other is seen to fail.
template <Communicator C>
void operations_wait_for_the_rank(C& c) {
  CHECK(!completes_within(c, 0.05));
}

}  // namespace dspp::laws
