// SPDX-License-Identifier: Apache-2.0
// Ranks that run different layers of one unit reduce its buckets in the same order.
// labels: thread
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/parallel/vocab.hpp>
#include <laws/difference.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct WaysConfig {
  const std::vector<bool>* ways = nullptr;  ///< of this rank: which of the three layers a forward takes
};

/// A table, and three linear layers in one unit, each of which a rank may skip.
template <class P>
struct Ways : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  Linear<P> a, b, c;
  const std::vector<bool>* ways;

  constexpr explicit Ways(const WaysConfig& config)
      : tokens(EmbeddingConfig{.vocabulary = 13, .width = 8, .initial = Initial::normal(0.5)}),
        a(8, 8),
        b(8, 8),
        c(8, 8),
        ways(config.ways) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("a", a);
    f("b", b);
    f("c", c);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    auto x = tokens(ids);
    if ((*ways)[0]) x = x + a(x);
    if ((*ways)[1]) x = x + b(x);
    if ((*ways)[2]) x = x + c(x);
    return cross_entropy<P>(tokens.logits(x), targets, tokens.vocabulary());
  }
};

/// Losses and norms of three steps of two micro-steps; rank r of micro-step m takes branch (2 r + m + step) % 8.
template <int Stage>
std::vector<double> train_ways(int ranks) {
  using P = Policy<F64, Zero<Stage>>;
  std::vector<double> numbers;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1}, [&](World<P>& world) {
    std::vector<bool> ways{true, true, true};
    Engine engine{world, Ways<P>({&ways}), AdamW{.lr = 1e-2}, {.accumulate = 2}, {.bucket_bytes = 64}};
    for (int step = 0; step < 8; ++step) {
      StepReport report;
      for (int micro = 0; micro < 2; ++micro) {
        const int way = (2 * world.rank() + micro + step) % 8;
        ways = {(way & 1) != 0, (way & 2) != 0, (way & 4) != 0};
        auto loss = engine.forward(batch_of(world.memory(), 8 * step, 2 * (2 * micro + world.rank()), 2, 4, 13));
        engine.backward(loss);
        report = engine.step();
      }
      if (world.is_first()) numbers.insert(numbers.end(), {report.loss, report.gradient_norm});
    }
  });
  return numbers;
}

}  // namespace

TEST_CASE("ranks that skip different layers of a unit get the same bits under every stage") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const auto whole = train_ways<0>(ranks);
    CHECK(train_ways<1>(ranks) == whole);
    const auto split = train_ways<2>(ranks);
    CHECK(train_ways<3>(ranks) == split);
    CHECK(worst_difference(split, whole, [](double x) { return std::abs(x); }) <= 1e-9);
  }
}

namespace {

/// Two recomputed regions of one unit that share a layer: a bucket is reduced twice in one backward.
template <class P>
struct Regions : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  struct Inside : Layer<P> {
    Linear<P> c{8, 8}, a{8, 8}, b{8, 8};
    constexpr void visit(auto&& f) {
      f("c", c);
      f("a", a);
      f("b", b);
    }
    constexpr auto operator()(const Hidden<P>& x) const {
      const auto first = [this](const Hidden<P>& y) { return y + a(c(y)); };
      const auto second = [this](const Hidden<P>& y) { return y + b(a(y)); };
      return recompute(second, recompute(first, x));
    }
  };
  InUnit<Inside> inside{Inside()};

  constexpr Regions() : tokens(EmbeddingConfig{.vocabulary = 13, .width = 8, .initial = Initial::normal(0.5)}) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("inside", inside);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(inside(tokens(ids))), targets, tokens.vocabulary());
  }
};

/// Norms of two steps, and how many buckets held an unreduced gradient after a backward.
template <int Stage>
std::pair<std::vector<double>, int> train_regions() {
  using P = Policy<F64, Zero<Stage>>;
  std::pair<std::vector<double>, int> result;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [&](World<P>& world) {
    Engine engine{world, Regions<P>(), AdamW{.lr = 1e-2}, BatchSizes{.accumulate = 2},
                  EngineConfig{.bucket_bytes = 1200}};
    for (int i = 0; i < 4; ++i) {
      engine.backward(engine.forward(batch_of(world.memory(), 8 * i, 2 * world.rank(), 2, 4, 13)));
      for (auto* unit : engine.units())
        for (auto& b : unit->buckets())
          if (world.is_first() && b.gradient) ++result.second;
      const StepReport report = engine.step();
      if (world.is_first() && report.acted) result.first.push_back(report.gradient_norm);
    }
  });
  return result;
}

}  // namespace

TEST_CASE("every gradient is reduced in a unit whose regions share a layer") {
  const auto whole = train_regions<0>().first;
  for (const auto& [norms, left] : {train_regions<2>(), train_regions<3>()}) {
    CHECK(left == 0);
    CHECK(worst_difference(norms, whole, [](double x) { return x; }) <= 1e-12);
  }
}
