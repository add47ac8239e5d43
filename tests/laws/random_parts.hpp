// SPDX-License-Identifier: Apache-2.0
/// The sub-layers of drawn models, of which a model has any, as said at run time.
#pragma once

#include <array>
#include <cmath>
#include <utility>

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
#include <dspp/models/sequential.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/models/tiled_mlp.hpp>
#include <dspp/nn/activation.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/own_positions.hpp>
#include <dspp/nn/patch_embedding.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <laws/operator_rows.hpp>
#include <laws/random_extras.hpp>
#include <laws/random_tasks.hpp>
#include <laws/user_model.hpp>

namespace dspp::laws {

/// A layer that a model may lack: an std::optional of it takes 20 functions, and this one 5, for every policy.
template <class L>
class Maybe {
 public:
  Maybe() = default;
  Maybe(Maybe&& other) noexcept : layer_(other.layer_) { other.layer_ = nullptr; }
  ~Maybe() { delete layer_; }
  template <class... Config>
  void emplace(Config&&... config) {
    layer_ = new L(static_cast<Config&&>(config)...);
  }
  explicit operator bool() const { return layer_ != nullptr; }
  L& operator*() { return *layer_; }
  const L& operator*() const { return *layer_; }
  const L* operator->() const { return layer_; }

 private:
  L* layer_ = nullptr;
};

template <class P>
struct RandomPart : Layer<P> {
  DrawnPart drawn;
  Maybe<LayerNorm<P>> norm;
  Maybe<RmsNorm<P>> rms_norm;
  Maybe<SelfAttention<P>> attention;
  Maybe<GroupedAttention<P>> grouped;
  Maybe<Mlp<P>> mlp;
  Maybe<GatedMlp<P>> gated;
  Maybe<Tiled<ColumnParallel<Linear, P>, 2, 3>> tiled_up;
  Maybe<Tiled<RowParallel<Linear, P>, 2>> tiled_down;
  Maybe<TiledMlp<Mlp<P>, 3>> chunks;
  Maybe<ColumnParallel<Linear, P>> up;
  Maybe<ColumnParallel<Linear, P, InGroups<2>>> pair;
  Maybe<RowParallel<Linear, P>> down;
  Maybe<Factors<P>> factors;
  Maybe<Dropout<P>> dropout;
  Maybe<Sequential<P, ColumnParallel<Linear>, Gelu, RowParallel<Linear>>> sequential;
  Maybe<Linear<P>> plain_in, plain_out;
  Maybe<ColumnParallel<Linear, P, InGroups<3>>> triple;
  Maybe<Embedding<P>> table, memory;
  Maybe<PatchEmbedding<P>> patches;
  Maybe<LlamaBlock<P>> llama_block;
  Maybe<GptBlock<P>> gpt_block;
  Size heads;
  const Size* first_sample;  ///< of the batch, counted over all steps; null on paper

