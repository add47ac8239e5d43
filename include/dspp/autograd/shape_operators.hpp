// SPDX-License-Identifier: Apache-2.0
/// Transpose, reshape, slice, split, concat, join and cast of Variables. All are linear, so Partial stays Partial.
#pragma once

#include <array>
#include <concepts>
#include <tuple>
#include <utility>

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/broadcast.hpp>
#include <dspp/ops/slice.hpp>
#include <dspp/ops/transpose.hpp>
#include <dspp/placement/broadcast_rules.hpp>

namespace dspp {

namespace operations {
template <class T, int Rank, Device D>
struct Permute {
  using DeviceType = D;
  using Order = std::array<int, static_cast<std::size_t>(Rank)>;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x, const Order& order) {
    TapedTensor<T, Rank, D> y(ops::transpose(x.value(), order), x.tape());
    y.on_backward([slot = x.slot(), order](Tape<D>& tape, const Tensor<T, Rank, D>& dy) {
      tape.give(slot, ops::transpose(dy, ops::inverse(order)));
    });
    return y;
  }
};

template <class T, int Rank, int NewRank, Device D>
struct Reshape {
  using DeviceType = D;
  static constexpr TapedTensor<T, NewRank, D> run(const TapedTensor<T, Rank, D>& x, const Shape<NewRank>& shape) {
    TapedTensor<T, NewRank, D> y(x.value().reshape(shape), x.tape());
    y.on_backward([slot = x.slot(), before = x.shape()](Tape<D>& tape, const Tensor<T, NewRank, D>& dy) {
      tape.give(slot, dy.reshape(before));
    });
    return y;
  }
};

template <class U, class T, int Rank, Device D>
struct Cast {
  using DeviceType = D;
  static constexpr TapedTensor<U, Rank, D> run(const TapedTensor<T, Rank, D>& x) {
    if constexpr (std::integral<T> || std::integral<U>) {  // integers have no gradient
      return TapedTensor<U, Rank, D>(ops::cast<U>(x.value()), x.tape(), Slot{}, 0);
    } else {
      TapedTensor<U, Rank, D> y(ops::cast<U>(x.value()), x.tape());
      y.on_backward(
          [slot = x.slot()](Tape<D>& tape, const Tensor<U, Rank, D>& dy) { tape.give(slot, ops::cast<T>(dy)); });
      return y;
    }
  }
};
}  // namespace operations

#define DSPP_SHAPE_OPERATIONS(TEMPLATE, T)                               \
  TEMPLATE struct CompiledOperation<operations::Permute<T, 3, Cpu>>;     \
  TEMPLATE struct CompiledOperation<operations::Permute<T, 4, Cpu>>;     \
  TEMPLATE struct CompiledOperation<operations::Reshape<T, 2, 3, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Reshape<T, 3, 2, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Reshape<T, 3, 4, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Reshape<T, 4, 3, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Cast<T, float, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Cast<T, float, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Cast<T, float, 4, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_SHAPE_OPERATIONS)

/// y[i_0, i_1, ...] = x with its dimensions in the given order: `transpose<0, 2, 1>(x)`.
///
/// Placement   any; Shard follows its dimension
/// Memory      y; keeps nothing
template <int... Order, class T, int Rank, Device D, class W>
constexpr auto transpose(const Variable<T, Rank, D, W>& x);

/// The same elements in another shape (of this rank's part).
///
/// Placement   Invariant, Replicate, Partial and Shard<0> are kept. For another split dimension, name its new place:
///             `reshape<Shard<1>>(x, shape(batch * sequence, width))`. Groups may become a dimension and back: Shard<2,
///             3> of [batch, sequence, 3 width] is Shard<3> of [batch, sequence, 3, width]. The dimension that Cp cuts
///             stays if its extent and those before it do, or if it is dimension 0 and is merged with later ones.
///             Otherwise name its new place: `reshape<void, Shard<1>>(x, shape)`, ignored where Cp cuts none.
/// Memory      none: both share one block
/// Throws      Error(shape) if the counts differ, or if the number of elements before a cut dimension changes
template <class To = void, class CpTo = void, class T, int Rank, Device D, class W, int NewRank>
constexpr auto reshape(const Variable<T, Rank, D, W>& x, const Shape<NewRank>& shape);

