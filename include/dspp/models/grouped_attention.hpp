// SPDX-License-Identifier: Apache-2.0
/// Self-attention with rotary positions whose query heads share heads of keys and values, split over Tp.
#pragma once

#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention_extras.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/ops/grouped_attention.hpp>
#include <dspp/ops/repeat.hpp>
#include <dspp/ops/rotary.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/context.hpp>
#include <dspp/parallel/row.hpp>

namespace dspp {

using ops::GroupedHeads;

/// The first position of a sequence, the base of its rotary angles and how they are scaled.
struct RotaryPositions {
  double rope_theta = 10000;  ///< 0: no rotation
  Size first = 0;
  RopeScaling scaling{};
};

struct GroupedAttentionConfig {
  Size width = 0, heads = 0;
  Size kv_heads = 0;          ///< 0: as many as heads
  Size head_dim = 0;          ///< 0: width / heads
  double rope_theta = 10000;  ///< 0: no rotation
  RopeScaling rope_scaling{};
  AttentionRule rule{};
  bool qkv_bias = false;  ///< of the projections of queries, keys and values, as in Qwen 2
  bool qk_norm = false;   ///< an RmsNorm over each head of queries and of keys before they rotate, as in Qwen 3
  double epsilon = 1e-6;  ///< of that norm
  Initial initial = Initial::normal(0.02);
  Initial output_initial = Initial::normal(0.02);
};

/// softmax(R q (R k)^T / sqrt(head_dim)) v for every query head, R the rotation by the position, with the rule of the
/// heads and the extras of attend(qkv, heads, rule).
///
///   q [batch, sequence, heads head_dim / tp]   kv [batch, keys, 2 kv_heads head_dim / tp], keys before values
///   -> y like q; heads counts this rank's
///
/// Keys of another sequence (cross-attention) need a full mask and no rotation; Lengths are then theirs.
///
/// Placement   Shard<-1> of q, Shard<-1, 2> of kv -> Shard<-1>: heads are local. Under Cp the ranks exchange
///             sequences for heads and back.
/// Cost        nothing over Tp; over Cp an all-to-all of q, of kv and of the result, and the three again in backward
/// Memory      keeps q and kv, rotated in place, the result, one number per row and head, and the table of angles
/// Source      Su et al. 2021, arXiv:2104.09864; Ainslie et al. 2023, arXiv:2305.13245
template <Tracked Q, Tracked KV, class... Extras>
constexpr Q attend(Q q, KV kv, const GroupedHeads& heads, const RotaryPositions& positions, const Extras&... extras);

/// The sequence to which another attends: `attention(x, KeysOf{memory}, Lengths{those of memory})`.
template <Tracked X>
struct KeysOf {
  X values;
};
template <class X>
KeysOf(X) -> KeysOf<X>;

/// The attention sub-layer of a Llama: column-parallel projections cut by heads, heads / tp and kv_heads / tp of them
/// per rank, a row-parallel output projection. Biases of the first projections and a norm of queries and keys, one
/// weight [head_dim] each for all heads, are optional.
///
///   x [batch, sequence, width] -> the same
///
/// Cost        as ColumnParallel plus RowParallel, and over Cp that of attend; under RegatherInputs x is gathered once
///             per projection. The gradients of the norms are summed over Tp before the step.
/// Memory      with qk_norm a copy of queries, of keys and values, and of the normed of both
/// Throws      Error(placement) unless tp divides kv_heads and tp cp the heads, and unless one of kv_heads / tp and cp
///             divides the other; Error(usage) unless kv_heads divide the heads
/// Source      Touvron et al. 2023, arXiv:2307.09288
template <class P>
struct GroupedAttention : Layer<P> {
  ColumnParallel<Linear, P> q;
  ColumnParallel<Linear, P, InGroups<2>> kv;
  RowParallel<Linear, P> output;
  RmsNorm<P> q_norm, k_norm;
  GroupedHeads heads;  ///< this rank's
  double rope_theta;
  RopeScaling rope_scaling;
  bool qk_norm;

  constexpr explicit GroupedAttention(const GroupedAttentionConfig& c) : GroupedAttention(c, sizes_of(c)) {}

  constexpr void visit(auto&& f) {
    f("q", q);
    f("kv", kv);
    f("output", output);
    if (qk_norm) f("q_norm", q_norm), f("k_norm", k_norm);
  }

