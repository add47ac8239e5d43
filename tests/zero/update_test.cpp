// SPDX-License-Identifier: Apache-2.0
// Slices updated under every stage are those of a whole update on one rank, and a refresh makes the values whole again.
// labels: thread
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/optim/adamw.hpp>
#include <dspp/optim/sgd.hpp>
#include <dspp/zero/update.hpp>
#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr StepVerdict steps[] = {StepVerdict::update, StepVerdict::nonfinite, StepVerdict::update};

template <class T>
void step_units(SmallUnits<T>& units, Size number, auto gradient) {
  units.reduce_gradients(
      [&](const auto& p, Size global) { return static_cast<double>(number + 1) * gradient(p, global); });
  double scalars[StepScalars::count] = {};
  scalars[StepScalars::gradient_scale] = 0.125;
  scalars[StepScalars::verdict] = static_cast<double>(steps[number]);
  update_units<T, Cpu>(units.units(), AdamW{.weight_decay = 0.1}, units.state(), {.step = number + 1, .lr = 0.01},
                       scalars, units.world().tp());
  units.drop_gradients();
}

/// The values by site and global position, after each step, of one rank that has the sums as gradients.
template <class T>
using Values = std::vector<std::map<std::pair<int, Size>, T>>;
template <class T>
Values<T> on_one_rank(const UnitStrategy& strategy) {
  Values<T> values;
  run_units<T>({.wide_gradients = strategy.wide_gradients}, [&](const auto& ranks) {
    SmallUnits<T> units({.wide_gradients = strategy.wide_gradients}, ranks);
    for (Size number = 0; number < std::ssize(steps); ++number) {
      step_units(units, number, [&](const auto& p, Size at) { return gradient_sum(p, at, strategy.data); });
      values.emplace_back();
      units.for_each_bucket([&](const auto& b) {
        units.for_each_element(b, {0, b.count}, [&](const auto& p, Size global, Size at) {
          values.back()[{p.site, global}] = b.values.data()[at];
        });
      });
    }
  });
  REQUIRE(values[0] == values[1]);
  REQUIRE(values[1] != values[2]);
  return values;
}

/// Checks the values of `range`, which begin at element `first` of the bucket's values.
template <class T>
bool has_values(const SmallUnits<T>& units, const Bucket<T, Cpu>& b, Range range, Size first, const auto& expected) {
  bool equal = true;
  units.for_each_element(b, range, [&](const auto& p, Size global, Size at) {
    equal = equal && b.values.data()[first + at] == expected.at({p.site, global});
  });
  return equal;
}

template <class T>
void check_updates(const UnitStrategy& strategy, const Values<T>& expected) {
  run_units<T>(strategy, [&](const auto& ranks) {
    SmallUnits<T> units(strategy, ranks);
    auto& replicas = units.replicas();
    const int replica = units.world().place().data;
    const bool gathers = strategy.stage == 1 || strategy.stage == 2;
    for (Size number = 0; number < std::ssize(steps); ++number) {
      step_units(units, number, [&](const auto& p, Size global) { return gradient_at(p, global, replica); });
      const auto& after = expected[static_cast<std::size_t>(number)];
      Size whole = 0;
      units.for_each_bucket([&](auto& b) {
        const Range own = replicas.owned(b), held = replicas.held(b);
        CHECK(has_values(units, b, own, own.begin - held.begin, after));
        for (Size i = 0; gathers && i < b.count; ++i)
          if (i < own.begin || i >= own.end) b.values.data()[i] = T(-77);  // refresh must replace it
        whole += (b.count - own.count()) * static_cast<Size>(sizeof(T));
      });
      const Traffic before = replicas.group().traffic();
      refresh_units<T, Cpu>(units.units(), replicas);
      const Traffic sent = replicas.group().traffic() - before;
      CHECK(sent.total() == (gathers ? whole : 0));  // in a skipped step, too
      units.for_each_bucket([&](const auto& b) { CHECK(has_values(units, b, replicas.held(b), 0, after)); });
    }
  });
}

template <class T>
void check_every_strategy(bool wide_gradients) {
  std::map<int, Values<T>> expected;  // by replicas
  for_each_strategy([&](UnitStrategy strategy) {
    strategy.wide_gradients = wide_gradients;
    auto& of_one = expected[strategy.data];
    if (of_one.empty()) of_one = on_one_rank<T>(strategy);
    check_updates<T>(strategy, of_one);
  });
}

}  // namespace

TEST_CASE("under every stage slices are updated as a whole, and refreshed, after a skipped step, too") {
  check_every_strategy<float>(false);
}

TEST_CASE("the same with masters, and gradients of their precision") {
  check_every_strategy<bf16>(true);
}

TEST_CASE("weight decay is applied to the parameters that decay, and to no other") {
  for_each_strategy([](const UnitStrategy& strategy) {
    run_units<float>(strategy, [&](const auto& ranks) {
      SmallUnits<float> units(strategy, ranks, 0);
      for (const auto& named : units.inventory().parameters)
        set_parameter(units, named.name->text,
                      std::vector<double>(static_cast<std::size_t>(named.parameter->geometry.global_count()), 1));
      units.reduce_gradients([](const auto&, Size) { return 0; });
      update_units<float, Cpu>(units.units(), Sgd{.weight_decay = 0.5}, units.state(), {.lr = 0.5}, nullptr,
                               units.world().tp());
      units.for_each_bucket([&](const auto& b) {
        const Range own = units.replicas().owned(b);
        const auto values = units.replicas().owned_values(b);
        units.for_each_element(b, own, [&](const auto& p, Size, Size at) {
          const bool right = values.data()[at] == (p.decays ? 0.75f : 1.0f);
          if (!right) FAIL_CHECK(p.label);
        });
      });
    });
  });
}
