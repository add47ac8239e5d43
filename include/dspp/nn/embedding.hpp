// SPDX-License-Identifier: Apache-2.0
/// The embedding table: token ids to vectors; transposed, the tied output head.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/ops/embedding.hpp>

namespace dspp {

namespace operations {
/// The rows of the table from `first_row` on; other ids give zeros. `partial`: see Parameter::used.
template <class T, Device D>
struct Embedding {
  using DeviceType = D;
  static constexpr TapedTensor<T, 3, D> run(const TapedTensor<std::int32_t, 2, D>& ids, const Parameter<T, 2, D>& table,
                                            Size vocabulary, Size first_row, bool partial) {
    ops::require_ids(ids.value(), vocabulary, "Embedding");
    TapedTensor<T, 3, D> y(ops::embedding(table.value(), ids.value(), first_row), ids.tape());
    if (!ids.tape().recording()) return y;
    table.used(ids.tape(), partial);
    y.on_backward([&table, of = ids.value(), first_row](Tape<D>&, Tensor<T, 3, D> dy) {
      if (table.is_frozen()) return;
      table.accumulate([&](auto dw, Write how) { ops::embedding_vjp(dw, how, of, dy, first_row); });
    });
    return y;
  }
};

/// x table^T.
template <class T, int Rank, Device D>
struct Logits {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x, const Parameter<T, 2, D>& table,
                                               bool partial) {
    TapedTensor<T, Rank, D> y(ops::matmul(detail::as_rows(x.value()), Transpose::no, table.value(), Transpose::yes)
                                  .reshape(x.shape().with(-1, table.shape()[0])),
                              x.tape());
    if (!x.tape().recording()) return y;
    table.used(x.tape(), partial);
    y.on_backward([&table, slot = x.slot(), value = x.value()](Tape<D>& tape, Tensor<T, Rank, D> dy) {
      const auto dy_rows = detail::as_rows(dy), x_rows = detail::as_rows(value);
      const auto write = [&](auto dw, Write how) {
        ops::matmul_into(dw, how, dy_rows, Transpose::yes, x_rows, Transpose::no);
      };
      if (!table.is_frozen()) table.accumulate(write);
      tape.give(slot, ops::matmul(dy_rows, Transpose::no, table.value(), Transpose::no).reshape(value.shape()));
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_EMBEDDING_OPERATIONS(TEMPLATE, T)                      \
  TEMPLATE struct CompiledOperation<operations::Embedding<T, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Logits<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_EMBEDDING_OPERATIONS)

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
    return Y(perform<operations::Embedding<T, D>>(ids, weight, vocabulary(), first_row, is_partial_beside<Y>));
  }

  /// The logits of this rank's rows.
  template <class State, Tracked X>
  constexpr auto logits_in(const X& x) const {
    using Y = InState<X, State>;
    auto y = perform<operations::Logits<ElementOf<P>, X::rank, DeviceOf<P>>>(x, weight, is_partial_beside<X>);
    if constexpr (is_padded<typename Y::State>)
      return Y(std::move(y), vocabulary());
    else
      return Y(std::move(y));
  }
};

}  // namespace dspp
