// SPDX-License-Identifier: Apache-2.0
// Gradients before the step, against sums by hand: over Tp where they are Partial, and the norm.
// labels: thread
#include <cmath>

#include <doctest/doctest.h>

#include <dspp/zero/gradients.hpp>
#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Whole parameters whose gradients are summands over Tp: norms and biases under SequenceParallel.
bool is_partial(const ParameterBase<Cpu>& p) {
  return p.cut.dimension < 0;
}

template <class T>
void reduce_partial(SmallUnits<T>& units) {
  const Coordinates place = units.world().place();
  units.for_each_bucket([&](auto& b) {
    for (const auto* p : b.parameters) p->gradient->uses = is_partial(*p) ? UsesOverTp::partial : UsesOverTp::whole;
  });
  units.reduce_gradients(
      [&](const auto& p, Size global) { return gradient_at(p, global, place.data, is_partial(p) ? place.tp : 0); });
}

template <class T>
double norm_of(SmallUnits<T>& units) {
  return gradient_norm<T, Cpu>(units.units(), units.replicas(), units.world().tp()).item();
}

template <class T>
void check_sums(const UnitStrategy& strategy) {
  run_units<T>(strategy, [&](const auto& ranks) {
    SmallUnits<T> units(strategy, ranks);
    reduce_partial(units);
    sum_replicated_gradients<T, Cpu>(units.units(), units.replicas(), units.world().tp());
    const auto sum = [&](const auto& p, Size global) {
      return gradient_sum(p, global, strategy.data, is_partial(p) ? strategy.tp : 1);
    };
    units.for_each_bucket([&](auto& b) { CHECK(units.has_sums(b, sum)); });
    const Traffic traffic = units.world().tp().traffic();
    CHECK((traffic.bytes(Purpose::replicated_gradient) > 0) == (strategy.tp > 1));
    double squares = 0;
    for (const auto& named : units.inventory().parameters)
      for (Size i = 0; i < named.parameter->geometry.global_count(); ++i)
        squares += std::pow(sum(*named.parameter, i), 2);
    CHECK(norm_of(units) == std::sqrt(squares));
  });
}

}  // namespace

TEST_CASE("reduced gradients are the sums of the replicas', over Tp too where they are Partial; the norm is theirs") {
  for_each_strategy([](UnitStrategy strategy) {
    for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
      strategy.sum_order = order;
      check_sums<float>(strategy);
    }
    strategy.wide_gradients = true;
    check_sums<bf16>(strategy);
  });
}

TEST_CASE("a reduced gradient that was found changed on one rank makes the norm NaN on all") {
  for_each_strategy([](const UnitStrategy& strategy) {
    run_units<float>(strategy, [&](const auto& ranks) {
      SmallUnits<float> units(strategy, ranks);
      units.replicas().check_reductions(ReductionCheck::digest);
      reduce_partial(units);
      CHECK(std::isfinite(norm_of(units)));
      auto& rank = units.world();
      auto& prints = units.replicas().prints();
      if (prints && rank.all().rank() == rank.all().size() - 1) {
        auto& b = units.units()[1]->buckets()[0];
        b.reduced.data()[0] ^= std::byte{1};
        prints.check_resting(b.number, b.reduced,
                             units.replicas().gradient_bytes(b.count / units.replicas().group().size()));
      }
      CHECK(std::isnan(norm_of(units)) == (strategy.stage > 0 && strategy.data > 1));
    });
  });
}
