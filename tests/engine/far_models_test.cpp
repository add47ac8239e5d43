// SPDX-License-Identifier: Apache-2.0
// Features of models and data on a device whose host knows values only when it waits for them: the Cpu's bits, and no
// wait inside a step. The models of the examples are in tests/golden/.
// labels: thread
#include <vector>

#include <doctest/doctest.h>

#include <laws/feature_models.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("on a far device pictures, masks, whole logits, reports and parameter groups have the Cpu's bits") {
  const auto near = trained_on_pictures<Policy<F64, Zero<2>, Tp<2>>>(4, AdamW{.lr = 1e-2});
  CHECK(trained_on_pictures<Policy<F64, Zero<2>, Tp<2>, Far>>(4, AdamW{.lr = 1e-2}) == near);
  REQUIRE(near.size() > 2 * 400);
  const std::ptrdiff_t parameters = (std::ssize(near) - picture_numbers) / 2;
  std::ptrdiff_t moved = 0;
  for (auto i = near.begin(); i != near.begin() + parameters; ++i) moved += *i != i[parameters + picture_numbers];
  CHECK(moved == parameters - 8 * 8);  // all but the frozen weight
}

TEST_CASE("on a far device blended sources of documents have the Cpu's bits, cut over Cp, weighed or not") {
  const auto check = [](bool weighed) {
    const auto near = trained_on_documents<Policy<F64, Zero<3>, Cp<2>>>(4, weighed);
    CHECK(trained_on_documents<Policy<F64, Zero<3>, Cp<2>, Far>>(4, weighed) == near);
    REQUIRE(near.size() > 15 + 300);
    return near;
  };
  CHECK(check(true)[0] != check(false)[0]);
}
