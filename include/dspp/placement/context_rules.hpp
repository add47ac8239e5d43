// SPDX-License-Identifier: Apache-2.0
/// What local operators ask of the dimension that Cp cuts, and which dimension of their result it cuts. Each wrong
/// combination is one error sentence. (Over Tp: placement/rules.hpp.)
#pragma once

#include <type_traits>

#include <dspp/placement/placed.hpp>

namespace dspp {

/// An operator that sums, normalises, selects or joins along dimension Dim: all of it on every rank.
template <class Where, int Dim, int Rank>
constexpr auto check_whole_over_cp() {
  static_assert(
      !is_cut_over_cp<Where, Dim, Rank>,
      "dspp: this operation needs a dimension whole, but it runs along the sequences that Cp cuts: a rank has a part "
      "of the positions. Use attend, or redistribute<Replicate, Axis::Cp>(x) first; what is no sequence is a "
      "WholeOverCp<X>.");
}

/// Values cut over Cp: all for one degree.
template <class A, class... Rest>
constexpr auto check_cp_degrees() {
  static_assert(
      ((A::cp_degree == 1 || Rest::cp_degree == 1 || A::cp_degree == Rest::cp_degree) && ...),
      "dspp: an operator needs values cut for one Cp degree, but these come from layers of different policies. "
      "Give the layers one policy.");
}

/// An operator on several values, position by position.
template <class A, class... Rest>
constexpr auto check_alike_over_cp() {
  check_cp_degrees<A, Rest...>();
  static_assert(((A::cp_dimension == Rest::cp_dimension) && ...),
                "dspp: an operator needs values whose sequences Cp cuts along one dimension, but it cuts another "
                "dimension of one of these, or none. transpose or redistribute<Replicate, Axis::Cp>(x) one of them "
                "first.");
}

/// A product that sums over the last dimension of a, [..., m, k], and the last but one of b, [..., k, n].
template <class A, class B, int Rank>
constexpr auto check_product_over_cp() {
  check_whole_over_cp<A, -1, Rank>();
  check_whole_over_cp<B, -2, Rank>();
  static_assert(
      !(is_cut_over_cp<A, -2, Rank> && is_cut_over_cp<B, -1, Rank>),
      "dspp: a product of each position with each needs one side whole, but Cp cuts the sequences of both: a rank has "
      "a part of the positions. Use attend, or redistribute<Replicate, Axis::Cp>(x) one side first; what is no "
      "sequence is a WholeOverCp<X>.");
  check_cp_degrees<A, B>();
}

namespace detail {
template <class A, class B, int Rank>
constexpr int product_cp_dimension() {
  if (is_cut_over_cp<A, -1, Rank> || is_cut_over_cp<B, -2, Rank>) return -1;  // after the error
  return A::cp_dimension >= 0 ? A::cp_dimension : B::cp_dimension;
}

template <int... Order>
constexpr int transposed_cp_dimension(int dimension) {
  int d = 0, found = -1;
  ((found = Order == dimension ? d : found, ++d), ...);
  return found;
}

template <class Where, class To, int Rank, int NewRank>
constexpr int reshaped_cp_dimension() {
  constexpr int from = Where::cp_dimension;
  if constexpr (from < 0) {
    return -1;
  } else if constexpr (std::is_void_v<To>) {
    // as the last dimension of a lower rank it would have to take in what was behind it
    constexpr bool stays = from < NewRank && (from == 0 || from == Rank - 1 || from < NewRank - 1);
    static_assert(
        stays,
        "dspp: reshape needs the new place of the sequence, which Cp cuts, but it cannot stay where it was. Write "
        "reshape<void, Shard<Dim>>(x, shape), where as many elements lie before it as now; to merge it with the batch, "
        "transpose<1, 0, 2>(x) first.");
    return stays ? from : 0;
  } else {
    constexpr bool place = is_shard<To> && !is_padded<To> && shard_groups<To> == 1;
    static_assert(
        place,
        "dspp: reshape needs Shard<Dim> as the new place of the sequence, which Cp cuts, but got another state. "
        "Write reshape<void, Shard<Dim>>(x, shape).");
    return place ? shard_dimension<canonical_state<To, NewRank>> : 0;
  }
}

/// True if the dimension that Cp cuts does not lie behind that which Tp cuts.
template <class Where>
inline constexpr bool cp_cuts_first = Where::cp_dimension <= shard_dimension<typename Where::tp>;

/// A reshape keeps which of Cp and Tp cuts the slices of the other.
template <class Before, class After>
constexpr auto check_order_of_cuts() {
  static_assert(
      Before::cp_dimension < 0 || !is_shard<typename Before::tp> || cp_cuts_first<Before> == cp_cuts_first<After>,
      "dspp: reshape needs to keep the order of the dimensions that Cp and Tp cut, but here they change places or "
      "merge. transpose them into the new order first.");
}
}  // namespace detail

/// Placements of results, their state over Tp as given: of a product; of a transpose; of a reshape whose second place
/// is To, or void.
template <class A, class B, int Rank>
using product_over_cp =
    with_cp<std::conditional_t<(A::cp_degree > 1), A, B>, detail::product_cp_dimension<A, B, Rank>()>;
template <class Where, int... Order>
using transposed_over_cp = with_cp<Where, detail::transposed_cp_dimension<Order...>(Where::cp_dimension)>;
template <class Where, class To, int Rank, int NewRank>
using reshaped_over_cp = with_cp<Where, detail::reshaped_cp_dimension<Where, To, Rank, NewRank>()>;

}  // namespace dspp
