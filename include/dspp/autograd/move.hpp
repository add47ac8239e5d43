// SPDX-License-Identifier: Apache-2.0
/// The moves of arrows on local tensors, without a tape: redistribute uses them in forward and backward.
#pragma once

#include <algorithm>
#include <string>

#include <dspp/autograd/context.hpp>
#include <dspp/ops/copy.hpp>
#include <dspp/placement/arrow.hpp>

namespace dspp {

/// Moves `x` from one state to another over the ranks of `group`.
///
/// Cost     the collective of `arrow<From, To>` over the group; nothing in a group of one
/// Memory   an all-reduce is in place when x is the only handle of its block; a gather or scatter along a dimension
///          other than the first needs a communication buffer of the whole tensor during the call; an all-to-all needs
///          one of the part for each of the two dimensions that is not the first
/// Throws   Error(shape) if the degree does not divide the dimension that is cut
///
/// `whole` is the extent of a PaddedShard's dimension without padding.
template <class From, class To, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> move_over(CommunicatorOf<D>& group, Tensor<T, Rank, D> x, Size whole = 0);

/// The same over Tp.
template <class From, class To, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> move_between(Context<D>& context, Tensor<T, Rank, D> x, Size whole = 0) {
  return move_over<From, To>(*context.along.tp, std::move(x), whole);
}

namespace detail {

/// The ranks of Cp, for a value that Cp cuts as Where says.
///
/// Throws   Error(state) if the context has no such ranks, or another number
template <class Where, Device D>
constexpr CommunicatorOf<D>& cp_ranks(const Context<D>& context) {
  if (context.cp_size() != Where::cp_degree)
    fail(ErrorCode::state, "dspp: a sequence cut over Cp<" + std::to_string(Where::cp_degree) +
                               "> needs the ranks that have its slices, but the tape's context has " +
                               std::to_string(context.cp_size()) + " along Cp. Take the tape of an engine.");
  return *context.along.cp;
}

/// The ranks of Data.
///
/// Throws   Error(state) if the context has none
template <Device D>
constexpr CommunicatorOf<D>& data_ranks(const Context<D>& context) {
  // clang-format off
  require(context.along.data != nullptr, "dspp: samples of all data ranks need the ranks along Data, but the tape's context has none. Take the tape of an engine.", ErrorCode::state);
  // clang-format on
  return *context.along.data;
}

/// `count` elements in so many equal pieces: of each one. A tensor without elements may have no pieces.
constexpr Size piece_of(Size count, Size pieces) {
  return pieces == 0 ? 0 : count / pieces;
}

template <class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> sum_over_ranks(CommunicatorOf<D>& group, Tensor<T, Rank, D> x) {
  if (!x.unique()) {
    auto copy = Tensor<T, Rank, D>::uninitialized(x.shape(), x.memory(), Category::activations, "all_reduce");
    ops::copy_into(copy, 0, x);
    x = std::move(copy);
  }
  all_reduce(group, buffer(x.data(), x.count()), Purpose::activation);
  return x;
}

template <class State, int Rank>
constexpr Shape<Rank> local_shape(const Shape<Rank>& whole, Size ranks) {
  constexpr int dimension = shard_dimension<State>, groups = shard_groups<State>;
  if (whole[dimension] % (ranks * groups) != 0)
    fail(ErrorCode::shape,
         std::string("dspp: splitting over ranks needs a dimension that their number divides, but dimension ") +
             std::to_string(dimension) + " of " + to_string(whole) + (groups > 1 ? ", in groups," : "") +
             " is not a multiple of " + (groups > 1 ? std::to_string(groups) + " times " : "") + std::to_string(ranks) +
             ". Change the extent or the degree.");
  return whole.with(dimension, whole[dimension] / ranks);
}

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> gather_along(CommunicatorOf<D>& group, const Tensor<T, Rank, D>& x) {
  constexpr int Dim = shard_dimension<State>;
  const Size ranks = group.size(), outer = pieces_of<State>(x.shape()), chunk = piece_of(x.count(), outer);
  const auto whole = x.shape().with(Dim, x[Dim] * ranks);
  auto y = Tensor<T, Rank, D>::uninitialized(whole, x.memory(), Category::activations, "all_gather");
  if (outer == 1) {
    all_gather(group, buffer(static_cast<const T*>(x.data()), x.count()), buffer(y.data(), y.count()),
               Purpose::activation);
    return y;
  }
  auto all = Tensor<T, 1, D>::uninitialized({{y.count()}}, x.memory(), Category::communication, "all_gather");
  all_gather(group, buffer(static_cast<const T*>(x.data()), x.count()), buffer(all.data(), all.count()),
             Purpose::activation);
  ops::exchange_leading(y, all, ranks, outer, chunk);
  return y;
}

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> scatter_sum_along(CommunicatorOf<D>& group, Tensor<T, Rank, D> x) {
  const Size ranks = group.size(), outer = pieces_of<State>(x.shape());
  const auto part = local_shape<State>(x.shape(), ranks);
  Tensor<T, 1, D> packed = x.reshape(Shape<1>{{x.count()}});
  if (outer != 1) {
    packed = Tensor<T, 1, D>::uninitialized({{x.count()}}, x.memory(), Category::communication, "reduce_scatter");
    ops::exchange_leading(packed, x, outer, ranks, piece_of(part.count(), outer));
  }
  auto y = Tensor<T, Rank, D>::uninitialized(part, x.memory(), Category::activations, "reduce_scatter");
  x.release();
  reduce_scatter(group, buffer(static_cast<const T*>(packed.data()), packed.count()), buffer(y.data(), y.count()),
                 Purpose::activation);
  return y;
}

/// From slices of one cut to slices of another: each rank sends every other rank the part that both slices share.
template <class From, class To, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> exchange(CommunicatorOf<D>& group, Tensor<T, Rank, D> x) {
  const Size ranks = group.size(), count = x.count();
  const auto part = local_shape<To>(x.shape(), ranks);  // from this rank to one other
  const Shape<1> flat{{count}};
  // [outer, ranks, inner], cut as To, becomes [ranks, outer, inner] with a part for each rank
  const Size sent_outer = pieces_of<To>(part);
  auto sent = x.reshape(flat);
  if (sent_outer != 1) {
    sent = Tensor<T, 1, D>::uninitialized(flat, x.memory(), Category::communication, "all_to_all");
    ops::exchange_leading(sent, x, sent_outer, ranks, piece_of(part.count(), sent_outer));
  }
  Memory<D>& memory = x.memory();
  x.release();
  const auto whole = part.with(shard_dimension<From>, part[shard_dimension<From>] * ranks);
  const Size outer = pieces_of<From>(part);
  auto received = Tensor<T, 1, D>::uninitialized(
      flat, memory, outer == 1 ? Category::activations : Category::communication, "all_to_all");
  all_to_all(group, buffer(static_cast<const T*>(sent.data()), count), buffer(received.data(), count),
             Purpose::activation);
  sent.release();
  if (outer == 1) return received.reshape(whole);
  auto y = Tensor<T, Rank, D>::uninitialized(whole, memory, Category::activations, "all_to_all");
  ops::exchange_leading(y, received, ranks, outer, piece_of(part.count(), outer));
  return y;
}

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> own_slice(CommunicatorOf<D>& group, const Tensor<T, Rank, D>& x) {
  const auto part = local_shape<State>(x.shape(), group.size());
  const Size outer = pieces_of<State>(part), chunk = piece_of(part.count(), outer), rank = group.rank(),
             ranks = group.size();
  auto y = Tensor<T, Rank, D>::uninitialized(part, x.memory(), Category::activations, "slice");
  ops::copy_runs(y, x, {outer, chunk, 0, chunk, rank * chunk, ranks * chunk});
  return y;
}

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> inside_zeros(CommunicatorOf<D>& group, const Tensor<T, Rank, D>& x) {
  constexpr int Dim = shard_dimension<State>;
  const Size ranks = group.size(), outer = pieces_of<State>(x.shape()), chunk = piece_of(x.count(), outer),
             rank = group.rank();
  auto y = Tensor<T, Rank, D>::zeros(x.shape().with(Dim, x[Dim] * ranks), x.memory(), Category::activations, "pad");
  ops::copy_runs(y, x, {outer, chunk, rank * chunk, ranks * chunk, 0, chunk});
  return y;
}

/// A whole tensor and its slices along a dimension, the last ones padded.
template <int Dim, int Rank>
struct Padding {
  Size outer, inner, whole, slice, ranks;
  Shape<Rank> whole_shape, slice_shape;

