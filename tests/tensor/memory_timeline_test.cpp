// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include <dspp/tensor/tensor.hpp>

#include <laws/memory_timeline.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class Memory>
using Handles = std::vector<Storage<Memory>>;

/// Requests and returns of random sizes, the same for the same seed; what is left is returned.
template <class Memory>
void random_step(Memory& memory, unsigned seed, int requests) {
  std::mt19937 random(seed);
  const auto below = [&](Size n) { return static_cast<Size>(random() % static_cast<unsigned>(n)); };
  Handles<Memory> held;
  for (int i = 0; i < requests; ++i) {
    const Size bytes = i % 7 == 6 ? below(4000) : 4097 + 64 * below(4000);
    held.emplace_back(memory, bytes, static_cast<Category>(below(category_count)), "of a step");
    while (!held.empty() && below(3) == 0) held.erase(held.begin() + below(std::ssize(held)));
  }
}

bool has_row(const MemoryTimeline& timeline, std::size_t i, const TimedBlock& row) {
  const TimedBlock& block = timeline.blocks.at(i);
  return block.label == row.label && block.category == row.category && block.bytes == row.bytes &&
         block.begin == row.begin && block.end == row.end && block.offset == row.offset;
}

}  // namespace

TEST_CASE("a timeline has what was in use, then each request, with the events of its request and return") {
  Pool pool;
  const Storage<Pool> state(pool, 100, Category::optimizer, "moments");
  Storage<Pool> early(pool, 64, Category::data, "tokens");
  pool.begin_timeline();
  Storage<Pool> first(pool, 1000, Category::activations, "first");
  early.release();
  const Storage<Pool> second(pool, 64, Category::gradients, "second");
  first.release();
  const MemoryTimeline timeline = pool.end_timeline();
  check_timeline(timeline);
  REQUIRE(timeline.blocks.size() == 4);
  CHECK(has_row(timeline, 0, {"moments", Category::optimizer, 128, -1, 4, -1}));
  CHECK(has_row(timeline, 1, {"tokens", Category::data, 64, -1, 1, -1}));
  CHECK(has_row(timeline, 2, {"first", Category::activations, 1024, 0, 3, -1}));
  CHECK(has_row(timeline, 3, {"second", Category::gradients, 64, 2, 4, -1}));
  CHECK(timeline.before == 192);
  CHECK(timeline.live == std::vector<Size>{1216, 1152, 1216, 192});
  CHECK(timeline.peak() == 1216);
  CHECK(timeline.region == 0);
  CHECK(pool.end_timeline().blocks.empty());
}

TEST_CASE("at each event the blocks in use add up to the Pool's bytes, to its peak, and lie apart in the region") {
  for (unsigned run = 0; run < 8; ++run) {
    CAPTURE(run);
    Pool pool;
    pool.lay_out_steps(true);
    const Storage<Pool> state(pool, 1 << 20, Category::parameters, "state");
    Size placed = 0;
    for (int step = 0; step < 4; ++step) {
      pool.reset_peak();
      pool.begin_timeline();
      pool.begin_step();
      random_step(pool, step == 3 ? run + 1 : run, 80);  // the last is unlike the others
      pool.end_step();
      const Size region = pool.region();
      const MemoryTimeline timeline = pool.end_timeline();
      check_timeline(timeline);
      CHECK(timeline.peak() == pool.peak());
      CHECK(timeline.live.back() == pool.live());
      Size in_region = 0;
      for (const TimedBlock& block : timeline.blocks) in_region += block.offset >= 0;
      if (step == 0) CHECK(in_region == 0);
      if (step == 1) CHECK(timeline.region == region);
      if (step == 1 || step == 2) CHECK(in_region > 40);
      placed += in_region;
    }
    CHECK(placed > 0);
  }
}

TEST_CASE("a Ledger has the timeline of a Pool without a region, from where it is told to begin") {
  Pool pool;
  pool.lay_out_steps(false);
  Ledger ledger;
  MemoryRecorder recorder(100'000);
  ledger.set_recorder(&recorder);
  const Storage<Pool> of_pool(pool, 700, Category::parameters, "state");
  const Storage<Ledger> of_ledger(ledger, 700, Category::parameters, "state");
  random_step(pool, 3, 50), random_step(ledger, 3, 50);
  pool.begin_timeline();
  recorder.begin(ledger.live());
  random_step(pool, 4, 60), random_step(ledger, 4, 60);
  const MemoryTimeline measured = pool.end_timeline(), planned = std::move(recorder).timeline();
  ledger.set_recorder(nullptr);
  check_timeline(planned);
  REQUIRE(planned.blocks.size() == measured.blocks.size());
  for (std::size_t i = 0; i < planned.blocks.size(); ++i) CHECK(has_row(planned, i, measured.blocks[i]));
  CHECK(planned.live == measured.live);
}

TEST_CASE("a timeline that is full says so, and is as it was then") {
  Pool pool;
  pool.begin_timeline(3);
  Storage<Pool> a(pool, 64, Category::data, "a"), b(pool, 64, Category::data, "b");
  a.release();
  Storage<Pool> c(pool, 64, Category::data, "c");
  b.release();
  MemoryTimeline timeline = pool.end_timeline();
  CHECK(!timeline.is_whole);
  CHECK(timeline.live == std::vector<Size>{64, 128, 64});
  CHECK(timeline.live_of_blocks() == timeline.live);
  CHECK(timeline.blocks.size() == 2);
  timeline.is_whole = true;
  check_timeline(timeline);
}
