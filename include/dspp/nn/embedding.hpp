// SPDX-License-Identifier: Apache-2.0
/// The embedding table: token ids to vectors; transposed, the tied output head.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/ops/embedding.hpp>

namespace dspp {

// The same for every policy of an element type.
namespace detail {
template <class T, Device D>
constexpr auto embedding_backward(const Parameter<T, 2, D>& weight, const Tensor<std::int32_t, 2, D>& ids,
                                  Size first_row) {
  return [&weight, ids, first_row](Tape<D>&, Tensor<T, 3, D> dy) {
    if (weight.is_frozen()) return;
    weight.accumulate([&](auto dw, Write how) { ops::embedding_vjp(dw, how, ids, dy, first_row); });
  };
}

/// x weight^T.
template <class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> logits(const Tensor<T, Rank, D>& x, const Parameter<T, 2, D>& weight) {
  return ops::matmul(as_rows(x), Transpose::no, weight.value(), Transpose::yes)
      .reshape(x.shape().with(-1, weight.shape()[0]));
}
template <class T, int Rank, Device D>
constexpr auto logits_backward(const Parameter<T, 2, D>& weight, Slot slot, const Tensor<T, Rank, D>& x) {
  return [&weight, slot, x](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    const auto dy_rows = as_rows(dy), x_rows = as_rows(x);
    const auto write = [&](auto dw, Write how) {
      ops::matmul_into(dw, how, dy_rows, Transpose::yes, x_rows, Transpose::no);
    };
    if (!weight.is_frozen()) weight.accumulate(write);
    tape.give(slot, ops::matmul(dy_rows, Transpose::no, weight.value(), Transpose::no).reshape(x.shape()));
  };
}
}  // namespace detail

struct EmbeddingConfig {
  Size vocabulary = 0, width = 0;
  Initial initial = Initial::normal(0.02);
};

/// y[i] = table[ids[i]]       ids [batch, sequence]   table [vocabulary, width]   y [batch, sequence, width]
///
/// Placement   ids Invariant, result Invariant; Cp cuts the result as it cuts the ids, which are Tokens or WholeOverCp
/// Cost        one pass over y; no communication
/// Throws      Error(usage) on an id outside the vocabulary
template <class P>
struct Embedding : Layer<P> {
  ParameterOf<P, 2> weight;

  constexpr explicit Embedding(const EmbeddingConfig& c) : Embedding(c, Cut{}) {}
  constexpr Embedding(Size vocabulary, Size width)
      : Embedding(EmbeddingConfig{.vocabulary = vocabulary, .width = width}) {}
  /// For parallel wrappers: how the table is cut.
  constexpr Embedding(const EmbeddingConfig& c, Cut cut)
      : weight("Embedding weight", dspp::shape(c.vocabulary, c.width), c.initial, cut) {}

  constexpr void visit(auto&& f) { f("weight", weight); }
  constexpr Size vocabulary() const { return weight.global_shape()[0]; }

  constexpr auto operator()(const Tracked auto& ids) const { return look_up<Invariant>(ids, 0); }

  /// x table^T: the logits of all rows of the table, whole on every rank.
  ///
  ///   x [batch, sequence, width] -> [batch, sequence, vocabulary]
  ///
  /// Placement   features whole; any other state is kept
  template <Tracked X>
  constexpr auto logits(const X& x) const {
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    check_whole_over_cp<typename X::Placement, -1, X::rank>();
    if constexpr (is_value_of<P, X>)
      return logits_in<state_of<X>>(x);
    else
      return x;
  }

 protected:  // for parallel wrappers, which choose State
  /// Tokens<P>, or WholeOverCp if the argument is; the conversion of any other is an error sentence.
  template <class Ids>
  using IdsOf = std::conditional_t<std::is_same_v<Ids, WholeOverCp<Tokens<P>>>, Ids, Tokens<P>>;

  /// The look-up in this rank's part of the table, which starts at row `first_row`; other ids give zeros, so that the
  /// sum over the ranks is the whole look-up and State is Partial.
  template <class State, Tracked Ids>
  constexpr auto look_up(const Ids& given, Size first_row) const {
    using T = ElementOf<P>;
    using D = DeviceOf<P>;
    const IdsOf<Ids>& ids = given;
    using Y = Variable<T, 3, D, with_tp<typename IdsOf<Ids>::Placement, State>>;
    ops::require_ids(ids.value(), vocabulary(), "Embedding");
    Y y(ops::embedding(weight.value(), ids.value(), first_row), ids.tape());
    if (!ids.tape().recording()) return y;
    weight.register_use(y);
    y.on_backward(detail::embedding_backward(weight, ids.value(), first_row));
    return y;
  }

  /// The logits of this rank's rows.
  template <class State, Tracked X>
  constexpr auto logits_in(const X& x) const {
    using Y = InState<X, State>;
    Y y = [&] {
      if constexpr (is_padded<typename Y::State>)
        return Y(detail::logits(x.value(), weight), x.tape(), vocabulary());
      else
        return Y(detail::logits(x.value(), weight), x.tape());
    }();
    if (!x.tape().recording()) return y;
    weight.register_use(x);
    y.on_backward(detail::logits_backward(weight, x.slot(), x.value()));
    return y;
  }
};

}  // namespace dspp