  constexpr Padding(const Shape<Rank>& shape, Size extent, Size parts)
      : outer(shape.product(0, Dim)),
        inner(shape.product(Dim + 1, Rank)),
        whole(extent),
        slice((extent + parts - 1) / parts),
        ranks(parts),
        whole_shape(shape.with(Dim, whole)),
        slice_shape(shape.with(Dim, slice)) {}

  constexpr bool none() const { return slice * ranks == whole; }
  constexpr Size slice_count() const { return outer * slice * inner; }
  /// Elements of a run of rank r's slice that are not padding, and the position of the first in the whole.
  constexpr Size run(Size rank) const { return std::clamp<Size>(whole - rank * slice, 0, slice) * inner; }
  constexpr Size begin(Size rank) const { return std::min(rank * slice, whole) * inner; }
};

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> gather_padded(CommunicatorOf<D>& group, const Tensor<T, Rank, D>& x, Size whole) {
  const Padding<shard_dimension<State>, Rank> padding(x.shape(), whole, group.size());
  if (padding.none()) return gather_along<State>(group, x);
  auto y = Tensor<T, Rank, D>::uninitialized(padding.whole_shape, x.memory(), Category::activations, "all_gather");
  auto all =
      Tensor<T, 1, D>::uninitialized({{x.count() * padding.ranks}}, x.memory(), Category::communication, "all_gather");
  all_gather(group, buffer(static_cast<const T*>(x.data()), x.count()), buffer(all.data(), all.count()),
             Purpose::activation);
  for (Size r = 0; r < padding.ranks; ++r)
    ops::copy_runs(y, all,
                   {padding.outer, padding.run(r), padding.begin(r), padding.whole * padding.inner, r * x.count(),
                    padding.slice * padding.inner});
  return y;
}

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> scatter_sum_padded(CommunicatorOf<D>& group, Tensor<T, Rank, D> x) {
  constexpr int dimension = shard_dimension<State>;
  const Padding<dimension, Rank> padding(x.shape(), x[dimension], group.size());
  if (padding.none()) return scatter_sum_along<State>(group, std::move(x));
  const Size part = padding.slice_count();
  auto packed = Tensor<T, 1, D>::zeros({{part * padding.ranks}}, x.memory(), Category::communication, "reduce_scatter");
  for (Size r = 0; r < padding.ranks; ++r)
    ops::copy_runs(packed, x,
                   {padding.outer, padding.run(r), r * part, padding.slice * padding.inner, padding.begin(r),
                    padding.whole * padding.inner});
  auto y = Tensor<T, Rank, D>::uninitialized(padding.slice_shape, x.memory(), Category::activations, "reduce_scatter");
  x.release();
  reduce_scatter(group, buffer(static_cast<const T*>(packed.data()), packed.count()), buffer(y.data(), part),
                 Purpose::activation);
  return y;
}

template <class State, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> own_padded_slice(CommunicatorOf<D>& group, const Tensor<T, Rank, D>& x) {
  constexpr int dimension = shard_dimension<State>;
  const Padding<dimension, Rank> padding(x.shape(), x[dimension], group.size());
  if (padding.none()) return own_slice<State>(group, x);
  auto y = Tensor<T, Rank, D>::zeros(padding.slice_shape, x.memory(), Category::activations, "slice");
  const Size rank = group.rank();
  ops::copy_runs(y, x,
                 {padding.outer, padding.run(rank), 0, padding.slice * padding.inner, padding.begin(rank),
                  padding.whole * padding.inner});
  return y;
}

}  // namespace detail

template <class From, class To, class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> move_over(CommunicatorOf<D>& group, Tensor<T, Rank, D> x, [[maybe_unused]] Size whole) {
  constexpr Move move = arrow<From, To>;
  static_assert(move != Move::forbidden);
  if (group.size() == 1) return x;
  if constexpr (is_padded<From>)
    return detail::gather_padded<From>(group, x, whole);
  else if constexpr (is_padded<To> && move == Move::reduce_scatter)
    return detail::scatter_sum_padded<To>(group, std::move(x));
  else if constexpr (is_padded<To>)
    return detail::own_padded_slice<To>(group, x);
  else if constexpr (move == Move::none)
    return x;
  else if constexpr (move == Move::all_reduce)
    return detail::sum_over_ranks(group, std::move(x));
  else if constexpr (move == Move::reduce_scatter)
    return detail::scatter_sum_along<To>(group, std::move(x));
  else if constexpr (move == Move::all_gather)
    return detail::gather_along<From>(group, x);
  else if constexpr (move == Move::all_to_all)
    return detail::exchange<From, To>(group, std::move(x));
  else if constexpr (move == Move::slice)
    return detail::own_slice<To>(group, x);
  else
    return detail::inside_zeros<From>(group, x);
}

}  // namespace dspp
