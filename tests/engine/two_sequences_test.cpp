// SPDX-License-Identifier: Apache-2.0
// A decoder that attends to an encoder's sequence, of another length and padded: the same under every strategy, at the
// cost of its plan.
// labels: engine thread
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/dspp.hpp>
#include <dspp/engine/source_batches.hpp>
#include <laws/difference.hpp>
#include <laws/sentence_of.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size width = 8, vocabulary = 12, source_length = 8, target_length = 4;

template <class P>
struct Translation {
  Tokens<P> source;                   // [samples, source_length], padded
  Input<P, std::int32_t, 1> lengths;  // [samples], of the source
  Tokens<P> target, labels;           // [samples, target_length]
  constexpr void visit(auto&& f) {
    f("source", source), f("lengths", lengths), f("target", target), f("labels", labels);
  }
};

/// Counts upwards; the decoder is asked for the tokens of the source, the last one first. What follows the length is
/// `padding`, which nothing may depend on.
struct Reversal {
  template <class P>
  using Batch = Translation<P>;
  std::int32_t padding = 0;
  Size size() const { return 19; }
  auto shapes() const { return std::tuple(shape(source_length), shape(), shape(target_length), shape(target_length)); }
  void fill(Size sample, std::span<std::int32_t> source, std::span<std::int32_t> length, std::span<std::int32_t> target,
            std::span<std::int32_t> labels) const {
    length[0] = static_cast<std::int32_t>(target_length + sample % (source_length - target_length + 1));
    for (std::size_t i = 0; i < source.size(); ++i)
      source[i] = static_cast<Size>(i) < length[0]
                      ? static_cast<std::int32_t>((sample * 5 + static_cast<Size>(i)) % vocabulary)
                      : padding;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      labels[i] = source[static_cast<std::size_t>(length[0]) - 1 - i];
      target[i] = i == 0 ? 0 : labels[i - 1];
    }
  }
};

template <class P>
struct Translator : Layer<P> {
  VocabParallel<Embedding, P> embed{vocabulary, width};
  Positions<P> source_positions{source_length, width}, target_positions{target_length, width};
  LayerNorm<P> source_norm{width}, own_norm{width}, across_norm{width}, norm{width};
  SelfAttention<P> encoder{{.width = width, .heads = 4, .rule = {.mask = AttentionMask::full}}};
  SelfAttention<P> own{{.width = width, .heads = 4}};
  GroupedAttention<P> across{{.width = width,
                              .heads = 4,
                              .kv_heads = 2,
                              .rope_theta = 0,
                              .rule = {.mask = AttentionMask::full},
                              .initial = Initial::normal(0.3),
                              .output_initial = Initial::normal(0.3)}};
  ColumnParallel<Linear, P> head{width, vocabulary};

  constexpr explicit Translator(Size) {}
  constexpr void visit(auto&& f) {
    f("embed", embed), f("source_positions", source_positions), f("target_positions", target_positions);
    f("source_norm", source_norm), f("encoder", encoder), f("own_norm", own_norm), f("own", own);
    f("across_norm", across_norm), f("across", across), f("norm", norm), f("head", head);
  }
  constexpr Loss<P> loss(const Translation<P>& batch) const {
    const auto s = source_positions(embed(batch.source));
    const auto memory = s + encoder(source_norm(s), Lengths{batch.lengths});
    const auto t = target_positions(embed(batch.target));
    const auto x = t + own(own_norm(t));
    const auto each = reshape(0.2 * cast<ElementOf<P>>(batch.lengths), shape(batch.lengths[0], Size{1}, Size{1}));
    const auto beside = broadcast_to(each, shape(each[0], target_length, width));
    const auto y = x * redistribute<typename P::HiddenState>(own_positions<P>(beside)) +
                   across(across_norm(x), KeysOf{memory}, Lengths{batch.lengths});
    return cross_entropy<P>(head(norm(y)), batch.labels, vocabulary);
  }
  constexpr Translation<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    const auto ids = [&]<int Rank>(const Shape<Rank>& extents) {
      return Tensor<std::int32_t, Rank, DeviceOf<P>>::uninitialized(extents, memory, Category::data);
    };
    const Size n = sizes.micro_batch;
    Translation<P> batch;
    batch.source = ids(shape(n, source_length / P::cp)), batch.lengths = ids(shape(n));
    batch.target = ids(shape(n, target_length / P::cp)), batch.labels = ids(shape(n, target_length / P::cp));
    return batch;
  }
};

