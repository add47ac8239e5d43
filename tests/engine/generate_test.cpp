// SPDX-License-Identifier: Apache-2.0
// labels: engine
#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;

namespace {

constexpr GptConfig config{.layers = 1, .width = 16, .heads = 2, .vocabulary = 11, .sequence = 8, .init_std = 0.3};
using Ids = std::vector<std::int32_t>;

/// The tokens that rank 0 generates; checks that all ranks generate the same.
template <class P>
Ids generated(int ranks, const Ids& prompt, const GenerateConfig& generation) {
  std::vector<Ids> results(static_cast<std::size_t>(ranks));
  run_ranks_of<P>(RunOptions{.ranks = ranks, .seed = 3}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(config), AdamW{}};
    results[static_cast<std::size_t>(world.rank())] = generate(engine, prompt, generation);
  });
  for (const Ids& result : results) CHECK(result == results[0]);
  return results[0];
}

}  // namespace

TEST_CASE("every strategy generates the same tokens, all of them of the vocabulary") {
  const Ids prompt{1, 2, 3};
  const GenerateConfig generation{.tokens = 20, .sequence = 8, .seed = 4};
  const Ids one = generated<Policy<F64>>(1, prompt, generation);
  CHECK(one.size() == 20);
  for (std::int32_t id : one) CHECK((0 <= id && id < 11));
  // a vocabulary of 11 is padded to 12 over two ranks: the padding is never drawn
  CHECK(generated<Policy<F64, Tp<2>, SequenceParallel, Zero<3>>>(4, prompt, generation) == one);
}

TEST_CASE("the likeliest token is taken at temperature 0, whatever the seed, and another seed draws another text") {
  using P = Policy<F64>;
  const Ids a = generated<P>(1, {5}, {.tokens = 12, .sequence = 8, .temperature = 0, .seed = 1});
  CHECK(a == generated<P>(1, {5}, {.tokens = 12, .sequence = 8, .temperature = 0, .seed = 2}));
  const Ids b = generated<P>(1, {5}, {.tokens = 12, .sequence = 8, .seed = 1});
  CHECK(b != generated<P>(1, {5}, {.tokens = 12, .sequence = 8, .seed = 2}));
}

TEST_CASE("tokens before the context length have no influence") {
  using P = Policy<F64>;
  const GenerateConfig generation{.tokens = 10, .sequence = 4};
  const Ids a = generated<P>(1, {9, 9, 9, 1, 2, 3, 4}, generation);
  CHECK(a == generated<P>(1, {1, 2, 3, 4}, generation));
  CHECK(a != generated<P>(1, {1, 2, 3, 5}, generation));
}

TEST_CASE("a draw follows the softmax of the logits") {
  const double logits[] = {0.0, std::log(2.0), std::log(5.0)};  // 1 : 2 : 5
  const auto at = [&](double uniform) { return detail::draw(logits, 3, 1.0, uniform); };
  CHECK(at(0.124) == 0);
  CHECK(at(0.126) == 1);
  CHECK(at(0.374) == 1);
  CHECK(at(0.376) == 2);
  CHECK(at(0.999999) == 2);
  CHECK(detail::draw(logits, 3, 0.5, 1.01 / 30) == 1);  // 1 : 4 : 25
  CHECK(detail::draw(logits, 3, 0.0, 0.0) == 2);
}

TEST_CASE("an empty prompt is refused") {
  CHECK_THROWS_AS(generated<Policy<F64>>(1, {}, {.tokens = 1, .sequence = 4}), Error);
}
