// SPDX-License-Identifier: Apache-2.0
/// Vocabulary parallelism: the embedding table, the tied head and the cross-entropy, split by rows of the table over
/// Tp.
#pragma once

#include <algorithm>
#include <string>

#include <dspp/nn/embedding.hpp>
#include <dspp/ops/cross_entropy.hpp>

namespace dspp {

/// Each rank holds vocabulary / tp rows of the table, rounded up; rows beyond the vocabulary are padding: they start at
/// zero, have logits of zero, receive no gradient, and are not saved. redistribute<Invariant>(logits) removes them.
///
///   look-up   ids [batch, sequence] -> [batch, sequence, width]
///   logits    x [batch, sequence, width] -> [batch, sequence, vocabulary / tp] per rank
///
/// Placement   ids Invariant -> the residual stream's; logits: features whole -> PaddedShard<-1>
/// Cost        look-up: an all-reduce of the result (reduce-scatter under SequenceParallel); logits: as ColumnParallel
/// Memory      vocabulary width / tp parameters per rank
/// Source      Shoeybi et al. 2019, arXiv:1909.08053, section 3
template <template <class> class L, class... P>
struct VocabParallel;

template <template <class> class L>
struct VocabParallel<L> {
  template <class P>
  using bind = VocabParallel<L, P>;
};

template <template <class> class L, class P>
struct VocabParallel<L, P> : L<P> {
  template <class Q>
  using on = VocabParallel<L, Q>;

  constexpr explicit VocabParallel(const EmbeddingConfig& c) : L<P>(c, Cut{0, P::tp}) {
    // clang-format off
    require(c.vocabulary >= P::tp, "dspp: VocabParallel needs as many rows as ranks, but has fewer. Lower Tp<n>.", ErrorCode::placement);
    // clang-format on
  }
  constexpr VocabParallel(Size vocabulary, Size width)
      : VocabParallel(EmbeddingConfig{.vocabulary = vocabulary, .width = width}) {}

  template <Tracked Ids>
  constexpr auto operator()(const Ids& given) const {
    const typename L<P>::template IdsOf<Ids>& ids = given;
    return redistribute<typename P::HiddenState>(this->template look_up<Partial>(ids, first_row(ids.tape())));
  }

  template <Tracked X>
  constexpr auto logits(const X& x) const {
    constexpr bool whole = WholeAlong<state_of<X>, -1, X::rank>;
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    check_whole_over_cp<typename X::Placement, -1, X::rank>();
    if constexpr (whole && is_value_of<P, X>)
      return this->template logits_in<PaddedShard<-1>>(redistribute<Replicate>(x));
    else
      return InState<X, PaddedShard<-1>>();
  }

  constexpr Size first_row(const Tape<DeviceOf<P>>& tape) const {
    return this->weight.shape()[0] * tape.context().along.tp->rank();
  }

