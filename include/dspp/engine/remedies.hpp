// SPDX-License-Identifier: Apache-2.0
/// Memory of a rank's parameters between backward and step, under its ZeRO stage and under others.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include <dspp/base/element.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/tensor/pool.hpp>
#include <dspp/zero/replica_config.hpp>
#include <dspp/zero/stage.hpp>

namespace dspp {

/// Bytes of one parameter: its value, its gradient, and the optimizer's moments and master.
struct ParameterBytes {
  Size value = 0, gradient = 0, optimizer = 0;
};

/// Bytes of `parameters` on each of `replicas` ranks between backward and step, without padding.
///
/// Source   Rajbhandari et al. 2020, arXiv:1910.02054, figure 1
constexpr Size state_bytes(const StageRule& rule, const ParameterBytes& each, Size parameters, int replicas) {
  const auto share = [&](Size bytes, bool split) { return bytes * parameters / (split ? replicas : 1); };
  return share(each.value, rule.values_are_split()) + share(each.gradient, rule.gradients == Lifetime::until_bucket) +
         share(each.optimizer, rule.optimizer_is_split());
}

/// The other stages, and twice the replicas, with the bytes that each would save: for the map that a Pool prints when
/// it is out of memory. What would save nothing is left out. `of_a_node`: state is cut over these replicas alone.
std::vector<Remedy> stage_remedies(const StageRule& rule, const ParameterBytes& each, Size parameters, int replicas,
                                   bool of_a_node = false);

namespace detail {
/// Has the engine's Pool print them when it is out of memory.
template <class Engine>
constexpr void ask_stage_remedies(Engine& engine) {
  engine.world().memory().ask_remedies(&engine, [&] {
    using T = typename Engine::T;
    constexpr Size state = sizeof(Compute<T>);
    constexpr Size master = std::is_same_v<T, Compute<T>> ? 0 : state;
    ParameterBytes all{};
    const ReplicaConfig& config = engine.replicas().config();
    for (const auto* unit : engine.units())
      for (const auto* p : unit->parameters()) {
        all.value += p->count() * static_cast<Size>(sizeof(T));
        if (p->is_frozen()) continue;
        all.gradient += engine.replicas().gradient_bytes(p->count());
        all.optimizer += p->count() * (master + moments_of<typename Engine::OptimizerType>(*p) * state);
      }
    const auto keep_what_stays = [&](Size& bytes, Tier tier, const OffloadPart& part) {
      if (tier == Tier::device) return;
      const Size moved = tier == Tier::disk ? bytes : static_cast<Size>(part.share * static_cast<double>(bytes));
      const Size most =
          part.most_bytes == OffloadPart::unlimited ? moved : part.most_bytes * engine.replicas().shards().size();
      bytes -= std::min(moved, most);
    };
    for (Size* bytes : {&all.value, &all.gradient})
      keep_what_stays(*bytes, config.parameters, config.offload.parameters);
    keep_what_stays(all.optimizer, config.optimizer, config.offload.optimizer);
    const auto& replicas = engine.replicas();
    StageRule rule = replicas.rule();  // a step of one micro-step reduces gradients in its backward
    if (rule.optimizer_is_split() && engine.sizes().accumulate == 1) rule.gradients = Lifetime::until_bucket;
    return stage_remedies(rule, all, 1, replicas.shards().size(),
                          replicas.config().traffic.shards_within_node);
  });
}
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::vector<Remedy> stage_remedies(const StageRule& rule, const ParameterBytes& each, Size parameters,
                                               int replicas, bool of_a_node) {
  const Size now = state_bytes(rule, each, parameters, replicas);
  std::vector<Remedy> remedies;
  const auto offer = [&](std::string what, Size then) {
    if (then < now) remedies.push_back({std::move(what), now - then});
  };
  offer("Zero<1>", state_bytes(stage_rule<1>, each, parameters, replicas));
  offer("Zero<2>", state_bytes(stage_rule<2>, each, parameters, replicas));
  offer("Zero<3>", state_bytes(stage_rule<3>, each, parameters, replicas));
  offer(of_a_node ? "twice the data ranks on a node" : "twice the data ranks",
        state_bytes(rule, each, parameters, 2 * replicas));
  if (replicas == 1 && !rule.values_are_split())
    offer(of_a_node ? "Zero<3> on two data ranks of a node" : "Zero<3> on two data ranks",
          state_bytes(stage_rule<3>, each, parameters, 2));
  return remedies;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