/// Elements [begin, begin + extent) along dimension Dim.
///
/// Placement   Dim whole, any state kept
/// Memory      the slice; in backward a padded dx
/// Throws      Error(shape)
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto slice(const Variable<T, Rank, D, W>& x, Size begin, Size extent);

/// Parts of the given extents along dimension Dim, as a tuple: `auto [q, k, v] = split<-1>(x, std::array{a, b, c})`.
///
/// Placement   Dim whole, any state kept
/// Memory      x once more; in backward one dx, zero for parts without a gradient
/// Throws      Error(shape) unless the extents add up
template <int Dim, class T, int Rank, Device D, class W, std::size_t Count>
constexpr auto split(const Variable<T, Rank, D, W>& x, const std::array<Size, Count>& extents);

/// Count equal parts: `auto [q, k, v] = split<-1, 3>(x)`.
///
/// Placement   also the groups of a dimension cut in groups: Shard<-1, 3> gives three values in Shard<-1>
template <int Dim, std::size_t Count, class T, int Rank, Device D, class W>
constexpr auto split(const Variable<T, Rank, D, W>& x);

/// The parts one after another along dimension Dim.
///
/// Placement   all alike, Dim whole; kept
/// Memory      the sum of the parts
/// Throws      Error(shape)
template <int Dim, class T, int Rank, Device D, class W, class... Rest>
constexpr auto concat(const Variable<T, Rank, D, W>& first, const Variable<T, Rank, D, Rest>&... rest);

/// Values split along dimension Dim, joined as groups: three in Shard<-1> give Shard<-1, 3>. redistribute<Invariant>(x)
/// then gives the concat of the wholes. The inverse is split<Dim, Groups>(x).
///
/// Placement   all Shard<Dim>, or in groups themselves
/// Memory      the sum of the parts
/// Throws      Error(shape) unless all groups have one extent
template <int Dim, class T, int Rank, Device D, class W, class... Rest>
constexpr auto join(const Variable<T, Rank, D, W>& first, const Variable<T, Rank, D, Rest>&... rest);

/// x with its dimensions of extent 1, and those that it lacks before its first, repeated to `shape`, which is that of
/// this rank's part.
///
/// Placement   kept; a Replicate value may name the cut of a dimension along which it is repeated:
///             `broadcast_to<Shard<-1>>(x, y.shape())`
/// Memory      the result; keeps nothing
/// Throws      Error(shape), also where a dimension that ranks cut would be repeated
template <class To = void, class T, int Rank, Device D, class W, int NewRank>
constexpr auto broadcast_to(const Variable<T, Rank, D, W>& x, const Shape<NewRank>& shape);

/// The same values in element type U.
///
/// Placement   any, kept
/// Memory      the result
template <class U, class T, int Rank, Device D, class W>
constexpr auto cast(const Variable<T, Rank, D, W>& x) {
  return Variable<U, Rank, D, W>(perform<operations::Cast<U, T, Rank, D>>(x), x);
}

// ---------------------------------------------------------------------------------------------------------------------

template <int... Order, class T, int Rank, Device D, class W>
constexpr auto transpose(const Variable<T, Rank, D, W>& x) {
  static_assert(is_permutation<Order...>(Rank),
                "dspp: transpose needs each dimension once, but its order is another list. Write 0 to rank - 1 in the "
                "new order: transpose<0, 2, 1>(x).");
  using State = transposed_state<typename W::tp, Order...>;
  using Y = Variable<T, Rank, D, with_tp<transposed_over_cp<W, Order...>, State>>;
  return Y(perform<operations::Permute<T, Rank, D>>(x, std::array<int, sizeof...(Order)>{Order...}), x);
}

