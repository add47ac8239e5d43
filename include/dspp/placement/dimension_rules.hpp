// SPDX-License-Identifier: Apache-2.0
/// What reductions along one dimension, masks and ids ask of placements, and how results lie. Each wrong combination is
/// one error sentence.
#pragma once

#include <type_traits>

#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
/// The number of a dimension when dimension Left is left out.
constexpr int dimension_without(int dimension, int left) {
  return dimension > left ? dimension - 1 : dimension;
}
template <class State, int Left>
struct StateWithout {
  using type = State;
};
template <int Dim, int Groups, int Left>
struct StateWithout<Shard<Dim, Groups>, Left> {
  using type = Shard<dimension_without(Dim, Left), Groups>;
};
}  // namespace detail

/// A placement when dimension Left, which is not cut, is left out.
template <class Where, int Left>
using placement_without = with_tp<with_cp<Where, detail::dimension_without(Where::cp_dimension, Left)>,
                                  typename detail::StateWithout<typename Where::tp, Left>::type>;

/// The placement of a sum along Dim: over a split dimension every rank has a summand.
template <class Where, int Dim>
using summed_placement =
    with_tp<Where, std::conditional_t<is_cut_along<typename Where::tp, Dim>, Partial, typename Where::tp>>;

/// A reduction along a dimension: it exists, ends in no padding, and Cp does not cut it.
template <class Where, int Dim, int Rank>
constexpr auto check_reduction_along() {
  static_assert(-Rank <= Dim && Dim < Rank,
                "dspp: a reduction needs a dimension of the tensor, but it has fewer. Give 0 <= Dim < rank, or a "
                "negative one that counts from the end.");
  check_unpadded<typename Where::tp>();
  check_whole_over_cp<Where, Dim, Rank>();
}

/// A maximum along Dim: of a finished value that ranks do not cut along it.
template <class State, int Dim>
constexpr auto check_max_along() {
  static_assert(
      Finished<State>,
      "dspp: max needs a finished value, but this one is Partial over Tp: the maximum of a sum is not the sum of "
      "maxima. redistribute<Invariant>(x) first.");
  static_assert(!is_cut_along<State, Dim>,
                "dspp: max needs the dimension it runs along whole, but it is split over Tp: every rank would have the "
                "maximum of "
                "its part. redistribute<Invariant>(x) first.");
}

/// A mask, or ids but for their last dimension, of Dims dimensions beside values that have these first. Over Tp they
/// may be whole: a rank takes its slice.
template <class Mask, int Dims, class Where>
struct Beside {
  static constexpr int cut = shard_dimension<typename Where::tp>;
  static constexpr bool whole = !is_shard<typename Mask::tp> && Finished<typename Mask::tp>;
  static constexpr bool has_cut = cut >= 0 && cut < Dims;
  static constexpr bool fits_tp = Mask::tp_degree == Where::tp_degree &&
                                  (whole || (has_cut && std::is_same_v<typename Mask::tp, typename Where::tp>));
  static constexpr bool fits_cp =
      Mask::cp_dimension == (Where::cp_dimension < Dims ? Where::cp_dimension : -1) &&
      (Mask::cp_degree == 1 || Where::cp_degree == 1 || Mask::cp_degree == Where::cp_degree);
  static constexpr bool sliced = whole && has_cut;
};
template <class Mask, int Dims, class Where>
constexpr auto check_beside() {
  using Both = Beside<Mask, Dims, Where>;
  check_degrees<Mask, Where>();
  static_assert(
      Both::fits_tp || Mask::tp_degree != Where::tp_degree,
      "dspp: a mask, or ids, beside values need to be whole or split over Tp as the values are, but they are split "
      "otherwise. Give them whole: every rank takes its slice.");
  static_assert(Both::fits_cp,
                "dspp: a mask, or ids, beside values need the cut over Cp of the values in the dimensions that they "
                "share, and no "
                "other, but have another. What is no sequence is a WholeOverCp<X>; positions of other ranks need "
                "redistribute<Replicate, Axis::Cp>(x).");
  if constexpr (Both::has_cut) check_equal_slices<typename Where::tp>();
}

/// Rows of a value by number along dimension Dim: all of them on every rank.
template <class Where, int Dim, int Rank>
constexpr auto check_gather() {
  static_assert(
      !is_cut_along<typename Where::tp, Dim>,
      "dspp: gather needs the dimension that its ids number whole, but it is split over Tp: a rank has a part of it "
      "only. redistribute<Replicate>(x) first.");
  check_whole_over_cp<Where, Dim, Rank>();
}

/// A choice between two values: both placed alike.
template <class A, class B>
constexpr auto check_where() {
  check_degrees<A, B>();
  static_assert(std::is_same_v<typename A::tp, typename B::tp>,
                "dspp: where needs both values placed alike, but they are placed differently over Tp. redistribute one "
                "of them first.");
  check_alike_over_cp<A, B>();
}
template <class State>
constexpr auto check_where_number() {
  static_assert(
      Finished<State>,
      "dspp: where with a number needs a finished value, but this one is Partial over Tp: the number would be counted "
      "once per rank. redistribute<Invariant>(x) first.");
}

}  // namespace dspp
