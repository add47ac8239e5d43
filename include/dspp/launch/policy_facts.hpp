// SPDX-License-Identifier: Apache-2.0
/// What the ranks must have in common of a policy, as facts.
#pragma once

#include <dspp/comm/same_facts.hpp>
#include <dspp/placement/policy.hpp>

namespace dspp {

template <class P>
Facts policy_facts() {
  using T = typename P::Element;
  using Choice = typename P::GradientChoice;
  Facts facts;
  facts.add("ZeRO stage", P::zero_stage)
      .add("element type", name_of(element_type<T>))
      .add("gradients", std::is_same_v<Choice, Gradients<ByUse>> ? "by use"
                        : std::is_same_v<Choice, Gradients<F32>> ? "f32"
                                                                 : "as the elements")
      .add("sequence parallel", P::sequence_parallel)
      .add("regather inputs", P::regather_inputs)
      .add("attention by", name_of(P::attention_by))
      .add("optimizer's state in", name_of(P::optimizer_tier))
      .add("parameters in", name_of(P::parameter_tier))
      .add("activations in", name_of(P::activation_tier))
      .add("partitioned activations", P::partitions_activations)
      .add("recomputed norms", P::recomputes_norms)
      .add("recomputed activation functions", P::recomputes_functions)
      .add("shards within nodes", P::replica_traffic.shards_within_node)
      .add("secondary shards", P::replica_traffic.secondary_shards)
      .add("bits of gathered elements", P::replica_traffic.gather_bits)
      .add("bits of reduced elements", P::replica_traffic.reduce_bits)
      .add("error feedback", P::replica_traffic.feeds_errors_back)
      .add("overlap", P::replica_traffic.overlaps)
      .add("delayed updates", P::delays_updates)
      .add("speculative updates", P::speculates)
      .add("updates of important rows", P::selects_rows);
  for (Axis axis : all_axes)
    if (axis != Axis::Data) facts.add(name_of(axis), P::degrees[axis]);
  return facts;
}

}  // namespace dspp
