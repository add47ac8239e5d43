// SPDX-License-Identifier: Apache-2.0
/// A drawn task and split in words, for the sentence of a test that fails.
#pragma once

#include <string>

#include <laws/random_tasks.hpp>

namespace dspp::laws {

std::string text_of(const DrawnTask& task, const DrawnSplit& split);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
constexpr const char* part_names[] = {"attention",
                                      "grouped attention",
                                      "mlp",
                                      "gated mlp",
                                      "tiled",
                                      "tiled mlp",
                                      "product",
                                      "gathered",
                                      "factors",
                                      "dropout",
                                      "groups",
                                      "shapes",
                                      "sequential",
                                      "plain",
                                      "own attention",
                                      "head products",
                                      "table products",
                                      "contracted",
                                      "arithmetic",
                                      "reductions",
                                      "selection",
                                      "llama block",
                                      "gpt block",
                                      "patches",
                                      "cross attention"};
constexpr const char* home_names[] = {"root", "unit", "recomputed", "recomputed unit"};
constexpr const char* head_names[] = {"tied", "column head", "plain head", "plain table"};
constexpr const char* family_names[] = {"parts", "llama", "gpt", "bert"};
constexpr const char* optimizer_names[] = {"sgd", "momentum", "adamw", "adagrad", "lion"};
constexpr const char* group_names[] = {"", ", tokens in a group", ", tokens frozen", ", part 0 in a group",
                                       ", part 0 frozen"};
constexpr const char* nonfinite_names[] = {"", ", NaN loss", ", infinite loss", ", infinite gradient"};
}  // namespace detail

inline std::string text_of(const DrawnTask& task, const DrawnSplit& split) {
  const auto number = [](auto n) { return std::to_string(n); };
  const DrawnModel& m = task.model;
  std::string text =
      "seed " + number(task.seed) + ": " + detail::family_names[static_cast<int>(m.family)] + ", width " +
      number(m.width) + ", heads " + number(m.heads) + ", vocabulary " + number(m.vocabulary) + ", sequence " +
      number(task.sequence) + ", positions " + number(m.longest) + ", loss_chunk_tokens " +
      number(m.loss_chunk_tokens) + ", " + detail::head_names[static_cast<int>(m.head)] +
      (m.final_norm ? ", norm" : "") + ", stacked " + number(m.stacked) + ", segments " + number(m.segments) +
      ", auxiliary " + number(static_cast<int>(m.auxiliary)) + (m.auxiliary_alone ? " alone" : "") +
      (task.grows ? ", grows" : "") + ", steps " + number(task.steps) + ", checks each " + number(task.check_ranks) +
      ", evals " + number(task.evals) + ", clip " + number(task.clip_norm) + ", decay " + number(task.weight_decay) +
      ", ignored " + number(task.ignored) + (task.weighed ? ", weighed" : "") + (m.meets ? ", samples meet" : "") +
      ", average " + number(task.average) + ", smoothing " + number(m.label_smoothing) +
      (m.vocab_bias ? ", vocabulary bias" : "") + (m.whole_logits ? ", whole logits" : "") + ", full layers " +
      number(m.full_layers) + ", " + detail::optimizer_names[static_cast<int>(task.optimizer)] + ", rate " +
      text_of(task.schedule) + ", memory " + number(m.memory) + (m.crosses ? " crossed" : "") +
      detail::group_names[static_cast<int>(task.group)] + "; data " + number(split.data) + ", accumulate " +
      number(split.accumulate) + ", stage " + number(split.stage) + ", bucket " + number(split.bucket_elements) +
      detail::nonfinite_names[static_cast<int>(split.nonfinite)];
  if (split.nonfinite != NonFiniteKind::none) text += " before step " + number(split.nonfinite_before);
  if (split.order == SumOrder::transport) text += ", sums in the transport's order";
  if (split.tier != Tier::device) text += split.tier == Tier::host ? ", state on the host" : ", state on a disk";
  if (split.ranks_per_node > 0) text += ", ranks a node " + number(split.ranks_per_node);
  if (split.traffic.shards_within_node) text += ", shards within nodes";
  if (split.traffic.secondary_shards) text += ", secondary shards";
  if (split.offloads_parameters) text += split.tier == Tier::disk ? ", parameters there" : ", parameters on the host";
  if (split.activations != Tier::device) text += std::string(", activations in ") + name_of(split.activations);
  if (split.partitions_activations) text += ", activations in parts";
  if (!split.traffic.overlaps) text += ", no overlap";
  if (split.prefetch_bytes != next_unit) text += ", gathered ahead " + number(split.prefetch_bytes);
  if (split.live_bytes > 0) text += ", live " + number(split.live_bytes);
  if (split.speculates) text += ", updated ahead";
  if (split.selects_rows) text += ", updated by rows";
  if (task.delay_after != never_delayed) text += ", delayed after " + number(task.delay_after);
  text += ", rows";
  for (Size n : split.rows) text += " " + number(n);
  for (const DrawnPart& p : m.parts)
    text += std::string("; ") + detail::part_names[static_cast<int>(p.kind)] + " (" +
            detail::home_names[static_cast<int>(p.home)] + (p.function ? ", function" : "") + (p.rms ? ", rms" : "") +
            (p.bias ? "" : ", no bias") + (p.causal ? "" : ", full") + ", activation " + number(p.activation) +
            ", inner " + number(p.ffn_width) + ", kv " + number(p.kv_heads) + ", head_dim " + number(p.head_dim) +
            ", scale " + number(p.scale) + ", p " + number(p.probability) + ", window " + number(p.window) +
            ", softcap " + number(p.softcap) + ", padding " + number(p.padding) + ", document " + number(p.document) +
            ", attention scale " + number(p.attention_scale) + (p.score_bias ? ", score bias" : "") +
            (p.exact_gelu ? ", exact gelu" : "") + ", rope " + number(static_cast<int>(p.rope.kind)) + ", reduced " +
            number(static_cast<int>(p.reduced)) + ", more rows " + number(p.more_rows) + ", memory " +
            number(p.memory) + (p.memory_of_ids ? " of ids" : "") + ")";
  text += "; order";
  for (int i : m.order) text += " " + number(i);
  return text;
}

}  // namespace dspp::laws
