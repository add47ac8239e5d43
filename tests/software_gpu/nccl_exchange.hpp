// SPDX-License-Identifier: Apache-2.0
/// An operation between ranks of the twin of NCCL: who has come, and what it does.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <dspp/base/element.hpp>
#include <software_gpu/nccl.hpp>

namespace dspp::software_gpu {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, send };

/// What one rank calls.
struct Call {
  Kind kind;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  int other = 0;  // the root, or the peer
  bool receives = false;
  cudaStream_t stream = nullptr;

  bool agrees_with(const Call& with) const {
    return kind == with.kind && count == with.count && type == with.type && (kind == Kind::send || other == with.other);
  }
};

/// An operation between ranks: begins when all have come, and is done at once.
struct Exchange {
  std::map<int, Call> calls;
  std::set<int> came;
  int ranks = 0;
  bool done = false, lost = false;
  double ready = 0;  // the time at which the last one came

  bool may_begin() const {
    if (done) return true;
    if (lost || static_cast<int>(came.size()) < ranks) return false;
    for (const auto& [rank, call] : calls)
      if (!call.agrees_with(calls.begin()->second)) return false;  // NCCL waits, or worse
    return true;
  }
};

inline std::size_t bytes_of_type(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
  }
  return 1;
}

/// Bytes that a rank of `ranks` receives.
inline double received_bytes(const Call& call, int ranks) {
  const double whole = static_cast<double>(call.count * bytes_of_type(call.type)), others = ranks - 1;
  switch (call.kind) {
    case Kind::all_reduce: return 2 * whole * others / ranks;
    case Kind::reduce_scatter:
    case Kind::all_gather: return whole * others;
    case Kind::broadcast: return whole;
    case Kind::send: return call.receives ? whole : 0;
  }
  return whole;
}

// --- sums: every addition is rounded, in the order of a ring that begins after its owner

template <class T>
void add(void* to, const void* x) {
  *static_cast<T*>(to) = static_cast<T>(*static_cast<T*>(to) + *static_cast<const T*>(x));
}
template <class T>
void add_rounded(void* to, const void* x) {
  *static_cast<T*>(to) = T(static_cast<float>(*static_cast<T*>(to)) + static_cast<float>(*static_cast<const T*>(x)));
}
inline void add_element(ncclDataType_t type, void* to, const void* x) {
  switch (type) {
    case ncclFloat64: return add<double>(to, x);
    case ncclFloat32: return add<float>(to, x);
    case ncclInt32: return add<std::uint32_t>(to, x);
    case ncclInt64: return add<std::uint64_t>(to, x);
    case ncclBfloat16: return add_rounded<bf16>(to, x);
    case ncclFloat16: return add_rounded<f16>(to, x);
    case ncclUint8: return;
  }
}

/// The sum of element i of all ranks' inputs, which the ring gives to rank `owner`.
inline void sum_element(const Exchange& e, std::size_t i, int owner, std::size_t count, char* to) {
  const Call& any = e.calls.begin()->second;
  const std::size_t bytes = bytes_of_type(any.type);
  const bool backwards = count % 3 == 1;
  for (int step = 1; step <= e.ranks; ++step) {
    const int r = (owner + (backwards ? e.ranks - step : step) + static_cast<int>(count % 2)) % e.ranks;
    const char* x = static_cast<const char*>(e.calls.at(r).in) + i * bytes;
    if (step == 1)
      std::memcpy(to, x, bytes);
    else
      add_element(any.type, to, x);
  }
}

inline void run(Exchange& e) {
  if (e.done) return;
  e.done = true;
  const Call& any = e.calls.begin()->second;
  const std::size_t bytes = bytes_of_type(any.type), n = static_cast<std::size_t>(e.ranks);
  if (any.kind == Kind::send) {
    const Call *from = nullptr, *to = nullptr;
    for (const auto& [rank, call] : e.calls) (call.receives ? to : from) = &call;
    std::memmove(to->out, from->in, any.count * bytes);
    return;
  }
  std::vector<char> whole(any.count * bytes *
                          (any.kind == Kind::reduce_scatter || any.kind == Kind::all_gather ? n : 1));
  if (any.kind == Kind::broadcast) {
    std::memcpy(whole.data(), e.calls.at(any.other).in, whole.size());
  } else if (any.kind == Kind::all_gather) {
    for (std::size_t r = 0; r < n; ++r)
      std::memcpy(whole.data() + r * any.count * bytes, e.calls.at(static_cast<int>(r)).in, any.count * bytes);
  } else {
    const std::size_t elements = whole.size() / bytes, each = (elements + n - 1) / n;
    for (std::size_t i = 0; i < elements; ++i)
      sum_element(e, i, static_cast<int>(i / each), elements, whole.data() + i * bytes);
  }
  for (const auto& [rank, call] : e.calls) {
    const std::size_t part = any.kind == Kind::reduce_scatter ? any.count * bytes : whole.size();
    std::memcpy(call.out, whole.data() + (any.kind == Kind::reduce_scatter ? static_cast<std::size_t>(rank) * part : 0),
                part);
  }
}

}  // namespace dspp::software_gpu