namespace detail {
/// Throws unless a reshape keeps the order of the positions that Cp cuts.
template <class Before, class After, bool named, int Rank, int NewRank>
constexpr void require_cut_over_cp_kept(const Shape<Rank>& from, const Shape<NewRank>& to) {
  constexpr int before = Before::cp_dimension, after = After::cp_dimension;
  bool merged = false;  // the first, with whole dimensions behind it
  for (int d = 2; after == 0 && d <= Rank; ++d) merged |= to[0] == from.product(0, d);
  if (from.product(0, before) == to.product(0, after) && (named || merged || from[before] == to[after])) return;
  fail(ErrorCode::shape,
       "dspp: reshape needs the sequence, which Cp cuts, to keep its extent and to lie behind as many elements as "
       "before, but dimension " +
           std::to_string(before) + " of " + to_string(from) + " would be dimension " + std::to_string(after) + " of " +
           to_string(to) +
           ". Name its new place by reshape<void, Shard<Dim>>(x, shape); to merge it with the batch, transpose<1, 0, "
           "2>(x) first.");
}
}  // namespace detail

template <class To, class CpTo, class T, int Rank, Device D, class W, int NewRank>
constexpr auto reshape(const Variable<T, Rank, D, W>& x, const Shape<NewRank>& shape) {
  using From = typename W::tp;
  using State = reshaped_state<From, To, NewRank>;
  const bool fits = pieces_of<From>(x.shape()) == pieces_of<State>(shape) &&
                    (!is_padded<State> || shape[shard_dimension<State>] == x[shard_dimension<From>]) &&
                    (!is_shard<State> || shape[shard_dimension<State>] % shard_groups<State> == 0);
  if (!fits)
    fail(ErrorCode::shape,
         "dspp: reshape needs the dimension split over Tp to lie behind as many elements as before, "
         "but it goes from dimension " +
             std::to_string(shard_dimension<From>) + " of " + to_string(x.shape()) + " to dimension " +
             std::to_string(shard_dimension<State>) + " of " + to_string(shape) +
             ". Merge or cut the other dimensions only.");
  using Placement = with_tp<reshaped_over_cp<W, CpTo, Rank, NewRank>, State>;
  detail::check_order_of_cuts<W, Placement>();
  if constexpr (W::cp_dimension >= 0)
    detail::require_cut_over_cp_kept<W, Placement, !std::is_void_v<CpTo>>(x.shape(), shape);
  return Variable<T, NewRank, D, Placement>(perform<operations::Reshape<T, Rank, NewRank, D>>(x, shape), x);
}

template <int Dim, class T, int Rank, Device D, class W>
constexpr auto slice(const Variable<T, Rank, D, W>& x, Size begin, Size extent) {
  check_cut<typename W::tp, Dim, Rank>();
  check_whole_over_cp<W, Dim, Rank>();
  constexpr int dimension = Dim < 0 ? Dim + Rank : Dim;
  Variable<T, Rank, D, W> y(ops::slice(x.value(), dimension, begin, extent), x);
  y.on_backward([slot = x.slot(), begin, whole = x[dimension]](Tape<D>& tape, const Tensor<T, Rank, D>& dy) {
    tape.give(slot, ops::pad_zero(dy, dimension, begin, whole));
  });
  return y;
}