  /// Values that no shape shows.
  constexpr void describe(auto&& f) const {
    f("heads", P::tp * heads.heads), f("kv_heads", P::tp * heads.kv_heads);
    heads.rule.describe(f);
    f("rope_theta", rope_theta);
    rope_scaling.describe(f);
  }

  /// The extras are those of attend.
  template <class... Extras>
  constexpr auto operator()(const Hidden<P>& x, const Extras&... extras) const {
    if constexpr (P::regather_inputs) {
      return output(attended(q(x), kv(x), extras...));
    } else {
      const auto whole = redistribute<Replicate>(x);  // shared by both projections: one gather, and one sum of dx
      return output(attended(q(whole), kv(whole), extras...));
    }
  }

  /// Attends to another sequence, with a full mask and without rotation:
  ///
  ///   x [batch, sequence, width], other [batch, keys, width] -> like x
  template <class X, class... Extras>
  constexpr auto operator()(const Hidden<P>& x, const KeysOf<X>& other, const Extras&... extras) const {
    const bool plain = heads.rule.mask == AttentionMask::full && heads.rule.window == 0 && rope_theta == 0;
    // clang-format off
    require(plain, "dspp: GroupedAttention needs a full mask, no window and no rotation to attend to other keys, but has others. Give .rope_theta = 0, .rule = {.mask = AttentionMask::full}.");
    // clang-format on
    if constexpr (P::regather_inputs)
      return output(attended(q(x), kv(other.values), extras...));
    else
      return output(attended(q(redistribute<Replicate>(x)), kv(redistribute<Replicate>(other.values)), extras...));
  }

