// SPDX-License-Identifier: Apache-2.0
/// Sums over ranks that share a GPU, in the order of the sources: the bits of <dspp/comm/rank_sum.hpp>.
///
///   y[i] = sources[0][i] + sources[1][i] + ...        bf16 and f16 in f32 and rounded once, integers modulo 2^bits
///
/// for each of some arrays y, of which any may be a source. A thread has 16 bytes of each array; if one does not begin
/// at a multiple of 16 bytes they go element by element.
///
/// Bytes     (sources + arrays) sizeof(T) an element
#pragma once

#include <dspp/comm/rank_sum.hpp>
#include <dspp/cuda/threads.hpp>
#include <kernels/each.cuh>

namespace dspp::gpu {

struct RankSources {
  const void* of[most_ranks_on_gpu] = {};
  int ranks = 0;
};
struct RankPlaces {
  void* of[most_ranks_on_gpu] = {};
  int ranks = 0;
};

/// Index: V elements.
template <class T, int V>
struct RankSum {
  using Sum = typename dspp::detail::SumOf<T>::type;
  RankSources from;
  Size count;
  RankPlaces to;

  __device__ static Sum widened(T x) {
    if constexpr (sizeof(T) == 2)
      return to_float(x);
    else
      return static_cast<Sum>(x);
  }
  __device__ static T narrowed(Sum x) {
    if constexpr (sizeof(T) == 2)
      return from_float<T>(x);
    else
      return static_cast<T>(x);
  }
  __device__ void sum(Size i) const {
    Sum s = widened(static_cast<const T*>(from.of[0])[i]);
    for (int r = 1; r < from.ranks; ++r) s += widened(static_cast<const T*>(from.of[r])[i]);
    const T y = narrowed(s);
    for (int r = 0; r < to.ranks; ++r) static_cast<T*>(to.of[r])[i] = y;
  }
  __device__ void operator()(Size index) const {
    const Size begin = index * V;
    if constexpr (V > 1) {
      if (begin + V <= count) {
        Sum sums[V];
        for (int r = 0; r < from.ranks; ++r) {
          T x[V];
          const auto access = *reinterpret_cast<const detail::Access<4>*>(static_cast<const T*>(from.of[r]) + begin);
          memcpy(static_cast<void*>(x), &access, sizeof x);
          for (int v = 0; v < V; ++v) sums[v] = r == 0 ? widened(x[v]) : sums[v] + widened(x[v]);
        }
        T out[V];
        for (int v = 0; v < V; ++v) out[v] = narrowed(sums[v]);
        detail::Access<4> access;
        memcpy(&access, out, sizeof access);
        for (int r = 0; r < to.ranks; ++r)
          *reinterpret_cast<detail::Access<4>*>(static_cast<T*>(to.of[r]) + begin) = access;
        return;
      }
    }
    for (Size i = begin; i < begin + V && i < count; ++i) sum(i);
  }
};

template <class T>
void rank_sum(cudaStream_t stream, const RankSources& from, Size count, const RankPlaces& to) {
  constexpr int longest = 16 / static_cast<int>(sizeof(T));
  const Work work{"rank_sum", from.ranks, count};
  bool aligned = true;
  for (int r = 0; r < from.ranks; ++r) aligned = aligned && is_aligned(from.of[r]);
  for (int r = 0; r < to.ranks; ++r) aligned = aligned && is_aligned(to.of[r]);
  if (aligned)
    launch_each(work, stream, blocks_for(count, longest), RankSum<T, longest>{from, count, to});
  else
    launch_each(work, stream, count, RankSum<T, 1>{from, count, to});
}

/// Sources and places are memory of that type, other than u8.
inline void rank_sum(cudaStream_t stream, ElementType type, const RankSources& from, Size count, const RankPlaces& to) {
  switch (type) {
    case ElementType::f64: return rank_sum<double>(stream, from, count, to);
    case ElementType::f32: return rank_sum<float>(stream, from, count, to);
    case ElementType::bf16: return rank_sum<bf16>(stream, from, count, to);
    case ElementType::f16: return rank_sum<f16>(stream, from, count, to);
    case ElementType::i32: return rank_sum<std::int32_t>(stream, from, count, to);
    case ElementType::i64: return rank_sum<std::int64_t>(stream, from, count, to);
    case ElementType::u8: return;
  }
}

}  // namespace dspp::gpu
