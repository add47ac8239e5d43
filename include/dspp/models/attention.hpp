// SPDX-License-Identifier: Apache-2.0
/// Self-attention with its heads split over Tp.
#pragma once

#include <dspp/models/attention_extras.hpp>
#include <dspp/ops/attention.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/context.hpp>
#include <dspp/parallel/row.hpp>

namespace dspp {

struct AttentionConfig {
  Size width = 0, heads = 0;
  AttentionRule rule{};
  bool bias = true;
  Initial initial = Initial::normal(0.02);
  Initial output_initial = Initial::normal(0.02);
};

/// softmax(q k^T / sqrt(head_dim)) v for every head, q, k and v from one product, over the keys that the rule and the
/// extras leave: Lengths, Documents and a ScoreBias in any order, as in `attend(qkv, heads, rule, Lengths{x})`.
///
///   qkv [batch, sequence, 3, width / tp] -> [batch, sequence, width / tp]
///
/// Placement   Shard<-1, 3> of the fused projection -> Shard<-1>: heads are local. Under Cp the ranks exchange
///             sequences for heads and back.
/// Cost        nothing over Tp; over Cp an all-to-all of qkv and one of the result, and both again in backward
/// Memory      keeps qkv, the result and one number per row and head, with Lengths or Documents two more per row; never
///             [sequence, sequence], but for a ScoreBias
/// Source      Dao et al. 2022, arXiv:2205.14135
template <Tracked X, class... Extras>
constexpr auto attend(X qkv, Size heads, const AttentionRule& rule, const Extras&... extras);
template <Tracked X, class... Extras>
constexpr auto attend(X qkv, Size heads, AttentionMask mask, const Extras&... extras) {
  return attend(std::move(qkv), heads, AttentionRule{.mask = mask}, extras...);
}

/// The attention sub-layer: a column-parallel q, k, v projection, heads / tp heads per rank, a row-parallel output
/// projection.
///
///   x [batch, sequence, width] -> the same
///
/// Cost        as ColumnParallel plus RowParallel, and over Cp that of attend
/// Throws      Error(placement) unless tp cp divides the heads, Error(usage) unless the heads divide the width
/// Source      Vaswani et al. 2017, arXiv:1706.03762; Shoeybi et al. 2019, section 3
template <class P>
struct SelfAttention : Layer<P> {
  ColumnParallel<Linear, P, InGroups<3>> qkv;
  RowParallel<Linear, P> output;
  Size heads;
  AttentionRule rule;

  constexpr explicit SelfAttention(const AttentionConfig& c)
      : qkv(LinearConfig{.in = checked(c).width, .out = 3 * c.width, .bias = c.bias, .initial = c.initial}),
        output(LinearConfig{.in = c.width, .out = c.width, .bias = c.bias, .initial = c.output_initial}),
        heads(c.heads),
        rule(c.rule) {}

  constexpr void visit(auto&& f) {
    f("qkv", qkv);
    f("output", output);
  }

  /// Values that no shape shows.
  constexpr void describe(auto&& f) const {
    f("heads", heads);
    rule.describe(f);
  }

  /// The extras are those of attend.
  template <class... Extras>
  constexpr auto operator()(const Hidden<P>& x, const Extras&... extras) const {
    return output(attend(qkv(x), heads / P::tp, rule, extras...));
  }

