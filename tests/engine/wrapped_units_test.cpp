// SPDX-License-Identifier: Apache-2.0
// A unit directly within a decorator, a stack or another unit is a unit: the bits of the unit alone, at the planned
// cost.
// labels: engine thread
#include <string>
#include <type_traits>

#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>

#include <dspp/models/tiled_mlp.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// A layer of layers, from the innermost's configuration.
template <class L>
struct Made {
  static constexpr L of(const MlpConfig& config) { return L(config); }
};
template <template <class> class Around, class L>
requires(std::is_same_v<Around<L>, InUnit<L>> || std::is_same_v<Around<L>, Recompute<L>>) struct Made<Around<L>> {
  static constexpr Around<L> of(const MlpConfig& config) { return Around<L>(Made<L>::of(config)); }
};
template <class L>
struct Made<Stack<L>> {
  static constexpr Stack<L> of(const MlpConfig& config) {
    return Stack<L>(2, [&](int) { return Made<L>::of(config); });
  }
};

template <class L, int Chunks>
struct Made<TiledMlp<L, Chunks>> {
  static constexpr TiledMlp<L, Chunks> of(const MlpConfig& config) { return TiledMlp<L, Chunks>(Made<L>::of(config)); }
};

template <class P, class Feed>
struct Wrapped : Layer<P> {
  template <class Q>
  using on = Wrapped<Q, rebind<Feed, typename Q::DeviceType>>;

  VocabParallel<Embedding, P> tokens;
  Feed feed;

  constexpr explicit Wrapped(const GptConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = c.vocabulary, .width = c.width, .initial = Initial::normal(0.5)}),
        feed(Made<Feed>::of({.width = c.width, .ffn_width = 2 * c.width, .initial = Initial::normal(0.3)})) {}
  constexpr void visit(auto&& f) { f("tokens", tokens), f("feed", feed); }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(feed(tokens(ids))), targets, tokens.vocabulary());
  }
};

/// Trains with `Feed` to the bits of `Alone`; returns the number of units.
template <class P, class Feed, class Alone>
Size units_of() {
  const Cell cell{.ranks = 2, .accumulate = 2, .steps = 3};
  const Trained alone = train<Wrapped<P, Alone>>(cell), wrapped = train<Wrapped<P, Feed>>(cell);
  check_same_bits(wrapped, alone);
  for (int r = 0; r < 2; ++r)
    check_plan(plan_of<Wrapped<P, Feed>>(cell, r), wrapped.ranks[static_cast<std::size_t>(r)], r);
  Size units = 0;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1}, [&](World<P>& world) {
    Engine engine{world, Wrapped<P, Feed>(small_gpt(0)), AdamW{}, BatchSizes{}};
    units = std::ssize(engine.units());
  });
  return units;
}

}  // namespace

TEST_CASE("a unit within Recompute, within a unit and as a stack's block") {
  const auto check = [&]<class P>(P) {
    using F = Mlp<P>;
    CHECK(units_of<P, Recompute<InUnit<F>>, InUnit<F>>() == 2);
    CHECK(units_of<P, InUnit<Recompute<F>>, InUnit<F>>() == 2);
    CHECK(units_of<P, Recompute<Recompute<InUnit<F>>>, InUnit<F>>() == 2);
    CHECK(units_of<P, InUnit<InUnit<F>>, InUnit<F>>() == 3);
    CHECK(units_of<P, Stack<InUnit<F>>, Stack<F>>() == 5);
  };
  check(Policy<F64>());
  check(Policy<F64, Zero<3>>());
}

TEST_CASE("a unit within TiledMlp, which each chunk would reduce, is a sentence") {
  using P = Policy<F32, Zero<2>>;
  const auto sentence = [&]<class Feed>(std::type_identity<Feed>) {
    return sentence_of([&] {
      run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1}, [&](World<P>& world) {
        Engine engine{world, Wrapped<P, Feed>(small_gpt(0)), AdamW{}, BatchSizes{}};
        engine.train_batch(batch_of(world.memory(), 0, 0, 2, 4, 13));
      });
    });
  };
  CHECK(sentence(std::type_identity<TiledMlp<Mlp<P>, 2>>()) == "no error");
  CHECK(sentence(std::type_identity<InUnit<TiledMlp<Mlp<P>, 2>>>()) == "no error");
  CHECK(sentence(std::type_identity<TiledMlp<InUnit<Mlp<P>>, 2>>())
            .find("TiledMlp needs a layer that is no unit and has none, but an InUnit is in it") != std::string::npos);
}