  /// How many of this rank's rows are not padding.
  constexpr Size valid_rows(const Tape<DeviceOf<P>>& tape) const {
    return std::clamp<Size>(this->vocabulary() - first_row(tape), 0, this->weight.shape()[0]);
  }
};

struct CrossEntropyOptions {
  double label_smoothing = 0;  ///< the part of the wanted probability that is spread evenly over the vocabulary
};

/// Mean cross-entropy of logits split over the vocabulary, without gathering them, or of whole ones, as a Linear gives
/// for classes that Tp does not divide. Targets equal to ignored_target (-100) do not count; others count 1 or, if the
/// batch has target_weights, their weight. The loss carries the sum of the weights, and is 0 if none counts.
///
///   loss = sum of weight (log(sum exp(logits)) - (1 - s) logits[target] - s mean(logits)) / sum of weight
///   s = label_smoothing
///   logits [..., vocabulary / tp] per rank   targets [...]: [batch, sequence] of tokens, [samples] of classes
///
/// Placement   PaddedShard<-1>, Shard<-1> or Invariant -> Invariant
/// Cost        one all-gather of three numbers per row (maximum, sum of exponentials, logit of the target), none for
///             Invariant logits, of which every rank of Tp computes all rows
/// Memory      keeps the logits, whose block becomes their gradient, and one number per row. It does so in forward
///             already, which saves one of three passes over it, if the logits are a temporary or moved in, nothing
///             else holds their block, one rank has all columns, and an Engine trains in f32, f64 or bf16
/// Throws      Error(usage) on a target outside the vocabulary, a weight that is negative or not finite, or a
///             label_smoothing outside [0, 1]; Error(state) where logits that were moved in are read again
template <class P, Tracked X, Tracked Targets>
constexpr Loss<P> cross_entropy(X&& logits, const Targets& targets, Size vocabulary, CrossEntropyOptions options = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// The loss of all ranks' columns from each rank's parts [rows, 3]: one all-gather over Tp, unless a rank has all.
template <class C, Device D>
constexpr auto combine_over_ranks(CommunicatorOf<D>& group, const Tensor<C, 2, D>& parts,
                                  const Tensor<std::int32_t, 1, D>& targets, const Tensor<float, 1, D>& weights,
                                  bool whole = false) {
  const Size rows = parts[0], ranks = whole ? 1 : group.size();
  auto all = parts.reshape(dspp::shape(Size{1}, rows, Size{3}));
  if (ranks > 1) {
    all = Tensor<C, 3, D>::uninitialized(dspp::shape(ranks, rows, Size{3}), parts.memory(), Category::communication,
                                         "cross_entropy");
    all_gather(group, buffer(static_cast<const C*>(parts.data()), parts.count()), buffer(all.data(), all.count()),
               Purpose::activation);
  }
  return ops::cross_entropy_combine(all, targets, weights);
}

/// The weights of targets row by row, or none.
template <Device D, class Targets>
constexpr Tensor<float, 1, D> weights_of(const Targets& targets) {
  if constexpr (requires { targets.target_weights; })
    if (targets.target_weights) return targets.target_weights.reshape(dspp::shape(targets.target_weights.count()));
  return {};
}

/// A loss that carries its count of targets.
template <class C, Device D>
struct CountedLoss {
  TapedTensor<C, 0, D> value;
  Scalar<double, D> counted;

  template <class P>
  constexpr Loss<P> as() && {
    Loss<P> loss(std::move(value));
    loss.counted = std::move(counted);
    return loss;
  }
};

/// Puts a loss on the tape; the engine records its count of targets, and whether they are weighted. `share` is that of
/// this rank in them: 1 / cp where the ranks of Cp have the same ones.
template <class C, Device D>
constexpr CountedLoss<C, D> counted_loss(Scalar<C, D> value, Tape<D>& tape, Scalar<double, D> counted, Size targets,
                                         bool weighted, double share = 1) {
  TapedTensor<C, 0, D> loss(std::move(value), tape);
  if (share != 1) counted = ops::scale(std::move(counted), share);
  tape.context().loss_counts(counted, share * static_cast<double>(targets));
  tape.context().takes_mean();
  if (!weighted) tape.context().takes_unweighted();
  return {std::move(loss), std::move(counted)};
}

/// The dy for which cross_entropy of these logits replaces them by their gradient, or 0 where it must not: where the
/// caller, too, has them, and in f16, where a gradient that another dy multiplies may have underflowed or overflowed.
template <class C, class X>
constexpr C dy_in_place(const X& logits, Size ranks) {
  if (std::is_same_v<typename X::Element, f16> || ranks > 1 || !logits.tape().recording() || !logits.value().unique())
    return 0;
  return static_cast<C>(logits.tape().context().expected_seed);
}
[[noreturn]] void fail_vocabulary(Size vocabulary, Size logits);
}  // namespace detail

namespace operations {
/// How the logits of a cross_entropy and their targets are placed.
struct LogitsPlace {
  bool whole;    ///< every rank of Tp has all columns
  bool padded;   ///< the columns of all ranks are more than those of the whole
  double share;  ///< see counted_loss
};

template <class T, int Rank, Device D>
struct CrossEntropy {
  using DeviceType = D;
  using C = Compute<T>;

