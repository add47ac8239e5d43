// SPDX-License-Identifier: Apache-2.0
/// Small trainings with features that models and data may have, the same on every device: images in patches, masks,
/// whole logits, reports, parameter groups; packed documents of blended sources, weights of targets.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/data/shard_writer.hpp>
#include <dspp/dspp.hpp>
#include <dspp/engine/blend.hpp>
#include <dspp/engine/token_samples.hpp>

#include <laws/folder.hpp>
#include <support/far_device.hpp>

namespace dspp::laws {

/// Takes a step in which the host waits for nothing, and appends its numbers and metrics to `values`.
template <class World, class Engine, class Batch>
void take_step(World& world, Engine& engine, const Batch& batch, std::vector<double>& values) {
  const Size before = far_device::waits(world.memory());
  const auto report = engine.train_batch(batch);
  CHECK(far_device::waits(world.memory()) == before);
  values.push_back(report->loss), values.push_back(report->gradient_norm), values.push_back(report->targets);
  for (const auto& metric : report->metrics) values.push_back(metric.value);
}

/// All parameters, by name.
template <class Engine>
void append_parameters(Engine& engine, std::vector<double>& values) {
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    whole.read([&](const auto* host) { values.insert(values.end(), host, host + whole.count()); });
  }
}

/// What the first rank saw.
template <class P, class F>
std::vector<double> seen_by_first(int ranks, F train) {
  std::vector<double> seen;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    std::vector<double> own;
    train(world, own);
    if (world.is_first()) seen = own;
  });
  return seen;
}

// ---- images in patches, masks, logits that every rank has whole, a report, parameter groups -------------------------

template <class P>
struct Pictures {
  Input<P, ElementOf<P>, 4> pixels;  // [samples, channels, 4, 4]
  Input<P, std::uint8_t, 2> seen;    // [samples, patches]: 0 or 1
  Input<P, std::int32_t, 1> labels;  // [samples]
  constexpr void visit(auto&& f) { f("pixels", pixels), f("seen", seen), f("labels", labels); }
};

template <class P>
struct PictureClassifier : Layer<P> {
  PatchEmbedding<P> patches{{.channels = 2, .patch = 2, .width = 8}};
  Mlp<P> mlp{MlpConfig{.width = 8, .ffn_width = 16, .initial = Initial::normal(0.3)}};
  Linear<P> head{8, 6};
  constexpr void visit(auto&& f) { f("patches", patches), f("mlp", mlp), f("head", head); }
  constexpr Loss<P> loss(const Pictures<P>& batch) const {
    const auto x = patches(batch.pixels);
    const auto y = where(batch.seen, x + mlp(x), 0.0);
    report("seen", mean(cast<ElementOf<P>>(batch.seen)));
    return cross_entropy<P>(head(mean<1>(y)), batch.labels, 6);
  }
};

template <class P>
Pictures<P> pictures(World<P>& world, Size step) {
  using D = DeviceOf<P>;
  constexpr Size rows = 3;
  const Size first = (step * world.data_size() + world.data_rank()) * rows;
  Pictures<P> batch;
  batch.pixels = Tensor<ElementOf<P>, 4, D>::uninitialized(shape(rows, 2, 4, 4), world.memory(), Category::data);
  batch.seen = Tensor<std::uint8_t, 2, D>::uninitialized(shape(rows, 4), world.memory(), Category::data);
  batch.labels = Tensor<std::int32_t, 1, D>::uninitialized(shape(rows), world.memory(), Category::data);
  batch.pixels.value().write([&](ElementOf<P>* host) {
    for (Size i = 0; i < rows * 32; ++i) host[i] = static_cast<ElementOf<P>>((first * 32 + i) * 7919 % 101) / 50 - 1;
  });
  batch.seen.value().write([&](std::uint8_t* host) {
    for (Size i = 0; i < rows * 4; ++i) host[i] = (first * 4 + i) % 3 > 0;
  });
  batch.labels.value().write([&](std::int32_t* host) {
    for (Size i = 0; i < rows; ++i) host[i] = static_cast<std::int32_t>((first + i) % 6);
  });
  return batch;
}

