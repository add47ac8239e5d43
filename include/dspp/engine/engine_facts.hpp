// SPDX-License-Identifier: Apache-2.0
/// Facts that must be equal on all ranks of a training: policy, seed, configuration, optimizer and model.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <dspp/comm/same_facts.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/launch/policy_facts.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/optim/loss_scale.hpp>

namespace dspp {

Facts loss_scale_facts(const LossScaleConfig& c);

/// The name of an optimizer and its hyper-parameters, from describe().
template <class Optimizer>
Facts optimizer_facts(const Optimizer& optimizer) {
  Facts facts;
  if constexpr (requires { Optimizer::name; }) facts.add("name", Optimizer::name);
  facts.add("moments", Optimizer::moment_count);
  if constexpr (requires { optimizer.describe([](const char*, auto) {}); })
    optimizer.describe([&](const char* key, auto value) { facts.add(key, value); });
  else
    facts.add("lr", static_cast<double>(optimizer.lr));
  return facts;
}

namespace detail {
Facts settings_facts(const BatchSizes& batch, const EngineConfig& set);
std::string name_of_group(const ParameterGroups& groups, const ParameterGroup& group);
Facts numbers_of_groups(const ParameterGroups& groups);
}  // namespace detail

/// The numbers of each group, and the group of each parameter that has one.
template <class Inventory>
Facts group_facts(const ParameterGroups& groups, const Inventory& inventory) {
  Facts facts = detail::numbers_of_groups(groups);
  for (const auto& named : inventory.parameters)
    if (named.parameter->group) facts.add(named.name->text, detail::name_of_group(groups, *named.parameter->group));
  return facts;
}

/// Names, shapes, cuts and initial values of a model's parameters, its random sites, and what its layers describe: a
/// layer with numbers that no shape shows has `describe(f)`, which calls f("heads", heads) for each.
template <class Model>
Facts model_facts(Model& model);

/// What the layers describe alone, the same under every strategy. Without probabilities of dropout and
/// recompute_segments, which a run may change when it resumes.
template <class Model>
Facts described_facts(Model& model);

/// Throws unless the engines of all ranks have equal facts. Call on every rank; `model` is the engine's.
///
/// Cost     gathers 8 bytes of each rank
/// Throws   Error(usage), one sentence on every rank
template <class Engine, class Model>
constexpr void require_same_engines(Engine& engine, Model& model);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Calls f(key, name, value) with what a layer describes, if anything.
template <class L, class F>
void each_described(const Path& path, const L& layer, F f) {
  const std::string at = path.text();
  if constexpr (requires { layer.describe([](const char*, auto) {}); })
    layer.describe([&](const char* key, auto value) { f(key, at.empty() ? std::string(key) : at + " " + key, value); });
}

/// Collects facts while walking a model: all, or those alone that layers describe, each name once, since a decorator
/// describes its layer, too. One type for both, since a walk has a function for each layer of a model.
struct ModelFacts {
  bool described_alone = false;
  Facts facts{};
  std::set<std::string> names{};

  template <class T, int Rank, Device D>
  void parameter(const Path& path, const Parameter<T, Rank, D>& p) {
    if (described_alone) return;
    const bool is_piece = p.piece > 0 || p.geometry.tile.columns > 0;
    add_parameter(path, std::string(name_of(element_type<T>)) + " " + to_string(p.global_shape()),
                  is_piece ? to_string(p.shape()) : std::string(), p.cut, p.initial, p.decays);
  }
  void site(const Path& path, const RandomSite&) {
    if (!described_alone) facts.add(path.text(), "a place of random numbers");
  }
  void begin_unit(const Path&, const auto&) {}
  void end_unit(const auto&) {}
  /// `piece`: its shape, if it is one of several.
  void add_parameter(const Path& path, std::string shape, const std::string& piece, const Cut& cut,
                     const Initial& initial, bool decays);
  template <class L>
  void layer(const Path& path, const L& layer) {
    each_described(path, layer, [&](std::string_view key, const std::string& name, auto value) {
      const bool may_change = key == "probability" || key == "recompute_segments";  // where a training goes on
      if (!described_alone || (!may_change && names.insert(name).second)) facts.add(name, value);
    });
  }
};

}  // namespace detail

template <class Model>
Facts described_facts(Model& model) {
  detail::ModelFacts walker{.described_alone = true};
  walk(model, walker);
  return std::move(walker.facts);
}

template <class Model>
Facts model_facts(Model& model) {
  detail::ModelFacts walker;
  walk(model, walker);
  return std::move(walker.facts);
}

/// Throws unless all ranks have the same policy, seed and model. Call on every rank.
///
/// Cost     gathers 8 bytes of each rank
/// Throws   Error(usage), one sentence on every rank
template <class P, class Model>
constexpr void require_same_weights(World<P>& world, Model& model);

