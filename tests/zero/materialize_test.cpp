// SPDX-License-Identifier: Apache-2.0
// Initial values are a function of the seed, the parameter's site and the global position, and of nothing else.
// labels: thread
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/base/philox.hpp>
#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Element `i` of a parameter, in the precision of the master.
template <class State>
State initial_value(const ParameterBase<Cpu>& p, std::uint64_t seed, Size i) {
  if (p.initial.kind != Initial::Kind::normal) return p.initial.kind == Initial::Kind::ones ? State(1) : State(0);
  const PhiloxStream stream{.key = {seed}, .step = -1, .sample = 0, .site = static_cast<std::uint32_t>(p.site)};
  return static_cast<State>(p.initial.stddev) * static_cast<State>(philox_normal(stream, i));
}

/// True if `values` are the initial values of `range` of the bucket, with zeros as padding.
template <class T, class V>
bool are_initial(const SmallUnits<T>& units, const Bucket<T, Cpu>& b, Range range, const V* values) {
  std::vector<V> expected(static_cast<std::size_t>(range.count()));
  units.for_each_element(b, range, [&](const auto& p, Size global, Size at) {
    expected[static_cast<std::size_t>(at)] = static_cast<V>(initial_value<Compute<T>>(p, units.seed, global));
  });
  bool equal = true;
  for (Size i = 0; i < range.count(); ++i) equal = equal && values[i] == expected[static_cast<std::size_t>(i)];
  return equal;
}

template <class T>
void check_values(const UnitStrategy& strategy) {
  std::atomic<Size> elements = 0;  // of masters or, without, of values, on all ranks that own them
  Size all = 0;
  run_units<T>(strategy, [&](const auto& ranks) {
    SmallUnits<T> units(strategy, ranks);
    units.for_each_bucket([&](auto& b) {
      CHECK(are_initial(units, b, units.replicas().held(b), b.values.data()));
      const auto shard = units.state().shard(b);
      CHECK(static_cast<bool>(shard.state.master) == (sizeof(T) == 2));
      if (shard.state.master) CHECK(are_initial(units, b, shard.own, shard.state.master.data()));
      units.for_each_element(b, shard.own, [&](const auto& p, Size, Size) {
        const bool once = p.cut.dimension >= 0 || units.world().place().tp == 0;
        elements += once && (strategy.stage > 0 || units.world().place().data == 0) ? 1 : 0;
      });
    });
    if (units.world().all().rank() == 0)
      for (const auto& named : units.inventory().parameters) all += named.parameter->geometry.global_count();
  });
  CHECK(elements == all);
}

}  // namespace

TEST_CASE("values and masters start the same for every number of ranks and stage, and no element is left out") {
  for_each_strategy([](const UnitStrategy& strategy) {
    check_values<float>(strategy);
    check_values<bf16>(strategy);
  });
}

TEST_CASE("sites, numbers and names are given in visit order; the tiles of a parameter share site and name") {
  run_units<float>({.tp = 2}, [](const auto& ranks) {
    SmallUnits<float> units({.tp = 2}, ranks);
    std::string names;
    int site = 0, number = 0;
    for (const auto& named : units.inventory().parameters) {
      names += named.name->text + " ";
      int piece = 0;
      for_each_piece(named, [&](const auto& p, const auto& b) {
        CHECK(p.site == site);
        CHECK(p.number == number++);
        CHECK(p.piece == piece++);
        CHECK(&p.named() == named.parameter);
        CHECK(std::count(b.parameters.begin(), b.parameters.end(), &p) == 1);
      });
      ++site;
    }
    CHECK(names == "table norm block.columns block.tiled block.bias ");
    CHECK(number == units.inventory().count());
    CHECK(number == 6);
  });
}