namespace detail {
/// The gradient of one part, or zeros.
template <class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> taken_or_zeros(Tape<D>& tape, Slot slot, const Shape<Rank>& shape) {
  auto dy = tape.template take<T, Rank>(slot, shape);
  if (!dy) dy = Tensor<T, Rank, D>::zeros(shape, tape.memory(), Category::activations, "split");
  return dy;
}

template <int Dim, class X, class T, int Rank, Device D, class W, std::size_t Count, std::size_t... I>
constexpr auto split_at(const Variable<T, Rank, D, W>& x, const std::array<Size, Count>& extents,
                        std::index_sequence<I...>) {
  check_whole_over_cp<W, Dim, Rank>();
  std::tuple parts{X(ops::slice(x.value(), Dim, ops::detail::sum_before(extents, I), extents[I]), x)...};
  const std::array<Slot, Count> slots{std::get<I>(parts).slot()...};
  x.tape().record_boundary([slot = x.slot(), slots, shape = x.shape(), extents](Tape<D>& tape) {
    (tape.close(slots[I]), ...);
    if ((!tape.has_gradient(slots[I]) && ...)) return;
    const Tensor<T, Rank, D> dys[] = {taken_or_zeros<T, Rank, D>(tape, slots[I], shape.with(Dim, extents[I]))...};
    tape.give(slot, ops::concat(dys, Dim));
  });
  return parts;
}
}  // namespace detail

template <int Dim, class T, int Rank, Device D, class W, std::size_t Count>
constexpr auto split(const Variable<T, Rank, D, W>& x, const std::array<Size, Count>& extents) {
  check_cut<typename W::tp, Dim, Rank>();
  constexpr int dimension = Dim < 0 ? Dim + Rank : Dim;
  ops::detail::require_length(ops::detail::sum_before(extents, Count), x[dimension], "split",
                              "parts that together are");
  return detail::split_at<dimension, Variable<T, Rank, D, W>>(x, extents, std::make_index_sequence<Count>{});
}

template <int Dim, std::size_t Count, class T, int Rank, Device D, class W>
constexpr auto split(const Variable<T, Rank, D, W>& x) {
  using From = typename W::tp;
  constexpr int dimension = Dim < 0 ? Dim + Rank : Dim, groups = shard_groups<From>;
  std::array<Size, Count> extents{};
  for (Size& extent : extents) extent = x[Dim] / static_cast<Size>(Count);
  if constexpr (is_cut_along<From, dimension> && groups > 1 && groups % static_cast<int>(Count) == 0) {
    using Part = Variable<T, Rank, D, with_tp<W, part_state<From, dimension, static_cast<int>(Count)>>>;
    ops::detail::require_length(x[Dim] / groups * groups, x[Dim], "split", "groups that together are");
    return detail::split_at<dimension, Part>(x, extents, std::make_index_sequence<Count>{});
  } else {
    return split<Dim>(x, extents);
  }
}

namespace detail {
/// The parts one after another on this rank, as Y.
template <int dimension, class Y, class T, int Rank, Device D, class W, class... Rest>
constexpr Y concat_here(const Variable<T, Rank, D, W>& first, const Variable<T, Rank, D, Rest>&... rest) {
  constexpr std::size_t count = 1 + sizeof...(Rest);
  const Tensor<T, Rank, D> parts[count] = {first.value(), rest.value()...};
  (detail::require_one_whole(first, rest), ...);
  detail::require_no_weights(rest...);
  check_alike_over_cp<W, Rest...>();
  check_whole_over_cp<W, dimension, Rank>();
  Y y(ops::concat(parts, dimension), first);
  const std::array<Slot, count> slots{first.slot(), rest.slot()...};
  const std::array<Size, count> extents{first[dimension], rest[dimension]...};
  y.on_backward([slots, extents](Tape<D>& tape, const Tensor<T, Rank, D>& dy) {
    Size begin = 0;
    for (std::size_t i = 0; i < count; begin += extents[i++])
      tape.give(slots[i], ops::slice(dy, dimension, begin, extents[i]));
  });
  return y;
}
}  // namespace detail

template <int Dim, class T, int Rank, Device D, class W, class... Rest>
constexpr auto concat(const Variable<T, Rank, D, W>& first, const Variable<T, Rank, D, Rest>&... rest) {
  check_degrees<W, Rest...>();
  check_concat<Dim, Rank, typename W::tp, typename Rest::tp...>();
  return detail::concat_here<(Dim < 0 ? Dim + Rank : Dim), Variable<T, Rank, D, W>>(first, rest...);
}

