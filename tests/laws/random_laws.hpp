// SPDX-License-Identifier: Apache-2.0
/// The laws of drawn tasks, and the smallest task that breaks one: the differential fuzzer.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/random_run.hpp>
#include <laws/random_text.hpp>

namespace dspp::laws {

/// The first difference of two outcomes beyond the tolerance, or ""; given `largest_of_all`, the largest one there.
std::string difference(const RandomOutcome& found, const RandomOutcome& dense, double tolerance,
                       double* largest_of_all = nullptr);

/// Draws models for policy P on several data degrees and ZeRO stages, and fails with the smallest task that differs
/// from one dense rank, which computes nothing twice. (Groups of axes before the last are strided ranks; a Mesh has no
/// other order of axes.)
///
/// DSPP_RANDOM_MODELS in the environment says how many (default: `models`), DSPP_RANDOM_SEED from which seed on.
template <class P, class O = DrawnOptimizer>
void check_random_models(int models);

/// The same of models whose batches are their own, or that are a BERT.
template <class P>
void check_random_own_models(int models);

/// The same of all ZeRO stages of one policy and split: those that decision 0003 says have the same bits. They are as
/// near to the dense rank in f64 as the precision allows.
template <class P>
void check_random_bits(int models);

// ---------------------------------------------------------------------------------------------------------------------

inline std::string difference(const RandomOutcome& found, const RandomOutcome& dense, double tolerance,
                              double* largest_of_all) {
  if (!found.fault.empty()) return found.fault;
  const auto compare = [&](const std::string& what, const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return what + " has another size";
    double largest = 1e-3;
    for (double value : b) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < a.size(); ++i)
      if (const double share = difference(a[i], b[i], largest); largest_of_all)
        *largest_of_all = std::max(*largest_of_all, share);
      else if (share > tolerance)
        return what + "[" + std::to_string(i) + "] is " + std::to_string(a[i]) + " and on one dense rank " +
               std::to_string(b[i]);
    return std::string();
  };
  if (auto text = compare("loss", found.losses, dense.losses); !text.empty()) return text;
  if (auto text = compare("norm", found.norms, dense.norms); !text.empty()) return text;
  if (auto text = compare("eval", found.evals, dense.evals); !text.empty()) return text;
  if (found.metrics.size() != dense.metrics.size()) return "other metrics";
  for (const auto& [name, values] : dense.metrics)
    if (auto text = compare("metric " + name, found.metrics.at(name), values); !text.empty()) return text;
  if (found.parameters.size() != dense.parameters.size()) return "other parameters";
  for (const auto& [name, values] : dense.parameters)
    if (auto text = compare(name, found.parameters.at(name), values); !text.empty()) return text;
  return {};
}

