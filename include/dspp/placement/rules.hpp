// SPDX-License-Identifier: Apache-2.0
/// The states that local operators take and return. Each wrong combination is one error sentence.
#pragma once

#include <type_traits>

#include <dspp/placement/placed.hpp>

namespace dspp {

namespace detail {
template <class A, class B, class State>
inline constexpr bool one_is = std::is_same_v<A, State> != std::is_same_v<B, State>;
}  // namespace detail

/// An operator on several values: all of one Tp degree.
template <class A, class... Rest>
constexpr auto check_degrees() {
  static_assert(
      ((A::tp_degree == Rest::tp_degree) && ...),
      "dspp: an operator needs values cut for one Tp degree, but these come from layers of different policies. Give "
      "the layers one policy.");
}

/// Sum of two values: both placed alike. (The checks return auto, so that g++ instantiates them at the call and names
/// the line of the mistake, also inside a constant expression.)
template <class A, class B>
constexpr auto check_sum() {
  constexpr bool one_partial = detail::one_is<A, B, Partial>;
  constexpr bool one_invariant = detail::one_is<A, B, Invariant>;
  static_assert(
      !one_partial,
      "dspp: + needs both sides finished or both Partial, but one side is Partial over Tp: the other would be added "
      "once per rank. redistribute<Invariant>(x) the Partial side first.");
  static_assert(
      one_partial || !one_invariant,
      "dspp: + needs both sides placed alike, but one is Invariant and the other is not: Invariant mixes with "
      "nothing else. redistribute the Invariant side to the other's state first; after a ColumnParallel put a "
      "RowParallel.");
  static_assert(
      one_partial || one_invariant || std::is_same_v<A, B>,
      "dspp: + needs both sides placed alike, but they are placed differently over Tp. redistribute one of them "
      "first.");
}

namespace detail {
template <class A, class B>
struct ProductState {
  static constexpr bool both_partial = std::is_same_v<A, Partial> && std::is_same_v<B, Partial>;
  static constexpr bool linear = (std::is_same_v<A, Partial> && std::is_same_v<B, Replicate>) ||
                                 (std::is_same_v<A, Replicate> && std::is_same_v<B, Partial>);
  static constexpr bool one_invariant = one_is<A, B, Invariant>;
  static constexpr bool right = linear || (!both_partial && std::is_same_v<A, B>);
  static_assert(
      !both_partial,
      "dspp: a product needs at least one finished factor, but both are Partial over Tp: a product of sums is not "
      "the sum of products. redistribute<Replicate>(x) one of them first.");
  static_assert(
      both_partial || !one_invariant,
      "dspp: a product needs factors that can mix, but one is Invariant and the other is not: Invariant mixes with "
      "nothing else. redistribute the Invariant side to Replicate or to the other's state first.");
  static_assert(
      both_partial || one_invariant || linear || std::is_same_v<A, B>,
      "dspp: a product needs factors placed alike, or Partial with Replicate, but they are placed differently over "
      "Tp. redistribute one of them first.");
  using type = std::conditional_t<linear, Partial, A>;
};
}  // namespace detail

/// State of an element-wise product.
template <class A, class B>
using product_state = typename detail::ProductState<A, B>::type;
template <class A, class B>
inline constexpr bool can_multiply = detail::ProductState<A, B>::right;

/// Non-linear functions need finished values.
template <class A>
constexpr auto check_activation() {
  static_assert(
      Finished<A>,
      "dspp: an activation needs a finished value, but this one is Partial over Tp: its sum is still pending. "
      "redistribute<Invariant>(x) first, or put the activation before the RowParallel.");
}

/// The state of each of Count equal parts along dimension Dim: of a dimension cut in groups, a part has some of them.
template <class A, int Dim, int Count>
using part_state =
    std::conditional_t<is_cut_along<A, Dim> && shard_groups<A> % Count == 0, Shard<Dim, shard_groups<A> / Count>, A>;

/// State of a function of the two halves of the last dimension: whole, or cut in groups, half of them in each.
template <class A, int Rank>
using halved_state = part_state<A, Rank - 1, 2>;
template <class A, int Rank>
constexpr auto check_halves() {
  static_assert(
      !is_cut_along<A, Rank - 1> || shard_groups<A> % 2 == 0,
      "dspp: swiglu needs gates and values side by side on every rank, but its features are split over Tp in one "
      "piece: "
      "a rank has gates or values. Project by ColumnParallel<Linear, P, InGroups<2>>, or redistribute<Invariant>(x) "
      "first.");
}

/// Functions along the last dimension (norms, softmax) need all of it.
template <class A, int Rank>
constexpr auto check_whole_features() {
  static_assert(
      Finished<A>,
      "dspp: a function along the features needs a finished value, but this one is Partial over Tp: its sum is "
      "still pending. redistribute<Invariant>(x) first.");
  static_assert(
      !is_cut_along<A, Rank - 1>,
      "dspp: a function along the features needs all of them, but this value is split along its features over Tp. "
      "Put a RowParallel before it, or redistribute<Invariant>(x) first.");
}

namespace detail {
/// a [m, k] times b [k, n]. Rows of a or columns of b may be split beside a whole, finished other side.
template <class A, class B>
struct MatmulState {
  static constexpr bool left = is_cut_along<A, 1>, right = is_cut_along<B, 0>;
  static constexpr bool rows = is_cut_along<A, 0>, columns = is_cut_along<B, 1>;
  static_assert(
      !(left && right),
      "dspp: matmul needs the contracted dimension whole, but it is split over Tp on both sides: the result would "
      "be Partial. Say so with contract(a, b), or redistribute first.");
  static_assert(
      left == right,
      "dspp: matmul needs the contracted dimension whole, but it is split over Tp on one side. redistribute that "
      "side first.");
  static_assert(
      !(rows && columns),
      "dspp: matmul needs at most one side split, but a is split by rows and b by columns over Tp. redistribute one "
      "of them to Replicate first.");
  static constexpr bool wrong = left || right || (rows && columns);
  using Left = std::conditional_t<wrong || (rows && Finished<B>), Replicate, A>;
  using Right = std::conditional_t<wrong || (columns && Finished<A>), Replicate, B>;
  using type = std::conditional_t<rows, A, std::conditional_t<columns, B, typename ProductState<Left, Right>::type>>;
  static_assert(sizeof(ProductState<Left, Right>) > 0);  // its errors hold for split rows and columns too
};
}  // namespace detail

/// State of the product of two matrices.
template <class A, class B>
using matmul_state = typename detail::MatmulState<A, B>::type;

/// slice and split need a whole dimension.
template <class A, int Dim, int Rank>
constexpr auto check_cut() {
  static_assert(-Rank <= Dim && Dim < Rank,
                "dspp: slice and split need a dimension of the tensor, but it has fewer. Give 0 <= Dim < rank, or a "
                "negative one that counts from the end.");
  constexpr bool cut = is_cut_along<A, (Dim < 0 ? Dim + Rank : Dim)>;
  static_assert(
      !cut || shard_groups<A> > 1,
      "dspp: slice and split need the dimension they cut whole, but it is split over Tp: a rank has a part of it only. "
      "redistribute<Invariant>(x) first, or cut along another dimension.");
  static_assert(!cut || shard_groups<A> == 1,
                "dspp: slice and split need the dimension they cut whole, but it is split in groups over Tp: a rank "
                "has a part of "
                "each. Take the groups by split<Dim, Groups>(x), or redistribute<Invariant>(x) first.");
}

/// Error sentence for a padded value: the operation depends on positions in the whole.
template <class State>
constexpr auto check_equal_slices() {
  static_assert(
      !is_padded<State>,
      "dspp: this operation needs equal slices over Tp, but the value is padded to make them equal, as the logits of "
      "a vocabulary are. redistribute<Invariant>(x) first, which leaves the padding out.");
}

/// join joins groups: values cut along the dimension, in any groups, and otherwise placed alike.
template <int Dim, int Rank, class... A>
constexpr auto check_join() {
  static_assert(-Rank <= Dim && Dim < Rank,
                "dspp: join needs a dimension of the tensors, but they have fewer. Give 0 <= Dim < rank, or a "
                "negative one that counts from the end.");
  static_assert(
      (is_cut_along<A, (Dim < 0 ? Dim + Rank : Dim)> && ...),
      "dspp: join needs values split along its dimension over Tp, which become groups, but one of these is not. Use "
      "concat<Dim>(...) where the dimension is whole, or redistribute<Shard<Dim>>(x) first.");
  (check_equal_slices<A>(), ...);
}

/// concat joins values that are placed alike, along a whole dimension.
template <int Dim, int Rank, class A, class... Rest>
constexpr auto check_concat() {
  static_assert(-Rank <= Dim && Dim < Rank,
                "dspp: concat needs a dimension of the tensors, but they have fewer. Give 0 <= Dim < rank, or a "
                "negative one that counts from the end.");
  constexpr bool alike = (std::is_same_v<A, Rest> && ...);
  static_assert(alike,
                "dspp: concat needs all its parts placed alike, but they are placed differently over Tp. redistribute "
                "some of them first.");
  static_assert(!alike || !is_cut_along<A, (Dim < 0 ? Dim + Rank : Dim)>,
                "dspp: concat needs the dimension it joins whole, but it is split over Tp: every rank would join its "
                "own parts. redistribute<Invariant>(x) them first, or join along another dimension. join<Dim>(...) "
                "makes them groups that are split each by itself.");
}

/// State of a sum over all elements: over a split dimension every rank has a summand.
template <class A>
using reduced_state = std::conditional_t<is_shard<A>, Partial, A>;

/// Error sentence for a padded value: a sum or norm would count the padding.
template <class A>
constexpr auto check_unpadded() {
  static_assert(
      !is_padded<A>,
      "dspp: a sum, mean, norm or contraction needs every element to count, but this value ends in padding over Tp, as "
      "the logits of a vocabulary do. redistribute<Invariant>(x) first, which leaves the padding out.");
}

/// Squares are not linear: Partial is an error.
template <class A>
constexpr auto check_squared_norm() {
  static_assert(
      Finished<A>,
      "dspp: squared_norm needs a finished value, but this one is Partial over Tp: the square of a sum is not the sum "
      "of squares. redistribute<Invariant>(x) first.");
}

/// True if Order names each of 0 to rank - 1 once.
template <int... Order>
constexpr bool is_permutation(int rank) {
  int found = 0;
  for (int d = 0; d < rank; ++d) found += (0 + ... + (Order == d ? 1 : 0)) == 1;
  return found == rank && sizeof...(Order) == static_cast<unsigned>(rank);
}

namespace detail {
template <class A, int... Order>
struct TransposedState {
  using type = A;
};
template <int Dim, int Groups, int... Order>
struct TransposedState<Shard<Dim, Groups>, Order...> {
  static constexpr int place() {
    int d = 0, found = 0;
    ((found = Order == Dim ? d : found, ++d), ...);
    return found;
  }
  using type = Shard<place(), Groups>;
};
template <int Dim, int... Order>
struct TransposedState<PaddedShard<Dim>, Order...> {
  using type = PaddedShard<shard_dimension<typename TransposedState<Shard<Dim>, Order...>::type>>;
};

template <class From, class To, int NewRank>
struct ReshapedState {
  static constexpr bool place_is_named = !std::is_void_v<To>;
  static constexpr bool later = is_shard<From> && !std::is_same_v<From, Shard<0>>;
  static_assert(
      place_is_named || !later,
      "dspp: reshape needs the new place of the split dimension, but this value is split along a dimension other "
      "than the first over Tp. Write reshape<Shard<Dim>>(x, shape), or redistribute first.");
  static_assert(!place_is_named || (is_shard<From> && is_shard<To>),
                "dspp: reshape needs a split value to name the place of its split dimension, but this one is not split "
                "over Tp or the place is no Shard<Dim>. Leave it out; redistribute is what changes a placement.");
  static_assert(!place_is_named || !is_shard<From> || !is_shard<To> || is_padded<From> == is_padded<To>,
                "dspp: reshape needs the padding of a value kept in its placement, but it names another. Write "
                "PaddedShard<Dim> for a PaddedShard, such as the logits of a vocabulary, and Shard<Dim> for a Shard.");
  using type =
      canonical_state<std::conditional_t<place_is_named && is_shard<To> && is_padded<From> == is_padded<To>, To, From>,
                      NewRank>;
};
}  // namespace detail

/// State after a transpose.
template <class A, int... Order>
using transposed_state = typename detail::TransposedState<A, Order...>::type;

/// State after a reshape; To names the new place of a split dimension, or is void.
template <class From, class To, int NewRank>
using reshaped_state = typename detail::ReshapedState<From, To, NewRank>::type;

}  // namespace dspp
