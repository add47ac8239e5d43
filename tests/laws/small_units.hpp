// SPDX-License-Identifier: Apache-2.0
/// Units on thread ranks without an engine: the strategy is a value, so that a test of all stages compiles in seconds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/comm/threads/world.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <dspp/zero/sharded_state.hpp>

namespace dspp::laws {

/// What a policy and the number of ranks fix.
struct UnitStrategy {
  int data = 1, tp = 1;
  int stage = 0;
  bool wide_gradients = false;
  SumOrder sum_order = SumOrder::rank;
  ParameterChoices choices{};
};

inline StageRule rule_of(int stage) {
  const StageRule rules[] = {stage_rule<0>, stage_rule<1>, stage_rule<2>, stage_rule<3>};
  return rules[stage];
}

/// Calls f(strategy) for every stage on up to 4 ranks, along Data and along Tp.
template <class F>
void for_each_strategy(F f) {
  for (int stage = 0; stage <= 3; ++stage)
    for (int data = 1; data <= 4; ++data)
      for (int tp = 1; data * tp <= 4; ++tp) f(UnitStrategy{.data = data, .tp = tp, .stage = stage});
}

/// Parameters in two units, cut over Tp by rows and by columns, in tiles, or whole. 2, 3 and 4 divide few of the
/// extents.
template <class T>
struct SmallModel {
  struct Block {
    using OwnUnit = Unit<T, Cpu>;
    Parameter<T, 2, Cpu> columns;
    Parameter<T, 2, Cpu> tiled, left, right;
    Parameter<T, 1, Cpu> bias;
    OwnUnit unit;

    explicit Block(int tp)
        : columns("columns", shape(5, 13), Initial::normal(0.5), Cut{1, tp}),
          tiled("tiled", shape(12, 10), Initial::normal(0.25), Cut{0, tp}),
          left(tiled.tile_of(0, 0, 12 / tp, 0, 3)),
          right(tiled.tile_of(1, 0, 12 / tp, 3, 7)),
          bias("bias", shape(11), Initial::zeros()) {
      bias.decays = false;
    }
    void visit(auto&& f) {
      f("columns", columns);
      f("tiled", left);
      f("tiled", right);
      f("bias", bias);
    }
  };
  using OwnUnit = Unit<T, Cpu>;
  Parameter<T, 2, Cpu> table;  ///< more elements than are written at a time
  Parameter<T, 1, Cpu> norm;
  Block block;
  OwnUnit unit;

  explicit SmallModel(int tp)
      : table("table", shape(1301, 5), Initial::normal(0.5), Cut{0, tp}),
        norm("norm", shape(37), Initial::ones()),
        block(tp) {}
  void visit(auto&& f) {
    f("table", table);
    f("norm", norm);
    f("block", block);
  }
};

/// One rank of a model: the members of an engine that units need.
template <class Element, template <class> class Model = SmallModel>
class SmallUnits {
 public:
  using T = Element;
  using D = Cpu;
  using G = Compute<T>;
  using FullTensor = Tensor<G, 1, Cpu>;

  class Ranks {
   public:
    Ranks(const RankGroups& groups, const Coordinates& at, Pool& pool) : groups_(groups), place_(at), pool_(&pool) {}
    const Coordinates& place() const { return place_; }
    AnyCommunicator& all() { return groups_.world; }
    AnyCommunicator& host() { return groups_.world; }
    AnyCommunicator& replicas() { return groups_.replicas; }
    AnyCommunicator& tp() { return groups_.along.tp; }
    Pool& memory() { return *pool_; }

   private:
    RankGroups groups_;
    Coordinates place_;
    Pool* pool_;
  };

  SmallUnits(const UnitStrategy& strategy, const Ranks& ranks, int moments = 2, int matrix_moments = 1)
      : ranks_(ranks),
        model_(strategy.tp),
        replicas_(ranks_.memory(), ranks_.replicas(), {rule_of(strategy.stage), strategy.wide_gradients, 256}),
        state_(replicas_) {
    inventory_.set_choices(strategy.choices);
    walk(model_, inventory_);
    inventory_.check_groups();
    inventory_.link_units();
    for (auto* unit : units()) {
      unit->set_up(replicas_);
      for (auto& b : unit->buckets()) {
        fill_bucket(b, replicas_, ranks_.place().tp, Range{0, b.count}, initial_source(seed));
        state_.add(b, b.matrices ? matrix_moments : moments, seed, ranks_.place().tp);
      }
    }
  }

  static constexpr std::uint64_t seed = 7;
  Ranks& world() { return ranks_; }
  Replicas<T, Cpu>& replicas() { return replicas_; }
  ShardedState<T, Cpu>& state() { return state_; }
  const Inventory<T, Cpu>& inventory() const { return inventory_; }
  const List<Unit<T, Cpu>*>& units() const { return inventory_.units; }