namespace detail {

/// Of a value, as a share of the largest of its kind, after the drawn steps; in bf16, of a model that amplifies more,
/// roundings_of_f16. Seed 216 is such a model without later draws: a value of the third step differs by 0.84. It is
/// rounding and no defect, since the difference follows the unit roundoff u: 95 u in f32 (5.7e-6), 53 u in f16 (0.026),
/// 214 u in bf16.
template <class T>
inline constexpr double largest_loss_of_precision = 0;
template <>
inline constexpr double largest_loss_of_precision<float> = 1e-3;
template <>
inline constexpr double largest_loss_of_precision<f16> = 5e-2;
template <>
inline constexpr double largest_loss_of_precision<bf16> = 3e-1;

inline DrawnSplit dense_split(const DrawnSplit& split) {
  return {.rows = {split.samples()}};
}
inline DrawnTask once(DrawnTask task) {
  task.model = computed_once(std::move(task.model)), task.by_hand = true;
  return task;
}
inline bool draws_masks(const DrawnPart& part) {
  return part.kind == PartKind::dropout || (part.kind == PartKind::gpt_block && !part.bias);
}

/// That what the loss depends on has a gradient. Left out: what may be dead with a small model's relu, or dropped; and
/// where a target alone, or a position alone, may make a gradient zero.
inline std::string zero_gradient_fault(const Drawn& drawn, const RandomOutcome& dense) {
  const DrawnTask& task = drawn.task;
  if (task.ignored > 0 || task.weighed || task.sequence < 2) return {};
  const DrawnModel& model = task.model;
  std::set<std::string> exempt;
  const Size positions = drawn.split.samples() * task.sequence;
  for (std::size_t i = 0; i < model.parts.size(); ++i) {
    const DrawnPart& part = model.parts[i];
    const bool used = std::count(model.order.begin(), model.order.end(), static_cast<int>(i)) > 0;
    const bool dead = part.activation == 1 && std::min(part.ffn_width, model.width) * positions < 200;
    const bool one_head = part.kind == PartKind::head_products && model.heads == 1;
    if (!used || dead || one_head || (draws_masks(part) && model.width * positions < 200))
      exempt.insert(std::to_string(i));
    if (part.kind == PartKind::groups && !part.causal) exempt.insert(std::to_string(i) + ".down");
    // Of a few tokens all may be the same: then their shares, whatever they are, have the same mean of values.
    const Size keys = drawn.split.samples() * std::min(part.memory, task.sequence);
    if (part.kind == PartKind::cross_attention && !part.memory_of_ids && keys < 30)
      for (const char* layer : {".grouped.q", ".grouped.q_norm", ".grouped.k_norm", ".table"})
        exempt.insert(std::to_string(i) + layer);
  }
  if (model.family != Family::parts) exempt.clear();
  for (const std::string& name : dense.without_gradient) {
    const bool small =
        dense.parameters.at(name).size() <= 4 || (model.family == Family::gpt && draws_masks(model.parts[0]));
    const std::size_t part = name.find('.'), layer = name.rfind('.');
    if (!small && !exempt.count(name.substr(0, part)) && !exempt.count(name.substr(0, layer)))
      return "the gradient of " + name + " is zero";
  }
  return {};
}

/// Whether every gradient is reduced once in a step, whatever the stage. That of a part that is used twice is not if it
/// is a unit, which is reduced at its boundary, or recomputed: forward does not note the uses of what it computes
/// again.
inline bool reduces_once(const Drawn& drawn) {
  const DrawnModel& model = drawn.task.model;
  for (std::size_t i = 0; i < model.parts.size(); ++i) {
    const DrawnPart& part = model.parts[i];
    const bool again = part.function || part.home != PartHome::root;
    if (again && std::count(model.order.begin(), model.order.end(), static_cast<int>(i)) > 1) return false;
  }
  return drawn.split.accumulate == 1;
}

/// The task of a model with a batch of its own: a BERT in place of another library's model; else, in most, a term over
/// all samples, of which every data rank needs as many.
inline Drawn with_own_batch(Drawn drawn) {
  DrawnTask& task = drawn.task;
  DrawnModel& model = task.model;
  if (task.optimizer == OptimizerKind::lion) task.optimizer = OptimizerKind::adamw;
  task.weighed = false, model.auxiliary = Auxiliary::none, model.auxiliary_alone = false;
  if (model.family != Family::parts) model.family = Family::bert;
  // A masked vector has no gradient, not even an infinite one, nor has the loss of a micro-batch without targets.
  if (model.order.empty() && drawn.split.nonfinite == NonFiniteKind::infinite_gradient)
    drawn.split.nonfinite = task.ignored > 0 ? NonFiniteKind::none : NonFiniteKind::infinite_loss;
  model.meets = model.family == Family::parts && task.ignored == 0 && task.seed % 4 != 1;
  if (!model.meets) return drawn;
  drawn.split.accumulate = 1;
  drawn.split.rows.assign(static_cast<std::size_t>(drawn.split.data), drawn.split.rows[0]);
  return drawn;
}

/// The model without what optimizer O refuses: of matrices that it updates as a whole, padding and tiles.
template <class P, class O>
DrawnModel fitted(DrawnModel model) {
  if constexpr (std::is_same_v<O, Muon>) {
    model.scores = model.vocabulary = round_up(model.vocabulary, P::tp);
    for (DrawnPart& part : model.parts)
      if (part.kind == PartKind::tiled) part.kind = PartKind::mlp;
  }
  return model;
}

/// That two models trained in turn in one world have the bits that they have alone: of a model with dropout one whose
/// probabilities differ, else any.
template <class P, class O>
std::string pair_fault(const Drawn& drawn, const RandomOutcome& alone) {
  const std::vector<DrawnPart>& parts = drawn.task.model.parts;
  const bool masks = std::any_of(parts.begin(), parts.end(), draws_masks);
  Drawn other = masks ? drawn : draw(drawn.task.seed + 1000003, P::tp, P::cp, P::sequence_parallel);
  for (DrawnPart& part : other.task.model.parts)
    if (masks) part.probability = 0.6 - part.probability;
  other.task.model = fitted<P, O>(std::move(other.task.model));
  other.task.seed = drawn.task.seed;
  other.split.data = drawn.split.data, other.split.stage = (drawn.split.stage + 1) % 4;
  other.split.rows.assign(static_cast<std::size_t>(other.split.data * other.split.accumulate), Size{2});
  other.split.order = drawn.split.order, other.split.tier = drawn.split.tier;
  other.split.ranks_per_node = drawn.split.ranks_per_node;
  if (other.split.stage > 0) other.split.traffic = drawn.split.traffic;
  other.split.offloads_parameters = drawn.split.offloads_parameters;
  other.split.activations = drawn.split.activations;
  other.split.partitions_activations = drawn.split.partitions_activations;
  if (other.task.ignored > 0 || other.task.weighed)
    other.task.model.auxiliary = Auxiliary::none, other.task.model.auxiliary_alone = false;
  const auto both = RandomRunner<P, O>::run({drawn, other});
  for (const RandomOutcome& one : both)
    if (!one.fault.empty()) return "of two models in one world: " + one.fault;
  const bool same = same_bits(both[0], alone) && same_bits(both[1], RandomRunner<P, O>::run(other.task, other.split));
  return same ? std::string() : "two models in one world have other bits than each alone";
}

/// That the gradient is the loss's: a small step against it lowers the loss by its squared norm. Of one dense rank, so
/// that a factor which all policies have in common shows, too.
template <template <class> class Model = RandomModel>
std::string gradient_fault(const Drawn& drawn) {
  DrawnTask task = once(drawn.task);
  for (const DrawnPart& part : task.model.parts)
    if (draws_masks(part)) return {};
  task.steps = task.evals = 1, task.lr = 1e-7, task.clip_norm = task.weight_decay = 0;
  task.optimizer = OptimizerKind::sgd, task.group = GroupKind::none, task.average = 0, task.schedule = {};
  task.delay_after = never_delayed;
  const RandomOutcome dense = RandomRunner<Policy<F64>, DrawnOptimizer, Model>::run(task, dense_split(drawn.split));
  const double slope = (dense.losses[0] - dense.evals[0]) / task.lr, squared = dense.norms[0] * dense.norms[0];
  if (std::abs(slope - squared) <= 1e-2 * squared + 1e-8) return {};
  return "against the gradient the loss falls by " + std::to_string(slope) + " a unit, but the norm squared is " +
         std::to_string(squared);
}

/// A bound of the largest difference in bf16 over that of the same run in f16. To first order a difference is a sum of
/// roundings, each u times the sensitivity of the result to it, and u is 8 times as large; the signs of roundings are
/// random, so that the largest of two such sums differ besides. Of 512 tasks (seeds 1 to 260, with and without later
/// draws) the median was 8, and the largest of a difference above 0.03 were 59, and 203 where a relu of 3 features had
/// another sign (seed 20).
inline constexpr double roundings_of_f16 = 8 * 8;

/// 0 if a step was skipped: then there is no measure.
inline double error_in_f16(const Drawn& drawn, const RandomOutcome& dense) {
  const RandomOutcome found = RandomRunner<Policy<F16>>::run(drawn.task, drawn.split);
  double largest = 0;
  difference(found, dense, 0, &largest);
  return std::count(found.scales.begin(), found.scales.end(), 0.0) > 0 ? 0 : largest;
}

/// That sums, norms and updates lose no more than the precision of the values does: against one dense rank in f64. A
/// step that is skipped, in f16, is none there.
template <class P>
std::string precision_fault(const Drawn& drawn, const RandomOutcome& found) {
  for (double scale : found.scales)
    if (scale == 0) return {};
  const RandomOutcome dense = RandomRunner<Policy<F64>>::run(once(drawn.task), dense_split(drawn.split));
  const std::string fault = difference(found, dense, largest_loss_of_precision<ElementOf<P>>);
  if constexpr (std::is_same_v<P, Policy<Bf16>>) {
    const double error = fault.empty() || !found.fault.empty() ? 0 : error_in_f16(drawn, dense);
    if (error > 0) return difference(found, dense, roundings_of_f16 * error);
  }
  return fault;
}

/// No derivative jumps, as that of a relu or a maximum, whose gradient a rounding may send elsewhere.
inline bool is_smooth(const DrawnModel& model) {
  return std::none_of(model.parts.begin(), model.parts.end(),
                      [](const DrawnPart& part) { return part.activation == 1 || part.kind == PartKind::reductions; });
}

/// Half of the steps and then the others, with a checkpoint in between: under P and on one dense rank, under either
/// first; or, where P is `alone`, both under P.
template <class P, class O>
RandomOutcome in_halves(const Drawn& drawn, bool alone) {
  const Folder folder;
  const int half = (drawn.task.steps + 1) / 2;
  const Stretch halves[] = {{0, half, folder.file("checkpoints")}, {half, 1 << 20, folder.file("checkpoints")}};
  RandomOutcome whole;
  for (const bool second : {false, true}) {
    const bool dense = !alone && second == (drawn.task.seed / 10 % 2 == 0);
    RandomOutcome part =
        dense ? RandomRunner<Policy<F64>, O>::run(once(drawn.task), dense_split(drawn.split), halves[second])
              : RandomRunner<P, O>::run(drawn.task, drawn.split, halves[second]);
    for (const auto of : {&RandomOutcome::losses, &RandomOutcome::norms, &RandomOutcome::evals, &RandomOutcome::scales})
      (whole.*of).insert((whole.*of).end(), (part.*of).begin(), (part.*of).end());
    for (const auto& [name, values] : part.metrics)
      whole.metrics[name].insert(whole.metrics[name].end(), values.begin(), values.end());
    whole.fault += part.fault;
    whole.parameters = std::move(part.parameters);
  }
  return whole;
}

/// That what is handed over to another strategy goes on as on one dense rank, and what is resumed under its own has the
/// bits of a run without a stop.
template <class P, class O>
std::string stop_fault(const Drawn& drawn, const RandomOutcome& dense) {
  const bool alone = drawn.task.seed % 20 == 7;
  const RandomOutcome halves = in_halves<P, O>(drawn, alone);
  if (std::string fault = difference(halves, dense, 1e-9); !fault.empty() || !alone) return fault;
  const bool same = same_bits(halves, RandomRunner<P, O>::run(drawn.task, drawn.split));
  return same ? std::string() : "a run that is stopped and resumed has other bits";
}

/// Takes away from the task what it can while it still fails.
inline Drawn shrink(Drawn drawn, const std::function<bool(const Drawn&)>& fails) {
  const auto keep_if_it_fails = [&](auto change) {
    Drawn smaller = drawn;
    change(smaller);
    if (!fails(smaller)) return false;
    drawn = smaller;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (std::size_t i = drawn.task.model.order.size(); i-- > 0;)
      smaller |= keep_if_it_fails(
          [&](Drawn& d) { d.task.model.order.erase(d.task.model.order.begin() + static_cast<long>(i)); });
    if (drawn.split.accumulate > 1)
      smaller |= keep_if_it_fails([&](Drawn& d) {
        d.split.accumulate = 1;
        d.split.rows.resize(static_cast<std::size_t>(d.split.data));
      });
    if (const int fewest = drawn.split.nonfinite == NonFiniteKind::none ? 1 : 2; drawn.task.steps > fewest)
      smaller |= keep_if_it_fails([&](Drawn& d) { d.task.steps = fewest, d.split.nonfinite_before = 1; });
    if (drawn.split.nonfinite != NonFiniteKind::none)
      smaller |= keep_if_it_fails([](Drawn& d) { d.split.nonfinite = NonFiniteKind::none; });
    if (drawn.split.stage > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.split.stage = 0, d.split.traffic = {}; });
    if (drawn.split.activations != Tier::device || drawn.split.partitions_activations)
      smaller |= keep_if_it_fails(
          [](Drawn& d) { d.split.activations = Tier::device, d.split.partitions_activations = false; });
    if (drawn.split.offloads_parameters)
      smaller |= keep_if_it_fails([](Drawn& d) { d.split.offloads_parameters = false; });
    if (drawn.split.traffic != ReplicaTraffic{}) smaller |= keep_if_it_fails([](Drawn& d) { d.split.traffic = {}; });
    if (drawn.split.prefetch_bytes != next_unit)
      smaller |= keep_if_it_fails([](Drawn& d) { d.split.prefetch_bytes = next_unit; });
    if (drawn.split.live_bytes > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.split.live_bytes = 0; });
    if (drawn.split.tier != Tier::device) smaller |= keep_if_it_fails([](Drawn& d) { d.split.tier = Tier::device; });
    if (drawn.task.evals > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.evals = 0; });
    if (drawn.task.clip_norm > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.clip_norm = 0; });
    if (drawn.task.ignored > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.ignored = 0; });
    if (drawn.task.weighed) smaller |= keep_if_it_fails([](Drawn& d) { d.task.weighed = false; });
    if (drawn.task.model.longest > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.longest = 0; });
    if (drawn.task.grows) smaller |= keep_if_it_fails([](Drawn& d) { d.task.grows = false; });
    if (drawn.task.model.segments > 1) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.segments = 1; });
    if (drawn.task.model.stacked > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.stacked = 0; });
    if (drawn.task.model.auxiliary != Auxiliary::none)
      smaller |= keep_if_it_fails(
          [](Drawn& d) { d.task.model.auxiliary = Auxiliary::none, d.task.model.auxiliary_alone = false; });
    if (drawn.task.optimizer != OptimizerKind::sgd)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.optimizer = OptimizerKind::sgd; });
    if (drawn.task.group != GroupKind::none)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.group = GroupKind::none; });
    if (drawn.task.schedule.kind != ScheduleKind::constant)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.schedule = {}; });
    if (drawn.task.average > 0) smaller |= keep_if_it_fails([](Drawn& d) { d.task.average = 0; });
    if (drawn.task.delay_after != never_delayed)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.delay_after = never_delayed; });
    if (drawn.task.model.crosses) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.crosses = false; });
    if (drawn.task.model.label_smoothing > 0)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.label_smoothing = 0; });
    if (drawn.task.model.vocab_bias) smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.vocab_bias = false; });
    if (drawn.split.speculates || drawn.split.selects_rows)
      smaller |= keep_if_it_fails([](Drawn& d) { d.split.speculates = d.split.selects_rows = false; });
    if (drawn.split.order != SumOrder::rank)
      smaller |= keep_if_it_fails([](Drawn& d) { d.split.order = SumOrder::rank; });
    if (drawn.task.model.loss_chunk_tokens > 0)
      smaller |= keep_if_it_fails([](Drawn& d) { d.task.model.loss_chunk_tokens = 0; });
    for (std::size_t i = 0; i < drawn.task.model.parts.size(); ++i) {
      if (drawn.task.model.parts[i].function)
        smaller |= keep_if_it_fails([&](Drawn& d) { d.task.model.parts[i].function = false; });
      if (drawn.task.model.parts[i].score_bias)
        smaller |= keep_if_it_fails([&](Drawn& d) { d.task.model.parts[i].score_bias = false; });
      if (drawn.task.model.parts[i].rope.kind != RopeKind::none)
        smaller |= keep_if_it_fails([&](Drawn& d) { d.task.model.parts[i].rope = {}; });
      if (drawn.task.model.parts[i].home != PartHome::root)
        smaller |= keep_if_it_fails([&](Drawn& d) { d.task.model.parts[i].home = PartHome::root; });
    }
  }
  return drawn;
}

