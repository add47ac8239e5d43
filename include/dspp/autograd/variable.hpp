// SPDX-License-Identifier: Apache-2.0
/// A differentiable value: a local tensor, its placement as a type, and its slot on a tape.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <dspp/autograd/taped_tensor.hpp>
#include <dspp/placement/placed.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp {

namespace detail {
[[noreturn]] void refuse_weights();

/// Extra data of some values: a loss carries its count of targets, targets carry their weights.
template <class T, int Rank, class D>
struct MoreOf {};
template <class T, class D>
struct MoreOf<T, 0, D> {
  Scalar<double, D> counted{};  ///< sum of the weights of its targets, of this rank and micro-step; unset: not known
};
template <int Rank, class D>
requires(Rank > 0) struct MoreOf<std::int32_t, Rank, D> {
  Tensor<float, Rank, D> target_weights{};  ///< of targets in a batch; unset: each is 1
};

/// Throws unless new values may be made of these: they would have no target weights.
template <class... X>
constexpr void require_no_weights(const X&... values) {
  const auto require_none = []<class Y>(const Y& value) {
    if constexpr (requires { value.target_weights; })
      if (value.target_weights) refuse_weights();
  };
  (require_none(values), ...);
}

template <class T, class D, class Where, class T2, class D2, class Where2>
inline constexpr bool same_policy = std::is_same_v<T, T2>&& std::is_same_v<D, D2>&& Where::tp_degree ==
                                        Where2::tp_degree &&
                                    (Where::cp_degree == Where2::cp_degree || Where::cp_degree == 1 ||
                                     Where2::cp_degree == 1);

/// The error sentence for a value of a policy of another Cp degree.
template <bool one_degree>
constexpr void check_cp_degree() {
  static_assert(
      one_degree,
      "dspp: a layer needs values cut for its own policy's Cp degree, but these come from another policy's layer. Give "
      "both layers one policy.");
}

/// The error sentences for a value (2) of another policy: another element type, device or degree.
template <class T, class D, class Where, class T2, class D2, class Where2>
constexpr void check_policy() {
  static_assert(
      std::is_same_v<T, T2>,
      "dspp: a layer needs values of its own policy's element type, but these come from another policy's layer. Give "
      "both layers one policy, or cast<Element>(x) first.");
  static_assert(
      std::is_same_v<D, D2>,
      "dspp: a layer needs values on its own policy's device, but these are on another policy's device. Give both "
      "layers one policy.");
  static_assert(
      Where::tp_degree == Where2::tp_degree,
      "dspp: a layer needs values cut for its own policy's Tp degree, but these come from another policy's layer. Give "
      "both layers one policy.");
  check_cp_degree<Where::cp_degree == Where2::cp_degree || Where::cp_degree == 1 || Where2::cp_degree == 1>();
}
}  // namespace detail

/// Element type, rank, device and placement are static; extents are those of this rank's part.
///
/// Converting any other Variable gives an error sentence instead of a list of candidates: the placement, element type,
/// degree or rank is wrong.
template <class T, int Rank, Device D, class Where>
class Variable : public TapedTensor<T, Rank, D>, public detail::MoreOf<T, Rank, D> {
  using Taped = TapedTensor<T, Rank, D>;

 public:
  using Placement = Where;
  using State = typename Where::tp;

  constexpr Variable() = default;
  template <class T2, int Rank2, Device D2, class Where2>
  requires(!std::is_same_v<Variable, Variable<T2, Rank2, D2, Where2>>) constexpr Variable(
      const Variable<T2, Rank2, D2, Where2>&) {
    constexpr bool same_policy = detail::same_policy<T, D, Where, T2, D2, Where2>;
    detail::check_policy<T, D, Where, T2, D2, Where2>();
    static_assert(
        !same_policy || Rank == Rank2,
        "dspp: a layer needs values of its own rank, but these have another number of dimensions. Reshape them first.");
    static_assert(
        !same_policy || Rank != Rank2 || !std::is_same_v<typename Where2::tp, Partial>,
        "dspp: a layer needs a finished value, but this one is Partial over Tp: its sum is still pending. Put a "
        "RowParallel before it, or redistribute<Invariant>(x) first.");
    static_assert(!same_policy || Rank != Rank2 || std::is_same_v<typename Where2::tp, Partial> ||
                      std::is_same_v<typename Where::tp, typename Where2::tp>,
                  "dspp: a layer needs a value placed over Tp as its parameter says, but this one is placed otherwise. "
                  "redistribute<State>(x) it first.");
    static_assert(
        !same_policy || Rank != Rank2 || Where::cp_dimension == Where2::cp_dimension,
        "dspp: a layer needs a value that Cp cuts along the dimension that its parameter says, but it cuts another "
        "one, "
        "or only one of the two is cut. A Hidden<P> is [batch, sequence, ...] of this rank's positions: transpose it "
        "back, give both one policy, or write the layer for any Tracked x.");
  }

