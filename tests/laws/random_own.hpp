// SPDX-License-Identifier: Apache-2.0
/// Drawn models on batches of their own: fields of integers, floats and masks, a term over the samples of all data
/// ranks, and a BERT.
#pragma once

#include <algorithm>
#include <cstdint>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/autograd/selection.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/models/bert.hpp>
#include <laws/random_extras.hpp>
#include <laws/random_models.hpp>

namespace dspp::laws {

template <class P>
struct DrawnBatch {
  Tokens<P> tokens, types, labels;    // [samples, sequence]; of a BERT the types
  Input<P, std::uint8_t, 2, 1> keep;  // [samples, sequence]: which vectors are those of the tokens
  Input<P, float, 3, 1> shifts;       // [samples, sequence, width]: beside them
  Input<P, float, 2> weights;         // [samples, 1]: of the samples in the term over all of them
  Input<P, std::int32_t, 1> lengths;  // [samples]: of a BERT
  Tokens<P> memory;                   // [samples, memory]: of another length
  Input<P, std::int32_t, 1> keys;     // [samples]: of the memory, the others are padding
  Size first_sample = 0;
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("types", types), f("labels", labels), f("keep", keep), f("shifts", shifts);
    f("weights", weights), f("lengths", lengths), f("memory", memory), f("keys", keys);
  }
};

/// The drawn parts between a masked input and a loss whose second term is, for every sample, the distance of its mean
/// state to that of all samples of all data ranks; or a BERT.
template <class P>
struct RandomOwnModel : Layer<P> {
  RandomModel<P> inner;
  Maybe<Bert<P>> bert;
  Maybe<GroupedAttention<P>> across;

  explicit RandomOwnModel(const DrawnModel& model) : inner(model) {
    if (model.family == Family::bert)
      bert.emplace(BertConfig{.layers = std::max(1, model.stacked),
                              .width = model.width,
                              .heads = model.heads,
                              .ffn_width = model.parts[0].ffn_width,
                              .vocabulary = model.vocabulary,
                              .sequence = model.longest,
                              .init_std = deviation_of(model),
                              .recompute_segments = model.segments});
    else if (model.crosses)
      across.emplace(RandomPart<P>::across_of(model, {.kv_heads = model.heads, .head_dim = 3}));
  }
  constexpr void visit(auto&& f) {
    bert ? f("bert", *bert) : inner.visit(f);
    if (across) f("across", *across);
  }

  Loss<P> loss(const DrawnBatch<P>& batch) const {
    if (bert)
      return inner.with_nonfinite(bert->loss(BertBatch<P>{batch.tokens, batch.types, batch.lengths, batch.labels}));
    const auto shifts = redistribute<typename P::HiddenState>(cast<ElementOf<P>>(batch.shifts));
    Hidden<P> given = where(batch.keep, inner.tokens(batch.tokens), 0.25) + shifts;
    if (across) given = given + (*across)(given, KeysOf{inner.tokens(batch.memory)}, Lengths{batch.keys});
    const auto x = inner.states(given, batch.tokens);
    const Loss<P> loss = inner.with_nonfinite(inner.of_logits(x, batch.labels));
    report("cross-entropy", loss);
    if (!inner.drawn.meets) return loss;
    const auto means = mean<1>(redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(x)));  // [samples, width]
    const auto all = redistribute<Replicate, Axis::Data>(means);
    const auto centre = sum<0>(all) / static_cast<double>(all[0]);
    const Loss<P> distance = mean(square(means - centre) * cast<ElementOf<P>>(batch.weights));
    report("distance", distance);
    report("spread", mean(square(all - centre)));
    return loss + distance;
  }

  DrawnBatch<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    const auto at = shape(sizes.micro_batch, sizes.sequence / P::cp);
    const auto ids = [&](const char* name) {
      return Tensor<std::int32_t, 2, D>::uninitialized(at, memory, Category::data, name);
    };
    DrawnBatch<P> batch;
    batch.tokens = ids("tokens"), batch.types = ids("types"), batch.labels = ids("labels");
    batch.keep = Tensor<std::uint8_t, 2, D>::uninitialized(at, memory, Category::data, "keep");
    batch.shifts = Tensor<float, 3, D>::uninitialized(shape(at[0], at[1], inner.drawn.width), memory, Category::data);
    batch.weights = Tensor<float, 2, D>::uninitialized(shape(at[0], Size{1}), memory, Category::data, "weights");
    batch.lengths = Tensor<std::int32_t, 1, D>::uninitialized(shape(at[0]), memory, Category::data, "lengths");
    batch.memory = Tensor<std::int32_t, 2, D>::uninitialized(shape(at[0], inner.drawn.memory / P::cp), memory,
                                                             Category::data, "memory");
    batch.keys = Tensor<std::int32_t, 1, D>::uninitialized(shape(at[0]), memory, Category::data, "keys");
    return batch;
  }
};

}  // namespace dspp::laws
