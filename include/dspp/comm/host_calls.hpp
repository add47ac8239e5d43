// SPDX-License-Identifier: Apache-2.0
/// What a communicator of host memory does for another transport, which moves a device's data: NCCL.
#pragma once

#include <span>

#include <dspp/base/error.hpp>
#include <dspp/comm/communicator.hpp>
#include <dspp/comm/posted.hpp>

namespace dspp::detail {

/// A communicator that compares what its ranks call: see Posting.
template <class C>
concept ComparesCalls = requires(C& c, PurposeAt purpose, std::span<const PostedPair> pairs, const Error& error) {
  c.announce(Collective::barrier, purpose, 0, pairs, 0);
  c.poll();
  c.expire();
  c.abort(error);
  c.timeout_seconds();
};

/// Its functions, by a pointer to it.
struct HostCalls {
  Pending<> (*announce)(void*, Collective, PurposeAt, int root, std::span<const PostedPair>, int peer);
  void (*poll)(void*);
  void (*expire)(void*);
  void (*abort)(void*, const Error&);
  double (*timeout_seconds)(const void*);
  bool of_threads;  ///< its ranks are threads of one process
};

template <class C>
inline constexpr bool is_of_threads = false;
template <class C>
requires(C::of_threads) inline constexpr bool is_of_threads<C> = true;

template <class C>
inline constexpr HostCalls host_calls_of = {
    [](void* c, Collective collective, PurposeAt purpose, int root, std::span<const PostedPair> pairs, int peer) {
      return static_cast<C*>(c)->announce(collective, purpose, root, pairs, peer);
    },
    [](void* c) { static_cast<C*>(c)->poll(); },
    [](void* c) { static_cast<C*>(c)->expire(); },
    [](void* c, const Error& error) { static_cast<C*>(c)->abort(error); },
    [](const void* c) { return static_cast<const C*>(c)->timeout_seconds(); },
    is_of_threads<C>,
};

/// Those of a C; null if it compares no calls.
template <class C>
constexpr const HostCalls* host_calls() {
  if constexpr (ComparesCalls<C>)
    return &host_calls_of<C>;
  else
    return nullptr;
}

}  // namespace dspp::detail
