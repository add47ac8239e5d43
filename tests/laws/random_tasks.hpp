// SPDX-License-Identifier: Apache-2.0
/// What the differential fuzzer draws: a model, a task for it, and a way to split the task over ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <dspp/base/math.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/nn/initial.hpp>
#include <dspp/ops/rope_scaling.hpp>
#include <dspp/placement/delayed.hpp>
#include <laws/random_schedules.hpp>

namespace dspp::laws {

/// Residual sub-layers, the operators between them, and what a user could write.
enum class PartKind {
  attention,
  grouped_attention,
  mlp,
  gated_mlp,
  tiled,
  tiled_mlp,
  product,
  gathered,
  factors,
  dropout,
  groups,
  shapes,
  sequential,
  plain,           ///< Linear that no rank cuts
  own_attention,   ///< of batched_matmul and softmax along the sequence
  head_products,   ///< the same along the heads of a position
  table_products,  ///< matmul with the rows of an Embedding, there and back
  contracted,      ///< a RowParallel by hand: contract with rows of an Embedding
  arithmetic,      ///< numbers and a vector beside the stream, pointwise functions
  reductions,      ///< a norm by hand, and one of features that ranks cut
  selection,       ///< masks, ids along features and along positions, operations of one's own
  llama_block,
  gpt_block,
  kinds,
  patches = kinds,  ///< drawn in place of another: a PatchEmbedding of the stream as images
  cross_attention,  ///< drawn beside the others: grouped attention to a sequence of another length
};

/// What `reductions` run along: the features where they are, as the first dimension, as the second; or the sequence.
enum class Reduced { features, first, second, sequence, kinds };

/// Where a part's parameters live and how often it is computed.
enum class PartHome { root, unit, recomputed, recomputed_unit, homes };

struct DrawnPart {
  PartKind kind = PartKind::mlp;
  PartKind replaced = PartKind::mlp;  ///< what `patches` takes the place of
  PartHome home = PartHome::root;
  bool function = false;  ///< within recompute(function, x), which keeps x besides
  bool whole = false;     ///< a tiled layer without its tiles
  bool rms = false, bias = true, causal = true;
  int activation = 0;      ///< gelu, relu, silu
  Size ffn_width = 0;      ///< features inside an MLP
  Size kv_heads = 0;       ///< of grouped attention
  Size head_dim = 0;       ///< where the width does not say it
  double scale = 1;        ///< of the part beside the residual stream
  double probability = 0;  ///< of dropout
  Size window = 0;         ///< of attention, as softcap
  double softcap = 0;
  Size padding = 0;            ///< positions at the end that are no keys: none, 1, 2 or 3 times as many, by the sample
  Size document = 0;           ///< positions of a document; 0: one
  double attention_scale = 0;  ///< of the scores; 0: from the head's extent
  bool score_bias = false;     ///< a bias of the scores by the distance from query to key
  bool exact_gelu = false;
  RopeScaling rope{};
  Reduced reduced = Reduced::features;
  Size more_rows = 0;          ///< that `selection` gathers beyond those there are
  Size memory = 2;             ///< keys of cross attention, padding included
  bool memory_of_ids = false;  ///< vectors of a table of its own; else some of the stream's
};

/// A term of the loss beside the cross-entropy: a reduction of the last hidden states, as a mean over their elements.
enum class Auxiliary { none, mean, sum, squared_norm };

/// What the scores come from: the table of the tokens, a layer that ranks cut, one that none does, or a table that none
/// does and that is added to the tokens' vectors.
enum class Head { tied, column, plain, table };

/// Drawn parts, or one of the library's models; a BERT, whose batch is its own, only where the batches are.
enum class Family { parts, llama, gpt, bert };

/// What is not finite on a rank: its loss, or the gradient that comes back to its last hidden states.
enum class NonFiniteKind { none, nan_loss, infinite_loss, infinite_gradient };

inline constexpr int most_parts = 4;

struct DrawnModel {
  Family family = Family::parts;
  Size width = 8, heads = 2, vocabulary = 13, longest = 0, loss_chunk_tokens = 0;
  Size scores = 13;  ///< of a head that is not tied: the vocabulary rounded up to what ranks can share
  int stacked = 0;   ///< blocks of a Stack after the parts; of a library's model
  int segments = 1;  ///< of them, recomputed
  Head head = Head::tied;
  bool final_norm = true;
  Auxiliary auxiliary = Auxiliary::none;
  bool whole_logits = false;                 ///< of a head that no rank cuts, to the cross-entropy
  bool vocab_bias = false;                   ///< of the logits of the tokens' table
  int full_layers = 0;                       ///< of a Llama with a window
  double label_smoothing = 0;                ///< of the cross-entropy
  bool meets = false;                        ///< a term over the samples of all data ranks
  Size memory = 2;                           ///< tokens beside a sample, where batches are a model's own
  bool crosses = false;                      ///< the stream attends to them before the parts
  bool auxiliary_alone = false;              ///< the loss is that term, without a cross-entropy
  std::vector<DrawnPart> parts;              ///< of a library's model one, for its sizes
  std::vector<int> order;                    ///< indices of parts: one may be used twice, another never
  const NonFiniteKind* nonfinite = nullptr;  ///< of this rank, now
  const Size* first_sample = nullptr;        ///< of this rank's batch, counted over all steps
};

/// 0.3 for a width of 8.
inline double deviation_of(const DrawnModel& model) {
  return 0.85 / std::sqrt(static_cast<double>(model.width));
}
inline Initial weights_of(const DrawnModel& model) {
  return Initial::normal(deviation_of(model));
}

/// The same function and names of parameters, with nothing computed twice and nothing in tiles.
inline DrawnModel computed_once(DrawnModel model) {
  model.loss_chunk_tokens = 0, model.segments = 1;
  for (DrawnPart& part : model.parts) {
    if (part.home == PartHome::recomputed) part.home = PartHome::root;
    if (part.home == PartHome::recomputed_unit) part.home = PartHome::unit;
    part.function = false, part.whole = true;
  }
  return model;
}

/// Lion is drawn for the bits of stages alone: it takes the sign of what may be a rounding error.
enum class OptimizerKind { sgd, momentum, adamw, adagrad, lion };

/// Parameters with a rate and a decay of their own, or frozen: the table of the tokens, or the first part.
enum class GroupKind { none, tokens, frozen_tokens, part, frozen_part };

/// What is computed: the same under every policy.
struct DrawnTask {
  std::uint64_t seed = 0;
  DrawnModel model;
  Size sequence = 4;
  int steps = 3, evals = 0;
  Size check_ranks = 1;  ///< steps from one check that ranks hold the same to the next
  double lr = 0.05, weight_decay = 0, clip_norm = 0;
  double average = 0;  ///< the decay of an average of the weights from the first step on; 0: none
  DrawnSchedule schedule{};
  bool by_hand = false;  ///< schedules and averages by the laws' own formulas
  OptimizerKind optimizer = OptimizerKind::sgd;
  GroupKind group = GroupKind::none;
  double ignored = 0;                ///< share of the targets that do not count
  bool weighed = false;              ///< those that do count have weights
  bool grows = false;                ///< every step has a longer sequence than the last
  Size delay_after = never_delayed;  ///< updates before the first delayed one