  static constexpr detail::CountedLoss<C, D> run(const TapedTensor<T, Rank, D>& logits,
                                                 const Tensor<std::int32_t, Rank - 1, D>& targets,
                                                 const Tensor<float, 1, D>& weights, Size vocabulary,
                                                 CrossEntropyOptions options, LogitsPlace place) {
    auto& group = *logits.tape().context().along.tp;
    const Size rows = logits.shape().rows(), columns = logits[-1], ranks = place.whole ? 1 : group.size();
    const Size first = place.whole ? 0 : columns * group.rank(),
               valid = std::clamp<Size>(vocabulary - first, 0, columns);
    const Size columns_in_all = place.padded ? logits.whole() : columns * ranks;
    if (vocabulary > columns_in_all) detail::fail_vocabulary(vocabulary, columns_in_all);
    const TargetProbabilities wanted = ops::smoothed_targets(options.label_smoothing, vocabulary);
    const C given = detail::dy_in_place<C>(logits, ranks);
    auto rows_of_logits = detail::as_rows(logits.value());
    const auto ids = targets.reshape(dspp::shape(rows));
    // Not a conditional expression: in a constant one g++ 12 releases its temporary twice.
    ops::CrossEntropyResult<C, D> result;
    if (given != 0)
      result = ops::cross_entropy_in_place(rows_of_logits, ids, valid, vocabulary, given, weights, wanted);
    else
      result = detail::combine_over_ranks(
          group, ops::cross_entropy_parts(rows_of_logits, ids, first, valid, vocabulary, wanted), ids, weights,
          place.whole);
    auto loss = detail::counted_loss(std::move(result.loss), logits.tape(), result.counted, ids.count(),
                                     static_cast<bool>(weights), place.share);
    // `given`: the dy of cross_entropy_in_place, or 0 without that
    loss.value.on_backward([slot = logits.slot(), shape = logits.shape(), values = std::move(rows_of_logits), ids,
                            weights, log_sum_exp = std::move(result.log_sum_exp), first, valid,
                            counted = std::move(result.counted), wanted,
                            given](Tape<D>& tape, const Tensor<C, 0, D>& dy) mutable {
      tape.context().has_gradient();
      Tensor<T, 2, D> dlogits;  // not a conditional expression: see above
      if (given != 0)
        dlogits =
            ops::cross_entropy_finish(std::move(values), ids, log_sum_exp, valid, given, dy, counted, weights, wanted);
      else
        dlogits =
            ops::cross_entropy_vjp(std::move(values), ids, log_sum_exp, first, valid, dy, counted, weights, wanted);
      tape.give(slot, dlogits.reshape(shape));
    });
    return loss;
  }
};
}  // namespace operations

#define DSPP_CROSS_ENTROPY_OPERATIONS(TEMPLATE, T)                        \
  TEMPLATE struct CompiledOperation<operations::CrossEntropy<T, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::CrossEntropy<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_CROSS_ENTROPY_OPERATIONS)

template <class P, Tracked X, Tracked Targets>
constexpr Loss<P> cross_entropy(X&& logits, const Targets& targets, Size vocabulary, CrossEntropyOptions options) {
  using V = std::remove_cvref_t<X>;
  check_value_of<P, V>();
  static_assert(
      std::is_same_v<typename Targets::Element, std::int32_t> && Targets::rank + 1 == V::rank,
      "dspp: cross_entropy needs a target of type std::int32_t for each row of logits, so one dimension less, "
      "but these have another element type or rank. Reshape one of the two.");
  check_alike_over_cp<typename V::Placement, typename Targets::Placement>();
  check_whole_over_cp<typename V::Placement, -1, V::rank>();
  constexpr bool padded = std::is_same_v<state_of<V>, PaddedShard<V::rank - 1>>;
  constexpr bool whole = std::is_same_v<state_of<V>, Invariant>;
  static_assert(
      padded || whole || std::is_same_v<state_of<V>, Shard<V::rank - 1>>,
      "dspp: cross_entropy needs logits split along the vocabulary over Tp, or Invariant, but these are placed "
      "otherwise. Compute them by a VocabParallel table, a ColumnParallel head or, of an Invariant value, a Linear.");
  // Logits that are moved in leave the caller's variable: it must not show the gradient.
  const V own = std::forward<X>(logits);
  constexpr double share = Targets::Placement::cp_dimension < 0 ? 1.0 / P::cp : 1;
  using Mean = operations::CrossEntropy<ElementOf<P>, V::rank, DeviceOf<P>>;
  return perform<Mean>(own, targets.value(), detail::weights_of<DeviceOf<P>>(targets), vocabulary, options,
                       operations::LogitsPlace{whole, padded, share})
      .template as<P>();
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_vocabulary(Size vocabulary, Size logits) {
  fail(ErrorCode::shape,
       "dspp: cross_entropy needs a logit for every token of the vocabulary, but the vocabulary has " +
           std::to_string(vocabulary) + " and there are " + std::to_string(logits) +
           " logits. Give the vocabulary of the table that made them.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
