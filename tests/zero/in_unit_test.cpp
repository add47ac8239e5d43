// SPDX-License-Identifier: Apache-2.0
// The boundaries of nested units: what is gathered inside of each, and that nothing is left behind them.
// labels: thread
#include <doctest/doctest.h>

#include <dspp/zero/in_unit.hpp>
#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F32>;

struct Inner : Layer<P> {
  ParameterOf<P, 1> first{"first", shape(37), Initial::zeros()}, second{"second", shape(11), Initial::zeros()};
  void visit(auto&& f) {
    f("first", first);
    f("second", second);
  }
};

struct Outer : Layer<P> {
  ParameterOf<P, 1> own{"own", shape(101), Initial::zeros()};
  InUnit<Inner> left{Inner()}, right{Inner()};
  void visit(auto&& f) {
    f("own", own);
    f("left", left);
    f("right", right);
  }
};

/// Element i of a parameter.
float value_at(const ParameterBase<Cpu>& p, Size i) {
  return static_cast<float>(1000 * p.site + i);
}

/// A model of three units on one rank, on a tape.
struct Nested {
  Pool& memory;
  Replicas<float, Cpu> replicas;
  InUnit<Outer> model{Outer()};
  Inventory<float, Cpu> inventory;
  Context<Cpu> context{.memory = &memory};
  Tape<Cpu> tape{context};
  bool split, linked;

  Nested(AnyCommunicator& group, Pool& pool, int stage, bool links)
      : memory(pool), replicas(pool, group, {rule_of(stage), false, 256}), split(stage == 3), linked(links) {
    walk(model, inventory);
    if (linked) inventory.link_units();
    for (auto* unit : inventory.units) {
      unit->set_up(replicas);
      for (auto& b : unit->buckets())
        fill_bucket(b, replicas, 0, Range{0, b.count}, [](const auto& p, Size first, Size count, float* values) {
          for (Size i = 0; i < count; ++i) values[i] = value_at(p, first + i);
        });
    }
  }
  /// True if the parameters are gathered, with their values.
  static bool is_there(const ParameterOf<P, 1>& p) {
    if (!p.home->values[static_cast<std::size_t>(p.bucket)]) return false;
    bool right = true;
    for (Size i = 0; i < p.count(); ++i) right = right && p.value().data()[i] == value_at(p, i);
    return right;
  }
  static bool is_there(const Inner& inner) { return is_there(inner.first) && is_there(inner.second); }

  /// Checks now, and again when backward comes here, that the units that are open are gathered; without links no
  /// others, if values are split.
  void look(bool own, bool left, bool right) {
    const auto see = [=, this] {
      const Outer& outer = model.inner;
      const auto check = [&](bool open, const auto& part) {
        if (open || !linked) CHECK(is_there(part) == (open || !split));
      };
      check(own, outer.own), check(left, outer.left.inner), check(right, outer.right.inner);
    };
    see();
    tape.record_boundary([see](Tape<Cpu>&) { see(); });
  }
  void forward() {
    const auto through = [&](const auto& unit, bool is_left) {
      unit.within(tape, [&] { return look(true, is_left, !is_left), 0; });
      look(true, false, false);
    };
    look(false, false, false);
    model.within(tape, [&] {
      look(true, false, false);
      through(model.inner.left, true), through(model.inner.left, true), through(model.inner.right, false);
      return 0;
    });
    look(false, false, false);
  }
  bool is_gathered() {
    bool any = false;
    for (auto* unit : inventory.units)
      for (const auto& values : unit->values) any = any || static_cast<bool>(values);
    return any;
  }
};

template <class F>
void for_each_nested(F f) {
  for (const bool linked : {false, true})
    for_each_strategy([&](const UnitStrategy& strategy) {
      if (strategy.tp > 1) return;
      run_units<float>(strategy, [&](auto ranks) {
        Nested nested(ranks.replicas(), ranks.memory(), strategy.stage, linked);
        f(nested, strategy.stage);
      });
    });
}

}  // namespace

TEST_CASE("inside of nested units the open ones are gathered, in forward and backward, and nothing behind them") {
  for_each_nested([](Nested& nested, int stage) {
    const Size resident = nested.memory.live();
    nested.forward();
    CHECK(nested.is_gathered() == (stage < 3));
    CHECK(nested.memory.live() == resident);
    const Slot output = nested.tape.new_slot<float>(shape());
    nested.tape.backward(output, Tensor<float, 0, Cpu>::zeros(shape(), nested.memory));
    nested.tape.clear();
    CHECK(nested.is_gathered() == (stage < 3));
    nested.replicas.complete_all();
    for (auto* unit : nested.inventory.units) {
      for (const auto& b : unit->buckets()) CHECK((!b.gradient && static_cast<bool>(b.reduced) == (stage >= 2)));
      unit->drop_gradients();
    }
    CHECK(nested.memory.live() == resident);
  });
}

TEST_CASE("a forward that is not recorded has no nodes, and leaves nothing gathered either") {
  for_each_nested([](Nested& nested, int stage) {
    const Size resident = nested.memory.live();
    const Tape<Cpu>::Recording off(nested.tape, false);
    nested.forward();
    CHECK(nested.tape.node_count() == 0);
    CHECK(nested.is_gathered() == (stage < 3));
    CHECK(nested.memory.live() == resident);
  });
}

TEST_CASE("before its visit a unit has no boundaries") {
  Pool pool;
  Context<Cpu> context{.memory = &pool};
  Tape<Cpu> tape(context);
  const InUnit<Inner> unit{Inner()};
  CHECK(unit.within(tape, [] { return 3; }) == 3);
  CHECK(tape.node_count() == 0);
}
