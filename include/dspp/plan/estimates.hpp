// SPDX-License-Identifier: Apache-2.0
/// What DeepSpeed and Megatron-LM estimate for a training, to compare with the exact bytes of a Plan.
#pragma once

#include <algorithm>

#include <dspp/plan/plan.hpp>

namespace dspp {

/// Bytes of one GPU, and of the host's memory of its node.
struct EstimatedBytes {
  Size device = 0;
  Size host = 0;

  friend constexpr bool operator==(const EstimatedBytes&, const EstimatedBytes&) = default;
};

/// What DeepSpeed moves to the host.
enum class EstimatedOffload { nothing, optimizer, optimizer_and_parameters };

/// The memory estimators of DeepSpeed 0.19: states of a model in 16 bits under Adam, without activations, fragmentation
/// and buffers of communication. P parameters, L of them in the largest layer, g GPUs a node, m nodes, f the factor.
///
/// Source   DeepSpeed, runtime/zero/stage_1_and_2.py and stage3.py: estimate_zero{2,3}_model_states_mem_needs
struct DeepSpeedEstimate {
  Size parameters = 0;
  Size largest_layer = 0;  ///< of stage 3: parameters of the module that has most, submodules excluded
  int gpus_per_node = 1;
  int nodes = 1;
  EstimatedOffload offload = EstimatedOffload::nothing;
  bool zero_init = true;  ///< of stage 3: the model is constructed in shards
  double additional_buffer_factor = 1.5;

  /// offload     device         host
  /// nothing     2P + 18P/(gm)  4P g f
  /// optimizer   2P             max(4gm, 16) P f
  ///
  /// Throws   Error(usage) for a number below 1, and for parameters that are offloaded, which stage 3 alone does
  constexpr EstimatedBytes zero2() const;

  /// offload                    device         host, with zero_init   without it
  /// nothing                    4L + 18P/(gm)  4L g f                 4P g f
  /// optimizer                  4L + 2P/(gm)   16P/m f                max(4g, 16/m) P f
  /// optimizer and parameters   4L             18P/m f                max(4g, 18/m) P f
  ///
  /// Throws   Error(usage) for a number below 1, and for a largest layer of more than all parameters
  constexpr EstimatedBytes zero3() const;
};

/// The types of parameters and gradients in Megatron-LM's table.
enum class MegatronTypes { fp16, bf16_with_fp32_gradients, fp32 };

/// Megatron-LM's theoretical bytes of a rank's parameters, main parameters, gradients and Adam's moments: without
/// activations, fragmentation, padding and buffers of communication. d is the data degree.
///
/// types                      without the distributed optimizer   with it
/// fp16                       20                                  4 + 16/d
/// bf16_with_fp32_gradients   18                                  6 + 12/d
/// fp32                       16                                  8 + 8/d
///
/// Throws   Error(usage) for a number below 1
/// Source   Megatron-LM, docs/user-guide/features/dist_optimizer.md
struct MegatronEstimate {
  Size parameters = 0;  ///< of one rank, under tensor parallelism its part
  MegatronTypes types = MegatronTypes::bf16_with_fp32_gradients;
  int data = 1;
  bool distributed_optimizer = true;

