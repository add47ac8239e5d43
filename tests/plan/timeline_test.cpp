// SPDX-License-Identifier: Apache-2.0
// The blocks of a step on paper are those of the run.
// labels: plan thread
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <dspp/plan/timeline.hpp>

#include <laws/memory_timeline.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size rows = 2, sequence = 8;

std::string row_of(const TimedBlock& block) {
  return block.label + " " + name_of(block.category) + " " + std::to_string(block.bytes) + " " +
         std::to_string(block.begin) + " " + std::to_string(block.end);
}

/// The first and the second step, of each rank. `lays_out`: the first, too, has a region, from its plan.
template <class P>
void check_steps(int ranks, bool lays_out = false) {
  CAPTURE(ranks);
  const BatchSizes sizes{.micro_batch = rows, .sequence = sequence, .accumulate = 2};
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1}, [&](World<P>& world) {
    using Model = RecomputedGpt<P>;
    Pool& pool = world.memory();
    Engine engine{world, Model(small_gpt()), AdamW{.lr = 1e-2}, sizes, EngineConfig{.bucket_bytes = 8000}};
    pool.lay_out_steps(true);
    const PlanOptions options{.data = world.data_size(), .bucket_bytes = 8000, .rank = world.place()};
    if (lays_out) pool.lay_out_next(plan_timeline<Model>(small_gpt(), sizes, options, 0));
    for (Size step = 0; step < 2; ++step) {
      CAPTURE(step);
      pool.reset_peak();
      pool.begin_timeline();
      for (Size i = 0; i < sizes.accumulate; ++i) {
        const auto batch = batch_of(pool, 24 * step, rows * (i * world.data_size() + world.data_rank()), rows, sequence,
                                    small_gpt().vocabulary);
        const auto loss = engine.forward(batch);
        engine.backward(loss);
        static_cast<void>(engine.step());
      }
      const MemoryTimeline measured = pool.end_timeline();
      const MemoryTimeline planned = plan_timeline<Model>(small_gpt(), sizes, options, step);
      check_timeline(measured);
      check_timeline(planned);
      CHECK(measured.peak() == pool.peak());
      CHECK((measured.region > 0) == (lays_out || step > 0));
      CHECK(planned.step_begin == measured.step_begin);
      CHECK(planned.step_end == measured.step_end);
      CHECK(planned.step_begin < planned.step_end);
      CHECK(planned.region == 0);
      CHECK(planned.before == measured.before);
      CHECK(planned.live == measured.live);
      REQUIRE(planned.blocks.size() == measured.blocks.size());
      for (std::size_t i = 0; i < planned.blocks.size(); ++i)
        CHECK(row_of(planned.blocks[i]) == row_of(measured.blocks[i]));
      if (lays_out && step == 0) {
        // But for short blocks, and those kept from before, it is the peak.
        CHECK(static_cast<double>(pool.peak_reserved()) < 1.02 * static_cast<double>(pool.peak()) + 24576);
      }
      if (step > 0) {
        const Size before = pool.reserved();
        const auto held_out = batch_of(pool, 0, 0, rows, sequence, small_gpt().vocabulary);
        CHECK(engine.eval_batch(held_out).mean > 0);  // lies in the region, but for short blocks
        CHECK(pool.reserved() <= before + 32768);
        continue;
      }
      const Plan paper = plan<Model>(small_gpt(), sizes, options);
      CHECK(planned.peak() == paper.peak);
      CHECK(planned.before == paper.resident);
    }
  });
}

}  // namespace

TEST_CASE("a step on paper takes and returns the blocks of the run, by label, bytes and order") {
  check_steps<Policy<Zero<2>>>(1);
  check_steps<Policy<Zero<2>, Bf16>>(2);
  check_steps<Policy<Zero<3>>>(2);
}

TEST_CASE("a first step that is laid out from its plan reserves no more than its peak") {
  check_steps<Policy<Zero<0>>>(1, true);
  check_steps<Policy<Zero<2>, Bf16>>(2, true);
  check_steps<Policy<Zero<3>>>(3, true);
}
