// SPDX-License-Identifier: Apache-2.0
/// Under Cp a rank has a part of each sequence. Types do not track this yet; values from a batch do at run time, and
/// operations that would mix only this rank's positions throw.
#pragma once

#include <string>

#include <dspp/autograd/variable.hpp>

namespace dspp {

/// Throws if dimension `dimension` of x runs along sequences that Cp cuts: `who` would see this rank's part only. For
/// operations that sum, normalise, select or join along a dimension.
///
/// Throws   Error(placement)
template <Tracked X>
constexpr void require_whole_sequence(const char* who, const X& x, int dimension);

/// Throws if both run along sequences that Cp cuts, as in a product of each position with each.
template <Tracked X, Tracked Y>
constexpr void require_one_sequence(const char* who, const X& x, int dimension, const Y& y, int other);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

template <int Rank>
[[noreturn]] constexpr void fail_cut_sequence(const char* who, const Shape<Rank>& shape, int dimension) {
  fail(ErrorCode::placement,
       std::string("dspp: ") + who + " needs whole sequences, but dimension " + std::to_string(dimension) + " of " +
           to_string(shape) + " runs along sequences that Cp cuts, and this rank has a part of them. Use attend, or " +
           "whole_sequences(context, x) in a layer of your own, or leave Cp out of the policy.");
}

template <Tracked X>
constexpr bool runs_along_sequence(const X& x, int dimension) {
  return (x.sequence_dimensions() >> dimension & 1u) != 0;
}

/// The dimensions of `bits` after a reshape from `from` to `to`.
template <int Rank, int NewRank>
constexpr unsigned reshaped_dimensions(unsigned bits, const Shape<Rank>& from, const Shape<NewRank>& to) {
  unsigned result = 0;
  for (int d = 0; d < Rank; ++d) {
    if ((bits >> d & 1u) == 0) continue;
    const Size inner = from.product(d + 1, Rank);
    unsigned same = 0, overlapping = 0;
    for (int e = 0; e < NewRank; ++e) {
      const Size step = to.product(e + 1, NewRank);
      if (same == 0 && step == inner && to[e] == from[d]) same = 1u << e;
      if (step < inner * from[d] && step * to[e] > inner) overlapping |= 1u << e;
    }
    result |= same != 0 ? same : overlapping;
  }
  return result;
}

/// The same after a transpose.
template <int... Order>
constexpr unsigned transposed_dimensions(unsigned bits) {
  unsigned result = 0;
  int to = 0;
  ((result |= (bits >> Order & 1u) << to++), ...);
  return result;
}

}  // namespace detail

template <Tracked X>
constexpr void require_whole_sequence(const char* who, const X& x, int dimension) {
  if (detail::runs_along_sequence(x, dimension)) detail::fail_cut_sequence(who, x.shape(), dimension);
}

template <Tracked X, Tracked Y>
constexpr void require_one_sequence(const char* who, const X& x, int dimension, const Y& y, int other) {
  if (detail::runs_along_sequence(x, dimension) && detail::runs_along_sequence(y, other))
    detail::fail_cut_sequence(who, y.shape(), other);
}

}  // namespace dspp
