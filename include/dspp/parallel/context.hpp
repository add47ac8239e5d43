// SPDX-License-Identifier: Apache-2.0
/// Context parallelism: ranks with slices of the sequences exchange them for whole sequences of a slice of the heads.
#pragma once

#include <string>
#include <utility>

#include <dspp/autograd/move.hpp>
#include <dspp/autograd/variable.hpp>
#include <dspp/ops/repeat.hpp>

namespace dspp {

namespace detail {
/// [batch, sequence, parts features] seen as [batch, sequence, parts, features] and moved over Cp.
template <class From, class To, class T, Device D>
constexpr Tensor<T, 3, D> exchange_parts(Context<D>& context, Tensor<T, 3, D> x, Size parts) {
  if (context.cp_size() == 1) return x;
  const Shape<4> split{{x[0], x[1], parts, x[2] / parts}};
  auto view = x.reshape(split);
  x.release();
  const auto y = move_over<From, To>(*context.along.cp, std::move(view));
  return y.reshape(Shape<3>{{y[0], y[1], y[2] * y[3]}});
}
}  // namespace detail

/// From a slice of the sequence with all features to the whole sequence with a slice of the features, over Cp.
///
///   x [batch, sequence / cp, parts features] -> [batch, sequence, parts features / cp]
///
/// Each of the `parts` equal parts of the features (query, key, value) is cut by itself, so that the slices are heads.
///
/// Cost     an all-to-all over Cp: this rank reads (cp - 1) / cp x.bytes(); nothing where Cp is 1
/// Memory   the result, and communication buffers of twice as much for the time of the call
/// Throws   Error(shape) unless cp divides the features of a part
/// Source   Jacobs et al. 2023, arXiv:2309.14509 (DeepSpeed-Ulysses)
template <class T, Device D>
constexpr Tensor<T, 3, D> whole_sequences(Context<D>& context, Tensor<T, 3, D> x, Size parts = 1) {
  return detail::exchange_parts<Shard<1>, Shard<3>>(context, std::move(x), parts);
}

/// The way back: [batch, sequence, parts features / cp] -> [batch, sequence / cp, parts features].
///
/// Cost     as whole_sequences
template <class T, Device D>
constexpr Tensor<T, 3, D> whole_features(Context<D>& context, Tensor<T, 3, D> x, Size parts = 1) {
  return detail::exchange_parts<Shard<3>, Shard<1>>(context, std::move(x), parts);
}

/// How often each head of keys and values must be repeated so that every rank of Cp gets one: 1 if there are enough.
constexpr Size repeats_for_context_ranks(Size ranks, Size kv_heads) {
  return kv_heads < ranks && ranks % kv_heads == 0 ? ranks / kv_heads : 1;
}

/// [batch, sequence, heads head_dim] -> [batch, sequence, heads times head_dim], and the sum on the way back.
template <class T, Device D>
constexpr Tensor<T, 3, D> repeat_heads(Tensor<T, 3, D> x, Size head_dim, Size times) {
  if (times == 1) return x;
  return ops::repeat(x.reshape(Shape<2>{{x.count() / head_dim, head_dim}}), times)
      .reshape(Shape<3>{{x[0], x[1], x[2] * times}});
}
template <class T, Device D>
constexpr Tensor<T, 3, D> sum_repeated_heads(Tensor<T, 3, D> x, Size head_dim, Size times) {
  if (times == 1) return x;
  return ops::sum_repeats(x.reshape(Shape<2>{{x.count() / head_dim, head_dim}}), times)
      .reshape(Shape<3>{{x[0], x[1], x[2] / times}});
}

/// How many of a rank's `heads` it computes between the two.
///
/// Throws   Error(placement) unless the number of ranks divides them
constexpr Size heads_of_context_rank(Size ranks, Size heads) {
  if (heads % ranks != 0)
    fail(ErrorCode::placement, "dspp: attend needs heads that the Cp degree divides, but a rank of Tp has " +
                                   std::to_string(heads) + " and Cp is " + std::to_string(ranks) +
                                   ". Change the heads, Tp<n> or Cp<n>.");
  return heads / ranks;
}

/// The exchange around an attention on X, [batch, sequence, features]: none if Cp does not cut its sequence.
template <Tracked X>
struct ContextExchange {
  using D = typename X::DeviceType;
  static constexpr bool cut = X::Placement::cp_dimension == 1;
  static_assert(cut || X::Placement::cp_dimension == -1,
                "dspp: attend needs [batch, sequence, features], but Cp cuts another dimension of this value than the "
                "second. transpose it back first.");
  Context<D>& context;

  constexpr Size ranks() const {
    if constexpr (cut)
      return detail::cp_ranks<typename X::Placement>(context).size();
    else
      return 1;
  }
  template <class T>
  constexpr Tensor<T, 3, D> whole_sequences(Tensor<T, 3, D> x, Size parts = 1) const {
    if constexpr (cut)
      return dspp::whole_sequences(context, std::move(x), parts);
    else
      return x;
  }
  template <class T>
  constexpr Tensor<T, 3, D> whole_features(Tensor<T, 3, D> x, Size parts = 1) const {
    if constexpr (cut)
      return dspp::whole_features(context, std::move(x), parts);
    else
      return x;
  }
};

}  // namespace dspp
