// SPDX-License-Identifier: Apache-2.0
// labels: engine
// User layers under context parallelism: operations that mix positions of a rank's part are errors, others are right.
#include <doctest/doctest.h>

#include <dspp/autograd.hpp>
#include <dspp/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/optim/sgd.hpp>
#include <dspp/parallel/vocab.hpp>

using namespace dspp;

namespace {

constexpr Size vocabulary = 11, width = 6, sequence = 8;

struct AttentionByHand {
  static auto of(const auto& h) {
    const auto scores = softmax(batched_matmul(h, transpose<0, 2, 1>(h)));
    return batched_matmul(scores, h);
  }
};
struct HeadsByHand {
  static auto of(const auto& h) {
    const auto heads = transpose<0, 2, 1, 3>(reshape(h, shape(h[0], h[1], Size{2}, h[2] / 2)));
    const auto q = reshape(heads, shape(h[0] * 2, h[1], h[2] / 2));
    const auto y = batched_matmul(softmax(batched_matmul(q, transpose<0, 2, 1>(q))), q);
    return reshape(transpose<0, 2, 1, 3>(reshape(y, shape(h[0], Size{2}, h[1], h[2] / 2))), h.shape());
  }
};
struct AllWithAll {
  static auto of(const auto& h) {
    const auto rows = reshape(h, shape(h[0] * h[1], h[2]));
    return reshape(matmul(matmul(rows, transpose<1, 0>(rows)), rows), h.shape());
  }
};
struct SoftmaxOfPositions {
  static auto of(const auto& h) { return transpose<0, 2, 1>(softmax(transpose<0, 2, 1>(h))); }
};
struct TokenShift {
  static auto of(const auto& h) { return concat<1>(slice<1>(h, h[1] - 1, 1), slice<1>(h, 0, h[1] - 1)); }
};
/// The heads of one position attend to each other: no sequence is needed.
struct HeadsOfAPosition {
  static auto of(const auto& h) {
    const auto heads = reshape(h, shape(h[0] * h[1], Size{2}, h[2] / 2));
    return reshape(batched_matmul(softmax(batched_matmul(heads, transpose<0, 2, 1>(heads))), heads), h.shape());
  }
};

struct Config {
  Size vocabulary = 11;
};

template <class P, class Mix>
struct Model : Layer<P> {
  VocabParallel<Embedding, P> tokens{EmbeddingConfig{vocabulary, width, Initial::normal(0.5)}};
  LayerNorm<P> norm{width};
  Config config;  // for generate

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("norm", norm);
  }
  constexpr auto operator()(const Tokens<P>& ids) const {
    const auto h = tokens(ids);
    return tokens.logits(norm(h + Mix::of(h)));
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>((*this)(ids), targets, vocabulary);
  }
};

/// The mean loss of a model after one step, over all ranks.
template <class Mix, int Cp>
double loss_of() {
  using P = Policy<F64, dspp::Cp<Cp>>;
  double result = 0;
  run_ranks_of<P>({.ranks = Cp, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, Model<P, Mix>(), Sgd{.lr = 0.5}};
    const Size own = sequence / Cp;
    auto ids = Tensor<std::int32_t, 2>::zeros(shape(Size{2}, own), world.memory(), Category::data);
    auto targets = Tensor<std::int32_t, 2>::zeros(shape(Size{2}, own), world.memory(), Category::data);
    for (Size b = 0; b < 2; ++b)
      for (Size s = 0; s < own; ++s) {
        const Size at = b * sequence + world.place().cp * own + s;
        ids.data()[b * own + s] = static_cast<std::int32_t>(at * at % vocabulary);
        targets.data()[b * own + s] = static_cast<std::int32_t>((3 * at + 1) % vocabulary);
      }
    for (int step = 0; step < 2; ++step) {
      auto loss = engine.forward(Batch<Cpu>{ids, targets});
      engine.backward(loss);
      engine.step();
      const double mean = engine.all_reduce_mean(loss);
      if (world.is_first()) result = mean;
    }
  });
  return result;
}

/// What an untrained model writes.
template <class Mix, int Cp>
std::vector<std::int32_t> text_of() {
  using P = Policy<F64, dspp::Cp<Cp>>;
  std::vector<std::int32_t> result;
  run_ranks_of<P>({.ranks = Cp, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    Weights weights{world, Model<P, Mix>()};
    const auto text = generate(weights, {1, 2, 3}, {.tokens = 4, .sequence = sequence, .temperature = 0});
    if (world.is_first()) result = text;
  });
  return result;
}

template <class F>
void check_sentence(F f) {
  try {
    f();
    FAIL("a mixture of a part of the sequence was computed");
  } catch (const Error& e) {
    CAPTURE(std::string(e.what()));
    CHECK(std::string(e.what()).find("runs along sequences that Cp cuts") != std::string::npos);
  }
}

template <class Mix>
void check_refused() {
  CHECK(std::isfinite(loss_of<Mix, 1>()));
  check_sentence([] { loss_of<Mix, 2>(); });
}

}  // namespace

TEST_CASE("an operation that mixes a rank's positions under Cp is an error, not another loss") {
  check_refused<AttentionByHand>();
  check_refused<HeadsByHand>();
  check_refused<AllWithAll>();
  check_refused<SoftmaxOfPositions>();
  check_refused<TokenShift>();
}

TEST_CASE("generate refuses such a model, too, and writes what one rank writes with another") {
  CHECK(text_of<AttentionByHand, 1>().size() == 4);
  check_sentence([] { text_of<AttentionByHand, 2>(); });
  CHECK(text_of<HeadsOfAPosition, 2>() == text_of<HeadsOfAPosition, 1>());
}

TEST_CASE("an operation that mixes features of one position gives the loss of one rank") {
  CHECK(loss_of<HeadsOfAPosition, 2>() == doctest::Approx(loss_of<HeadsOfAPosition, 1>()).epsilon(1e-12));
  CHECK(loss_of<HeadsOfAPosition, 4>() == doctest::Approx(loss_of<HeadsOfAPosition, 1>()).epsilon(1e-12));
}