/// Nodes for most seeds, and a member that uses them.
inline void draw_nodes(DrawnSplit& split, std::uint64_t seed, int cp, int tp) {
  const int replicas = split.data * cp;
  if (seed % 4 == 0 || replicas == 1) return;
  int nodes = seed % 8 < 4 ? 2 : replicas;
  while (replicas % nodes != 0) ++nodes;
  split.ranks_per_node = replicas / nodes * tp;
  split.traffic.shards_within_node = split.stage > 0 && seed % 4 == 1;
  split.traffic.secondary_shards = !split.traffic.shards_within_node;
}

/// Updates beside the next step, of which the dense rank's are, too. A skipped step or an average ends one earlier, and
/// no file holds its state.
inline void draw_delay(Drawn& drawn, Size after) {
  drawn.task.delay_after = after, drawn.task.average = 0;
  drawn.split.nonfinite = NonFiniteKind::none;
  if (drawn.split.tier == Tier::disk) drawn.split.tier = Tier::host;
}

/// Draws for P from the seed of the environment on, and fails with the smallest task in which `fault_of` finds a fault.
template <class P>
void check_drawn(int models, const std::function<std::string(const Drawn&)>& fault_of) {
  const std::uint64_t from = number_from("DSPP_RANDOM_SEED", 1);
  const std::uint64_t count = number_from("DSPP_RANDOM_MODELS", static_cast<std::uint64_t>(models));
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    Drawn drawn = draw(seed, P::tp, P::cp, P::sequence_parallel);
    Dice dice(seed + 77);
    constexpr int degree = P::tp * P::cp;  // of more than 8 ranks the threads wait for cores
    drawn.split.data = degree < 3 ? static_cast<int>(dice.from(1, 5 - degree)) : degree < 5 && dice.one_in(3) ? 2 : 1;
    drawn.split.stage = dice.one_in(4) ? P::zero_stage : static_cast<int>(dice.from(0, 3));
    drawn.split.rows.assign(static_cast<std::size_t>(drawn.split.data * drawn.split.accumulate), dice.from(1, 3));
    if (dice.one_in(3))
      for (Size& rows : drawn.split.rows) rows = dice.from(1, 4);
    // A mean over elements has another weight than one over the targets that count.
    if (drawn.task.ignored > 0 || drawn.task.weighed)
      drawn.task.model.auxiliary = Auxiliary::none, drawn.task.model.auxiliary_alone = false;
    if (dice.one_in(4)) drawn.split.order = SumOrder::transport;
    drawn.split.tier = static_cast<Tier>(seed % 3);  // no throw of the dice: seeds keep what they draw
    draw_nodes(drawn.split, seed, P::cp, P::tp);
    constexpr Size ahead[] = {next_unit, 0, 700, 5000, 1 << 20}, live[] = {0, 2000, 9000, 1 << 20};
    drawn.split.prefetch_bytes = ahead[seed / 2 % 5], drawn.split.live_bytes = live[seed / 3 % 4];
    drawn.split.traffic.overlaps = seed % 6 != 5;
    drawn.split.offloads_parameters = seed % 5 < 2;
    if (seed % 7 < 4) drawn.split.activations = seed % 7 < 2 ? Tier::host : Tier::disk;
    drawn.split.partitions_activations = seed % 7 % 2 == 0;
    if (seed % 8 == 3) draw_delay(drawn, static_cast<Size>(seed / 8 % 3));
    if (drawn.split.tier != Tier::disk)
      drawn.split.speculates = seed % 4 == 2, drawn.split.selects_rows = seed % 4 == 1;
    const auto told = [&](const Drawn& d) {
      try {
        return fault_of(d);
      } catch (const Error& error) {
        return std::string(error.what());
      }
    };
    const std::string fault = told(drawn);
    if (fault.empty()) continue;
    const Drawn small = shrink(drawn, [&](const Drawn& d) { return !told(d).empty(); });
    FAIL("DSPP_RANDOM_SEED=" << seed << " differs: " << fault << "\n  drawn:  " << text_of(drawn.task, drawn.split)
                             << "\n  shrunk: " << text_of(small.task, small.split) << "\n  where:  " << told(small));
  }
}

}  // namespace detail