  Size sequence_of(int step) const { return grows ? sequence * (step + 1) : sequence; }
};

/// How it is split. Samples of a step: rows[a * data + d] of micro-step a on data rank d, one after another.
struct DrawnSplit {
  int data = 1;
  Size accumulate = 1;
  std::vector<Size> rows{1};
  Size bucket_elements = 1000;
  int stage = 0;                                    ///< of ZeRO, in place of the policy's
  NonFiniteKind nonfinite = NonFiniteKind::none;    ///< of one Tp group in a step between the others, which is skipped
  int nonfinite_before = 0;                         ///< the step that comes after it
  std::uint64_t nonfinite_rank = 0;                 ///< modulo the ranks
  SumOrder order = SumOrder::rank;                  ///< of the ranks' sums
  Tier tier = Tier::device;                         ///< of the optimizer's state
  int ranks_per_node = 0;                           ///< 0: all
  ReplicaTraffic traffic{};                         ///< of members that change no result but its rounding
  bool offloads_parameters = false;                 ///< under stage 3, to a disk if the state is there
  Tier activations = Tier::device;                  ///< of what is kept where parts run again
  bool partitions_activations = false;              ///< the same, over Tp without sequences
  Size prefetch_bytes = next_unit, live_bytes = 0;  ///< under stage 3
  bool speculates = false;                          ///< updates begin in backward
  bool selects_rows = false;                        ///< no update waits, whichever rows are important
  ZenFlowConfig zenflow{.topk_ratio = 0.3, .update_interval = 1, .select_interval = 2, .overlap_step = false};

