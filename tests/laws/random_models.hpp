// SPDX-License-Identifier: Apache-2.0
/// The models of drawn tasks. Which layers a model has is said at run time, so that one instantiation per policy serves
/// all.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/selection.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/gated_mlp.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/models/llama.hpp>
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
#include <dspp/nn/own_positions.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/parallel/tiled_loss.hpp>
#include <dspp/zero/in_unit.hpp>
#include <laws/operator_rows.hpp>
#include <laws/random_extras.hpp>
#include <laws/random_tasks.hpp>
#include <laws/user_model.hpp>

namespace dspp::laws {

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
  std::optional<Linear<P>> plain_in, plain_out;
  std::optional<ColumnParallel<Linear, P, InGroups<3>>> triple;
  std::optional<Embedding<P>> table;
  std::optional<LlamaBlock<P>> llama_block;
  std::optional<GptBlock<P>> gpt_block;
  Size heads;

  RandomPart(const DrawnModel& model, const DrawnPart& part) : drawn(part), heads(model.heads) {
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
                                          .rule = rule(),
                                          .bias = part.bias,
                                          .initial = normal,
                                          .output_initial = normal});
        break;
      case PartKind::grouped_attention:
        grouped.emplace(GroupedAttentionConfig{.width = width,
                                               .heads = model.heads,
                                               .kv_heads = part.kv_heads,
                                               .head_dim = part.head_dim,
                                               .rule = rule(),
                                               .qkv_bias = part.bias,
                                               .qk_norm = part.rms,
                                               .initial = normal,
                                               .output_initial = normal});
        break;
      case PartKind::mlp: mlp.emplace(sizes); break;
      case PartKind::gated_mlp: gated.emplace(GatedMlpConfig{width, part.ffn_width, normal, normal}); break;
      case PartKind::tiled:
        emplace_one_of(tiled_up, up,
                       LinearConfig{.in = width, .out = part.ffn_width, .bias = part.bias, .initial = normal});
        emplace_one_of(tiled_down, down,
                       LinearConfig{.in = part.ffn_width, .out = width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::tiled_mlp: emplace_one_of(chunks, mlp, sizes); break;
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
      case PartKind::plain:
        plain_in.emplace(LinearConfig{.in = width, .out = part.ffn_width, .bias = part.bias, .initial = normal});
        plain_out.emplace(LinearConfig{.in = part.ffn_width, .out = width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::own_attention:
        triple.emplace(LinearConfig{.in = width, .out = 3 * heads * part.head_dim, .initial = normal});
        down.emplace(LinearConfig{.in = heads * part.head_dim, .out = width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::head_products:
        plain_in.emplace(LinearConfig{.in = width, .out = 3 * heads * part.head_dim, .initial = normal});
        plain_out.emplace(LinearConfig{.in = heads * part.head_dim, .out = width, .bias = false, .initial = normal});
        break;
      case PartKind::reductions:
        down.emplace(LinearConfig{.in = part.ffn_width, .out = width, .bias = part.bias, .initial = normal});
        up.emplace(LinearConfig{.in = width, .out = part.ffn_width, .bias = part.bias, .initial = normal});
        break;
      case PartKind::contracted:
        up.emplace(LinearConfig{.in = width, .out = part.ffn_width, .bias = part.bias, .initial = normal});
        [[fallthrough]];
      case PartKind::arithmetic:
      case PartKind::table_products:
        table.emplace(EmbeddingConfig{.vocabulary = part.ffn_width, .width = width, .initial = normal});
        break;
      case PartKind::llama_block: llama_block.emplace(llama_of(model, part)); break;
      case PartKind::gpt_block: gpt_block.emplace(gpt_of(model, part)); break;
      default: break;
    }
  }

  static LlamaConfig llama_of(const DrawnModel& model, const DrawnPart& part) {
    return {.layers = std::max(1, model.stacked),
            .width = model.width,
            .heads = model.heads,
            .kv_heads = part.kv_heads,
            .head_dim = part.head_dim,
            .ffn_width = part.ffn_width,
            .vocabulary = model.vocabulary,
            .init_std = deviation_of(model),
            .loss_chunk_tokens = model.loss_chunk_tokens};
  }
  static GptConfig gpt_of(const DrawnModel& model, const DrawnPart& part) {
    return {.layers = std::max(1, model.stacked),
            .width = model.width,
            .heads = model.heads,
            .vocabulary = model.vocabulary,
            .sequence = model.longest,
            .ffn_width = part.ffn_width,
            .dropout = part.bias ? 0 : part.probability,
            .init_std = deviation_of(model),
            .loss_chunk_tokens = model.loss_chunk_tokens};
  }

  constexpr void visit(auto&& f) {
    const auto have = [&](const char* name, auto& part) {
      if (part) f(name, *part);
    };
    const bool tiled = drawn.kind == PartKind::tiled;
    have("norm", norm), have("rms_norm", rms_norm), have("attention", attention), have("grouped", grouped);
    have(drawn.kind == PartKind::tiled_mlp ? "chunks" : "mlp", mlp), have("gated", gated);
    have("tiled_up", tiled_up), have("tiled_down", tiled_down), have("chunks", chunks);
    have(tiled ? "tiled_up" : "up", up), have("pair", pair), have(tiled ? "tiled_down" : "down", down);
    have("factors", factors), have("dropout", dropout), have("sequential", sequential), have("plain_in", plain_in);
    have("plain_out", plain_out), have("triple", triple), have("table", table);
    have("llama_block", llama_block), have("gpt_block", gpt_block);
  }

  Hidden<P> operator()(const Hidden<P>& x) const {
    const auto added = [this, x](const Hidden<P>& y) { return x + drawn.scale * within(normalized(y)); };
    return drawn.function ? recompute(added, x) : added(x);
  }

 private:
  template <class A, class B, class Config>
  void emplace_one_of(A& tiles, B& whole, const Config& config) {
    drawn.whole ? void(whole.emplace(config)) : void(tiles.emplace(config));
  }
  AttentionRule rule() const {
    return {drawn.causal ? AttentionMask::causal : AttentionMask::full, drawn.window, drawn.softcap};
  }
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
  /// All rows of the table, the last one first: [rows, width], Invariant.
  auto rows_of_table(Tape<DeviceOf<P>>& tape) const {
    using Rows = WholeOverCp<Tokens<P>>;  // the same on every rank
    const Size rows = table->vocabulary();
    auto ids = Tensor<std::int32_t, 2, DeviceOf<P>>::uninitialized(shape(Size{1}, rows), tape.memory(), Category::data,
                                                                   "rows");
    ids.write([&](std::int32_t* host) {
      for (Size i = 0; i < rows; ++i) host[i] = static_cast<std::int32_t>(rows - 1 - i);
    });
    const auto vectors = (*table)(Rows::constant(ids, tape));
    return reshape(vectors, shape(rows, vectors[2]));
  }
  /// softmax(q k^T) v, matrix by matrix.
  template <class Q, class K>
  static auto attended(const Q& q, const K& k, const K& v) {
    const double scale = 1 / std::sqrt(static_cast<double>(q[2]));
    return batched_matmul(softmax(scale * batched_matmul(q, transpose<0, 2, 1>(k))), v);
  }
  Hidden<P> along_sequence(const Hidden<P>& x) const {
    const Size own = heads / P::tp, head = drawn.head_dim;
    const auto [q, own_k, own_v] = split<-1, 3>((*triple)(x));
    const auto k = redistribute<Replicate, Axis::Cp>(own_k), v = redistribute<Replicate, Axis::Cp>(own_v);
    const auto matrices = [&](const auto& u) {  // [heads batch, sequence, head]
      const auto parted = reshape<Shard<2>>(u, shape(u[0], u[1], own, head));
      return reshape<void, Shard<1>>(transpose<2, 0, 1, 3>(parted), shape(own * u[0], u[1], head));
    };
    const auto heads_apart = shape(own, q[0], q[1], head);
    const auto y = reshape<void, Shard<2>>(attended(matrices(q), matrices(k), matrices(v)), heads_apart);
    return (*down)(reshape<Shard<2>>(transpose<1, 2, 0, 3>(y), shape(q[0], q[1], own * head)));
  }
  Hidden<P> along_heads(const Hidden<P>& x) const {
    const Size head = drawn.head_dim;
    const auto [q, k, v] = split<-1, 3>(transpose<1, 0, 2>((*plain_in)(x)));
    const auto matrices = [&](const auto& u) { return reshape(u, shape(u[0] * u[1], heads, head)); };
    const auto y = reshape<void, Shard<0>>(attended(matrices(q), matrices(k), matrices(v)), q.shape());
    return (*plain_out)(transpose<1, 0, 2>(y));
  }
  /// The same in a state that mixes with the stream's.
  auto rows_beside(const Hidden<P>& x) const {
    if constexpr (P::sequence_parallel)
      return redistribute<Replicate>(rows_of_table(x.tape()));
    else
      return rows_of_table(x.tape());
  }
  /// Two vectors of features and numbers beside the stream.
  Hidden<P> arithmetic(const Hidden<P>& x) const {
    const auto rows = rows_beside(x);
    const auto v = reshape(slice<0>(rows, 0, 1), shape(rows[1])), w = sum<0>(rows);
    const auto a = (x - v) / (2.0 + square(w)), b = tanh(v - x) * (1.0 - sigmoid(x)) / 3.0;
    const auto c = log(1.5 + square(a)) + 1.0 / (2.0 + square(b)) - exp(-square(x)) * w;
    return drawn.causal ? a - b * c : -c / sqrt(square(a) + 1.0) + b;
  }
  /// A norm over the features, and one over those that ranks cut.
  Hidden<P> reductions(const Hidden<P>& x) const {
    const auto centered = x - mean<-1>(x, keep_dimension);
    const auto normed = centered / sqrt(mean<-1>(square(centered), keep_dimension) + 0.1);
    const auto largest = max<-1>(tanh(normed), keep_dimension);
    const auto parts = (*up)(normed * exp(0.1 * largest - 0.1));
    const auto squares = redistribute<Replicate>(sum<-1>(square(parts), keep_dimension));
    const auto means = redistribute<Replicate>(mean<-1>(parts));
    const auto scales = broadcast_to<Shard<-1>>(sqrt(squares + 1.0), parts.shape());
    const auto shifts = broadcast_to<Shard<-1>>(reshape(means, shape(x[0], parts[1], Size{1})), parts.shape());
    return (*down)((parts - shifts) / scales);
  }
  /// Integers of this rank's positions of Cp, number(global position, i) at i, behind the sequence.
  template <int Rank, class F>
  static auto integers(const Hidden<P>& x, const Shape<Rank>& extents, Size first, F number) {
    auto ids = Tensor<std::int32_t, Rank, DeviceOf<P>>::uninitialized(extents, x.memory(), Category::data, "ids");
    const Size inner = extents.product(2, Rank);
    ids.write([&](std::int32_t* host) {
      for (Size i = 0; i < extents.count(); ++i)
        host[i] = static_cast<std::int32_t>(number(first + i / inner % extents[1], i));
    });
    return ids;
  }
  Hidden<P> selection(const Hidden<P>& x) const {
    Tape<DeviceOf<P>>& tape = x.tape();
    const Size width = x[2], own = x[1] * (P::sequence_parallel ? P::tp : 1), all = own * P::cp;
    const Size first = own * tape.context().cp_rank();
    using Numbers = Variable<std::int32_t, 3, DeviceOf<P>, typename P::template Place<Invariant, 3>>;
    const auto mask = Tokens<P>::constant(
        integers(x, shape(x[0], own), first, [](Size position, Size) { return position % 3 != 1; }), tape);
    const auto features = Numbers::constant(
        integers(x, shape(x[0], own, width), first, [&](Size position, Size i) { return (i + position) % width; }),
        tape);
    const auto odd = Numbers::constant(
        integers(x, shape(x[0], own, width), first, [&](Size, Size i) { return i % width % 2; }), tape);
    const auto turned = where(odd, gather(x, features), -0.5 * x) + bell(x, witch(x));
    if (drawn.causal) return where(mask, turned, 0.25) - where(mask, 1.0, x);
    const auto back = WholeOverCp<Tokens<P>>::constant(
        integers(x, shape(x[0], all), 0, [&](Size position, Size) { return all - 1 - position; }), tape);
    const auto whole = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(turned));
    return where(mask, redistribute<typename P::HiddenState>(own_positions<P>(gather(whole, back))), x);
  }
  Hidden<P> by_table(const Hidden<P>& x) const {
    const auto turned = transpose<1, 0, 2>(x);
    const auto rows = rows_beside(x);
    const auto inner = matmul(reshape(turned, shape(turned[0] * turned[1], turned[2])), transpose<1, 0>(rows));
    return transpose<1, 0, 2>(reshape<void, Shard<0>>(matmul(activated(inner), rows), turned.shape()));
  }
  Hidden<P> contracted(const Hidden<P>& x) const {
    const auto inner = transpose<1, 0, 2>(activated((*up)(x)));
    const auto product = contract(reshape<Shard<1>>(inner, shape(inner[0] * inner[1], inner[2])),
                                  redistribute<Shard<0>>(rows_of_table(x.tape())));
    const auto summands = reshape<void, Shard<0>>(product, shape(inner[0], inner[1], product[1]));
    return redistribute<typename P::HiddenState>(transpose<1, 0, 2>(summands));
  }
  Hidden<P> within(const Hidden<P>& x) const {
    switch (drawn.kind) {
      case PartKind::attention: return with_extras<P>(*attention, drawn, x);
      case PartKind::grouped_attention: return with_extras<P>(*grouped, drawn, x);
      case PartKind::mlp: return (*mlp)(x);
      case PartKind::gated_mlp: return (*gated)(x);
      case PartKind::tiled:
        return drawn.whole ? (*down)(activated((*up)(x))) : (*tiled_down)(activated((*tiled_up)(x)));
      case PartKind::tiled_mlp: return drawn.whole ? (*mlp)(x) : (*chunks)(x);
      case PartKind::product: return x * activated(x);
      case PartKind::gathered: return redistribute<typename P::HiddenState>(activated((*up)(x)));
      case PartKind::factors: return (*factors)(x);
      case PartKind::dropout: return (*dropout)(x);
      case PartKind::groups: return of_groups((*pair)(x));
      case PartKind::shapes: return reshaped(x);
      case PartKind::sequential: return (*sequential)(x);
      case PartKind::plain: return (*plain_out)(activated((*plain_in)(x)));
      case PartKind::own_attention: return along_sequence(x);
      case PartKind::head_products: return along_heads(x);
      case PartKind::table_products: return by_table(x);
      case PartKind::contracted: return contracted(x);
      case PartKind::arithmetic: return arithmetic(x);
      case PartKind::reductions: return reductions(x);
      case PartKind::selection: return selection(x);
      case PartKind::llama_block: return (*llama_block)(x);
      case PartKind::gpt_block: return (*gpt_block)(x);
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
  std::optional<Linear<P>> plain_head;
  std::optional<Embedding<P>> plain_table;
  std::optional<Llama<P>> llama;
  std::optional<Gpt<P>> gpt;
  std::vector<int> place;  ///< of each part in the list of its home

  explicit RandomModel(const DrawnModel& model)
      : drawn(model),
        tokens(EmbeddingConfig{.vocabulary = model.vocabulary, .width = model.width, .initial = Initial::normal(0.5)}) {
    if (model.family == Family::llama) llama.emplace(RandomPart<P>::llama_of(model, model.parts[0]));
    if (model.family == Family::gpt) gpt.emplace(RandomPart<P>::gpt_of(model, model.parts[0]));
    if (model.family != Family::parts) return;
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
    const LinearConfig scores{.in = model.width, .out = model.scores, .bias = false, .initial = weights_of(model)};
    if (model.head == Head::column) head.emplace(scores);
    if (model.head == Head::plain) plain_head.emplace(scores);
    if (model.head == Head::table)
      plain_table.emplace(EmbeddingConfig{.vocabulary = scores.out, .width = model.width, .initial = scores.initial});
  }

  constexpr void visit(auto&& f) {
    if (llama) return f("llama", *llama);
    if (gpt) return f("gpt", *gpt);
    f("tokens", tokens);
    if (positions) f("positions", *positions);
    for (std::size_t i = 0; i < place.size(); ++i) at(*this, i, [&](auto& part) { f(static_cast<int>(i), part); });
    if (stack) f("stack", *stack);
    if (norm) f("norm", *norm);
    if (head) f("head", *head);
    if (plain_head) f("plain_head", *plain_head);
    if (plain_table) f("plain_table", *plain_table);
  }

  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    if (llama) return with_nonfinite(llama->loss(ids, targets));
    if (gpt) return with_nonfinite(gpt->loss(ids, targets));
    auto x = tokens(ids);
    if (plain_table) x = x + redistribute<typename P::HiddenState>((*plain_table)(ids));
    if (positions) x = (*positions)(x);
    for (int i : drawn.order) at(*this, static_cast<std::size_t>(i), [&](const auto& part) { x = part(x); });
    if (stack) x = x + (*stack)(x);
    if (norm) x = (*norm)(x);
    if (drawn.nonfinite && *drawn.nonfinite == NonFiniteKind::infinite_gradient) x = with_infinite_gradient(x);
    if (drawn.auxiliary_alone) return with_nonfinite(0.5 * auxiliary(x));
    const Loss<P> loss = with_nonfinite(of_logits(x, targets));
    return drawn.auxiliary == Auxiliary::none ? loss : loss + 0.5 * auxiliary(x);
  }

 private:
  Loss<P> of_logits(const Hidden<P>& x, const Tokens<P>& targets) const {
    if (plain_head) return of_whole_scores((*plain_head)(x), targets);
    if (plain_table) return of_whole_scores(plain_table->logits(redistribute<Invariant>(x)), targets);
    if (head) return cross_entropy<P>((*head)(x), targets, tokens.vocabulary());
    if (drawn.loss_chunk_tokens > 0) return TiledLoss<P>(drawn.loss_chunk_tokens)(tokens, x, targets);
    return cross_entropy<P>(tokens.logits(x), targets, tokens.vocabulary());
  }
  template <class X>
  Loss<P> of_whole_scores(const X& scores, const Tokens<P>& targets) const {
    return cross_entropy<P>(redistribute<Shard<-1>>(scores), targets, tokens.vocabulary());
  }
  /// Multiplied with what is not finite, if this rank is drawn to.
  Loss<P> with_nonfinite(const Loss<P>& loss) const {
    using Limits = std::numeric_limits<double>;
    const NonFiniteKind now = drawn.nonfinite ? *drawn.nonfinite : NonFiniteKind::none;
    if (now == NonFiniteKind::nan_loss) return Limits::quiet_NaN() * loss;
    return now == NonFiniteKind::none || (now == NonFiniteKind::infinite_gradient && !gpt && !llama)
               ? loss
               : Limits::infinity() * loss;
  }
  static Hidden<P> with_infinite_gradient(const Hidden<P>& x) {
    Hidden<P> y(x.value(), x);
    y.on_backward([slot = x.slot()](Tape<DeviceOf<P>>& tape, Tensor<ElementOf<P>, 3, DeviceOf<P>> dy) {
      tape.give(slot, ops::scale(std::move(dy), std::numeric_limits<double>::infinity()));
    });
    return y;
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

}  // namespace dspp::laws