extern template struct RandomRunner<Policy<F64>>;  // random/dense_runner.cpp
extern template struct RandomRunner<Policy<F64>, Sgd>;
extern template struct RandomRunner<Policy<F64>, Muon>;
extern template struct RandomRunner<Policy<F64>, Lamb>;
extern template struct RandomRunner<Policy<F64>, DrawnOptimizer, RandomOwnModel>;

template <class P, class O>
void check_random_models(int models) {
  detail::check_drawn<P>(models, [](Drawn drawn) {
    if (drawn.task.optimizer == OptimizerKind::lion) drawn.task.optimizer = OptimizerKind::adamw;
    drawn.task.model = detail::fitted<P, O>(std::move(drawn.task.model));
    const std::uint64_t seed = drawn.task.seed;
    if (seed % 5 == 2 && !detail::takes_average_along<O>) drawn.task.average = 0;
    constexpr bool meets = std::is_same_v<O, Muon> || std::is_same_v<O, Lamb>;  // ranks meet in its update
    if (seed % 5 == 2 || meets) drawn.task.delay_after = never_delayed;
    if (meets) drawn.split.speculates = drawn.split.selects_rows = false;
    const RandomOutcome dense =
        RandomRunner<Policy<F64>, O>::run(detail::once(drawn.task), detail::dense_split(drawn.split));
    if (!dense.fault.empty()) return "on the dense rank: " + dense.fault;
    if (std::string fault = detail::zero_gradient_fault(drawn, dense); !fault.empty()) return fault;
    if (std::string fault = seed % 2 == 0 ? detail::gradient_fault(drawn) : ""; !fault.empty()) return fault;
    if (seed % 5 == 2 && drawn.task.steps > 1) return detail::stop_fault<P, O>(drawn, dense);
    const RandomOutcome alone = RandomRunner<P, O>::run(drawn.task, drawn.split);
    if (std::string fault = difference(alone, dense, 1e-9); !fault.empty()) return fault;
    return seed % 7 == 3 ? detail::pair_fault<P, O>(drawn, alone) : std::string();
  });
}