  RandomPart(const DrawnModel& model, const DrawnPart& part)
      : drawn(part), heads(model.heads), first_sample(model.first_sample) {
    const Size width = model.width;
    const auto normal = weights_of(model);
    const MlpConfig sizes{.width = width,
                          .ffn_width = part.ffn_width,
                          .bias = part.bias,
                          .gelu = form(),
                          .initial = normal,
                          .output_initial = normal};
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
                                               .rope_scaling = part.rope,
                                               .rule = rule(),
                                               .qkv_bias = part.bias,
                                               .qk_norm = part.rms,
                                               .initial = normal,
                                               .output_initial = normal});
        break;
      case PartKind::cross_attention:
        grouped.emplace(across_of(model, part));
        if (part.memory_of_ids)
          memory.emplace(EmbeddingConfig{.vocabulary = part.ffn_width, .width = width, .initial = normal});
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
        if (part.reduced != Reduced::features) break;
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
      case PartKind::patches:
        patches.emplace(PatchEmbeddingConfig{.channels = width / (patch_of(width) * patch_of(width)),
                                             .patch = patch_of(width),
                                             .width = width,
                                             .bias = part.bias,
                                             .initial = normal});
        break;
      case PartKind::llama_block: llama_block.emplace(llama_of(model, part)); break;
      case PartKind::gpt_block: gpt_block.emplace(gpt_of(model, part)); break;
      default: break;
    }
    const bool attends = part.kind == PartKind::attention || part.kind == PartKind::grouped_attention ||
                         part.kind == PartKind::cross_attention;
    if (attends && part.score_bias)
      table.emplace(EmbeddingConfig{.vocabulary = distances, .width = heads, .initial = normal});
  }

  /// Attention to another sequence: nothing that asks where a key stands.
  static GroupedAttentionConfig across_of(const DrawnModel& model, const DrawnPart& part) {
    return {.width = model.width,
            .heads = model.heads,
            .kv_heads = part.kv_heads,
            .head_dim = part.head_dim,
            .rope_theta = 0,
            .rule = {AttentionMask::full, 0, part.softcap, part.attention_scale},
            .qkv_bias = part.bias,
            .qk_norm = part.rms && part.head_dim > 1,  // of one number a norm leaves the sign
            .initial = weights_of(model),
            .output_initial = weights_of(model)};
  }
  static LlamaConfig llama_of(const DrawnModel& model, const DrawnPart& part) {
    return {.layers = std::max(1, model.stacked),
            .width = model.width,
            .heads = model.heads,
            .kv_heads = part.kv_heads,
            .head_dim = part.head_dim,
            .ffn_width = part.ffn_width,
            .vocabulary = model.vocabulary,
            .rope_scaling = part.rope,
            .qkv_bias = part.bias,
            .qk_norm = part.rms,
            .window = part.window,
            .full_layers = model.full_layers,
            .init_std = deviation_of(model),
            .loss_chunk_tokens = model.loss_chunk_tokens,
            .recompute_segments = model.segments};
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
            .loss_chunk_tokens = model.loss_chunk_tokens,
            .recompute_segments = model.segments};
  }

  constexpr void visit(auto&& f) {
    const bool tiled = drawn.kind == PartKind::tiled, chunked = drawn.kind == PartKind::tiled_mlp;
    if (norm) f("norm", *norm);
    if (rms_norm) f("rms_norm", *rms_norm);
    if (attention) f("attention", *attention);
    if (grouped) f("grouped", *grouped);
    if (mlp) f(chunked ? "chunks" : "mlp", *mlp);
    if (gated) f("gated", *gated);
    if (tiled_up) f("tiled_up", *tiled_up);
    if (tiled_down) f("tiled_down", *tiled_down);
    if (chunks) f("chunks", *chunks);
    if (up) f(tiled ? "tiled_up" : "up", *up);
    if (pair) f("pair", *pair);
    if (down) f(tiled ? "tiled_down" : "down", *down);
    if (factors) f("factors", *factors);
    if (dropout) f("dropout", *dropout);
    if (sequential) f("sequential", *sequential);
    if (plain_in) f("plain_in", *plain_in);
    if (plain_out) f("plain_out", *plain_out);
    if (triple) f("triple", *triple);
    if (table) f("table", *table);
    if (memory) f("memory", *memory);
    if (patches) f("patches", *patches);
    if (llama_block) f("llama_block", *llama_block);
    if (gpt_block) f("gpt_block", *gpt_block);
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
    return {drawn.causal ? AttentionMask::causal : AttentionMask::full, drawn.window, drawn.softcap,
            drawn.attention_scale};
  }
  Size sample() const { return first_sample ? *first_sample : 0; }
  GeluForm form() const { return drawn.exact_gelu ? GeluForm::exact : GeluForm::tanh; }
  /// The extent of a patch: the features of a position are its pixels.
  static Size patch_of(Size width) { return width % 4 == 0 ? 2 : 1; }
  Hidden<P> normalized(const Hidden<P>& x) const { return rms_norm ? (*rms_norm)(x) : (*norm)(x); }
  template <class X>
  X activated(const X& x) const {
    return drawn.activation == 0 ? gelu(x, form()) : drawn.activation == 1 ? relu(x) : silu(x);
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
  /// The features in another order, weighed by a softmax over them, batch and sequence there and back. One of the parts
  /// may have no use.
  Hidden<P> reshaped(const Hidden<P>& x) const {
    const Size first = 1 + drawn.ffn_width % (x[2] - 2), rest = x[2] - first - 1;
    const auto [a, b, c] = split<-1>(x, std::array<Size, 3>{first, 1, rest});
    const auto others = concat<-1>(c, drawn.rms ? b : slice<-1>(x, first, 1), a);
    const auto turned = transpose<1, 0, 2>(concat<-1>(c, a, drawn.rms ? b : slice<-1>(a, 0, 1)) * softmax(others));
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
  /// Reductions along the features as the first dimension or as the second, or along the sequence, beside what is left.
  Hidden<P> reductions(const Hidden<P>& x) const {
    if (drawn.reduced == Reduced::features) return norm_by_hand(x);
    if (drawn.reduced == Reduced::first) {
      const auto turned = transpose<2, 0, 1>(x);
      const auto largest = max<0>(tanh(turned)), scales = sum<0>(square(turned)) / static_cast<double>(x[2]) + 0.5;
      return transpose<1, 2, 0>(turned * (largest - 1.5) / scales);
    }
    if (drawn.reduced == Reduced::second) {
      const auto turned = transpose<0, 2, 1>(x);
      const auto centered = turned - mean<1>(turned, keep_dimension);
      const auto scales = max<1>(turned, keep_dimension) / sqrt(sum<1>(square(centered), keep_dimension) + 0.5);
      return transpose<0, 2, 1>(centered * scales);
    }
    const auto whole = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(x));
    const auto largest = max<1>(tanh(whole), keep_dimension), sums = sum<1>(whole, keep_dimension);
    const auto means = mean<1>(square(whole), keep_dimension);
    const auto beside = whole * (largest - 1.5) / (means + 0.5) + 0.1 * sums;
    return redistribute<typename P::HiddenState>(own_positions<P>(beside));
  }
  /// A norm over the features, and one over those that ranks cut.
  Hidden<P> norm_by_hand(const Hidden<P>& x) const {
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
    const Size first = own * tape.context().cp_rank(), rows = width + drawn.more_rows;
    using Numbers = Variable<std::int32_t, 3, DeviceOf<P>, typename P::template Place<Invariant, 3>>;
    const auto mask = Tokens<P>::constant(
        integers(x, shape(x[0], own), first, [](Size position, Size) { return position % 3 != 1; }), tape);
    const auto features =
        Numbers::constant(integers(x, shape(x[0], own, rows), first,
                                   [&](Size position, Size i) { return (i % rows + position) % width; }),
                          tape);
    const auto odd = Numbers::constant(
        integers(x, shape(x[0], own, width), first, [&](Size, Size i) { return i % width % 2; }), tape);
    const auto picked = slice<-1>(gather(x, features), drawn.more_rows, width);
    const auto turned = where(odd, picked, -0.5 * x) + bell(x, witch(x));
    if (drawn.causal) return where(mask, turned, 0.25) - where(mask, 1.0, x);
    const auto back = WholeOverCp<Tokens<P>>::constant(
        integers(x, shape(x[0], all), 0, [&](Size position, Size) { return all - 1 - position; }), tape);
    const auto whole = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(turned));
    return where(mask, redistribute<typename P::HiddenState>(own_positions<P>(gather(whole, back))), x);
  }
  /// What cross attention attends to: vectors of ids, others for each sample; or the positions of the stream, from the
  /// last one on and as often as it takes.
  Hidden<P> remembered(const Hidden<P>& x) const {
    Tape<DeviceOf<P>>& tape = x.tape();
    const Size own = drawn.memory / P::cp;
    if (drawn.memory_of_ids) {
      const auto ids = integers(x, shape(x[0], own), own * tape.context().cp_rank(), [&](Size position, Size i) {
        return (3 * (sample() + i / own) + position) % drawn.ffn_width;
      });
      return redistribute<typename P::HiddenState>((*memory)(Tokens<P>::constant(ids, tape)));
    }
    const auto whole = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(x));
    const auto back = WholeOverCp<Tokens<P>>::constant(
        integers(x, shape(x[0], drawn.memory), 0,
                 [all = whole[1]](Size position, Size) { return all - 1 - position % all; }),
        tape);
    return redistribute<typename P::HiddenState>(own_positions<P>(gather(whole, back)));
  }
  /// The sequence as an image with a patch for each position.
  Hidden<P> as_image(const Hidden<P>& x) const {
    const Size patch = patch_of(x[2]);
    const auto whole = redistribute<Replicate, Axis::Cp>(redistribute<Invariant>(x));
    const auto image = reshape(whole, shape(x[0], x[2] / (patch * patch), whole[1] * patch, patch));
    return redistribute<typename P::HiddenState>(own_positions<P>((*patches)(image)));
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
      case PartKind::attention: return with_extras<P>(*attention, table, drawn, sample(), x);
      case PartKind::grouped_attention: return with_extras<P>(*grouped, table, drawn, sample(), x);
      case PartKind::cross_attention: return attended_to<P>(*grouped, table, drawn, sample(), x, remembered(x));
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
      case PartKind::patches: return as_image(x);
      case PartKind::llama_block: return (*llama_block)(x);
      case PartKind::gpt_block: return (*gpt_block)(x);
      default: return x;
    }
  }
};

}  // namespace dspp::laws
