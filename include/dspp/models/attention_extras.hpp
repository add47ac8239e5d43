// SPDX-License-Identifier: Apache-2.0
/// What attend takes from data beside queries, keys and values: lengths, documents and a bias of the scores.
#pragma once

#include <cstdint>
#include <utility>

#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/attention.hpp>
#include <dspp/parallel/context.hpp>

namespace dspp {

/// The keys [0, length) of each sample, the others are padding: `Lengths{lengths}` of int32 [batch]. A query without
/// keys gives 0.
///
/// Placement   whole over Tp and Cp, as Input<P, std::int32_t, 1>
/// Throws      Error(usage) for a length outside [0, keys]
template <Tracked X>
struct Lengths {
  X lengths;
};
template <class X>
Lengths(X) -> Lengths<X>;

/// A query attends to its own document only: `Documents{ids}` of int32 [batch, sequence], whose adjacent equal ids are
/// one document.
///
/// Note        a NaN or infinity in a value of another document may reach a query near it, as 0 NaN
///
/// Placement   whole over Tp; cut over Cp with the sequence, as Tokens<P>, or whole
/// Cost        cut over Cp: an all-gather of the ids
template <Tracked X>
struct Documents {
  X ids;
};
template <class X>
Documents(X) -> Documents<X>;

/// Added to the scores of every sample after scale and softcap: `ScoreBias{bias}` of [heads, sequence, keys], the
/// heads those of this rank of Tp. Its gradient is the sum over the samples.
///
/// Placement   Shard<0> over Tp beside heads that Tp cuts, else as these; whole over Cp, where a rank uses the slice of
///             its heads
/// Memory      keeps the bias, and in backward its gradient, for 16-bit types once more in f32
template <Tracked X>
struct ScoreBias {
  X bias;
};
template <class X>
ScoreBias(X) -> ScoreBias<X>;

namespace detail {

template <template <class> class Extra, class E>
inline constexpr bool is_extra = false;
template <template <class> class Extra, class X>
inline constexpr bool is_extra<Extra, Extra<X>> = true;

/// The error sentences for the extras of an attention on X.
template <class X, class... Extras>
constexpr void check_extras() {
  static_assert(
      ((is_extra<Lengths, Extras> || is_extra<Documents, Extras> || is_extra<ScoreBias, Extras>)&&...),
      "dspp: attend needs Lengths, Documents and ScoreBias after its rule, but got another argument. Wrap the "
      "value: attend(qkv, heads, rule, Lengths{x}).");
  static_assert((0 + ... + is_extra<Lengths, Extras>) <= 1 && (0 + ... + is_extra<Documents, Extras>) <= 1 &&
                    (0 + ... + is_extra<ScoreBias, Extras>) <= 1,
                "dspp: attend needs each of Lengths, Documents and ScoreBias at most once, but got one twice. Add "
                "biases, and give documents one id for each pair.");
}

template <class X, class V, int Rank>
constexpr void check_integers() {
  static_assert(std::is_same_v<typename V::Element, std::int32_t> && V::rank == Rank &&
                    std::is_same_v<typename V::DeviceType, typename X::DeviceType>,
                "dspp: attend needs Lengths of std::int32_t [batch] and Documents of std::int32_t [batch, sequence] on "
                "the device of its queries, but these have another type, rank or device. Declare them "
                "Input<P, std::int32_t, 1> and Tokens<P>.");
  static_assert(
      V::Placement::tp_degree == 1 || (!is_shard<typename V::State> && Finished<typename V::State>),
      "dspp: attend needs Lengths and Documents that every rank of Tp has whole, but these are split over Tp or "
      "pending. Declare them Input<P, std::int32_t, 1> and Tokens<P>.");
}

/// A value whose sequence Cp does not cut.
template <class T, Device D>
using InOneContext = Variable<T, 3, D, Placed<On<Tp<1>, Invariant>>>;

/// What the placement of X changes in an attention: nothing unless Cp cuts the sequence.
template <class X>
using AttentionPlace =
    std::conditional_t<ContextExchange<X>::cut, X, InOneContext<typename X::Element, typename X::DeviceType>>;

/// What an attention on an X has beside it, of the heads and positions of this rank after the exchange over Cp.
template <class X>
struct AttentionGiven {
  using T = typename X::Element;
  using C = Compute<T>;
  using D = typename X::DeviceType;
  static constexpr bool cut = ContextExchange<X>::cut;

  ops::AttentionExtras<T, D> extras{};
  Slot bias_slot{};