  constexpr double bytes_per_parameter() const;
  /// Of all parameters, rounded up.
  constexpr Size bytes() const;
};

/// What a plan does not say and an estimate takes.
struct EstimateOptions {
  int nodes = 1;  ///< of equally many ranks
  double additional_buffer_factor = 1.5;
};

/// True if DeepSpeed has an estimate for the plan: for stages 2 and 3, of offloaded parameters beside an offloaded
/// optimizer.
constexpr bool has_deepspeed_estimate(const Plan& plan);
/// DeepSpeed's estimate for the plan's model, stage, offload and number of GPUs, with zero_init, as dspp constructs
/// models. The largest parameter is taken for the largest layer, which may have a bias more. DeepSpeed's formulas do
/// not know tensor parallelism: under Tp<n> P is one rank's part, and its n parts share the host's memory. Frozen
/// parameters count as trained ones.
///
/// Throws   Error(usage) for a stage without an estimate, and for nodes that do not divide the replicas
constexpr EstimatedBytes deepspeed_estimate(const Plan& plan, const EstimateOptions& options = {});

/// True if Megatron-LM's table has the plan's precision: F32, Bf16 and F16.
constexpr bool has_megatron_estimate(const Plan& plan);
/// Megatron-LM's for one rank's part of the plan's model, with nothing offloaded and whatever the gradients' type; with
/// the distributed optimizer from stage 1 on (its table has no other stage), whose data degree counts Cp, too.
///
/// Throws   Error(usage) for another precision
constexpr MegatronEstimate megatron_estimate(const Plan& plan);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Bytes of a formula, without their fraction.
constexpr Size estimated(double bytes) {
  // clang-format off
  require(bytes < 9e18, "dspp: an estimate needs bytes that 63 bits can count, but it has more. Correct the numbers of parameters and GPUs.");
  // clang-format on
  return static_cast<Size>(bytes);
}

constexpr void check_estimate(const DeepSpeedEstimate& of) {
  // clang-format off
  require(of.parameters > 0, "dspp: DeepSpeedEstimate needs at least one parameter, but got fewer. Set parameters.", ErrorCode::usage, {{"parameters", of.parameters}});
  require(of.gpus_per_node > 0 && of.nodes > 0, "dspp: DeepSpeedEstimate needs at least one GPU a node and one node, but got fewer. Set gpus_per_node and nodes.", ErrorCode::usage,
          {{"gpus_per_node", of.gpus_per_node}, {"nodes", of.nodes}});
  require(of.additional_buffer_factor > 0, "dspp: DeepSpeedEstimate needs an additional_buffer_factor above 0, but got another. DeepSpeed's own is 1.5.");
  // clang-format on
}
}  // namespace detail

constexpr EstimatedBytes DeepSpeedEstimate::zero2() const {
  detail::check_estimate(*this);
  // clang-format off
  require(offload != EstimatedOffload::optimizer_and_parameters, "dspp: DeepSpeedEstimate::zero2 needs an offload of nothing or of the optimizer, but parameters are offloaded, too. Ask zero3.");
  // clang-format on
  const double p = static_cast<double>(parameters), gpus = static_cast<double>(gpus_per_node) * nodes;
  if (offload == EstimatedOffload::optimizer)
    return {detail::estimated(2 * p), detail::estimated(p * std::max(4 * gpus, 16.0) * additional_buffer_factor)};
  return {detail::estimated(2 * p + 18 * p / gpus),
          detail::estimated(p * 4 * gpus_per_node * additional_buffer_factor)};
}

constexpr EstimatedBytes DeepSpeedEstimate::zero3() const {
  detail::check_estimate(*this);
  // clang-format off
  require(largest_layer > 0 && largest_layer <= parameters, "dspp: DeepSpeedEstimate::zero3 needs a largest layer of one parameter up to all, but got another. Set largest_layer.", ErrorCode::usage,
          {{"largest_layer", largest_layer}, {"parameters", parameters}});
  // clang-format on
  const double p = static_cast<double>(parameters), layer = 4 * static_cast<double>(largest_layer);
  const double gpus = static_cast<double>(gpus_per_node) * nodes, whole = 4.0 * gpus_per_node;
  if (offload == EstimatedOffload::nothing)
    return {detail::estimated(layer + 18 * p / gpus),
            detail::estimated((zero_init ? layer : 4 * p) * gpus_per_node * additional_buffer_factor)};
  const bool parameters_too = offload == EstimatedOffload::optimizer_and_parameters;
  const double states = (parameters_too ? 18.0 : 16.0) / nodes;
  return {detail::estimated(parameters_too ? layer : layer + 2 * p / gpus),
          detail::estimated(p * (zero_init ? states : std::max(whole, states)) * additional_buffer_factor)};
}

namespace detail {
/// Bytes of a parameter that every rank has, and those that the distributed optimizer divides.
struct MegatronBytes {
  Size replicated, divided;
};
constexpr MegatronBytes megatron_bytes(MegatronTypes types) {
  if (types == MegatronTypes::fp16) return {4, 16};
  if (types == MegatronTypes::fp32) return {8, 8};
  return {6, 12};
}
constexpr void check_estimate(const MegatronEstimate& of) {
  // clang-format off
  require(of.parameters > 0 && of.data > 0, "dspp: MegatronEstimate needs at least one parameter and a data degree of at least 1, but got less. Set parameters and data.", ErrorCode::usage,
          {{"parameters", of.parameters}, {"data", of.data}});
  // clang-format on
}
}  // namespace detail

