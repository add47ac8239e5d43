// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/nn/embedding.hpp>

#include "../laws/layer_gradient.hpp"

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

TEST_CASE("the gradients of a look-up and of tied scores, repeated rows included, are finite differences") {
  TestRank here;
  Embedding<P> table(5, 4);
  Home<double> home(table, here);
  check_variable_gradient<Hidden<P>>(
      here, [&](const Hidden<P>& x) { return table.scores<Invariant>(table(ids(here, 3, 0, 3)) + x); },
      random<double>(shape(1, 3, 4), here.pool, 8), &home);
}

TEST_CASE("a token outside of the vocabulary is an error that names it and its position") {
  TestRank here;
  Embedding<P> table(5, 4);
  Home<double> home(table, here);
  CHECK_THROWS_WITH_AS(table(ids(here, 0, 5, 1)),
                       "dspp: Embedding needs ids from 0 to 4, but the id at position 1 is 5. Encode the text with the "
                       "vocabulary that the model was made for.",
                       Error);
  CHECK_THROWS_AS(table(ids(here, 0, 4, -1)), Error);
}
