// SPDX-License-Identifier: Apache-2.0
// Context parallelism around the training step: shared heads of keys and values, batches, evaluation, samples.
// labels: thread races
#include <doctest/doctest.h>

#include <dspp/engine/evaluate.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/models/llama.hpp>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <int Cp>
using Ranked = Llama<Policy<F64, Zero<3>, dspp::Cp<Cp>>>;

/// Two heads of keys and values, eight of queries.
constexpr LlamaConfig few_kv_heads{
    .layers = 2, .width = 16, .heads = 8, .kv_heads = 2, .head_dim = 2, .ffn_width = 16, .vocabulary = 29};

struct Seen {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> parameters;
  double validation = 0;
  std::vector<std::int32_t> text;
};

std::shared_ptr<const data::Text> text_of(Size bytes) {
  auto text = std::make_shared<data::Text>();
  for (Size i = 0; i < bytes; ++i)
    text->bytes.push_back(static_cast<unsigned char>(token(i / 8, i % 8, few_kv_heads.vocabulary)));
  text->training_bytes = bytes - 100;
  return text;
}

/// Three steps, an evaluation and a sample.
template <int Cp>
Seen train(int ranks) {
  using P = typename Ranked<Cp>::policy;
  Seen seen;
  const RunOptions options{.ranks = ranks, .threads_per_rank = 1, .seed = 3, .timeout_seconds = 60};
  run_ranks_of<P>(options, [&](World<P>& world) {
    Engine engine{world, Ranked<Cp>(few_kv_heads), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 2000}};
    const auto text = text_of(4000);
    const BatchSizes sizes{.micro_batch = 8 / world.data_size(), .sequence = 12};
    for (const auto& batch : batches(world, text, sizes, {.steps = 3})) {
      CHECK(batch.tokens.shape() == shape(8 / world.data_size(), Size{12} / Cp));
      auto loss = engine.forward(batch);
      engine.backward(loss);
      const double norm = engine.step()->gradient_norm, mean = engine.all_reduce_mean(loss);
      if (world.is_first()) seen.losses.push_back(mean), seen.norms.push_back(norm);
    }
    const double validation = evaluate(engine, text, {.micro_batch = 2, .sequence = 12}).loss;
    const auto sample = generate(engine, {1, 2, 3}, {.tokens = 15, .sequence = 12, .seed = 4});
    for (const auto& named : engine.inventory().parameters) {
      const auto whole = engine.gather_parameter(named.name->text);
      if (world.is_first()) seen.parameters[named.name->text].assign(whole.data(), whole.data() + whole.count());
    }
    if (world.is_first()) seen.validation = validation, seen.text = sample;
    // every rank draws the same text
    std::vector<std::int32_t> first = sample;
    broadcast(world.all(), buffer(first.data(), static_cast<Size>(first.size())), 0, Purpose::scalar);
    CHECK(first == sample);
  });
  return seen;
}

void check_same(const Seen& a, const Seen& b) {
  REQUIRE(a.losses.size() == b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(1e-10));
    CHECK(a.norms[i] == doctest::Approx(b.norms[i]).epsilon(1e-9));
  }
  for (const auto& parameter : b.parameters) {
    const std::string& name = parameter.first;
    const std::vector<double>& values = parameter.second;
    CAPTURE(name);
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(a.parameters.at(name)[i] - values[i]) < 1e-8);
  }
  CHECK(a.validation == doctest::Approx(b.validation).epsilon(1e-9));
  CHECK(a.text == b.text);
}

}  // namespace

TEST_CASE("context ranks that share heads of keys and values train, evaluate and sample as one rank") {
  const Seen one = train<1>(1);
  CHECK(one.losses.back() < one.losses.front());
  check_same(train<2>(2), one);
  check_same(train<4>(4), one);
  check_same(train<2>(4), one);
}