 private:
  struct Sizes {
    Size q = 0, kv = 0;  ///< features of all queries, and of all keys
    Size kv_heads = 0, head_dim = 0;
  };
  template <class Q, class KV, class... Extras>
  constexpr Q attended(Q all_q, KV all_kv, const Extras&... extras) const {
    const RotaryPositions positions{.rope_theta = rope_theta, .scaling = rope_scaling};
    if (!qk_norm) return attend(std::move(all_q), std::move(all_kv), heads, positions, extras...);
    const auto [k, v] = split<-1, 2>(all_kv);
    return attend(normed(q_norm, all_q), join<-1>(normed(k_norm, k), v), heads, positions, extras...);
  }
  /// Head by head.
  template <class X>
  static constexpr X normed(const RmsNorm<P>& norm, const X& x) {
    const Size head_dim = norm.weight.shape()[0];
    const auto apart = reshape<Shard<2>>(x, dspp::shape(x[0], x[1], x[2] / head_dim, head_dim));
    return reshape<Shard<2>>(norm(apart), x.shape());
  }
  static constexpr Sizes sizes_of(const GroupedAttentionConfig& c);
  constexpr GroupedAttention(const GroupedAttentionConfig& c, const Sizes& sizes)
      : q(LinearConfig{.in = c.width, .out = sizes.q, .bias = c.qkv_bias, .initial = c.initial}),
        kv(LinearConfig{.in = c.width, .out = 2 * sizes.kv, .bias = c.qkv_bias, .initial = c.initial}),
        output(LinearConfig{.in = sizes.q, .out = c.width, .bias = false, .initial = c.output_initial}),
        q_norm(sizes.head_dim, c.epsilon),
        k_norm(sizes.head_dim, c.epsilon),
        heads{c.heads / P::tp, sizes.kv_heads / P::tp, c.rule},
        rope_theta(c.rope_theta),
        rope_scaling(c.rope_scaling),
        qk_norm(c.qk_norm) {}
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
constexpr auto GroupedAttention<P>::sizes_of(const GroupedAttentionConfig& c) -> Sizes {
  const Size kv_heads = c.kv_heads > 0 ? c.kv_heads : c.heads;
  // clang-format off
  require(c.heads > 0, "dspp: GroupedAttention needs at least one head, but got none. Raise heads.", ErrorCode::usage, {{"heads", c.heads}});
  require(c.head_dim > 0 || c.width % c.heads == 0, "dspp: GroupedAttention needs a width that its heads divide, but they do not. Change width or heads, or give head_dim.", ErrorCode::usage,
          {{"width", c.width}, {"heads", c.heads}});
  require(c.heads % kv_heads == 0, "dspp: GroupedAttention needs query heads that its kv_heads divide, but they do not. Change heads or kv_heads.", ErrorCode::usage,
          {{"heads", c.heads}, {"kv_heads", kv_heads}});
  require(kv_heads % P::tp == 0, "dspp: GroupedAttention needs kv_heads that the Tp degree divides, but it does not. Change kv_heads or Tp<n>.", ErrorCode::placement,
          {{"kv_heads", kv_heads}, {"Tp", P::tp}});
  require(c.heads % (P::tp * P::cp) == 0, "dspp: GroupedAttention needs heads that Tp times Cp divides, but it does not. Change heads, Tp<n> or Cp<n>.", ErrorCode::placement,
          {{"heads", c.heads}, {"Tp", P::tp}, {"Cp", P::cp}});
  const Size kv_of_rank = kv_heads / P::tp;
  require(kv_of_rank % P::cp == 0 || P::cp % kv_of_rank == 0, "dspp: GroupedAttention needs kv_heads / Tp that divides Cp or is a multiple of it, but it is not. Change kv_heads, Tp<n> or Cp<n>.",
          ErrorCode::placement, {{"kv_heads", kv_heads}, {"Tp", P::tp}, {"Cp", P::cp}});
  // clang-format on
  const Size head_dim = c.head_dim > 0 ? c.head_dim : c.width / c.heads;
  // clang-format off
  require(head_dim % 2 == 0 || c.rope_theta == 0, "dspp: GroupedAttention needs heads of an even number of features, which turn in pairs, but they have an odd one. Change head_dim.", ErrorCode::usage,
          {{"head_dim", head_dim}});
  // clang-format on
  require_rope_scaling(c.rope_scaling, head_dim);
  return {c.heads * head_dim, kv_heads * head_dim, kv_heads, head_dim};
}

namespace operations {
/// A rank's heads after the exchange over Cp, where heads of keys and values are repeated `times`.
struct HeadsOfRank {
  GroupedHeads own;
  Size head_dim, times;
};

/// The attention of this rank's heads in whole_q and whole_kv, the sequences of q and kv after the exchange over Cp.
template <class T, Device D, class X = detail::InOneContext<T, D>>
struct GroupedAttention {
  using DeviceType = D;
  using Values = Tensor<T, 3, D>;
  static constexpr TapedTensor<T, 3, D> run(const TapedTensor<T, 3, D>& q, const TapedTensor<T, 3, D>& kv,
                                            Values&& whole_q, Values&& whole_kv, const HeadsOfRank& heads,
                                            const RotaryPositions& positions, const detail::AttentionGiven<X>& given) {
    Tape<D>& tape = q.tape();
    const Shape<3> kv_shape = whole_kv.shape();
    const Shape<4> parts{{kv_shape[0], kv_shape[1], 2, kv_shape[2] / 2}};
    Tensor<Compute<T>, 3, D> table;  // unset without a rotation
    if (positions.rope_theta != 0)
      table = ops::rotary_table<T, D>(positions.first, whole_q[1], heads.head_dim, positions.rope_theta, tape.memory(),
                                      positions.scaling);
    if (table) {
      whole_q = ops::rotary(std::move(whole_q), table);
      whole_kv = ops::rotary(std::move(whole_kv), table, parts[3]);
    }
    auto turned_kv = whole_kv.reshape(parts);
    auto result = ops::grouped_attention(whole_q, turned_kv, heads.own, given.extras);
    TapedTensor<T, 3, D> y(ContextExchange<X>{tape.context()}.whole_features(result.y), tape);
    y.on_backward([q_slot = q.slot(), kv_slot = kv.slot(), kv_shape, heads, given, saved_q = std::move(whole_q),
                   saved_kv = std::move(turned_kv), angles = std::move(table), saved = std::move(result.y),
                   log_sum_exp = std::move(result.log_sum_exp)](Tape<D>& current, Values dy) {
      const ContextExchange<X> back{current.context()};
      const auto dy_whole = back.whole_sequences(std::move(dy));
      auto dbias = given.dbias(current.memory());
      auto d =
          ops::grouped_attention_vjp(saved_q, saved_kv, saved, log_sum_exp, heads.own, dy_whole, given.extras, dbias);
      given.give(current, std::move(dbias));
      const Size keys = d.dkv[3];
      if (angles) d.dq = ops::rotary_vjp(std::move(d.dq), angles);
      current.give(q_slot, back.whole_features(std::move(d.dq)));
      if (angles) d.dkv = ops::rotary_vjp(std::move(d.dkv), angles, keys);
      auto dkv = back.whole_features(std::move(d.dkv).reshape(kv_shape), 2);
      d.dkv.release();
      current.give(kv_slot, sum_repeated_heads(std::move(dkv), heads.head_dim, heads.times));
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_GROUPED_ATTENTION_OPERATIONS(TEMPLATE, T) \
  TEMPLATE struct CompiledOperation<operations::GroupedAttention<T, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_GROUPED_ATTENTION_OPERATIONS)

template <Tracked Q, Tracked KV, class... Extras>
constexpr Q attend(Q q, KV kv, const GroupedHeads& heads, const RotaryPositions& positions, const Extras&... extras) {
  using T = typename Q::Element;
  using D = typename Q::DeviceType;
  static_assert(Q::rank == 3 && KV::rank == 3,
                "dspp: attend needs [batch, sequence, features], but an input has another rank. reshape it first.");
  constexpr bool alike = std::is_same_v<state_of<Q>, part_state<state_of<KV>, 2, 2>> &&
                         Q::Placement::tp_degree == KV::Placement::tp_degree;
  constexpr bool in_one_piece = is_cut_along<state_of<KV>, 2> && shard_groups<state_of<KV>> != 2;
  static_assert(!in_one_piece,
                "dspp: attend needs keys and values side by side on every rank, but these features are not split over "
                "Tp in two groups. Project by ColumnParallel<Linear, P, InGroups<2>>, or redistribute<Invariant>(x) "
                "first.");
  static_assert(alike || in_one_piece,
                "dspp: attend needs queries, keys and values placed alike, but they are placed differently over Tp. "
                "Project both by a ColumnParallel, or redistribute one of them.");
  static_assert(Finished<state_of<Q>>,
                "dspp: attend needs a finished value, but this one is Partial over Tp: its sum is still pending. "
                "redistribute<Invariant>(x) first.");
  static_assert(
      !is_cut_along<state_of<Q>, 1>,
      "dspp: attend needs the whole sequence, but this value is split along it over Tp: a rank's queries would not see "
      "the other ranks' keys. Project by a ColumnParallel, which gathers the sequence, or redistribute<Replicate>(x).");
  check_alike_over_cp<typename Q::Placement, typename KV::Placement>();
  const ContextExchange<Q> exchange{q.tape().context()};
  // clang-format off
  require(kv[1] == q[1] || positions.rope_theta == 0, "dspp: attend needs queries and keys of one sequence to rotate them, but these have different lengths. Give RotaryPositions{.rope_theta = 0}.",
          ErrorCode::shape, {{"queries", q[1]}, {"keys", kv[1]}});
  // clang-format on
  if (heads.heads < 1 || heads.kv_heads < 1)
    fail(ErrorCode::shape, "dspp: attend needs heads and kv_heads of at least 1, but got " +
                               std::to_string(heads.heads) + " and " + std::to_string(heads.kv_heads) + ". Give both.");
  const Size head_dim = q[2] / heads.heads;
  const Size times = repeats_for_context_ranks(exchange.ranks(), heads.kv_heads);
  const GroupedHeads own{heads_of_context_rank(exchange.ranks(), heads.heads),
                         heads_of_context_rank(exchange.ranks(), heads.kv_heads * times), heads.rule};
  auto whole_q = exchange.whole_sequences(std::move(q).take_value());
  auto whole_kv = exchange.whole_sequences(repeat_heads(std::move(kv).take_value(), head_dim, times), 2);
  const detail::AttentionGiven<detail::AttentionPlace<Q>> given =
      detail::AttentionBeside<Q>::of(q.tape(), whole_q[0], whole_q[1], whole_kv[1], extras...);
  using Own = operations::GroupedAttention<T, D, detail::AttentionPlace<Q>>;
  return Q(perform<Own>(q, kv, std::move(whole_q), std::move(whole_kv), operations::HeadsOfRank{own, head_dim, times},
                        positions, given),
           q);
}

}  // namespace dspp