 private:
  /// Checked before the projections check the same extents.
  static constexpr const AttentionConfig& checked(const AttentionConfig& c) {
    // clang-format off
    require(c.heads > 0, "dspp: SelfAttention needs at least one head, but got none. Raise heads.", ErrorCode::usage, {{"heads", c.heads}});
    require(c.width % c.heads == 0, "dspp: SelfAttention needs a width that its heads divide, but they do not. Change width or heads.", ErrorCode::usage, {{"width", c.width}, {"heads", c.heads}});
    require(c.heads % P::tp == 0, "dspp: SelfAttention needs heads that the Tp degree divides, but it does not. Change heads or Tp<n>.", ErrorCode::placement, {{"heads", c.heads}, {"Tp", P::tp}});
    require(c.heads % (P::tp * P::cp) == 0, "dspp: SelfAttention needs heads that Tp times Cp divides, but it does not. Change heads, Tp<n> or Cp<n>.", ErrorCode::placement,
            {{"heads", c.heads}, {"Tp", P::tp}, {"Cp", P::cp}});
    // clang-format on
    return c;
  }
};

// ---------------------------------------------------------------------------------------------------------------------

namespace operations {
/// The attention of this rank's heads in `whole`, the sequences of qkv after the exchange over Cp.
template <class T, Device D, class X = detail::InOneContext<T, D>>
struct Attention {
  using DeviceType = D;
  static constexpr TapedTensor<T, 3, D> run(const TapedTensor<T, 3, D>& qkv, const Tensor<T, 3, D>& whole, Size heads,
                                            const AttentionRule& rule, const detail::AttentionGiven<X>& given) {
    auto fused = whole.reshape(shape(whole[0], whole[1], Size{3}, whole[2] / 3));
    auto result = ops::attention(fused, heads, rule, given.extras);
    TapedTensor<T, 3, D> y(ContextExchange<X>{qkv.tape().context()}.whole_features(result.y), qkv.tape());
    y.on_backward([slot = qkv.slot(), shape = whole.shape(), qkv_parts = std::move(fused), saved = std::move(result.y),
                   log_sum_exp = std::move(result.log_sum_exp), heads, rule,
                   given](Tape<D>& current, Tensor<T, 3, D> dy) {
      const ContextExchange<X> back{current.context()};
      auto dy_whole = back.whole_sequences(std::move(dy));
      auto dbias = given.dbias(current.memory());
      auto d = ops::attention_vjp(qkv_parts, saved, log_sum_exp, heads, rule, std::move(dy_whole), given.extras, dbias)
                   .reshape(shape);
      given.give(current, std::move(dbias));
      current.give(slot, back.whole_features(std::move(d), 3));
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_ATTENTION_OPERATIONS(TEMPLATE, T) TEMPLATE struct CompiledOperation<operations::Attention<T, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_ATTENTION_OPERATIONS)

template <Tracked X, class... Extras>
constexpr auto attend(X qkv, Size heads, const AttentionRule& rule, const Extras&... extras) {
  using T = typename X::Element;
  using D = typename X::DeviceType;
  static_assert(X::rank == 3,
                "dspp: attend needs [batch, sequence, 3 width], but its input has another rank. reshape it first.");
  static_assert(Finished<state_of<X>>,
                "dspp: attend needs a finished value, but this one is Partial over Tp: its sum is still pending. "
                "redistribute<Invariant>(x) first.");
  static_assert(
      !is_cut_along<state_of<X>, 1>,
      "dspp: attend needs the whole sequence, but this value is split along it over Tp: a rank's queries would not see "
      "the other ranks' keys. Project by a ColumnParallel, which gathers the sequence, or redistribute<Replicate>(x).");
  static_assert(
      !is_cut_along<state_of<X>, 2> || shard_groups<state_of<X>> == 3,
      "dspp: attend needs queries, keys and values side by side on every rank, but these features are not split over "
      "Tp "
      "in three groups. Project by ColumnParallel<Linear, P, InGroups<3>>, or redistribute<Invariant>(x) first.");
  const ContextExchange<X> exchange{qkv.tape().context()};
  const Size own_heads = heads_of_context_rank(exchange.ranks(), heads);
  const auto whole = exchange.whole_sequences(std::move(qkv).take_value(), 3);
  const detail::AttentionGiven<detail::AttentionPlace<X>> given =
      detail::AttentionBeside<X>::of(qkv.tape(), whole[0], whole[1], whole[1], extras...);
  using Own = operations::Attention<T, D, detail::AttentionPlace<X>>;
  using Y = InState<X, part_state<state_of<X>, 2, 3>>;
  return Y(perform<Own>(qkv, whole, own_heads, rule, given), qkv);
}

}  // namespace dspp
