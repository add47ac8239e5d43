// SPDX-License-Identifier: Apache-2.0
/// The traffic of a GPT or a Llama over Tp, by formula: every collective of every cell.
#pragma once

#include <laws/strategy.hpp>

namespace dspp::laws {

/// Sizes of a small model for the formulas.
struct TensorSizes {
  Size layers, width;
  Size replicated;  ///< elements whose gradients are summed over Tp under SequenceParallel
  /// Moves of the residual stream, one way: out of the look-up; out of attention and feed-forward; their inputs'
  /// gradients and the head's input's gradient.
  constexpr Size sums() const { return 4 * layers + 2; }
};

/// Elements whole on every rank of a Gpt: norms, the row-parallel biases, positions.
constexpr TensorSizes sizes_of(const GptConfig& c) {
  return {c.layers, c.width, c.layers * (4 + 2) * c.width + 2 * c.width + c.sequence * c.width};
}

/// Without SequenceParallel 4 layers + 2 all-reduces of the residual stream; with it, for each of them one
/// reduce-scatter and one all-gather: the same volume. Three numbers per token for the loss. The gradients of
/// parameters that are whole on every rank, only under SequenceParallel, in one all-reduce, or an all-gather where the
/// transport adds in its own order. 16 bytes for the norm.
/// RegatherInputs adds one all-gather per column-parallel layer.
///
/// For models without Recompute, which repeats the forward's half.
inline void check_tensor_traffic(const Trained& trained, const TensorSizes& sizes = sizes_of(small_gpt())) {
  const Facts& facts = trained.facts;
  const Cell& cell = trained.cell;
  const Size t = facts.tp, N = cell.ranks / t, A = cell.accumulate;
  const Size tokens = cell.samples / A / N * cell.sequence;
  const Size stream = tokens * sizes.width * facts.element;  // bytes of the residual stream of one micro-step
  const Size one_way = A * sizes.sums() * stream / t * (t - 1);
  const Size loss = A * tokens * 3 * facts.compute * (t - 1);
  const Size again = facts.regather_inputs ? A * 2 * sizes.layers * stream / t * (t - 1) : 0;
  const bool split = facts.sequence_parallel, gathered = cell.sum_order == SumOrder::transport;
  Size replicated = 0;
  for (const RankRecord& record : trained.ranks) {
    const auto moved = [&](Collective c, Purpose p) { return record.tp.bytes(c, p); };
    CHECK(moved(Collective::all_reduce, Purpose::activation) == (split ? 0 : 2 * one_way));
    CHECK(moved(Collective::reduce_scatter, Purpose::activation) == (split ? one_way : 0));
    CHECK(moved(Collective::all_gather, Purpose::activation) == (split ? one_way : 0) + again + loss);
    CHECK(record.tp.bytes(Purpose::activation) == 2 * one_way + again + loss);  // the same volume with and without
    const auto sums = gathered ? Collective::all_gather : Collective::all_reduce;
    CHECK(record.tp.calls(sums, Purpose::replicated_gradient) == (split && t > 1 ? 1 : 0));
    CHECK(record.tp.bytes(Purpose::scalar) == 16 * (t - 1));
    CHECK(record.tp.total() == record.tp.bytes(Purpose::activation) + record.tp.bytes(Purpose::replicated_gradient) +
                                   record.tp.bytes(Purpose::scalar));
    replicated += record.tp.bytes(Purpose::replicated_gradient);
  }
  // each data rank sums what its optimizer owns: all under stage 0, else its slices, which together are all
  const Size times = facts.stage == 0 ? N : 1;
  const Size copies = gathered ? t : 2;  // each rank reads all others' gradients, or slices are summed and gathered
  CHECK(replicated == (split ? times * copies * (t - 1) * sizes.replicated * facts.gradient : 0));
}

/// The traffic of attention over Cp: `exchanged` features of each token and layer (queries, keys, values, results) in
/// each of `passes`: forward, backward, and with Recompute forward again. There is no other traffic in that group.
inline void check_context_traffic(const Trained& trained, Size layers, Size exchanged, Size passes = 2) {
  const Facts& facts = trained.facts;
  const Cell& cell = trained.cell;
  const Size tokens = cell.samples * cell.sequence / (cell.ranks / facts.tp);  // of this rank, in one step
  const Size bytes = passes * layers * tokens * exchanged / facts.tp * facts.element / facts.cp * (facts.cp - 1);
  for (const RankRecord& record : trained.ranks) {
    CHECK(record.cp.bytes(Collective::all_to_all, Purpose::activation) == bytes);
    CHECK(record.cp.total() == bytes);
  }
}

}  // namespace dspp::laws