namespace {

/// As few_kv_heads with other heads: a rank of Cp has other heads of queries and of keys and values.
constexpr LlamaConfig other_heads{
    .layers = 1, .width = 16, .heads = 4, .kv_heads = 4, .head_dim = 4, .ffn_width = 16, .vocabulary = 29};

/// The losses and norms of two models in one process, which forward, backward and step in turn.
template <int Cp>
std::vector<double> trained_in_turn(int ranks) {
  using P = typename Ranked<Cp>::policy;
  std::vector<double> seen;
  const RunOptions options{.ranks = ranks, .threads_per_rank = 1, .seed = 3, .timeout_seconds = 60};
  run_ranks_of<P>(options, [&](World<P>& world) {
    Engine one{world, Ranked<Cp>(few_kv_heads), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 2000}};
    Engine other{world, Ranked<Cp>(other_heads), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 2000}};
    const BatchSizes sizes{.micro_batch = 8 / world.data_size(), .sequence = 12};
    for (const auto& batch : batches(world, text_of(4000), sizes, {.steps = 3})) {
      auto loss = one.forward(batch), other_loss = other.forward(batch);
      one.backward(loss), other.backward(other_loss);
      for (const double value :
           {one.all_reduce_mean(loss), one.step()->gradient_norm, other.all_reduce_mean(other_loss),
            other.step()->gradient_norm, one.all_reduce_mean(one.eval_batch(batch))})
        if (world.is_first()) seen.push_back(value);
    }
  });
  return seen;
}

/// The losses of three batches, evaluated in turn with loaded weights.
template <int Cp>
std::vector<double> evaluated(int ranks, const std::map<std::string, std::vector<double>>& weights) {
  using P = typename Ranked<Cp>::policy;
  std::vector<double> losses;
  const RunOptions options{.ranks = ranks, .threads_per_rank = 1, .seed = 3, .timeout_seconds = 60};
  run_ranks_of<P>(options, [&](World<P>& world) {
    Engine engine{world, Ranked<Cp>(few_kv_heads), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 2000}};
    for (const auto& [name, values] : weights) set_parameter(engine, name, values);
    const BatchSizes sizes{.micro_batch = 8 / world.data_size(), .sequence = 12};
    for (const auto& batch : batches(world, text_of(4000), sizes, {.steps = 3})) {
      const double loss = engine.all_reduce_mean(engine.eval_batch(batch));
      if (world.is_first()) losses.push_back(loss);
    }
  });
  return losses;
}

void check_near(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-9));
}

}  // namespace

TEST_CASE("two models with different heads that train in turn in one process give their one-rank results") {
  const std::vector<double> one = trained_in_turn<1>(1);
  check_near(trained_in_turn<2>(2), one);
  check_near(trained_in_turn<4>(4), one);
}

TEST_CASE("weights trained under one Cp degree have the same loss under every other, batch after batch") {
  const auto weights = train<2>(4).parameters;
  const std::vector<double> one = evaluated<1>(1, weights);
  CHECK(one[0] != one[1]);
  check_near(evaluated<2>(4, weights), one);
  check_near(evaluated<4>(4, weights), one);
  check_near(evaluated<2>(2, weights), one);
}

TEST_CASE("heads that the Cp degree does not divide are refused in one sentence, and so are sequences") {
  using P = Policy<F32, Cp<2>>;
  LlamaConfig odd = few_kv_heads;
  odd.heads = odd.kv_heads = 3;
  odd.width = 6;
  CHECK_THROWS_WITH_AS(Llama<P>{odd},
                       "dspp: GroupedAttention needs heads that Tp times Cp divides, but it does not (heads 3, Tp 1, "
                       "Cp 2). Change heads, Tp<n> or Cp<n>.",
                       Error);
  const auto three = [](World<P>& world) {
    const auto data = batches(world, text_of(400), {.micro_batch = 2, .sequence = 9}, {.steps = 1});
    (void)data[0];
  };
  CHECK_THROWS_WITH_AS(run_ranks_of<P>(RunOptions{.ranks = 2}, three),
                       "dspp: a batch needs a sequence that the Cp degree divides, but 'tokens' has 9 positions and Cp "
                       "is 2. Change the sequence or Cp<n>.",
                       Error);
  CHECK_THROWS_WITH_AS(
      run_ranks_of<P>(RunOptions{.ranks = 3}, three),
      "dspp: a world needs ranks that Cp times Tp divides, but there are 3 ranks, Cp is 2 and Tp is 1. "
      "Use a multiple of 2 ranks, or another policy.",
      Error);
}
