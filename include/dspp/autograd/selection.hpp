// SPDX-License-Identifier: Apache-2.0
/// Elements of one Variable or another by a mask, and rows by number. Masks and ids are integers without gradients.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include <dspp/autograd/integers.hpp>
#include <dspp/autograd/move.hpp>
#include <dspp/autograd/variable.hpp>
#include <dspp/ops/select.hpp>
#include <dspp/placement/dimension_rules.hpp>

namespace dspp {

namespace detail {

/// The part of a mask, or of ids, that stands beside a rank's part of x.
template <int Dims, class M, int Rank, Device D, class MaskWhere, class X>
constexpr Tensor<M, Rank, D> part_beside(const Variable<M, Rank, D, MaskWhere>& mask, const X& x) {
  using State = typename X::State;
  if constexpr (Beside<MaskWhere, Dims, typename X::Placement>::sliced)
    return move_between<Replicate, State>(x.tape().context(), mask.value());
  else
    return mask.value();
}

template <class T, int Rank, class M, int MaskRank, Device D>
constexpr auto select_backward(Slot a, Slot b, const Tensor<M, MaskRank, D>& mask) {
  return [a, b, mask](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    if (a.takes_gradient()) tape.give(a, ops::select_vjp(mask, dy, true));
    if (b.takes_gradient()) tape.give(b, ops::select_vjp(mask, std::move(dy), false));
  };
}

template <class T, int Rank, int IdsRank, Device D>
constexpr auto gather_backward(Slot slot, const Shape<Rank>& shape, const Tensor<std::int32_t, IdsRank, D>& ids) {
  return [slot, shape, ids](Tape<D>& tape, const Tensor<T, Rank, D>& dy) {
    tape.give(slot, ops::gather_vjp(shape, ids, dy));
  };
}

template <class Mask, class X>
constexpr auto check_mask() {
  static_assert(
      std::is_same_v<typename Mask::Element, std::uint8_t> || std::is_same_v<typename Mask::Element, std::int32_t>,
      "dspp: where needs a mask of std::uint8_t or std::int32_t, but its elements are of another type. Make it "
      "one that is 0 or 1.");
  static_assert(std::is_same_v<typename Mask::DeviceType, typename X::DeviceType>,
                "dspp: where needs its mask on the device of its values, but it is on another. Give both one policy.");
  static_assert(Mask::rank <= X::rank,
                "dspp: where needs a mask of at most as many dimensions as its values, but it has more. Reshape it.");
  check_beside<typename Mask::Placement, Mask::rank, typename X::Placement>();
}
/// No sentence was said.
template <class Mask, class X>
inline constexpr bool can_mask =
    (std::is_same_v<typename Mask::Element, std::uint8_t> ||
     std::is_same_v<typename Mask::Element, std::int32_t>)&&std::is_same_v<typename Mask::DeviceType,
                                                                           typename X::DeviceType>&& Mask::rank
        <= X::rank&& Beside<typename Mask::Placement, Mask::rank, typename X::Placement>::fits_tp&& Beside<
               typename Mask::Placement, Mask::rank, typename X::Placement>::fits_cp
    && !is_padded<typename X::State>;

/// The mask's elements choose between x and a number.
template <Tracked Mask, Tracked X>
constexpr X where_number(const Mask& mask, const X& x, double number, bool keep) {
  check_mask<Mask, X>();
  check_where_number<typename X::State>();
  require_element<typename X::Element>(number);
  check_equal_slices<typename X::State>();
  if constexpr (can_mask<Mask, X> && Finished<typename X::State>) {
    const auto part = part_beside<Mask::rank>(mask, x);
    X y(ops::select(part, x.value(), number, keep), x);
    y.on_backward(
        select_backward<typename X::Element, X::rank>(keep ? x.slot() : Slot{}, keep ? Slot{} : x.slot(), part));
    return y;
  } else {
    return x;
  }
}

}  // namespace detail

/// a where the mask is not 0, else b. A mask of fewer dimensions has the first ones of a: [batch, sequence] chooses
/// vectors of [batch, sequence, width].
///
/// Placement   a and b alike, kept; the mask whole over Tp, or split as they are, and cut over Cp as they are
/// Memory      the result; keeps the mask
/// Throws      Error(shape)
template <Tracked Mask, Tracked A, Tracked B>
constexpr A where(const Mask& mask, const A& a, const B& b) {
  constexpr bool alike = detail::same_kind<A, B>;
  detail::check_kinds<0, A, B>();
  check_where<typename A::Placement, typename B::Placement>();
  detail::check_mask<Mask, A>();
  check_equal_slices<typename A::State>();
  if constexpr (alike && std::is_same_v<A, B> && detail::can_mask<Mask, A>) {
    detail::require_no_weights(b);
    const auto part = detail::part_beside<Mask::rank>(mask, a);
    A y(ops::select(part, a.value(), b.value()), a);
    y.on_backward(detail::select_backward<typename A::Element, A::rank>(a.slot(), b.slot(), part));
    return y;
  } else {
    return a;
  }
}
/// The same with a number for one of them, which needs a finished other.
template <Tracked Mask, Tracked A>
constexpr A where(const Mask& mask, const A& a, double number) {
  return detail::where_number(mask, a, number, true);
}
template <Tracked Mask, Tracked B>
constexpr B where(const Mask& mask, double number, const B& b) {
  return detail::where_number(mask, b, number, false);
}

/// Rows of x by number: y[i..., k, ...] = x[i..., ids[i..., k], ...]. The last dimension of ids stands for that of x;
/// the ones before it are x's, so that ids [batch, count] give positions of each sample, and ids [count] entries of
/// dimension 0.
///
///   x [batch, sequence, width], ids [batch, count] -> [batch, count, width]
///
/// Placement   x whole along the dimension of the ids; else any, kept. ids as a mask of the dimensions before it.
/// Cost        backward sums rows in order of position
/// Memory      the result; keeps ids
/// Throws      Error(shape); Error(usage) for an id outside of the dimension
template <Tracked X, Tracked Ids>
constexpr X gather(const X& x, const Ids& ids) {
  constexpr bool numbers = std::is_same_v<typename Ids::Element, std::int32_t> &&
                           std::is_same_v<typename Ids::DeviceType, typename X::DeviceType>;
  constexpr bool ranks = 1 <= Ids::rank && Ids::rank <= X::rank;
  static_assert(numbers,
                "dspp: gather needs ids of std::int32_t on the device of its value, but they are of another type or "
                "device. Give tokens of the same policy.");
  static_assert(ranks,
                "dspp: gather needs ids of at least one dimension and at most as many as its value, but they have "
                "others. Reshape them.");
  constexpr int dimension = Ids::rank - 1;
  using Where = typename X::Placement;
  check_gather<Where, dimension, X::rank>();
  check_beside<typename Ids::Placement, dimension, Where>();
  using Both = Beside<typename Ids::Placement, dimension, Where>;
  constexpr bool whole = !is_cut_along<typename Where::tp, dimension> && !is_cut_over_cp<Where, dimension, X::rank>;
  if constexpr (numbers && ranks && whole && Both::fits_tp && Both::fits_cp) {
    const auto part = detail::part_beside<dimension>(ids, x);
    X y(ops::gather(x.value(), part), x);
    y.on_backward(detail::gather_backward<typename X::Element>(x.slot(), x.shape(), part));
    return y;
  } else {
    return x;
  }
}

}  // namespace dspp
