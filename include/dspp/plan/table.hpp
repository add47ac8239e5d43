// SPDX-License-Identifier: Apache-2.0
/// A plan as text.
#pragma once

#include <string>

#include <dspp/observe/comparison.hpp>
#include <dspp/plan/estimates.hpp>
#include <dspp/plan/plan.hpp>

namespace dspp {

/// Lines of text: bytes by category, between steps and at the peak, and the bytes that the Pool reserves; one step's
/// traffic by collective and axis; parameters and operations; the traffic of the comparison at the start and of a
/// check; of a plan that plan() made, its comparison_of().
///
///   std::fputs(table_of(paper).c_str(), stdout);
std::string table_of(const Plan& plan, const EstimateOptions& options = {});

/// Lines of text: one rank's bytes by the plan, and beside them DeepSpeed's estimate and Megatron-LM's bytes per
/// parameter times the rank's parameters, where they have one for the plan's strategy. Both are of states and gradients
/// alone; the peak has activations, communication and workspaces, too. A node's host serves ranks like this one.
///
/// Throws   Error(usage) for nodes that do not divide the plan's replicas
std::string comparison_of(const Plan& plan, const EstimateOptions& options = {});

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline std::string bytes_table_of(const Plan& plan) {
  Table table({"bytes of one rank", "between steps", "", "at the peak", ""});
  const auto add = [&](const char* name, Size between, Size at_peak) {
    table.add(
        {name, std::to_string(between), readable_bytes(between), std::to_string(at_peak), readable_bytes(at_peak)});
  };
  for (int i = 0; i < category_count; ++i) {
    const auto category = static_cast<Category>(i);
    add(name_of(category), plan.state[category], plan.at_peak[category]);
  }
  add("all", plan.resident, plan.peak);
  if (plan.host > 0) add("of the host's memory beside it", plan.host_resident, plan.host);
  if (plan.disk > 0) add("of a file", plan.disk, plan.disk);
  table.add(
      {"reserved, at most", "", "", std::to_string(plan.reserved_at_most()), readable_bytes(plan.reserved_at_most())});
  return table.text();
}

inline std::string traffic_table_of(const Plan& plan) {
  // Replicas, those by node and each axis with traffic of their own, all ranks.
  std::vector<std::string> names{"bytes read in one step, over", "replicas"};
  std::vector<const Traffic*> groups{&plan.replica_traffic};
  const auto add_if_any = [&](const char* name, const Traffic& traffic) {
    if (traffic.total() > 0) names.push_back(name), groups.push_back(&traffic);
  };
  add_if_any("those of a node", plan.node_traffic);
  add_if_any("those across nodes", plan.across_traffic);
  for (Axis axis : all_axes) add_if_any(name_of(axis), plan.traffic_along[axis]);
  names.push_back("all ranks");
  groups.push_back(&plan.world_traffic);
  Table table(names);
  const auto add = [&](const char* name, const auto& bytes_of) {
    std::vector<std::string> row{name};
    for (const Traffic* group : groups) row.push_back(std::to_string(bytes_of(*group)));
    table.add(row);
  };
  for (int i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (plan.traffic().bytes(collective) == 0) continue;
    add(name_of(collective), [&](const Traffic& traffic) { return traffic.bytes(collective); });
  }
  add("all", [](const Traffic& traffic) { return traffic.total(); });
  return table.text();
}

inline std::string megatron_name(const MegatronEstimate& estimate) {
  const auto [replicated, divided] = megatron_bytes(estimate.types);
  const std::string name = "Megatron-LM's ";
  if (!estimate.distributed_optimizer) return name + std::to_string(replicated + divided) + " bytes per parameter";
  return name + std::to_string(replicated) + " + " + std::to_string(divided) + "/" + std::to_string(estimate.data) +
         " bytes per parameter";
}

}  // namespace detail

inline std::string comparison_of(const Plan& plan, const EstimateOptions& options) {
  Table table({"bytes beside estimates", "of a device", "", "of a node's host", ""});
  const auto add = [&](const std::string& name, Size device, Size host) {
    const bool shown = host > 0;
    table.add({name, std::to_string(device), readable_bytes(device), shown ? std::to_string(host) : "",
               shown ? readable_bytes(host) : ""});
  };
  const PlanFacts& facts = plan.facts;
  detail::check_nodes(facts, options);
  const bool by_node = facts.shards < facts.replicas;  // an estimate is then of one node alone
  const int on_node = by_node ? facts.ranks / facts.replicas * facts.shards : facts.ranks / options.nodes;
  add("dspp, at the peak", plan.peak, plan.host * on_node);
  add("dspp, between steps", plan.resident, 0);
  add("dspp, states and gradients", plan.states_and_gradients(), 0);
  if (has_deepspeed_estimate(plan)) {
    const EstimatedBytes bytes = deepspeed_estimate(plan, options);
    add("DeepSpeed's estimate for stage " + std::to_string(facts.zero_stage), bytes.device,
        facts.optimizer_tier == Tier::disk ? 0 : bytes.host);
  }
  if (has_megatron_estimate(plan)) {
    const MegatronEstimate estimate = megatron_estimate(plan);
    add(detail::megatron_name(estimate), estimate.bytes(), 0);
  }
  return table.text();
}

inline std::string table_of(const Plan& plan, const EstimateOptions& options) {
  Table work({"of the model and one step", ""});
  work.add({"parameters of all ranks", std::to_string(plan.parameters)});
  work.add({"operations forward", detail::exact_text(plan.forward_flops)});
  work.add({"operations backward", detail::exact_text(plan.backward_flops)});
  if (plan.links.outer > 0) {
    work.add({"bytes read in one step inside of a node", std::to_string(plan.links.inner)});
    work.add({"bytes read in one step from other nodes", std::to_string(plan.links.outer)});
  }
  if (plan.start_traffic.total() > 0)
    work.add({"bytes read once, to compare what ranks were given", std::to_string(plan.start_traffic.total())});
  if (plan.check_traffic.total() > 0)
    work.add({"bytes read by a check of the ranks", std::to_string(plan.check_traffic.total())});
  const std::string text = detail::bytes_table_of(plan) + "\n" + detail::traffic_table_of(plan) + "\n" + work.text();
  return plan.facts.rank_parameters == 0 ? text : text + "\n" + comparison_of(plan, options);
}

}  // namespace dspp
