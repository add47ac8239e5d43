// SPDX-License-Identifier: Apache-2.0
// Whole parameters and gradients: what was set is gathered, and every element has one primary copy.
// labels: thread
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class X>
std::vector<double> host_of(const X& x) {
  std::vector<double> values;
  x.read([&](const auto* host) { values.assign(host, host + x.count()); });
  return values;
}

/// Numbers that bf16 holds, different in neighbours and names.
std::vector<double> numbers_of(const ParameterBase<Cpu>& p) {
  std::vector<double> numbers;
  for (Size i = 0; i < p.geometry.global_count(); ++i) numbers.push_back(static_cast<double>((i + 31 * p.site) % 251));
  return numbers;
}

template <class T>
void check_parameters(const UnitStrategy& strategy) {
  std::mutex lock;
  std::map<std::string, std::vector<int>> copies;  // of each element, with its number, on all ranks
  run_units<T>(strategy, [&](const auto& ranks) {
    SmallUnits<T> units(strategy, ranks);
    for (const auto& named : units.inventory().parameters)
      set_parameter(units, named.name->text, numbers_of(*named.parameter));
    for (const auto& named : units.inventory().parameters) {
      const std::string& name = named.name->text;
      const auto numbers = numbers_of(*named.parameter);
      CHECK(host_of(units.gather_parameter(name)) == numbers);
      const std::lock_guard guard(lock);
      auto& of_name = copies[name];
      of_name.resize(numbers.size());
      for_each_owned_run(units, named, [&](Size first, Size count, const auto* elements) {
        for (Size i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(first + i);
          if (static_cast<double>(elements[i]) == numbers[at]) ++of_name.at(at);
        }
      });
    }
  });
  for (const auto& of_name : copies) {
    CAPTURE(of_name.first);
    CHECK(std::count(of_name.second.begin(), of_name.second.end(), 1) == std::ssize(of_name.second));
  }
}

template <class T>
void check_gradients(const UnitStrategy& strategy) {
  run_units<T>(strategy, [&](const auto& ranks) {
    SmallUnits<T> units(strategy, ranks);
    const Coordinates place = units.world().place();
    const auto is_partial = [](const auto& p) { return p.cut.dimension < 0 && p.site % 2 == 1; };
    const auto own = [&](const auto& p, Size global) {
      return gradient_at(p, global, place.data, is_partial(p) ? place.tp : 0);
    };
    units.for_each_bucket([&](auto& b) {
      for (const auto* p : b.parameters)
        p->gradient->uses = is_partial(p->named()) ? UsesOverTp::partial : UsesOverTp::whole;
    });
    const auto check = [&](double times) {
      for (const auto& named : units.inventory().parameters) {
        const auto& p = *named.parameter;
        std::vector<double> expected;
        for (Size i = 0; i < p.geometry.global_count(); ++i)
          expected.push_back(times * gradient_sum(p, i, strategy.data, is_partial(p) ? strategy.tp : 1));
        CHECK(host_of(units.gather_gradient(named.name->text)) == expected);
      }
    };
    check(0);
    units.for_each_bucket([&](auto& b) { units.write_gradient(b, own); });
    check(1);                        // unreduced
    if (strategy.stage < 2) return;  // reduced in the step, which ends them
    for (auto* unit : units.units()) unit->reduce_for_step();
    check(1);  // reduced, or in flight
    units.for_each_bucket([&](auto& b) { units.write_gradient(b, own); });
    check(2);  // both
  });
}

}  // namespace

TEST_CASE(
    "a parameter that was set is gathered under every strategy, and one rank has the primary copy of an element") {
  for_each_strategy([](const UnitStrategy& strategy) {
    check_parameters<float>(strategy);
    check_parameters<bf16>(strategy);
  });
}

TEST_CASE("a gathered gradient is the sum over the replicas, over Tp too where it is Partial, reduced or not") {
  for_each_strategy([](UnitStrategy strategy) {
    check_gradients<float>(strategy);
    strategy.wide_gradients = true;
    check_gradients<bf16>(strategy);
  });
}
