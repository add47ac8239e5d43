// SPDX-License-Identifier: Apache-2.0
// Bucket operations in flight: two at most, completed in order, and abandoned without harm to the next step.
// labels: thread races
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <laws/small_units.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Units = SmallUnits<float>;

struct Reducing {
  Units units;
  int replica;
  std::vector<Bucket<float, Cpu>*> buckets{};

  Reducing(const UnitStrategy& strategy, const Units::Ranks& ranks)
      : units(strategy, ranks), replica(units.world().place().data) {
    units.for_each_bucket([&](auto& b) { buckets.push_back(&b); });
    REQUIRE(buckets.size() >= 3);
  }
  Bucket<float, Cpu>& start(std::size_t bucket) {
    auto& b = *buckets[bucket];
    units.write_gradient(b, [&](const auto& p, Size global) { return gradient_at(p, global, replica); });
    units.replicas().start_reduce(b);
    CHECK(!b.gradient);
    return b;
  }
  /// True if the bucket has `times` the sum over the replicas.
  bool is_reduced(const Bucket<float, Cpu>& b, double times = 1) {
    const int size = units.replicas().group().size();
    return units.has_sums(b, [&](const auto& p, Size global) { return times * gradient_sum(p, global, size); });
  }
  /// A step of all buckets.
  void check_step() {
    units.drop_gradients();
    units.replicas().begin_micro_step();
    for (std::size_t i = 0; i < buckets.size(); ++i) start(i);
    units.replicas().complete_all();
    for (const auto* b : buckets) CHECK(is_reduced(*b));
  }
};

}  // namespace

TEST_CASE(
    "two operations are in flight; a third completes the oldest, unless it is in place, and a bucket those before it") {
  for_each_strategy([](UnitStrategy strategy) {
    for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
      strategy.sum_order = order;
      run_units<float>(strategy, [&](const auto& ranks) {
        Reducing reducing(strategy, ranks);
        auto& replicas = reducing.units.replicas();
        CHECK(replicas.has_room());
        const auto& first = reducing.start(0);
        CHECK(replicas.has_room());
        const auto& second = reducing.start(1);
        CHECK(!replicas.has_room());
        CHECK((replicas.involves(first) && replicas.involves(second)));
        const auto& third = reducing.start(2);
        CHECK(!replicas.has_room());
        const bool in_place = strategy.stage == 0;  // without progress threads there is nothing to wait for
        CHECK((replicas.involves(first) == in_place && replicas.involves(second) && replicas.involves(third)));
        if (!in_place) CHECK(reducing.is_reduced(first));
        replicas.complete(second);
        CHECK((!replicas.involves(first) && reducing.is_reduced(first)));
        CHECK((!replicas.involves(second) && replicas.involves(third)));
        CHECK(reducing.is_reduced(second));
        replicas.complete(first);  // is complete
        CHECK(replicas.involves(third));
        replicas.complete_all();
        CHECK(!replicas.involves(third));
        CHECK(reducing.is_reduced(third));
      });
    }
  });
}

TEST_CASE("later reductions of a bucket are added, also with both in flight") {
  for_each_strategy([](const UnitStrategy& strategy) {
    run_units<float>(strategy, [&](const auto& ranks) {
      Reducing reducing(strategy, ranks);
      reducing.start(2);
      const auto& b = reducing.start(2);
      CHECK(!reducing.units.replicas().has_room());
      reducing.units.replicas().complete(b);
      CHECK(reducing.is_reduced(b, 2));
      CHECK(reducing.units.replicas().has_room());
    });
  });
}

TEST_CASE("gathered buckets have the elements of all slices") {
  for_each_strategy([](const UnitStrategy& strategy) {
    if (strategy.stage != 3) return;
    run_units<float>(strategy, [&](const auto& ranks) {
      Reducing reducing(strategy, ranks);
      auto& replicas = reducing.units.replicas();
      for (auto* b : reducing.buckets) {
        const Size own = b->values.count();
        for (Size i = 0; i < own; ++i) b->values.data()[i] = static_cast<float>(own * replicas.group().rank() + i);
        const auto gathered = replicas.start_gather(*b);
        replicas.complete(*b);
        Size right = 0;
        for (Size i = 0; i < b->count; ++i)
          right += *gathered.template element<const float>(i) == static_cast<float>(i);
        CHECK(right == b->count);
      }
    });
  });
}

TEST_CASE("where all ranks threw the same, operations abandoned during unwinding leave the group to the next step") {
  struct Abandon {
    Replicas<float, Cpu>& replicas;
    ~Abandon() { replicas.abandon(); }
  };
  for_each_strategy([](const UnitStrategy& strategy) {
    run_units<float>(strategy, [&](const auto& ranks) {
      Reducing reducing(strategy, ranks);
      const auto throw_with_two = [&] {
        const Abandon abandon{reducing.units.replicas()};
        reducing.start(0), reducing.start(1);
        throw std::runtime_error("the same on all ranks");
      };
      CHECK_THROWS_AS(throw_with_two(), std::runtime_error);
      CHECK(reducing.units.replicas().has_room());
      CHECK(!reducing.units.replicas().involves(*reducing.buckets[1]));
      reducing.check_step();
      const auto throw_with_all = [&] {  // the units go, too
        Reducing gone(strategy, ranks);
        gone.start(0), gone.start(1);
        throw std::runtime_error("the same on all ranks");
      };
      CHECK_THROWS_AS(throw_with_all(), std::runtime_error);
      reducing.check_step();
    });
  });
}