template <class P>
void check_random_own_models(int models) {
  using Runner = RandomRunner<P, DrawnOptimizer, RandomOwnModel>;
  using DenseRunner = RandomRunner<Policy<F64>, DrawnOptimizer, RandomOwnModel>;
  detail::check_drawn<P>(models, [](Drawn drawn) {
    drawn = detail::with_own_batch(std::move(drawn));
    const RandomOutcome dense = DenseRunner::run(detail::once(drawn.task), detail::dense_split(drawn.split));
    if (!dense.fault.empty()) return "on the dense rank: " + dense.fault;
    if (std::string fault = detail::zero_gradient_fault(drawn, dense); !fault.empty()) return fault;
    if (std::string fault = drawn.task.seed % 2 == 0 ? detail::gradient_fault<RandomOwnModel>(drawn) : "";
        !fault.empty())
      return fault;
    return difference(Runner::run(drawn.task, drawn.split), dense, 1e-9);
  });
}

template <class P>
void check_random_bits(int models) {
  detail::check_drawn<P>(models, [](Drawn drawn) {
    drawn.split.nonfinite = NonFiniteKind::none;
    drawn.split.traffic.shards_within_node = false;  // sums by node have other bits
    std::vector<RandomOutcome> stages;
    for (drawn.split.stage = 0; drawn.split.stage < 4; ++drawn.split.stage) {
      stages.push_back(RandomRunner<P>::run(drawn.task, drawn.split));
      if (!stages.back().fault.empty()) return stages.back().fault;
      const auto number = static_cast<std::size_t>(drawn.split.stage);
      const std::size_t like = detail::reduces_once(drawn) ? 0 : number / 2 * 2;
      if (!detail::same_bits(stages[number], stages[like]))
        return "stage " + std::to_string(number) + " has other bits than stage " + std::to_string(like);
    }
    // An optimizer other than Sgd does not move a parameter in proportion to its gradient, and so not to the gradient's
    // error; a small gradient, as of smoothed labels, has a larger error. In bf16 a run in f16 shows how large.
    if (!std::is_same_v<P, Policy<Bf16>> || !detail::is_smooth(drawn.task.model))
      drawn.task = detail::without_more(std::move(drawn.task));
    if (drawn.task.optimizer == OptimizerKind::lion) drawn.task.optimizer = OptimizerKind::adamw;
    drawn.split.stage = 0;
    return detail::precision_fault<P>(drawn, RandomRunner<P>::run(drawn.task, drawn.split));
  });
}

}  // namespace dspp::laws