template <int Dim, class T, int Rank, Device D, class W, class... Rest>
constexpr auto join(const Variable<T, Rank, D, W>& first, const Variable<T, Rank, D, Rest>&... rest) {
  check_degrees<W, Rest...>();
  check_join<Dim, Rank, typename W::tp, typename Rest::tp...>();
  constexpr int dimension = Dim < 0 ? Dim + Rank : Dim;
  constexpr int groups = (shard_groups<typename W::tp> + ... + shard_groups<typename Rest::tp>);
  const Size extent = first[dimension] / shard_groups<typename W::tp>;
  if (((rest[dimension] != extent * shard_groups<typename Rest::tp>) || ...))
    fail(ErrorCode::shape, "dspp: join needs groups of one extent, but those after the first have another than its " +
                               std::to_string(extent) +
                               " on a rank. Join equal groups only, or redistribute<Invariant>(x) and concat.");
  return detail::concat_here<dimension, Variable<T, Rank, D, with_tp<W, Shard<dimension, groups>>>>(first, rest...);
}

namespace detail {
template <class T, int Rank, int NewRank, Device D>
constexpr auto broadcast_backward(Slot slot, const Shape<Rank>& before) {
  return
      [slot, before](Tape<D>& tape, Tensor<T, NewRank, D> dy) { tape.give(slot, ops::sum_to(std::move(dy), before)); };
}
}  // namespace detail

template <class To, class T, int Rank, Device D, class W, int NewRank>
constexpr auto broadcast_to(const Variable<T, Rank, D, W>& x, const Shape<NewRank>& shape) {
  static_assert(
      Rank <= NewRank,
      "dspp: broadcast_to needs a shape of at least as many dimensions as the value, but it has fewer. sum<Dim>"
      "(x) is what leaves one out.");
  check_broadcast_to<typename W::tp, To>();
  if constexpr (Rank <= NewRank && can_broadcast_to<typename W::tp, To>) {
    using Before = shifted_placement<W, NewRank - Rank>;
    using State = broadcast_state<typename Before::tp, To, NewRank>;
    for (const int d : {shard_dimension<typename Before::tp>, Before::cp_dimension})
      if (d >= 0 && shape[d] != x[d - (NewRank - Rank)])
        fail(ErrorCode::shape, "dspp: broadcast_to needs the dimension that ranks cut kept, but " +
                                   to_string(x.shape()) + " would become " + to_string(shape) +
                                   ". redistribute the value first.");
    if constexpr (!std::is_void_v<To>) {
      constexpr int own = shard_dimension<State> - (NewRank - Rank);
      if (own >= 0 && x[own < 0 ? 0 : own] != 1)
        fail(ErrorCode::shape, "dspp: broadcast_to<Shard<Dim>> needs to repeat the value along Dim, but it is " +
                                   to_string(x.shape()) + ". redistribute<Shard<Dim>>(x) takes a slice.");
    }
    Variable<T, NewRank, D, with_tp<Before, State>> y(ops::broadcast_to(x.value(), shape), x);
    y.on_backward(detail::broadcast_backward<T, Rank, NewRank, D>(x.slot(), x.shape()));
    return y;
  } else {
    return x;
  }
}

// Values that these do not take together get a sentence, not a list of candidates.
template <int Dim, Tracked X, Tracked... Rest>
requires(!(detail::same_kind<X, Rest> && ...)) constexpr X concat(const X& first, const Rest&...) {
  detail::check_kinds<0, X, Rest...>();
  return first;
}
template <int Dim, Tracked X, Tracked... Rest>
requires(!(detail::same_kind<X, Rest> && ...)) constexpr X join(const X& first, const Rest&...) {
  detail::check_kinds<0, X, Rest...>();
  return first;
}

}  // namespace dspp
