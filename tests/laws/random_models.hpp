// SPDX-License-Identifier: Apache-2.0
/// Models, shapes, batches and policies drawn at random, each trained beside one dense rank: the differential fuzzer.
///
/// Which layers a model has is drawn at run time, so that one instantiation per policy serves all models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/gated_mlp.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/positions.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/models/tiled_mlp.hpp>
#include <dspp/nn/activation.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/parallel/tiled_loss.hpp>
#include <dspp/zero/in_unit.hpp>
#include <laws/user_model.hpp>

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
  kinds
};

/// Where a part's parameters live and how often it is computed.
enum class PartHome { root, unit, recomputed, recomputed_unit, homes };

struct DrawnPart {
  PartKind kind = PartKind::mlp;
  PartHome home = PartHome::root;
  bool rms = false, bias = true, causal = true;
  int activation = 0;      ///< gelu, relu, silu
  Size ffn_width = 0;      ///< features inside an MLP
  Size kv_heads = 0;       ///< of grouped attention
  double scale = 1;        ///< of the part beside the residual stream
  double probability = 0;  ///< of dropout
};

/// A term of the loss beside the cross-entropy: a reduction of the last hidden states, as a mean over their elements.
enum class Auxiliary { none, mean, sum, squared_norm };

struct DrawnModel {
  Size width = 8, heads = 2, vocabulary = 13, longest = 0, loss_chunk_tokens = 0;
  int stacked = 0;  ///< blocks of a Stack after the parts
  bool tied = true, final_norm = true;
  Auxiliary auxiliary = Auxiliary::none;
  std::vector<DrawnPart> parts;
  std::vector<int> order;  ///< indices of parts: one may be used twice, another never
};

/// 0.3 for a width of 8.
inline Initial weights_of(const DrawnModel& model) {
  return Initial::normal(0.85 / std::sqrt(static_cast<double>(model.width)));
}

/// What is computed: the same under every policy.
struct DrawnTask {
  std::uint64_t seed = 0;
  DrawnModel model;
  Size sequence = 4;
  int steps = 3, evals = 0;
  Size check_ranks = 1;  ///< steps from one check that ranks hold the same to the next
  double lr = 0.05, weight_decay = 0, clip_norm = 0;
  double ignored = 0;    ///< share of the targets that do not count
  bool weighed = false;  ///< those that do count have weights
  bool grows = false;    ///< every step has a longer sequence than the last

  Size sequence_of(int step) const { return grows ? sequence * (step + 1) : sequence; }
};

/// How it is split. Samples of a step: rows[a * data + d] of micro-step a on data rank d, one after another.
struct DrawnSplit {
  int data = 1;
  Size accumulate = 1;
  std::vector<Size> rows{1};
  Size bucket_elements = 1000;

  Size samples() const { return std::accumulate(rows.begin(), rows.end(), Size{0}); }
  bool even() const { return std::adjacent_find(rows.begin(), rows.end(), std::not_equal_to<>()) == rows.end(); }
};

std::string text_of(const DrawnTask& task, const DrawnSplit& split);

/// A task that `tp` and `cp` ranks can share, and a way to split it.
struct Drawn {
  DrawnTask task;
  DrawnSplit split;
};
Drawn draw(std::uint64_t seed, Size tp, Size cp, bool sequence_parallel);

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
struct RandomPart : Layer<P> {
  DrawnPart drawn;
  std::optional<LayerNorm<P>> norm;
  std::optional<RmsNorm<P>> rms_norm;
  std::optional<SelfAttention<P>> attention;
  std::optional<GroupedAttention<P>> grouped;
  std::optional<Mlp<P>> mlp;
  std::optional<GatedMlp<P>> gated;
  std::optional<Tiled<ColumnParallel<Linear, P>, 2, 3>> tiled_up;
  std::optional<Tiled<RowParallel<Linear, P>, 2>> tiled_down;
  std::optional<TiledMlp<Mlp<P>, 3>> chunks;
  std::optional<ColumnParallel<Linear, P>> up;
  std::optional<ColumnParallel<Linear, P, InGroups<2>>> pair;
  std::optional<RowParallel<Linear, P>> down;
  std::optional<Factors<P>> factors;
  std::optional<Dropout<P>> dropout;
  std::optional<Sequential<P, ColumnParallel<Linear>, Gelu, RowParallel<Linear>>> sequential;

