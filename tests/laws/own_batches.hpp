// SPDX-License-Identifier: Apache-2.0
/// Models with batches of their own: floats in sequences that Cp cuts, and two towers that meet over the global batch.
#pragma once

#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/parallel/vocab.hpp>

namespace dspp::laws {

struct TowerConfig {
  Size width = 8, classes = 6, patch = 5, patches = 4;
  double dropout = 0;
};

/// Samples of patches, each with a class; some are ignored.
template <class P>
struct PatchBatch {
  Input<P, float, 3, 1> pixels;         // [samples, patches, pixels of a patch]
  Input<P, std::int32_t, 2, 1> labels;  // [samples, patches]
  Input<P, float, 1> weight;            // [samples]
  constexpr void visit(auto&& f) { f("pixels", pixels), f("labels", labels), f("weight", weight); }
};

/// The class of each patch.
template <class P>
struct PatchClassifier : Layer<P> {
  TowerConfig config;
  Linear<P> embed;
  Mlp<P> mlp;
  Dropout<P> dropout;
  ColumnParallel<Linear, P> head;

  constexpr explicit PatchClassifier(const TowerConfig& c)
      : config(c),
        embed(c.patch, c.width),
        mlp(MlpConfig{.width = c.width, .ffn_width = 2 * c.width, .initial = Initial::normal(0.3)}),
        dropout(c.dropout),
        head(c.width, c.classes) {}
  constexpr void visit(auto&& f) { f("embed", embed), f("mlp", mlp), f("dropout", dropout), f("head", head); }

  constexpr Loss<P> loss(const PatchBatch<P>& batch) const {
    const auto x = embed(cast<ElementOf<P>>(batch.pixels));
    const auto y = x + dropout(mlp(x));
    const auto loss = cross_entropy<P>(head(y), batch.labels, config.classes);
    report("cross-entropy", loss);
    report("weight", sum(batch.weight));
    return loss;
  }
  constexpr PatchBatch<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    PatchBatch<P> batch;
    const auto extents = shape(sizes.micro_batch, config.patches / P::cp, config.patch);
    batch.pixels = Tensor<float, 3, D>::uninitialized(extents, memory, Category::data, "pixels");
    batch.labels =
        Tensor<std::int32_t, 2, D>::uninitialized(shape(extents[0], extents[1]), memory, Category::data, "labels");
    batch.weight = Tensor<float, 1, D>::uninitialized(shape(extents[0]), memory, Category::data, "weight");
    return batch;
  }
};

/// Pairs of vectors. match[i] is the number of sample i among those of all data ranks.
template <class P>
struct PairBatch {
  Input<P, float, 2> left, right;  // [samples, patch]
  Input<P, std::int32_t, 1> match;
  Size first_sample = 0, accumulate = 0;
  constexpr void visit(auto&& f) { f("left", left), f("right", right), f("match", match); }
};

/// Each left vector is nearest to its right one among those of the whole batch, and the other way round.
///
/// Source   Radford et al. 2021, arXiv:2103.00020, figure 3
template <class P>
struct TwoTowers : Layer<P> {
  TowerConfig config;
  Linear<P> left, right;

  constexpr explicit TwoTowers(const TowerConfig& c) : config(c), left(c.patch, c.width), right(c.patch, c.width) {}
  constexpr void visit(auto&& f) { f("left", left), f("right", right); }

  constexpr Loss<P> loss(const PairBatch<P>& batch) const {
    const auto a = left(cast<ElementOf<P>>(batch.left)), b = right(cast<ElementOf<P>>(batch.right));
    return 0.5 * (towards(a, b, batch.match) + towards(b, a, batch.match));
  }
  constexpr PairBatch<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    PairBatch<P> batch;
    const auto extents = shape(sizes.micro_batch, config.patch);
    batch.left = Tensor<float, 2, D>::uninitialized(extents, memory, Category::data, "left");
    batch.right = Tensor<float, 2, D>::uninitialized(extents, memory, Category::data, "right");
    batch.match = Tensor<std::int32_t, 1, D>::uninitialized(shape(extents[0]), memory, Category::data, "match");
    return batch;
  }

 private:
  constexpr Loss<P> towards(const auto& a, const auto& b, const Input<P, std::int32_t, 1>& match) const {
    const auto all = redistribute<Replicate, Axis::Data>(b);
    const auto logits = matmul(a, transpose<1, 0>(all));
    return cross_entropy<P>(redistribute<Shard<1>>(logits), match, logits[1]);
  }
};

}  // namespace dspp::laws
