// SPDX-License-Identifier: Apache-2.0
// Parameters that are used more than once: their gradient is the sum over the uses, under every strategy.
// labels: thread
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size width = 12, vocabulary = 61;

/// A norm and a product without bias, applied twice: in backward the second use comes first.
template <class P>
struct Twice : Layer<P> {
  LayerNorm<P> norm{width};
  Linear<P> product{LinearConfig{.in = width, .out = width, .bias = false, .initial = Initial::normal(0.3)}};
  constexpr void visit(auto&& f) {
    f("norm", norm);
    f("product", product);
  }
  constexpr auto operator()(const Hidden<P>& x) const { return x + product(norm(x)); }
};

/// The tables and the shared layer are one unit: the bucket is reduced while it still expects the tables' gradients.
template <class P, bool Again>
struct SharedModel : Layer<P> {
  template <class Q>
  using on = SharedModel<Q, Again>;
  using Shared = std::conditional_t<Again, Recompute<Twice<P>>, Twice<P>>;

  VocabParallel<Embedding, P> tokens;
  Positions<P> positions;
  Shared shared{Twice<P>()};

  constexpr explicit SharedModel(const GptConfig&)
      : tokens(EmbeddingConfig{.vocabulary = vocabulary, .width = width, .initial = Initial::normal(0.5)}),
        positions(16, width, Initial::normal(0.1)) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("positions", positions);
    f("shared", shared);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(shared(shared(shared(positions(tokens(ids)))))), targets, vocabulary);
  }
};

/// Tables whole on every rank, beside a split sequence: the gradient of the head is Partial over Tp.
template <class P>
struct WholeTables : Layer<P> {
  static constexpr Size rows = vocabulary + 1;  // two ranks divide them
  Embedding<P> tokens{EmbeddingConfig{.vocabulary = rows, .width = width, .initial = Initial::normal(0.5)}};
  LayerNorm<P> norm{width};
  Embedding<P> head{EmbeddingConfig{.vocabulary = rows, .width = width, .initial = Initial::normal(0.5)}};

  constexpr explicit WholeTables(const GptConfig&) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("norm", norm);
    f("head", head);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    const auto x = norm(redistribute<typename P::HiddenState>(tokens(ids)));
    return cross_entropy<P>(redistribute<Shard<-1>>(redistribute<Invariant>(head.logits(x))), targets, rows);
  }
};

template <int Stage, bool Again>
using Shared = SharedModel<Policy<F64, Zero<Stage>>, Again>;

}  // namespace

TEST_CASE("a layer recomputed three times has the gradient that it has without, bit for bit, under every stage") {
  const Trained one = train<Shared<0, false>>({});
  check_learns(one, 0.9);
  for (const Cell& cell : {Cell{.ranks = 1}, Cell{.ranks = 2, .accumulate = 2}}) {
    const auto check = [&](const Trained& kept, const Trained& again) {
      check_same_bits(again, kept);
      CHECK(relative_gap(again.losses, one.losses) < 1e-9);
      CHECK(parameter_gap(again, one) < 1e-9);
      CHECK(again.ranks[0].left == 0);
    };
    check(train<Shared<0, false>>(cell), train<Shared<0, true>>(cell));
    check(train<Shared<2, false>>(cell), train<Shared<2, true>>(cell));
    check(train<Shared<3, false>>(cell), train<Shared<3, true>>(cell));
  }
}

TEST_CASE("a head that every rank holds whole, beside a split sequence, follows the one-rank curve") {
  const Trained one = train<WholeTables<Policy<F64>>>({});
  check_learns(one, 0.9);
  const Trained split = train<WholeTables<Policy<F64, Tp<2>, SequenceParallel>>>({.ranks = 2});
  CHECK(relative_gap(split.losses, one.losses) < 1e-9);
  CHECK(relative_gap(split.norms, one.norms) < 1e-8);
  CHECK(parameter_gap(split, one) < 1e-9);
}