namespace detail {
template <Communicator C, class MakeFacts>
void compare_given(C& ranks, const char* who, const MakeFacts& make_facts) {
  require_same_on_all_ranks(ranks, who, make_facts(ranks));
}
template <class MakeFacts>
constexpr void compare_given(Recorder<>& paper, const char*, const MakeFacts&) {
  same_on_paper(paper);
}
}  // namespace detail

template <class Engine, class Model>
constexpr void require_same_engines(Engine& engine, Model& model) {
  auto& world = engine.world();
  if (world.size() == 1) return;
  detail::compare_given(world.host(), "Engine", [&](auto&) {
    const auto& set = engine.config();  // names that hide none of a program's own
    Facts facts = policy_facts<typename Engine::P>().add("seed", world.seed());
    facts.add(detail::settings_facts(engine.sizes(), set));
    facts.add(group_facts(set.groups, engine.inventory()), "groups ");
    facts.add(optimizer_facts(engine.optimizer()), "optimizer ").add(model_facts(model), "model ");
    return facts;
  });
}

template <class P, class Model>
constexpr void require_same_weights(World<P>& world, Model& model) {
  if (world.size() == 1) return;
  detail::compare_given(world.host(), "Weights", [&](auto&) {
    return policy_facts<P>().add("seed", world.seed()).add(model_facts(model), "model ");
  });
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Facts loss_scale_facts(const LossScaleConfig& c) {
  return Facts()
      .add("fixed", c.fixed)
      .add("initial", c.initial)
      .add("window", c.window)
      .add("minimum", c.minimum)
      .add("hysteresis", c.hysteresis)
      .add("consecutive hysteresis", c.consecutive_hysteresis);
}

DSPP_INLINE Facts detail::settings_facts(const BatchSizes& batch, const EngineConfig& set) {
  Facts facts;
  facts.add("micro_batch", batch.micro_batch).add("sequence", batch.sequence).add("accumulate", batch.accumulate);
  facts.add("clip_norm", set.clip_norm);
  facts.add("bucket_bytes", set.bucket_bytes).add("check_ranks", set.check_ranks);
  facts.add("prefetch_bytes", set.prefetch_bytes).add("live_bytes", set.live_bytes);
  facts.add("delay_after", set.delay_after);
  facts.add("zenflow.topk_ratio", set.zenflow.topk_ratio);
  facts.add("zenflow.update_interval", set.zenflow.update_interval);
  facts.add("zenflow.select_interval", set.zenflow.select_interval);
  facts.add("zenflow.full_warm_up_steps", set.zenflow.full_warm_up_steps);
  facts.add("zenflow.overlap_step", set.zenflow.overlap_step);
  facts.add("error_feedback.decay", set.error_feedback.decay);
  facts.add("error_feedback.reset_steps", set.error_feedback.reset_steps);
  const auto add_part = [&facts](const std::string& of, const OffloadPart& part) {
    facts.add("offload." + of + ".share", part.share).add("offload." + of + ".most_bytes", part.most_bytes);
  };
  add_part("optimizer", set.offload.optimizer), add_part("parameters", set.offload.parameters);
  add_part("activations", set.offload.activations);
  facts.add("skip_nonfinite", set.skip_nonfinite).add("largest_norm", set.largest_norm);
  facts.add("zero_gradients", set.zero_gradients);
  return facts.add(loss_scale_facts(set.loss_scale), "loss_scale ");
}

DSPP_INLINE std::string detail::name_of_group(const ParameterGroups& groups, const ParameterGroup& group) {
  return "group " + std::to_string(&group - groups.begin() + 1);
}

DSPP_INLINE Facts detail::numbers_of_groups(const ParameterGroups& groups) {
  Facts facts;
  for (const ParameterGroup& group : groups) {
    const std::string at = name_of_group(groups, group);
    facts.add(at, group.name).add(at + " lr_factor", group.lr_factor).add(at + " weight_decay", group.weight_decay);
    facts.add(at + " frozen", group.frozen).add(at + " matrices", static_cast<int>(group.matrices));
  }
  return facts;
}

DSPP_INLINE void detail::ModelFacts::add_parameter(const Path& path, std::string shape, const std::string& piece,
                                                   const Cut& cut, const Initial& initial, bool decays) {
  const char* const initials[] = {"zeros", "ones", "normal"};
  std::string text = std::move(shape);
  if (cut.dimension >= 0) text += " cut along " + std::to_string(cut.dimension);
  if (cut.dimension >= 0) text += " in " + std::to_string(cut.parts);
  if (!piece.empty()) text += " piece " + piece;
  text += std::string(", ") + initials[static_cast<int>(initial.kind)] + (decays ? "" : ", without decay");
  facts.add(path.text(), text);
  if (initial.kind == Initial::Kind::normal) facts.add(path.text() + " stddev", initial.stddev);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