  /// Zeros for the gradient of the bias, unset if none is wanted.
  constexpr Tensor<C, 3, D> dbias(Memory<D>& memory) const {
    if (!extras.bias || !bias_slot.takes_gradient()) return {};
    constexpr Category category = std::is_same_v<T, C> ? Category::activations : Category::workspace;
    return Tensor<C, 3, D>::zeros(extras.bias.shape(), memory, category, "attention_vjp");
  }
  constexpr void give(Tape<D>& tape, Tensor<C, 3, D> dbias) const {
    if (!dbias) return;
    if constexpr (std::is_same_v<T, C>)
      give_rounded(tape, std::move(dbias));
    else
      give_rounded(tape, ops::cast<T>(dbias));
  }

 private:
  constexpr void give_rounded(Tape<D>& tape, Tensor<T, 3, D> dbias) const {
    if constexpr (cut)
      tape.give(bias_slot, inside_zeros<Shard<0>>(cp_ranks<typename X::Placement>(tape.context()), dbias));
    else
      tape.give(bias_slot, std::move(dbias));
  }
};

/// The extras of an attention on X.
template <class X>
struct AttentionBeside : AttentionGiven<AttentionPlace<X>> {
  using T = typename X::Element;
  using D = typename X::DeviceType;
  static constexpr bool cut = ContextExchange<X>::cut;

  template <class... Extras>
  static constexpr AttentionBeside of(Tape<D>& tape, Size batch, Size sequence, Size keys, const Extras&... given) {
    check_extras<X, Extras...>();
    AttentionBeside beside;
    beside.extras.by = tape.context().attention_by;
    Tensor<std::int32_t, 1, D> lengths;
    Tensor<std::int32_t, 2, D> documents;
    [[maybe_unused]] const auto take = [&]<class E>(const E& extra) {
      if constexpr (is_extra<Lengths, E>)
        lengths = taken(extra);
      else if constexpr (is_extra<Documents, E>)
        documents = taken(tape, extra);
      else if constexpr (is_extra<ScoreBias, E>)
        beside.take(tape, extra);
    };
    (take(given), ...);
    if (lengths || documents)
      beside.extras.ranges = ops::key_ranges(batch, sequence, keys, lengths, documents, tape.memory());
    return beside;
  }

 private:
  template <class V>
  static constexpr Tensor<std::int32_t, 1, D> taken(const Lengths<V>& extra) {
    check_integers<X, V, 1>();
    static_assert(V::Placement::cp_dimension == -1,
                  "dspp: attend needs Lengths that every rank of Cp has whole, but Cp cuts these. Declare them "
                  "Input<P, std::int32_t, 1>.");
    return extra.lengths.value();
  }
  template <class V>
  static constexpr Tensor<std::int32_t, 2, D> taken(Tape<D>& tape, const Documents<V>& extra) {
    check_integers<X, V, 2>();
    constexpr int dimension = V::Placement::cp_dimension;
    static_assert(dimension == -1 || (dimension == 1 && cut),
                  "dspp: attend needs Documents that Cp cuts along the sequence as its queries, or that are whole, but "
                  "Cp cuts these otherwise. Declare them Tokens<P>.");
    if constexpr (dimension == 1 && cut)
      return move_over<Shard<1>, Replicate>(cp_ranks<typename X::Placement>(tape.context()), extra.ids.value());
    else
      return extra.ids.value();
  }
  template <class V>
  constexpr void take(Tape<D>& tape, const ScoreBias<V>& extra) {
    constexpr bool fits =
        std::is_same_v<typename V::Element, T> && V::rank == 3 && std::is_same_v<typename V::DeviceType, D>;
    static_assert(fits,
                  "dspp: attend needs a ScoreBias [heads, sequence, keys] of the element type and on the device of "
                  "its queries, but this one has another type, rank or device. cast<Element>(x) or reshape it.");
    using State = std::conditional_t<is_cut_along<state_of<X>, 2>, Shard<0>, state_of<X>>;
    static_assert(!fits || (V::Placement::tp_degree == X::Placement::tp_degree &&
                            (V::Placement::tp_degree == 1 ? Finished<state_of<V>> && !is_padded<state_of<V>>
                                                          : std::is_same_v<state_of<V>, State>)),
                  "dspp: attend needs the ScoreBias of this rank's heads, Shard<0> beside heads that Tp cuts and else "
                  "placed as these, but it is placed otherwise. redistribute<Shard<0>>(x) first.");
    static_assert(V::Placement::cp_dimension == -1,
                  "dspp: attend needs a ScoreBias that every rank of Cp has whole, but Cp cuts this one. "
                  "redistribute<Replicate, Axis::Cp>(x) first.");
    if constexpr (fits) {
      this->bias_slot = extra.bias.slot();
      if constexpr (cut)
        this->extras.bias = own_slice<Shard<0>>(cp_ranks<typename X::Placement>(tape.context()), extra.bias.value());
      else
        this->extras.bias = extra.bias.value();
    }
  }
};

}  // namespace detail
}  // namespace dspp
