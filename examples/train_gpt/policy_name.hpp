// SPDX-License-Identifier: Apache-2.0
/// A policy as source text.
#pragma once

#include <string>
#include <type_traits>

#include <dspp/base/config.hpp>
#include <dspp/placement/policy.hpp>

namespace train_gpt {

/// Bf16 if the target processor multiplies it, else F32: bf16 products computed in f32 have two thirds of the speed.
#if DSPP_HAS_AVX512BF16()
using FastPrecision = dspp::Bf16;
#else
using FastPrecision = dspp::F32;
#endif

/// Names the ZeRO stage, the precision and every other member that differs from the default.
template <class P>
struct PolicyName {
  using Precision = typename P::Precision;
  using Gradient = typename P::GradientChoice;
  using Attention = typename P::Attention;

  static std::string text() {
    std::string name = "Policy<Zero<" + std::to_string(P::zero_stage) + ">, " + precision<Precision>();
    if (std::is_same_v<Gradient, dspp::Gradients<Precision>>)
      name += ", Gradients<" + precision<Precision>() + ">";
    else if (!std::is_same_v<Gradient, dspp::Gradients<dspp::ByUse>>)
      name += ", Gradients<F32>";
    if (P::replica_traffic.shards_within_node) name += ", Shards<Within<Node>>";
    if (P::replica_traffic.secondary_shards) name += ", SecondaryShards<Node>";
    if (P::replica_traffic.gather_bits > 0)
      name += ", GatherAs<Int" + std::to_string(P::replica_traffic.gather_bits) + ">";
    if (P::replica_traffic.reduce_bits > 0)
      name += ", ReduceAs<Int" + std::to_string(P::replica_traffic.reduce_bits) +
              (P::replica_traffic.feeds_errors_back ? ", LoCo>" : ">");
    if (!P::replica_traffic.overlaps) name += ", Overlap<Off>";
    if (P::cp > 1) name += ", Cp<" + std::to_string(P::cp) + ">";
    if (P::tp > 1) name += ", Tp<" + std::to_string(P::tp) + ">";
    if (P::sequence_parallel) name += ", SequenceParallel";
    if (P::regather_inputs) name += ", RegatherInputs";
    if (std::is_same_v<Attention, dspp::AttentionBy<dspp::CuDnn>>) name += ", AttentionBy<CuDnn>";
    if (std::is_same_v<Attention, dspp::AttentionBy<dspp::FlashKernels>>) name += ", AttentionBy<FlashKernels>";
    if (std::is_same_v<Attention, dspp::AttentionBy<dspp::PlainKernels>>) name += ", AttentionBy<PlainKernels>";
    if (P::optimizer_tier == dspp::Tier::host) name += ", Offload<Optimizer, Host>";
    if (P::optimizer_tier == dspp::Tier::disk) name += ", Offload<Optimizer, Disk>";
    if (P::parameter_tier == dspp::Tier::host) name += ", Offload<Parameters, Host>";
    if (P::parameter_tier == dspp::Tier::disk) name += ", Offload<Parameters, Disk>";
    if (P::activation_tier == dspp::Tier::host) name += ", Offload<Activations, Host>";
    if (P::activation_tier == dspp::Tier::disk) name += ", Offload<Activations, Disk>";
    if (P::partitions_activations) name += ", PartitionActivations";
    if (P::recomputes_norms) name += ", SelectiveRecompute<Norms>";
    if (P::recomputes_functions) name += ", SelectiveRecompute<ActivationFunctions>";
    if (P::delays_updates) name += ", Delayed<1>";
    if (P::speculates) name += ", Speculative";
    if (P::selects_rows) name += ", ZenFlow";
    if (!std::is_same_v<typename P::DeviceType, dspp::Cpu>) name += ", Cuda";
    return name + ">";
  }

  template <class X>
  static std::string precision() {
    if (std::is_same_v<X, dspp::F64>) return "F64";
    if (std::is_same_v<X, dspp::F16>) return "F16";
    return std::is_same_v<X, dspp::F32> ? "F32" : "Bf16";
  }
};

}  // namespace train_gpt