/// The patches' weight is frozen.
inline ParameterGroups picture_groups() {
  return {{.name = "kernel", .contains = [](std::string_view p) { return p == "patches.weight"; }, .frozen = true},
          {.name = "mlp",
           .contains = [](std::string_view p) { return p.starts_with("mlp"); },
           .lr_factor = 0.5,
           .weight_decay = 0.1}};
}

/// Initial parameters, the four numbers of each step, last parameters.
constexpr Size picture_steps = 3, picture_numbers = 4 * picture_steps;
template <class P, class O>
std::vector<double> trained_on_pictures(int ranks, const O& optimizer) {
  return seen_by_first<P>(ranks, [&](World<P>& world, std::vector<double>& values) {
    Engine engine{world, PictureClassifier<P>(), optimizer, EngineConfig{.groups = picture_groups(), .check_ranks = 0}};
    append_parameters(engine, values);
    for (Size step = 0; step < picture_steps; ++step) take_step(world, engine, pictures(world, step), values);
    append_parameters(engine, values);
  });
}

// ---- documents of two blended sources, weights of targets -----------------------------------------------------------

template <class P>
struct Reader : Layer<P> {
  Embedding<P> tokens{10, 8}, positions{8, 8};
  SelfAttention<P> attention{AttentionConfig{.width = 8, .heads = 2}};
  ColumnParallel<Linear, P> head{8, 10};
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("positions", positions), f("attention", attention), f("head", head);
  }
  constexpr Loss<P> loss(const DocumentBatch<P>& batch) const {
    const auto x = tokens(batch.tokens) + positions(batch.positions);
    return cross_entropy<P>(head(x + attention(x, Documents{batch.documents})), batch.targets, 10);
  }
};

/// Samples of 8 tokens, in documents that end with 0.
inline DocumentSamples<> documents_of(const Folder& folder, const char* name, Size samples, Size by) {
  data::TokenShardWriter writer(folder.file(name), {10, 1});
  for (Size i = 0; i <= 8 * samples; ++i) writer.append(std::vector{static_cast<std::int32_t>(i * i * by % 7)});
  writer.commit();
  return {std::make_shared<const data::TokenShards>(std::vector{folder.file(name)}), {.end = 0}};
}

/// 0 to 3, with a period that no row has.
template <class D>
Tensor<float, 2, D> weights_like(const Tensor<std::int32_t, 2, D>& targets, Size step) {
  auto weights = Tensor<float, 2, D>::uninitialized(targets.shape(), targets.memory(), Category::data);
  weights.write([&](float* host) {
    for (Size i = 0; i < targets.count(); ++i) host[i] = static_cast<float>((3 * i + step) % 7 % 4);
  });
  return weights;
}

template <class P, class O = AdamW>
std::vector<double> trained_on_documents(int ranks, bool weighed, const O& optimizer = {.lr = 1e-2}) {
  const Folder folder;
  const BatchSizes sizes{.micro_batch = 2, .sequence = 8};
  const Blend<DocumentSamples<>> blend(
      {{documents_of(folder, "a.tokens", 5, 3), 0.7}, {documents_of(folder, "b.tokens", 9, 5), 0.3}}, sizes);
  return seen_by_first<P>(ranks, [&](World<P>& world, std::vector<double>& values) {
    Engine engine{world, Reader<P>(), optimizer, sizes, EngineConfig{.check_ranks = 0}};
    const auto data = batches(world, blend, sizes, {.steps = 5});
    Size step = 0;
    for (DocumentBatch<P> batch : data) {
      if (weighed) batch.targets.target_weights = weights_like(batch.targets.value(), step++);
      take_step(world, engine, batch, values);
    }
    append_parameters(engine, values);
  });
}

}  // namespace dspp::laws
