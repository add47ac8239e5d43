// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/embedding.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

using P = Policy<F64>;

namespace {
Tokens<P> ids(TestRank& here, std::int32_t a, std::int32_t b, std::int32_t c) {
  auto values = Tensor<std::int32_t, 2>::uninitialized(shape(1, 3), here.pool, Category::data, "ids");
  values.data()[0] = a;
  values.data()[1] = b;
  values.data()[2] = c;
  return Tokens<P>::constant(std::move(values), here.tape);
}
}  // namespace

TEST_CASE("Embedding gives the rows of its table") {
  TestRank here;
  Embedding<P> table(5, 4);
  Home<double> home(table, here);
  const auto y = table(ids(here, 3, 0, 3));
  for (Size j = 0; j < 4; ++j) {
    CHECK(y.value().data()[j] == home.value(0).data()[12 + j]);
    CHECK(y.value().data()[4 + j] == home.value(0).data()[j]);
    CHECK(y.value().data()[8 + j] == home.value(0).data()[12 + j]);
  }
}

TEST_CASE("the gradients of a look-up and of tied logits, repeated rows included, are finite differences") {
  TestRank here;
  Embedding<P> table(5, 4);
  Home<double> home(table, here);
  check_variable_gradient<Hidden<P>>(
      here, [&](const Hidden<P>& x) { return table.logits(table(ids(here, 3, 0, 3)) + x); },
      random<double>(shape(1, 3, 4), here.pool, 8), &home);
}

TEST_CASE("logits are those of rows, too, and their gradients finite differences") {
  TestRank here;
  Embedding<P> table(5, 4);
  Home<double> home(table, here);
  const auto x = random<double>(shape(2, 3, 4), here.pool, 8);
  {
    const auto off = here.tape.rehearse();
    const Hidden<P> positions(x, here.tape);
    const auto y = table.logits(positions);
    const auto of_rows = table.logits(reshape(positions, shape(6, 4)));
    for (Size i = 0; i < 30; ++i) CHECK(of_rows.value().data()[i] == y.value().data()[i]);
  }
  check_variable_gradient<Hidden<P>>(
      here, [&](const Hidden<P>& h) { return table.logits(reshape(h, shape(6, 4))); }, x, &home);
}

TEST_CASE("a token outside of the vocabulary is an error that names it and its position") {
  TestRank here;
  Embedding<P> table(5, 4);
  Home<double> home(table, here);
  CHECK_THROWS_WITH_AS(table(ids(here, 0, 5, 1)),
                       "dspp: Embedding needs ids from 0 to 4, but the id at position 1 is 5. Encode the text with the "
                       "vocabulary that the model was made for.",
                       Error);
  CHECK_THROWS_WITH_AS(
      table(ids(here, 0, 4, -100)),
      "dspp: Embedding needs ids from 0 to 4, but the id at position 2 is -100. No vocabulary has an id "
      "below 0: look for an ignore index such as -100, or for a truncated integer.",
      Error);
}

TEST_CASE("Embedding in f32, bf16 and f16 copies rows, and sums the gradients of a row in f32") {
  constexpr Size vocabulary = 3, width = 32, positions = 192;  // a row is looked up 128 times
  const Global<3> x = global_normal(shape(2, positions, width), 1), dy = global_normal(shape(2, positions, width), 2);
  const auto make = []<class Q> { return Embedding<Q>(vocabulary, width); };
  const auto look_up_plus = [](const auto& table, const auto& in) {
    using Q = typename std::remove_cvref_t<decltype(table)>::policy;
    auto numbers = Tensor<std::int32_t, 2>::uninitialized(shape(2, positions), in.memory(), Category::data, "ids");
    for (Size i = 0; i < numbers.count(); ++i) numbers.data()[i] = static_cast<std::int32_t>(i % vocabulary);
    return table(Tokens<Q>::constant(std::move(numbers), in.tape())) + in;
  };
  // y: the sum with x alone rounds; dx is dy
  check_layer_precision(make, look_up_plus, x, dy,
                        {.y = {1, 0}, .dx = {0, 0}, .parameters = {1, 2 * positions / vocabulary}});
}
