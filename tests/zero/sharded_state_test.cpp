// SPDX-License-Identifier: Apache-2.0
// Shards: every element once over the replicas, and views of the state itself.
// labels: thread
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class P>
void check_shards(int ranks) {
  CAPTURE(ranks);
  std::mutex lock;
  std::vector<std::vector<Range>> owned(static_cast<std::size_t>(ranks));  // of each rank, by bucket
  std::vector<Size> counts;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1}, [&](World<P>& world) {
    using T = typename P::Element;
    Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, {.bucket_bytes = 4000}};
    engine.train_batch(std::array{batch_of(world.memory(), 0, 2 * world.data_rank(), 2, 8, 61)});
    auto& state = engine.state();
    const std::lock_guard guard(lock);
    if (world.is_first()) counts.clear();
    for (auto* unit : engine.units())
      for (auto& b : unit->buckets()) {
        const BucketShard shard = state.shard(b);
        if (world.is_first()) counts.push_back(b.count);
        owned[static_cast<std::size_t>(world.rank())].push_back(shard.own);
        CHECK(shard.own.begin * static_cast<Size>(sizeof(T)) % 64 == 0);
        CHECK(shard.values.count() == shard.own.count());
        const Range held = engine.replicas().held(b);
        CHECK(b.values.count() == held.count());
        CHECK(shard.values.data() == b.values.data() + (shard.own.begin - held.begin));
        CHECK(static_cast<bool>(shard.state.master) == (sizeof(T) == 2));
        CHECK(shard.state.moments[0].count() == shard.own.count());
        for (Size i = 0; shard.state.master && i < shard.own.count(); ++i)
          CHECK(static_cast<T>(shard.state.master.data()[i]) == shard.values.data()[i]);
        shard.state.moments[1].data()[0] = 3;  // a view: the store's own
        CHECK(state.of(b).moments[1].data()[0] == 3);
        state.clear_moments(b);
        CHECK(shard.state.moments[1].data()[0] == 0);
      }
  });
  for (std::size_t b = 0; b < counts.size(); ++b) {
    if (P::zero_stage == 0) {
      for (const auto& of_rank : owned) CHECK((of_rank[b].begin == 0 && of_rank[b].end == counts[b]));
      continue;
    }
    Size end = 0;
    for (const auto& of_rank : owned) {
      CHECK(of_rank[b].begin == end);
      end = of_rank[b].end;
    }
    CHECK(end == counts[b]);
  }
}

}  // namespace

TEST_CASE("shards cover every bucket once over the replicas, aligned, and are views of values and state") {
  for (const int ranks : {1, 2, 3}) {
    check_shards<Policy<F32>>(ranks);
    check_shards<Policy<F32, Zero<1>>>(ranks);
    check_shards<Policy<Bf16, Zero<3>>>(ranks);
  }
}

TEST_CASE("the intersection of two ranges") {
  CHECK(common({0, 10}, {5, 20}).count() == 5);
  CHECK(common({5, 20}, {0, 10}).begin == 5);
  CHECK(common({0, 5}, {5, 10}).count() == 0);
  CHECK(common({0, 4}, {6, 10}).count() < 0);
}
