// SPDX-License-Identifier: Apache-2.0
// labels: engine
#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/engine/evaluate.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;

namespace {

using P = Policy<Zero<3>, F64>;
constexpr GptConfig config{.layers = 1, .width = 8, .heads = 2, .vocabulary = 32, .sequence = 6, .init_std = 0.5};

std::shared_ptr<const data::Text> text_with(int held_out) {
  auto text = std::make_shared<data::Text>();
  for (int i = 0; i < 100 + held_out; ++i) text->bytes.push_back(static_cast<unsigned char>(i * i % 31));
  text->training_bytes = 100;
  return text;
}

Evaluation evaluated(int ranks, int held_out, const BatchSizes& sizes) {
  Evaluation result;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .seed = 5}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(config), AdamW{}};
    const Evaluation own = evaluate(engine, text_with(held_out), sizes);
    if (world.is_first()) result = own;
    CHECK(engine.all_reduce_mean(own.loss) == doctest::Approx(own.loss).epsilon(1e-14));  // the same on every rank
  });
  return result;
}

}  // namespace

TEST_CASE("the validation loss is that of the same windows for every number of ranks") {
  // 43 held-out bytes: 7 windows of 6 and a last target; in batches of 2 that is 3 batches
  const Evaluation one = evaluated(1, 43, {.micro_batch = 2, .sequence = 6});
  CHECK(one.tokens == 36);
  CHECK(one.loss > 1);
  for (int ranks : {2, 3, 4}) {
    const Evaluation many = evaluated(ranks, 43, {.micro_batch = 2, .sequence = 6});
    CHECK(many.tokens == one.tokens);
    CHECK(many.loss == doctest::Approx(one.loss).epsilon(1e-12));
  }
}

TEST_CASE("the validation loss is the mean of the windows' own losses") {
  run_ranks_of<P>(RunOptions{.seed = 5}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(config), AdamW{}};
    const auto text = text_with(31);  // 5 windows
    double sum = 0;
    for (Size w = 0; w < 5; ++w) {
      const auto fill = [&](std::int32_t* tokens, std::int32_t* targets) {
        for (Size i = 0; i < 6; ++i) {
          tokens[i] = text->validation()[static_cast<std::size_t>(6 * w + i)];
          targets[i] = text->validation()[static_cast<std::size_t>(6 * w + i + 1)];
        }
      };
      sum += engine.eval_batch(detail::filled_batch<Cpu>(shape(1, 6), {}, world.memory(), fill)).mean;
    }
    CHECK(evaluate(engine, text, {.micro_batch = 1, .sequence = 6}).loss == doctest::Approx(sum / 5).epsilon(1e-12));
  });
}

TEST_CASE("a text without a whole window held out is refused") {
  CHECK_THROWS_AS(evaluated(1, 6, {.micro_batch = 2, .sequence = 6}), Error);
}