constexpr double MegatronEstimate::bytes_per_parameter() const {
  detail::check_estimate(*this);
  const auto [replicated, divided] = detail::megatron_bytes(types);
  return static_cast<double>(replicated) + static_cast<double>(divided) / (distributed_optimizer ? data : 1);
}

constexpr Size MegatronEstimate::bytes() const {
  detail::check_estimate(*this);
  detail::estimated(20 * static_cast<double>(parameters));  // no more than can be counted
  const auto [replicated, divided] = detail::megatron_bytes(types);
  const Size ranks = distributed_optimizer ? data : 1;
  return replicated * parameters + round_up(divided * parameters, ranks) / ranks;
}

namespace detail {
constexpr void check_nodes(const PlanFacts& facts, const EstimateOptions& options) {
  // clang-format off
  require(options.nodes > 0 && facts.replicas % options.nodes == 0, "dspp: an estimate needs nodes that divide the plan's replicas, but they do not. Set EstimateOptions::nodes.", ErrorCode::usage,
          {{"nodes", options.nodes}, {"replicas", facts.replicas}});
  // clang-format on
}
}  // namespace detail

constexpr bool has_deepspeed_estimate(const Plan& plan) {
  const PlanFacts& facts = plan.facts;
  const bool knows = facts.parameter_tier == Tier::device || facts.optimizer_tier != Tier::device;
  return facts.zero_stage >= 2 && knows;
}

constexpr EstimatedBytes deepspeed_estimate(const Plan& plan, const EstimateOptions& options) {
  const PlanFacts& facts = plan.facts;
  const int parts = facts.ranks / facts.replicas;
  // clang-format off
  require(has_deepspeed_estimate(plan), "dspp: deepspeed_estimate needs a plan of ZeRO stage 2 or 3 and of tiers that it knows, but got another. Ask has_deepspeed_estimate(plan).", ErrorCode::usage,
          {{"stage", facts.zero_stage}});
  // clang-format on
  detail::check_nodes(plan.facts, options);
  const int nodes = facts.shards < facts.replicas ? 1 : options.nodes;  // each node is as one that is alone
  const DeepSpeedEstimate estimate{.parameters = facts.rank_parameters,
                                   .largest_layer = facts.largest_parameter,
                                   .gpus_per_node = facts.shards / nodes,
                                   .nodes = nodes,
                                   .offload = facts.optimizer_tier == Tier::device ? EstimatedOffload::nothing
                                              : facts.parameter_tier == Tier::device
                                                  ? EstimatedOffload::optimizer
                                                  : EstimatedOffload::optimizer_and_parameters,
                                   .additional_buffer_factor = options.additional_buffer_factor};
  const EstimatedBytes bytes = facts.zero_stage == 3 ? estimate.zero3() : estimate.zero2();
  return {bytes.device, detail::estimated(static_cast<double>(bytes.host) * parts)};
}

constexpr bool has_megatron_estimate(const Plan& plan) {
  const ElementType values = plan.facts.values;
  return values == ElementType::f32 || values == ElementType::bf16 || values == ElementType::f16;
}

constexpr MegatronEstimate megatron_estimate(const Plan& plan) {
  const PlanFacts& facts = plan.facts;
  // clang-format off
  require(has_megatron_estimate(plan), "dspp: megatron_estimate needs a plan under F32, Bf16 or F16, but got another. Ask has_megatron_estimate(plan) before.");
  // clang-format on
  return {.parameters = facts.rank_parameters,
          .types = facts.values == ElementType::f32   ? MegatronTypes::fp32
                   : facts.values == ElementType::f16 ? MegatronTypes::fp16
                                                      : MegatronTypes::bf16_with_fp32_gradients,
          .data = facts.shards,
          .distributed_optimizer = facts.zero_stage >= 1};
}

}  // namespace dspp