  RandomPart(const DrawnModel& model, const DrawnPart& part) : drawn(part) {
    const Size width = model.width;
    const auto normal = weights_of(model);
    const MlpConfig sizes{
        .width = width, .ffn_width = part.ffn_width, .bias = part.bias, .initial = normal, .output_initial = normal};
    if (part.rms)
      rms_norm.emplace(width);
    else
      norm.emplace(width);
    switch (part.kind) {
      case PartKind::attention:
        attention.emplace(AttentionConfig{.width = width,
                                          .heads = model.heads,
                                          .mask = mask(),
                                          .bias = part.bias,
                                          .initial = normal,
                                          .output_initial = normal});
        break;
      case PartKind::grouped_attention:
        grouped.emplace(GroupedAttentionConfig{.width = width,
                                               .heads = model.heads,
                                               .kv_heads = part.kv_heads,
                                               .mask = mask(),
                                               .initial = normal,
                                               .output_initial = normal});
        break;
      case PartKind::mlp: mlp.emplace(sizes); break;
      case PartKind::gated_mlp: gated.emplace(GatedMlpConfig{width, part.ffn_width, normal, normal}); break;
      case PartKind::tiled:
        tiled_up.emplace(LinearConfig{.in = width, .out = part.ffn_width, .bias = part.bias, .initial = normal});
        tiled_down.emplace(LinearConfig{.in = part.ffn_width, .out = width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::tiled_mlp: chunks.emplace(sizes); break;
      case PartKind::gathered:
        up.emplace(LinearConfig{.in = width, .out = width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::factors: factors.emplace(width); break;
      case PartKind::groups:
        pair.emplace(LinearConfig{.in = width, .out = 2 * width, .bias = part.bias, .initial = normal});
        down.emplace(LinearConfig{.in = width, .out = width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::dropout: dropout.emplace(part.probability); break;
      case PartKind::sequential:
        sequential.emplace(
            ColumnParallel<Linear, P>(LinearConfig{.in = width, .out = part.ffn_width, .initial = normal}), Gelu{},
            RowParallel<Linear, P>(
                LinearConfig{.in = part.ffn_width, .out = width, .bias = part.bias, .initial = normal}));
        break;
      default: break;
    }
  }

  constexpr void visit(auto&& f) {
    const auto have = [&](const char* name, auto& part) {
      if (part) f(name, *part);
    };
    have("norm", norm), have("rms_norm", rms_norm), have("attention", attention), have("grouped", grouped);
    have("mlp", mlp), have("gated", gated), have("tiled_up", tiled_up), have("tiled_down", tiled_down);
    have("chunks", chunks), have("up", up), have("pair", pair), have("down", down), have("factors", factors);
    have("dropout", dropout), have("sequential", sequential);
  }

  Hidden<P> operator()(const Hidden<P>& x) const { return x + drawn.scale * within(normalized(x)); }

 private:
  AttentionMask mask() const { return drawn.causal ? AttentionMask::causal : AttentionMask::full; }
  Hidden<P> normalized(const Hidden<P>& x) const { return rms_norm ? (*rms_norm)(x) : (*norm)(x); }
  template <class X>
  X activated(const X& x) const {
    return drawn.activation == 0 ? gelu(x) : drawn.activation == 1 ? relu(x) : silu(x);
  }
  /// Two projections in one product: as they are cut, or joined the other way round, gathered and taken apart.
  template <class X>
  Hidden<P> of_groups(const X& x) const {
    const auto [a, b] = split<-1, 2>(x);
    if (drawn.causal) return (*down)(a * activated(b));
    const auto whole = redistribute<typename P::HiddenState>(join<-1>(b, a));
    const auto [c, d] = split<-1, 2>(whole);
    return c * activated(d);
  }
  /// The features in another order, weighed by a softmax over them, batch and sequence there and back.
  Hidden<P> reshaped(const Hidden<P>& x) const {
    const Size first = 1 + drawn.ffn_width % (x[2] - 1);
    const auto [a, b] = split<-1>(x, std::array{first, x[2] - first});
    const auto rest = concat<-1>(slice<-1>(x, first, x[2] - first), a);
    const auto turned = transpose<1, 0, 2>(concat<-1>(b, a) * softmax(rest));
    return cast<ElementOf<P>>(transpose<1, 0, 2>(turned));
  }
  Hidden<P> within(const Hidden<P>& x) const {
    switch (drawn.kind) {
      case PartKind::attention: return (*attention)(x);
      case PartKind::grouped_attention: return (*grouped)(x);
      case PartKind::mlp: return (*mlp)(x);
      case PartKind::gated_mlp: return (*gated)(x);
      case PartKind::tiled: return (*tiled_down)(activated((*tiled_up)(x)));
      case PartKind::tiled_mlp: return (*chunks)(x);
      case PartKind::product: return x * activated(x);
      case PartKind::gathered: return redistribute<typename P::HiddenState>(activated((*up)(x)));
      case PartKind::factors: return (*factors)(x);
      case PartKind::dropout: return (*dropout)(x);
      case PartKind::groups: return of_groups((*pair)(x));
      case PartKind::shapes: return reshaped(x);
      case PartKind::sequential: return (*sequential)(x);
      default: return x;
    }
  }
};

template <class P>
struct RandomModel : Layer<P> {
  DrawnModel drawn;
  VocabParallel<Embedding, P> tokens;
  std::optional<Positions<P>> positions;
  std::vector<RandomPart<P>> root;
  std::vector<InUnit<RandomPart<P>>> units;
  std::vector<Recompute<RandomPart<P>>> recomputed;
  std::vector<InUnit<Recompute<RandomPart<P>>>> recomputed_units;
  std::optional<Stack<Mlp<P>>> stack;
  std::optional<LayerNorm<P>> norm;
  std::optional<ColumnParallel<Linear, P>> head;
  std::vector<int> place;  ///< of each part in the list of its home

  explicit RandomModel(const DrawnModel& model)
      : drawn(model),
        tokens(EmbeddingConfig{.vocabulary = model.vocabulary, .width = model.width, .initial = Initial::normal(0.5)}) {
    if (model.longest > 0) positions.emplace(model.longest, model.width, weights_of(model));
    for (const DrawnPart& part : model.parts) {
      RandomPart<P> layer(model, part);
      const auto add = [&](auto& list, auto&& own) {
        place.push_back(static_cast<int>(list.size()));
        list.push_back(std::move(own));
      };
      switch (part.home) {
        case PartHome::unit: add(units, InUnit<RandomPart<P>>(std::move(layer))); break;
        case PartHome::recomputed: add(recomputed, Recompute<RandomPart<P>>(std::move(layer))); break;
        case PartHome::recomputed_unit:
          add(recomputed_units, InUnit<Recompute<RandomPart<P>>>(Recompute<RandomPart<P>>(std::move(layer))));
          break;
        default: add(root, std::move(layer)); break;
      }
    }
    const MlpConfig block{.width = model.width, .ffn_width = 2 * model.heads, .initial = weights_of(model)};
    if (model.stacked > 0) stack.emplace(model.stacked, block);
    if (model.final_norm) norm.emplace(model.width);
    if (!model.tied)
      head.emplace(LinearConfig{
          .in = model.width, .out = round_up(model.vocabulary, 12), .bias = false, .initial = weights_of(model)});
  }

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    if (positions) f("positions", *positions);
    for (std::size_t i = 0; i < place.size(); ++i) at(*this, i, [&](auto& part) { f(static_cast<int>(i), part); });
    if (stack) f("stack", *stack);
    if (norm) f("norm", *norm);
    if (head) f("head", *head);
  }

  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    auto x = tokens(ids);
    if (positions) x = (*positions)(x);
    for (int i : drawn.order) at(*this, static_cast<std::size_t>(i), [&](const auto& part) { x = part(x); });
    if (stack) x = x + (*stack)(x);
    if (norm) x = (*norm)(x);
    const Loss<P> loss = of_scores(x, targets);
    return drawn.auxiliary == Auxiliary::none ? loss : loss + 0.5 * auxiliary(x);
  }

 private:
  Loss<P> of_scores(const Hidden<P>& x, const Tokens<P>& targets) const {
    if (head) return cross_entropy<P>((*head)(x), targets, tokens.vocabulary());
    if (drawn.loss_chunk_tokens > 0) return TiledLoss<P>(drawn.loss_chunk_tokens)(tokens, x, targets);
    return cross_entropy<P>(tokens.logits(x), targets, tokens.vocabulary());
  }
  Loss<P> auxiliary(const Hidden<P>& x) const {
    if (drawn.auxiliary == Auxiliary::mean) return whole(mean(x));
    const double elements = static_cast<double>(x.value().count()) * (P::sequence_parallel ? P::tp : 1);
    return 1 / elements * (drawn.auxiliary == Auxiliary::sum ? whole(sum(x)) : whole(squared_norm(x)));
  }
  template <class X>
  static Loss<P> whole(const X& x) {
    if constexpr (std::is_same_v<X, Loss<P>>)
      return x;
    else
      return redistribute<Invariant>(x);
  }
  template <class Self, class F>
  static void at(Self& self, std::size_t i, F f) {
    const auto j = static_cast<std::size_t>(self.place[i]);
    switch (self.drawn.parts[i].home) {
      case PartHome::unit: return f(self.units[j]);
      case PartHome::recomputed: return f(self.recomputed[j]);
      case PartHome::recomputed_unit: return f(self.recomputed_units[j]);
      default: return f(self.root[j]);
    }
  }
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
constexpr const char* part_names[] = {"attention", "grouped attention", "mlp",     "gated mlp", "tiled",  "tiled mlp",
                                      "product",   "gathered",          "factors", "dropout",   "groups", "shapes",
                                      "sequential"};
constexpr const char* home_names[] = {"root", "unit", "recomputed", "recomputed unit"};
}  // namespace detail

inline std::string text_of(const DrawnTask& task, const DrawnSplit& split) {
  const auto number = [](auto n) { return std::to_string(n); };
  const DrawnModel& m = task.model;
  std::string text = "seed " + number(task.seed) + ": width " + number(m.width) + ", heads " + number(m.heads) +
                     ", vocabulary " + number(m.vocabulary) + ", sequence " + number(task.sequence) + ", positions " +
                     number(m.longest) + ", loss_chunk_tokens " + number(m.loss_chunk_tokens) +
                     (m.tied ? ", tied" : ", head") + (m.final_norm ? ", norm" : "") + ", stacked " +
                     number(m.stacked) + ", auxiliary " + number(static_cast<int>(m.auxiliary)) +
                     (task.grows ? ", grows" : "") + ", steps " + number(task.steps) + ", checks each " +
                     number(task.check_ranks) + ", evals " + number(task.evals) + ", clip " + number(task.clip_norm) +
                     ", decay " + number(task.weight_decay) + ", ignored " + number(task.ignored) +
                     (task.weighed ? ", weighed" : "") + "; data " + number(split.data) + ", accumulate " +
                     number(split.accumulate) + ", bucket " + number(split.bucket_elements) + ", rows";
  for (Size n : split.rows) text += " " + number(n);
  for (const DrawnPart& p : m.parts)
    text += std::string("; ") + detail::part_names[static_cast<int>(p.kind)] + " (" +
            detail::home_names[static_cast<int>(p.home)] + (p.rms ? ", rms" : "") + (p.bias ? "" : ", no bias") +
            (p.causal ? "" : ", full") + ", activation " + number(p.activation) + ", ffn_width " + number(p.ffn_width) +
            ", kv " + number(p.kv_heads) + ", scale " + number(p.scale) + ", p " + number(p.probability) + ")";
  text += "; order";
  for (int i : m.order) text += " " + number(i);
  return text;
}

namespace detail {

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

inline DrawnPart draw_part(Dice& dice, Size heads, Size tp, Size cp) {
  DrawnPart part;
  part.kind = static_cast<PartKind>(dice.from(0, static_cast<Size>(PartKind::kinds) - 1));
  part.home = static_cast<PartHome>(dice.from(0, static_cast<Size>(PartHome::homes) - 1));
  part.rms = dice.one_in(2), part.bias = !dice.one_in(3), part.causal = !dice.one_in(3);
  part.activation = static_cast<int>(dice.from(0, 2));
  part.ffn_width = tp * dice.of<Size>({3, 5, 7, 8});
  part.kv_heads = dice.of<Size>({tp, tp * cp, heads});
  part.scale = dice.of({1.0, 0.5, -1.5});
  part.probability = dice.of({0.1, 0.5});
  return part;
}

}  // namespace detail

inline Drawn draw(std::uint64_t seed, Size tp, Size cp, bool sequence_parallel) {
  detail::Dice dice(seed);
  Drawn drawn;
  DrawnTask& task = drawn.task;
  DrawnModel& model = task.model;
  task.seed = seed;
  model.heads = tp * cp * dice.from(1, 2);
  model.width = std::max<Size>(4, model.heads * dice.of<Size>({2, 4, 6}));
  model.vocabulary = dice.of<Size>({tp, 5, 7, 12, 13, 31});
  model.vocabulary = std::max({model.vocabulary, tp, Size{2}});
  task.sequence = cp * (sequence_parallel ? tp : 1) * dice.from(1, 4);
  task.check_ranks = dice.from(1, 3), task.evals = static_cast<int>(dice.from(0, 1));
  if (dice.one_in(12)) task.grows = true, task.steps = 7, task.lr = 1e-4, model.width = 16 * model.heads;
  model.longest = dice.one_in(2) ? task.sequence_of(task.steps - 1) + dice.from(0, 3) : 0;
  model.stacked = dice.one_in(3) ? static_cast<int>(dice.from(1, 2)) : 0;
  model.auxiliary = static_cast<Auxiliary>(dice.one_in(2) ? dice.from(1, 3) : 0);
  model.tied = !dice.one_in(3), model.final_norm = !dice.one_in(4);
  model.loss_chunk_tokens = dice.one_in(3) ? dice.from(1, 7) : 0;
  const Size parts = dice.from(0, 4);
  for (Size i = 0; i < parts; ++i) {
    model.parts.push_back(detail::draw_part(dice, model.heads, tp, cp));
    if (!dice.one_in(8)) model.order.push_back(static_cast<int>(i));  // else: never used, or only below
  }
  for (Size again = dice.one_in(3) ? dice.from(1, 2) : 0; again > 0 && parts > 0; --again)
    model.order.push_back(static_cast<int>(dice.from(0, parts - 1)));
  task.weight_decay = dice.of({0.0, 0.1});
  task.clip_norm = dice.of({0.0, 0.0, 0.3});
  task.ignored = dice.of({0.0, 0.0, 0.3, 0.95});
  drawn.split.accumulate = dice.from(1, 3);
  drawn.split.bucket_elements = dice.of<Size>({1, 64, 300, 100000});
  task.weighed = dice.one_in(4);
  return drawn;
}

}  // namespace dspp::laws