template <class P>
std::vector<double> train(int ranks, Size accumulate = 1, Reversal source = {}) {
  const int data_ranks = ranks / (P::tp * P::cp);
  const BatchSizes sizes{.micro_batch = 12 / data_ranks / accumulate, .accumulate = accumulate};
  std::vector<double> losses;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    const Plan paper = plan<Translator<P>>(Size{1}, sizes, {.data = data_ranks, .rank = world.place()});
    Engine engine{world, Translator<P>(1), AdamW{.lr = 3e-2}, sizes, {.check_ranks = 1}};
    const auto data = batches(world, source, sizes, {.steps = 6});
    std::vector<double> own;
    for (Size step = 0; step < 6; ++step) own.push_back(engine.train_batch(data.step(step))->loss);
    CHECK(world.memory().peak() == paper.peak);
    if (world.is_first()) losses = own;
  });
  return losses;
}

}  // namespace

TEST_CASE("a decoder attends to an encoder's sequence alike under every strategy, at the cost of its plan") {
  const std::vector<double> one = train<Policy<F64>>(1);
  CHECK(one.back() < one.front());
  CHECK(train<Policy<F64>>(1, 1, {.padding = 7}) == one);
  const auto check = [&]<class P>(P, int ranks, Size accumulate) {
    CAPTURE(ranks);
    CHECK(worst_difference(one, train<P>(ranks, accumulate)) < 1e-11);
  };
  check(Policy<F64, Zero<3>>{}, 3, 2);
  check(Policy<F64, Zero<2>, Tp<2>, SequenceParallel>{}, 4, 1);
  check(Policy<F64, Zero<1>, Tp<2>, Cp<2>>{}, 4, 2);
  check(Policy<F64, Zero<1>, Far>{}, 2, 1);
  CHECK(worst_difference(one, train<Policy<Bf16, Zero<2>>>(2)) < 0.1);
}

namespace {
/// Attends to a sequence as long as its own by a layer that has the rule and the rotation of self-attention.
template <class P>
struct Causal : Layer<P> {
  VocabParallel<Embedding, P> embed{vocabulary, width};
  GroupedAttention<P> across;
  constexpr explicit Causal(const GroupedAttentionConfig& c) : across(c) {}
  constexpr void visit(auto&& f) { f("embed", embed), f("across", across); }
  constexpr Loss<P> loss(const Translation<P>& batch) const {
    return mean(square(redistribute<Invariant>(across(embed(batch.target), KeysOf{embed(batch.labels)}))));
  }
};
}  // namespace

TEST_CASE("a layer with a causal mask, a window or a rotation does not attend to other keys, of whatever length") {
  using P = Policy<F64>;
  const auto train = [](const GroupedAttentionConfig& config) {
    run_ranks_of<P>({}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 2};
      Engine engine{world, Causal<P>(config), AdamW{}, sizes};
      engine.train_batch(batches(world, Reversal{}, sizes, {.steps = 1}).step(0));
    });
  };
  GroupedAttentionConfig config{.width = width, .heads = 2, .rope_theta = 0, .rule = {.mask = AttentionMask::full}};
  CHECK_NOTHROW(train(config));
  const char* const sentence =
      "dspp: GroupedAttention needs a full mask, no window and no rotation to attend to other keys, but has others. "
      "Give "
      ".rope_theta = 0, .rule = {.mask = AttentionMask::full}.";
  config.rope_theta = 100;
  CHECK_THROWS_WITH_AS(train(config), sentence, Error);
  config.rope_theta = 0, config.rule.window = 2;
  CHECK_THROWS_WITH_AS(train(config), sentence, Error);
  config.rule = {};
  CHECK_THROWS_WITH_AS(train(config), sentence, Error);
}