  Size samples() const { return std::accumulate(rows.begin(), rows.end(), Size{0}); }
  bool even() const { return std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) == rows.end(); }
};

/// A task that `tp` and `cp` ranks can share, and a way to split it.
struct Drawn {
  DrawnTask task;
  DrawnSplit split;
};
Drawn draw(std::uint64_t seed, Size tp, Size cp, bool sequence_parallel);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// A generator with the words that drawing needs.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  Size from(Size low, Size high) {
    return low + static_cast<Size>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(Size n) { return from(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return list.begin()[from(0, static_cast<Size>(list.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

/// Whether Tp or the heads must divide the width of the model for it.
inline bool divides_width(PartKind kind) {
  return kind == PartKind::attention || kind == PartKind::gathered || kind == PartKind::groups ||
         kind == PartKind::gpt_block;
}

inline DrawnPart draw_part(Dice& dice, const DrawnModel& model, Size tp, Size cp) {
  DrawnPart part;
  const bool divided = model.width % model.heads == 0;
  do part.kind = static_cast<PartKind>(dice.from(0, static_cast<Size>(PartKind::kinds) - 1));
  while (!divided && divides_width(part.kind));
  part.home = static_cast<PartHome>(dice.from(0, static_cast<Size>(PartHome::homes) - 1));
  part.function = dice.one_in(4);
  part.rms = dice.one_in(2), part.bias = !dice.one_in(3), part.causal = !dice.one_in(3);
  part.activation = static_cast<int>(dice.from(0, 2));
  part.ffn_width = tp * dice.of<Size>({3, 5, 7, 8, 11, 13});
  part.kv_heads = dice.of<Size>({tp, tp * cp, model.heads});
  part.head_dim = dice.of<Size>({1, 2, 3, 5, 7});
  // Rotary positions turn pairs.
  if (part.kind == PartKind::grouped_attention || part.kind == PartKind::llama_block) part.head_dim *= 2;
  part.scale = dice.of({1.0, 0.5, -1.5});
  part.probability = dice.of({0.1, 0.5});
  part.window = dice.of<Size>({0, 0, 2, 3, 8}), part.softcap = dice.of({0.0, 0.0, 0.7});
  part.padding = dice.of<Size>({0, 0, 1, 3}), part.document = dice.of<Size>({0, 0, 2, 5});
  return part;
}

inline void draw_parts(Dice& dice, DrawnModel& model, Size tp, Size cp) {
  const Size parts = dice.from(0, most_parts);
  for (Size i = 0; i < parts; ++i) {
    model.parts.push_back(draw_part(dice, model, tp, cp));
    if (!dice.one_in(8)) model.order.push_back(static_cast<int>(i));  // else: never used, or only below
  }
  for (Size again = dice.one_in(3) ? dice.from(1, 2) : 0; again > 0 && parts > 0; --again)
    model.order.push_back(static_cast<int>(dice.from(0, parts - 1)));
}

/// A Llama or a GPT of one or two blocks.
inline void draw_family(Dice& dice, DrawnTask& task, Size tp, Size cp) {
  DrawnModel& model = task.model;
  model.family = dice.of({Family::llama, Family::gpt});
  model.head = Head::tied, model.auxiliary = Auxiliary::none, model.stacked = static_cast<int>(dice.from(1, 2));
  model.longest = task.sequence_of(task.steps - 1) + dice.from(0, 3);
  if (model.width % model.heads != 0) model.width = model.heads * dice.of<Size>({3, 5});
  model.parts = {draw_part(dice, model, tp, cp)};
  model.parts[0].kind = model.family == Family::llama ? PartKind::llama_block : PartKind::gpt_block;
  model.parts[0].head_dim = dice.of<Size>({2, 6, 10});
}

/// A scaling that the heads of the part allow.
inline RopeScaling draw_rope(Dice& dice, const DrawnPart& part) {
  RopeScaling scaling{
      .kind = dice.of({RopeKind::none, RopeKind::linear, RopeKind::dynamic, RopeKind::llama3, RopeKind::yarn}),
      .factor = dice.of({1.5, 4.0}),
      .original_sequence = dice.of<Size>({2, 5, 40}),
      .beta_fast = 2};
  if (scaling.kind == RopeKind::dynamic && part.head_dim <= 2) scaling.kind = RopeKind::linear;
  return scaling;
}

/// What came later, by dice of its own: a seed keeps what it drew before.
inline void draw_more(Dice dice, DrawnTask& task) {
  DrawnModel& model = task.model;
  for (DrawnPart& part : model.parts) {
    part.attention_scale = dice.of({0.0, 0.0, 0.3}), part.score_bias = dice.one_in(2);
    part.exact_gelu = dice.one_in(2), part.rope = draw_rope(dice, part);
    part.replaced = part.kind;
    if (model.family == Family::parts && dice.one_in(10)) part.kind = PartKind::patches;
  }
  model.full_layers = static_cast<int>(dice.from(0, 1));
  model.label_smoothing = dice.of({0.0, 0.0, 0.2});
  model.vocab_bias = dice.one_in(2) && model.family == Family::parts && model.head == Head::tied &&
                     model.loss_chunk_tokens == 0 && !model.auxiliary_alone;
  model.whole_logits = dice.one_in(2);
  task.optimizer = static_cast<OptimizerKind>(dice.one_in(2) ? 0 : dice.from(1, 4));
  // The tokens are frozen only where another parameter has a gradient.
  const bool other = model.family != Family::parts || !model.order.empty();
  task.group = static_cast<GroupKind>(other && dice.one_in(2) ? dice.from(1, 4) : 0);
  if (task.group >= GroupKind::part && model.family != Family::parts) task.group = GroupKind::frozen_tokens;
}

/// The same once more.
inline void draw_last(Dice dice, DrawnTask& task) {
  task.average = dice.of({0.0, 0.6});
  for (DrawnPart& part : task.model.parts) {
    part.reduced = static_cast<Reduced>(dice.from(0, static_cast<Size>(Reduced::kinds) - 1));
    part.more_rows = dice.of<Size>({0, 1, 3});
    const PartKind of_operators =
        dice.of({PartKind::shapes, PartKind::arithmetic, PartKind::reductions, PartKind::selection});
    if (task.model.family == Family::parts && dice.one_in(4)) part.kind = of_operators;
  }
}

inline DrawnSchedule draw_schedule(Dice& dice) {
  constexpr auto kinds = static_cast<Size>(ScheduleKind::kinds);
  const Size kind = dice.one_in(3) ? static_cast<Size>(ScheduleKind::one_cycle) : dice.from(0, kinds - 1);
  return {.kind = static_cast<ScheduleKind>(kind),
          .first = dice.from(1, 3),
          .second = dice.of<Size>({-1, 1, 2}),
          .stairs = dice.of<Size>({0, 0, 1, 2}),
          .second_stairs = dice.of<Size>({-1, 0, 2}),
          .decay_steps = dice.from(0, 2),
          .linear = dice.one_in(2)};
}

/// The same a third time. `ranks` cut a sequence. Cross attention is a part more, so that the others stay.
inline void draw_latest(Dice dice, DrawnTask& task, Size tp, Size cp, Size ranks) {
  DrawnModel& model = task.model;
  const auto keys = [&] { return round_up(std::max<Size>(2, ranks * dice.of<Size>({1, 2, 3, 5})), ranks); };
  task.schedule = draw_schedule(dice);
  model.memory = keys(), model.crosses = dice.one_in(2);
  if (model.family != Family::parts || std::ssize(model.parts) == most_parts || !dice.one_in(6)) return;
  DrawnPart part = draw_part(dice, model, tp, cp);
  part.kind = PartKind::cross_attention;
  part.memory = keys(), part.memory_of_ids = dice.one_in(2), part.padding = dice.from(0, 3);
  part.attention_scale = dice.of({0.0, 0.0, 0.3}), part.score_bias = dice.one_in(2);
  const auto place = model.order.begin() + dice.from(0, std::ssize(model.order));
  model.order.insert(place, static_cast<int>(model.parts.size()));
  model.parts.push_back(part);
}

/// The task without what draw_more, draw_last and draw_latest draw.
inline DrawnTask without_more(DrawnTask task) {
  DrawnModel& model = task.model;
  if (!model.parts.empty() && model.parts.back().kind == PartKind::cross_attention) {
    model.parts.pop_back();
    std::erase(model.order, static_cast<int>(model.parts.size()));
  }
  for (DrawnPart& part : model.parts) {
    part.reduced = Reduced::features, part.more_rows = 0;
    part.kind = part.replaced;
    part.attention_scale = 0, part.score_bias = part.exact_gelu = false, part.rope = {};
  }
  model.full_layers = 0, model.label_smoothing = 0, model.vocab_bias = model.whole_logits = false;
  task.optimizer = OptimizerKind::sgd, task.group = GroupKind::none, task.schedule = {};
  return task;
}

}  // namespace detail

inline Drawn draw(std::uint64_t seed, Size tp, Size cp, bool sequence_parallel) {
  detail::Dice dice(seed);
  Drawn drawn;
  DrawnTask& task = drawn.task;
  DrawnModel& model = task.model;
  task.seed = seed;
  model.heads = tp * cp * dice.of<Size>({1, 1, 2, 3});
  model.width = std::max<Size>(4, model.heads * dice.of<Size>({2, 3, 4, 5, 6, 7}));
  if (dice.one_in(4)) model.width = dice.of<Size>({5, 7, 11, 13});
  model.vocabulary = dice.of<Size>({tp, 2, 3, 5, 7, 12, 13, 17, 29, 31});
  model.vocabulary = std::max({model.vocabulary, tp, Size{2}});
  model.scores = round_up(model.vocabulary, tp * dice.from(1, 4));
  task.sequence = cp * (sequence_parallel ? tp : 1) * dice.of<Size>({1, 2, 3, 4, 5, 7});
  task.check_ranks = dice.from(1, 3), task.evals = static_cast<int>(dice.from(0, 1));
  if (dice.one_in(12))
    task.grows = true, task.steps = 7, task.lr = 1e-4, model.width = 32 * tp * cp, model.heads = 2 * tp * cp;
  model.longest = dice.one_in(2) ? task.sequence_of(task.steps - 1) + dice.from(0, 3) : 0;
  model.stacked = dice.one_in(3) ? static_cast<int>(dice.from(1, 2)) : 0;
  model.auxiliary = static_cast<Auxiliary>(dice.one_in(2) ? dice.from(1, 3) : 0);
  model.head = dice.of({Head::tied, Head::tied, Head::column, Head::plain, Head::table});
  model.final_norm = !dice.one_in(4);
  model.loss_chunk_tokens = dice.one_in(3) ? dice.from(1, 7) : 0;
  detail::draw_parts(dice, model, tp, cp);
  if (dice.one_in(12)) detail::draw_family(dice, task, tp, cp);
  task.weight_decay = dice.of({0.0, 0.1});
  task.clip_norm = dice.of({0.0, 0.0, 0.3});
  task.ignored = dice.of({0.0, 0.0, 0.3, 0.95});
  drawn.split.accumulate = dice.from(1, 3);
  drawn.split.bucket_elements = dice.of<Size>({1, 64, 300, 100000});
  task.weighed = dice.one_in(4);
  if (dice.one_in(4)) {
    drawn.split.nonfinite =
        dice.of({NonFiniteKind::nan_loss, NonFiniteKind::infinite_loss, NonFiniteKind::infinite_gradient});
    // The loss of a micro-batch without targets has no gradient.
    if (task.ignored > 0 || task.weighed)
      drawn.split.nonfinite = model.family == Family::parts ? NonFiniteKind::infinite_gradient : NonFiniteKind::none;
    drawn.split.nonfinite_before = static_cast<int>(dice.from(1, task.steps - 1));
    drawn.split.nonfinite_rank = static_cast<std::uint64_t>(dice.from(0, 1000));
  }
  if (model.auxiliary != Auxiliary::none && dice.one_in(3))  // a norm would leave it little of a gradient
    model.auxiliary_alone = true, model.head = Head::tied, model.final_norm = false;
  detail::draw_more(detail::Dice(seed + 500009), task);
  detail::draw_last(detail::Dice(seed + 900007), task);
  detail::draw_latest(detail::Dice(seed + 1300021), task, tp, cp, cp * (sequence_parallel ? tp : 1));
  model.segments = detail::Dice(seed + 1700021).of({1, 2});
  return drawn;
}

}  // namespace dspp::laws
