// SPDX-License-Identifier: Apache-2.0
// labels: engine
// User layers under context parallelism, from the library's operators. (What mixes a part of the positions does not
// compile: the catalogue, sequence_cut_by_cp.cpp.)
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

/// Every position attends to all keys.
struct AttentionByHand {
  static auto of(const auto& h) {
    const auto keys = redistribute<Replicate, Axis::Cp>(h);
    return batched_matmul(softmax(batched_matmul(h, transpose<0, 2, 1>(keys))), keys);
  }
};
/// The same in two heads, as [batch heads, sequence, features].
struct HeadsByHand {
  static auto heads(const auto& u) {
    const auto parted = transpose<0, 2, 1, 3>(reshape(u, shape(u[0], u[1], Size{2}, u[2] / 2)));
    return reshape<void, Shard<1>>(parted, shape(u[0] * 2, u[1], u[2] / 2));
  }
  static auto of(const auto& h) {
    const auto q = heads(h);
    const auto keys = heads(redistribute<Replicate, Axis::Cp>(h));
    const auto y = batched_matmul(softmax(batched_matmul(q, transpose<0, 2, 1>(keys))), keys);
    const auto parted = reshape<void, Shard<2>>(y, shape(h[0], Size{2}, h[1], h[2] / 2));
    return reshape(transpose<0, 2, 1, 3>(parted), h.shape());
  }
};
/// Each position with each of all samples: (x x^T) x.
struct AllWithAll {
  static auto rows(const auto& u) { return reshape(transpose<1, 0, 2>(u), shape(u[1] * u[0], u[2])); }
  static auto of(const auto& h) {
    const auto all = rows(redistribute<Replicate, Axis::Cp>(h));
    const auto y = matmul(matmul(rows(h), transpose<1, 0>(all)), all);
    return transpose<1, 0, 2>(reshape<void, Shard<0>>(y, shape(h[1], h[0], h[2])));
  }
};
/// The sum of the positions, weighed by a softmax over them, at each position.
struct SoftmaxOfPositions {
  static auto of(const auto& h) {
    const auto all = redistribute<Replicate, Axis::Cp>(h);
    const auto weighed = transpose<0, 2, 1>(softmax(transpose<0, 2, 1>(all))) * all;
    return batched_matmul(h, batched_matmul(transpose<0, 2, 1>(weighed), weighed));
  }
};
/// The heads of one position attend to each other: no sequence is needed.
struct HeadsOfAPosition {
  static auto of(const auto& h) {
    const auto heads = reshape(transpose<1, 0, 2>(h), shape(h[1] * h[0], Size{2}, h[2] / 2));
    const auto y = batched_matmul(softmax(batched_matmul(heads, transpose<0, 2, 1>(heads))), heads);
    return transpose<1, 0, 2>(reshape<void, Shard<0>>(y, shape(h[1], h[0], h[2])));
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
        const Size at = b * sequence + world.cp_rank() * own + s;
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

template <class Mix>
void check_same_on_all_ranks() {
  const double dense = loss_of<Mix, 1>();
  CHECK(std::isfinite(dense));
  CHECK(loss_of<Mix, 2>() == doctest::Approx(dense).epsilon(1e-12));
  CHECK(loss_of<Mix, 4>() == doctest::Approx(dense).epsilon(1e-12));
}

}  // namespace

TEST_CASE("operations along all positions of a sequence give the loss of one rank") {
  check_same_on_all_ranks<AttentionByHand>();
  check_same_on_all_ranks<HeadsByHand>();
  check_same_on_all_ranks<AllWithAll>();
  check_same_on_all_ranks<SoftmaxOfPositions>();
}

TEST_CASE("an operation that mixes features of one position gives the loss of one rank") {
  check_same_on_all_ranks<HeadsOfAPosition>();
}

TEST_CASE("generate writes with them what one rank writes") {
  CHECK(text_of<AttentionByHand, 2>() == text_of<AttentionByHand, 1>());
  CHECK(text_of<HeadsOfAPosition, 2>() == text_of<HeadsOfAPosition, 1>());
}
