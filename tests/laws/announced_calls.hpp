// SPDX-License-Identifier: Apache-2.0
/// The laws of calls that a group of the host announces for another transport.
#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/comm/host_group.hpp>

#include <laws/contributions.hpp>

namespace dspp::laws {

inline Pending<> announce_all_reduce(HostGroup& group, Size count) {
  const dspp::detail::PostedPair pair{nullptr, nullptr, count, ElementType::f32};
  return group.announce(Collective::all_reduce, Purpose::gradient, 0, {&pair, 1});
}

/// More than are in flight at once, between collectives of the host, which they do not disturb.
inline void announced_calls_move_and_count_nothing(HostGroup group) {
  AnyCommunicator& c = group.communicator();
  std::vector<float> x = contributions<float>(c.rank(), 100);
  const Traffic before = c.traffic();
  std::vector<Pending<>> pendings;
  for (Size i = 0; i < 40; ++i) pendings.push_back(announce_all_reduce(group, i));
  group.poll();
  for (Pending<>& pending : pendings) pending.wait();
  CHECK(c.traffic() == before);
  Pending<> later = announce_all_reduce(group, 7);
  all_reduce(c, all_of(x), Purpose::gradient);
  CHECK(are_sums(c.sum_order(), x, c.size()));
  CHECK(c.traffic().calls(Collective::all_reduce) == before.calls(Collective::all_reduce) + 1);
}

/// Once it is complete, what it received is there, before wait().
inline void a_rank_that_polls_sees_an_operation_complete(HostGroup group) {
  if (group.size() == 1 || group.rank() > 1) return;
  AnyCommunicator& c = group.communicator();
  std::vector<float> x(1000, c.rank() == 0 ? 3.0f : 0.0f);
  Pending<> pending = c.rank() == 0 ? c.start_send(all_of(std::as_const(x)), 1, Purpose::activation)
                                    : c.start_receive(all_of(x), 0, Purpose::activation);
  if (c.rank() == 1) CHECK_FALSE(pending.is_complete());
  while (!pending.is_complete()) group.poll();
  CHECK(x == std::vector<float>(1000, 3.0f));
  pending.wait();
}

/// Messages of two ranks are compared by the two alone.
inline void announced_messages_concern_two_ranks(HostGroup group) {
  if (group.size() == 1 || group.rank() > 1) return;
  const dspp::detail::PostedPair pair{nullptr, nullptr, 9, ElementType::bf16};
  const int end = group.rank() == 0 ? dspp::detail::sender : dspp::detail::receiver;
  group.announce(Collective::send, Purpose::activation, end, {&pair, 1}, 1 - group.rank()).wait();
}

/// What the others get if rank 0 announces `call(group, true)` and they `call(group, false)`; each waits by polling.
template <class Call>
std::string sentence_of_announced(HostGroup group, Call call) {
  try {
    const Pending<> pending = call(group, group.rank() == 0);
    for (;;) group.poll();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace dspp::laws
