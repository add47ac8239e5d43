// SPDX-License-Identifier: Apache-2.0
/// Logits and cross-entropy by chunks of rows: the logits of all tokens never exist at once.
#pragma once

#include <algorithm>

#include <dspp/ops/copy.hpp>
#include <dspp/parallel/vocab.hpp>

namespace dspp {

/// cross_entropy(table.logits(x), targets, vocabulary, options), `chunk_tokens` tokens at a time.
///
///   x [batch, sequence, width]   table [vocabulary / tp, width] per rank   loss: as cross_entropy
///
/// Placement   as VocabParallel::logits and cross_entropy
/// Cost        their collectives, once. Backward recomputes each chunk's logits: 4 products of the size of the head in
///             place of 3. A plan visits every chunk.
/// Memory      logits of one chunk, [chunk_tokens, vocabulary / tp], not of all; keeps x and one number per row
/// Throws      as cross_entropy
///
/// The gradient of the table is summed over the chunks in place: in bf16 and f16, unless gradients are F32, each chunk
/// rounds it once.
/// Source      Bekman et al. 2025, arXiv:2506.13996, section 3.1 (there the gradient is computed in forward)
template <class P>
class TiledLoss {
 public:
  constexpr explicit TiledLoss(Size chunk_tokens) : chunk_tokens_(chunk_tokens) {
    require(chunk_tokens >= 1, "dspp: TiledLoss needs chunks of at least one token, but got less. Raise chunk_tokens.");
  }

  template <Tracked X>
  constexpr Loss<P> operator()(const VocabParallel<Embedding, P>& table, const X& x, const Tokens<P>& targets,
                               CrossEntropyOptions options = {}) const {
    check_value_of<P, X>();
    check_alike_over_cp<typename X::Placement, typename Tokens<P>::Placement>();
    check_whole_over_cp<typename X::Placement, -1, X::rank>();
    check_whole_features<state_of<X>, X::rank>();
    if constexpr (WholeAlong<state_of<X>, -1, X::rank> && is_value_of<P, X>)
      return whole(table, redistribute<Replicate>(x), targets,
                   ops::smoothed_targets(options.label_smoothing, table.vocabulary()));
    else
      return Loss<P>();
  }

 private:
  using T = ElementOf<P>;
  using C = Compute<T>;
  using D = DeviceOf<P>;
  using Matrix = Tensor<T, 2, D>;
  using Ids = Tensor<std::int32_t, 1, D>;

  /// Calls f(first row, number of rows) for every chunk.
  template <class F>
  constexpr void for_each_chunk(Size rows, F f) const {
    for (Size begin = 0; begin < rows; begin += chunk_tokens_) f(begin, std::min(chunk_tokens_, rows - begin));
  }
  template <class E>
  static constexpr Tensor<E, 2, D> rows_of(const Tensor<E, 2, D>& x, Size begin, Size count) {
    return Tensor<E, 2, D>::view(x.storage(), x.offset() + begin * x[1], shape(count, x[1]));
  }
  template <class E>
  static constexpr Tensor<E, 1, D> rows_of(const Tensor<E, 1, D>& x, Size begin, Size count) {
    return Tensor<E, 1, D>::view(x.storage(), x.offset() + begin, shape(count));
  }

  /// This rank's columns of the vocabulary.
  struct Part {
    Matrix weight;
    Size first, valid;
    constexpr Part(const VocabParallel<Embedding, P>& table, const Tape<D>& tape)
        : weight(table.weight.value()), first(table.first_row(tape)), valid(table.valid_rows(tape)) {}
    constexpr Matrix logits(const Matrix& x) const { return ops::matmul(x, Transpose::no, weight, Transpose::yes); }
  };

  template <class X>
  constexpr Loss<P> whole(const VocabParallel<Embedding, P>& table, const X& x, const Tokens<P>& targets,
                          TargetProbabilities wanted) const;
  constexpr Tensor<C, 2, D> parts_of(const Part& part, const Matrix& x, const Ids& ids, Size vocabulary,
                                     TargetProbabilities wanted) const;

  Size chunk_tokens_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
constexpr Tensor<Compute<ElementOf<P>>, 2, DeviceOf<P>> TiledLoss<P>::parts_of(const Part& part, const Matrix& x,
                                                                               const Ids& ids, Size vocabulary,
                                                                               TargetProbabilities wanted) const {
  auto parts =
      Tensor<C, 2, D>::uninitialized(shape(x[0], Size{3}), x.memory(), Category::activations, "TiledLoss parts");
  for_each_chunk(x[0], [&](Size begin, Size rows) {
    const auto chunk = ops::cross_entropy_parts(part.logits(rows_of(x, begin, rows)), rows_of(ids, begin, rows),
                                                part.first, part.valid, vocabulary, wanted);
    ops::copy_into(parts, 3 * begin, chunk);
  });
  return parts;
}

template <class P>
template <class X>
constexpr Loss<P> TiledLoss<P>::whole(const VocabParallel<Embedding, P>& table, const X& x, const Tokens<P>& targets,
                                      TargetProbabilities wanted) const {
  const auto x_rows = detail::as_rows(x.value());
  const auto ids = targets.value().reshape(shape(x_rows[0]));
  const auto weights = detail::weights_of<D>(targets);
  auto result = detail::combine_over_ranks(*x.tape().context().along.tp,
                                           parts_of(Part(table, x.tape()), x_rows, ids, table.vocabulary(), wanted),
                                           ids, weights);
  auto loss =
      detail::counted_loss(std::move(result.loss), x.tape(), result.counted, ids.count(), static_cast<bool>(weights))
          .template as<P>();
  if (!x.tape().recording()) return loss;
  table.weight.register_use(x);
  loss.on_backward([self = *this, &table, slot = x.slot(), extents = x.shape(), x_rows, ids, weights,
                    log_sum_exp = std::move(result.log_sum_exp), counted = std::move(result.counted),
                    wanted](Tape<D>& tape, const Tensor<C, 0, D>& dy) {
    tape.context().has_gradient();
    const Part part(table, tape);
    auto dx = Matrix::uninitialized(x_rows.shape(), tape.memory(), Category::activations, "TiledLoss");
    table.weight.accumulate([&](auto dw, Write how) {
      self.for_each_chunk(x_rows[0], [&](Size begin, Size rows) {
        const auto x_chunk = rows_of(x_rows, begin, rows);
        const auto dlogits = ops::cross_entropy_vjp(part.logits(x_chunk), rows_of(ids, begin, rows),
                                                    rows_of(log_sum_exp, begin, rows), part.first, part.valid, dy,
                                                    counted, weights ? rows_of(weights, begin, rows) : weights, wanted);
        ops::matmul_into(dw, begin == 0 ? how : Write::accumulate, dlogits, Transpose::yes, x_chunk, Transpose::no);
        ops::matmul_into(rows_of(dx, begin, rows), Write::overwrite, dlogits, Transpose::no, part.weight,
                         Transpose::no);
      });
    });
    tape.give(slot, dx.reshape(extents));
  });
  return loss;
}

}  // namespace dspp
