// SPDX-License-Identifier: Apache-2.0
// labels: models
#include <laws/strategy.hpp>
#include <laws/user_model.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("a model of a user's own layers trains alike under every strategy, at the cost of its plan") {
  const Trained one = train<UserModel<Policy<F64>>>({});
  check_learns(one, 0.75);
  const auto check = [&]<class P>(P, const Cell& cell) {
    const Trained trained = check_cell<UserModel<P>>(cell, one, 1e-9);
    CHECK(parameter_gap(trained, one) < 1e-9);
    return trained;
  };
  const Trained stage0 = check(Policy<F64>{}, {.ranks = 3});
  const Trained stage3 = check(Policy<F64, Zero<3>>{}, {.ranks = 3});
  check_same_bits(stage3, stage0);
  check(Policy<F64, Zero<1>, Tp<3>>{}, {.ranks = 3});
  check(Policy<F64, Zero<2>, Tp<2>, SequenceParallel>{}, {.ranks = 4, .accumulate = 3});
  check(Policy<F64, Zero<3>>{}, {.ranks = 4, .accumulate = 3});
}

TEST_CASE("a parameter that the loss does not reach has a zero gradient: it only decays") {
  const Cell cell{.ranks = 2, .steps = 3};
  const Trained trained = train<UserModel<Policy<F64, Zero<3>>>>(cell);
  const Trained fresh = train<UserModel<Policy<F64, Zero<3>>>>({.ranks = 2, .steps = 0});
  const auto &after = trained.parameters.at("never.weight"), &before = fresh.parameters.at("never.weight");
  const AdamW optimizer{.lr = 1e-2};
  const double kept = 1 - optimizer.lr * optimizer.weight_decay;
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i] == kept * (kept * (kept * before[i])));
  CHECK(trained.parameters.at("never.bias") == fresh.parameters.at("never.bias"));  // no decay either
  CHECK(differ(trained.parameters.at("head.weight"), fresh.parameters.at("head.weight")));
}