  FullTensor gather_parameter(std::string_view name) {
    return dspp::detail::collected(*this, name, [&](const auto& named, FullTensor& whole) {
      dspp::detail::collect_parameter(*this, named, whole);
    });
  }
  FullTensor gather_gradient(std::string_view name) {
    return dspp::detail::collected(*this, name, [&](const auto& named, FullTensor& whole) {
      dspp::detail::collect_gradient(*this, named, whole);
    });
  }

  /// Calls f(bucket) for every bucket.
  template <class F>
  void for_each_bucket(F f) {
    for (auto* unit : units())
      for (auto& b : unit->buckets()) f(b);
  }
  /// Calls f(first piece, global position, position in the range) for every element of a parameter in `range` of a
  /// bucket: no padding.
  template <class F>
  void for_each_element(const Bucket<T, Cpu>& b, Range range, F f) const {
    b.for_each_part(range, [&](const ParameterBase<Cpu>& p, Size begin, Size end) {
      p.geometry.for_each_run(ranks_.place().tp, begin - p.offset, end - p.offset,
                              [&](Size local, Size global, Size count) {
                                for (Size i = 0; i < count; ++i)
                                  f(p.named(), global + i, p.offset + local + i - range.begin);
                              });
    });
  }

  /// Writes the unreduced gradient of a bucket: `gradient(parameter, global position)`, and 0 in the padding.
  template <class F>
  void write_gradient(Bucket<T, Cpu>& b, F gradient) {
    const ParameterBase<Cpu>& first = *b.parameters.front();
    const auto& storage = first.home->gradient_storage(*first.home, first);
    const auto write = [&]<class Out>(Out) {
      const auto all = Tensor<Out, 1, Cpu>::view(storage, 0, shape(b.count));
      all.fill(Out());
      for_each_element(b, {0, b.count}, [&](const auto& p, Size global, Size at) {
        all.data()[at] = static_cast<Out>(gradient(p, global));
      });
    };
    replicas_.config().wide_gradients ? write(G()) : write(T());
    for (const auto* p : b.parameters) p->gradient->write();
  }
  /// Reduces gradients of all buckets over the replicas.
  template <class F>
  void reduce_gradients(F gradient) {
    replicas_.begin_micro_step();
    for (auto* unit : units())
      for (auto& b : unit->trained_buckets()) write_gradient(b, gradient);
    for (auto* unit : units()) unit->reduce_for_step();
    replicas_.complete_all();
  }
  /// Element `at` of the owned range of the reduced gradient.
  double reduced(const Bucket<T, Cpu>& b, Size at) const {
    return replicas_.config().wide_gradients ? static_cast<double>(*b.reduced.template element<const G>(at))
                                             : static_cast<double>(*b.reduced.template element<const T>(at));
  }
  /// True if the reduced gradient has `sum(parameter, global position)`, and 0 in the padding.
  template <class F>
  bool has_sums(const Bucket<T, Cpu>& b, F sum) const {
    const Range own = replicas_.owned(b);
    std::vector<double> expected(static_cast<std::size_t>(own.count()));
    for_each_element(
        b, own, [&](const auto& p, Size global, Size at) { expected[static_cast<std::size_t>(at)] = sum(p, global); });
    bool equal = static_cast<bool>(b.reduced);
    for (Size i = 0; equal && i < own.count(); ++i) equal = reduced(b, i) == expected[static_cast<std::size_t>(i)];
    return equal;
  }
  void drop_gradients() {
    for (auto* unit : units()) unit->drop_gradients();
  }

 private:
  Ranks ranks_;
  Model<T> model_;
  Inventory<T, Cpu> inventory_;
  Replicas<T, Cpu> replicas_;
  ShardedState<T, Cpu> state_;
};

/// The gradient of a rank: a small whole number, so that sums have no rounding in any order, in bf16 too.
inline double gradient_at(const ParameterBase<Cpu>& p, Size global, int replica, int tp = 0) {
  return static_cast<double>((3 * p.site + 5 * global + 7 * replica + 11 * tp) % 13 - 5);
}
/// Its sum over `replicas` and, if tp > 1, over Tp.
inline double gradient_sum(const ParameterBase<Cpu>& p, Size global, int replicas, int tp = 1) {
  double sum = 0;
  for (int r = 0; r < replicas; ++r)
    for (int t = 0; t < tp; ++t) sum += gradient_at(p, global, r, t);
  return sum;
}

/// Runs f(ranks) on every rank of a strategy, with memory of its own.
template <class T, template <class> class Model = SmallModel, class F>
void run_units(const UnitStrategy& strategy, F f) {
  const Mesh mesh(Degrees{.data = strategy.data, .tp = strategy.tp});
  ThreadWorld world(mesh, {.timeout_seconds = 60, .sum_order = strategy.sum_order});
  run_ranks(world.group(), [&](int rank) {
    CAPTURE(strategy.data);
    CAPTURE(strategy.tp);
    CAPTURE(strategy.stage);
    CAPTURE(rank);
    Pool pool;
    f(typename SmallUnits<T, Model>::Ranks(world.groups(rank), mesh.coordinates(rank), pool));
    CHECK(pool.live() == 0);
  });
}

}  // namespace dspp::laws