  /// A value computed under `tape`: gets a slot while the tape records.
  constexpr Variable(Tensor<T, Rank, D> value, Tape<D>& tape) : Variable(Taped(std::move(value), tape)) {}
  template <std::same_as<Taped> Result>  // and no Variable, whose placement may be another
  constexpr explicit Variable(Result&& result) : Taped(std::move(result)) {
    static_assert(
        !is_padded<State>,
        "dspp: this operation needs equal slices over Tp, but the value is padded to make them equal, as the logits of "
        "a vocabulary are. redistribute<Invariant>(x) first, which leaves the padding out.");
  }
  /// The same for a PaddedShard, whose dimension has `whole` elements over all ranks without the padding; 0 for the
  /// other states.
  constexpr Variable(Tensor<T, Rank, D> value, Tape<D>& tape, Size whole)
      : Variable(Taped(std::move(value), tape), whole) {}
  template <std::same_as<Taped> Result>
  constexpr Variable(Result&& result, Size whole) : Taped(std::move(result)) {
    this->whole_ = whole;
  }
  /// The same for a value on the tape of `like`, padded as that is.
  template <class U, int Rank2, class Where2>
  constexpr Variable(Tensor<T, Rank, D> value, const Variable<U, Rank2, D, Where2>& like)
      : Variable(Taped(std::move(value), like.tape()), like) {}
  template <std::same_as<Taped> Result, class U, int Rank2, class Where2>
  constexpr Variable(Result&& result, const Variable<U, Rank2, D, Where2>& like) : Taped(std::move(result)) {
    if constexpr (is_padded<State>) this->whole_ = like.whole();
    detail::require_no_weights(like);
    static_assert(!is_padded<State> || is_padded<typename Where2::tp>);
  }
  /// A value without gradient, such as tokens.
  static constexpr Variable constant(Tensor<T, Rank, D> value, Tape<D>& tape) {
    return with_slot(std::move(value), tape, Slot{}, 0);
  }
  /// A field of a batch: its value, until a forward puts it on a tape. Target weights are set after it.
  template <class V>
  requires(std::is_same_v<V, Tensor<T, Rank, D>>) constexpr Variable& operator=(V value) {
    static_cast<Taped&>(*this) = {};
    this->value_ = std::move(value);
    static_cast<detail::MoreOf<T, Rank, D>&>(*this) = {};
    return *this;
  }
  /// The variable of an existing slot, with a value that is kept where an operation needs it.
  static constexpr Variable with_slot(Tensor<T, Rank, D> value, Tape<D>& tape, Slot slot, Size whole) {
    Variable result;
    static_cast<Taped&>(result) = Taped(std::move(value), tape, slot, whole);
    result.has_own_value_ = true;
    return result;
  }
};

/// X with another state over Tp.
template <class X, class State>
using InState = Variable<typename X::Element, X::rank, typename X::DeviceType,
                         with_tp<typename X::Placement, canonical_state<State, X::rank>>>;

/// X with no dimension cut over Cp: a value that does not run along sequences, or has them whole.
template <class X>
using WholeOverCp = Variable<typename X::Element, X::rank, typename X::DeviceType, with_cp<typename X::Placement, -1>>;

template <class X>
inline constexpr bool is_variable = false;
template <class T, int Rank, Device D, class Where>
inline constexpr bool is_variable<Variable<T, Rank, D, Where>> = true;

/// Reads as: a value on a tape.
template <class X>
concept Tracked = is_variable<std::remove_cvref_t<X>>;

/// The state of a Tracked type over Tp.
template <class X>
using state_of = typename std::remove_cvref_t<X>::State;

namespace detail {
/// Of one element type, rank and device.
template <class X, class Y>
inline constexpr bool same_kind =
    std::is_same_v<typename X::Element, typename Y::Element>&&
        std::is_same_v<typename X::DeviceType, typename Y::DeviceType>&& X::rank == Y::rank;
/// The error sentences for values that an operator cannot take together, or for one of another rank than Rank; 0: any.
template <int Rank, class X, class... Rest>
constexpr auto check_kinds() {
  static_assert((std::is_same_v<typename X::DeviceType, typename Rest::DeviceType> && ...),
                "dspp: an operator needs values on one device, but these are on two. Give their layers one policy.");
  static_assert((std::is_same_v<typename X::Element, typename Rest::Element> && ...),
                "dspp: an operator needs values of one element type, but these have two. cast<Element>(x) one of them "
                "first.");
  static_assert(
      Rank == 0 ? ((X::rank == Rest::rank) && ...) : (X::rank == Rank && ((Rest::rank == Rank) && ...)),
      "dspp: an operator needs values of its number of dimensions, but one of these has another: matmul takes "
      "matrices, batched_matmul values of three dimensions, concat, join and where values of one rank. "
      "reshape(x, shape) it first.");
}

/// Throws unless padded values have the same extent without padding.
template <Tracked X, Tracked Y>
constexpr void require_one_whole(const X& x, const Y& y) {
  if constexpr (is_padded<typename X::State>)
    if (x.whole() != y.whole())
      fail(ErrorCode::shape, "dspp: an operator needs padded values of one extent, but without padding they have " +
                                 std::to_string(x.whole()) + " and " + std::to_string(y.whole()) +
                                 ". Take the logits of tables of one vocabulary.");
}
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_weights() {
  fail(ErrorCode::usage,
       "dspp: targets with target_weights need to reach cross_entropy as they are, but an operator would make new ones "
       "without weights. Reshape or transpose the logits, and give the weights to the new targets.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
