// SPDX-License-Identifier: Apache-2.0
// The region in which a Pool places the blocks of steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <dspp/tensor/tensor.hpp>

using namespace dspp;

namespace {

using Handle = Storage<Pool>;

/// A step that requests and returns blocks of random sizes, the same for the same seed; each is filled with a number of
/// its own, which must be there when it is returned.
class RandomSteps {
 public:
  explicit RandomSteps(Pool& pool) : pool_(pool) {}

  /// `keeps`: so many of its blocks stay until the next call. `factor`: of the bytes after the first third.
  void run(unsigned seed, int requests, int keeps = 0, Size factor = 1) {
    std::mt19937 random(seed);
    const auto below = [&](Size n) { return static_cast<Size>(random() % static_cast<unsigned>(n)); };
    std::vector<Block> blocks;
    pool_.begin_step();
    for (int i = 0; i < requests; ++i) {
      const Size bytes = i % 11 == 10 ? 8 + below(4000) : 4097 + 64 * below(Size{1} << below(14));
      take(blocks, 3 * i < requests ? bytes : bytes * factor);
      while (!blocks.empty() && below(3) == 0) give(blocks, static_cast<std::size_t>(below(std::ssize(blocks))));
    }
    kept_.clear();
    for (int i = 0; i < keeps && !blocks.empty(); ++i) {
      kept_.push_back(std::move(blocks.back()));
      blocks.pop_back();
    }
    while (!blocks.empty()) give(blocks, blocks.size() - 1);
    pool_.end_step();
    for (const Block& block : kept_) check(block);
  }
  /// Blocks between steps, of which a few stay until the next call.
  void between(unsigned seed, int requests) {
    std::mt19937 random(seed);
    while (!between_.empty()) give(between_, random() % between_.size());
    for (int i = 0; i < requests; ++i) take(between_, 1 + static_cast<Size>(random() % 500000));
    while (between_.size() > 3) give(between_, random() % between_.size());
  }
  Size wrong() const { return wrong_; }

 private:
  struct Block {
    Handle storage;
    Size bytes = 0;
    unsigned char fill = 0;
  };
  void take(std::vector<Block>& blocks, Size bytes) {
    blocks.push_back({Handle(pool_, bytes, Category::activations, "block"), bytes, ++fill_});
    std::memset(blocks.back().storage.data(), fill_, static_cast<std::size_t>(bytes));
  }
  void give(std::vector<Block>& blocks, std::size_t i) {
    check(blocks[i]);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void check(const Block& block) {
    const auto* const data = reinterpret_cast<const unsigned char*>(block.storage.data());
    bool is_whole = data[block.bytes - 1] == block.fill;
    for (Size i = 0; i < block.bytes; i += 509) is_whole = is_whole && data[i] == block.fill;
    if (!is_whole) ++wrong_;
  }

  Pool& pool_;
  std::vector<Block> kept_, between_;
  Size wrong_ = 0;
  unsigned char fill_ = 0;
};

}  // namespace

TEST_CASE("a layout has no two blocks in one place at a time, and is not much longer than the most at a time") {
  std::mt19937 random(7);
  const auto below = [&](Size n) { return static_cast<Size>(random() % static_cast<unsigned>(n)); };
  for (int run = 0; run < 60; ++run) {
    CAPTURE(run);
    std::vector<BlockUse> uses;
    const Size count = 1 + below(120);
    for (Size i = 0; i < count; ++i) {
      const Size begin = below(200), length = run % 3 == 0 ? 1 + below(10) : 1 + below(150);
      uses.push_back({begin, i % 17 == 16 ? BlockUse::still_used : begin + length, 64 * (1 + below(run % 2 ? 40 : 3))});
    }
    const BlockLayout layout = lay_out(uses);
    REQUIRE(layout.offsets.size() == uses.size());
    Size wrong = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      wrong += layout.offsets[i] < 0 || layout.offsets[i] + uses[i].bytes > layout.bytes;
      for (std::size_t j = 0; j < i; ++j)
        wrong += uses[i].overlaps(uses[j]) && layout.offsets[i] < layout.offsets[j] + uses[j].bytes &&
                 layout.offsets[j] < layout.offsets[i] + uses[i].bytes;
    }
    CHECK(wrong == 0);
    const Size least = most_at_once(uses);
    CHECK(layout.bytes >= least);
    CHECK(static_cast<double>(layout.bytes) <= 1.25 * static_cast<double>(least));
  }
  CHECK(lay_out({}).bytes == 0);
  CHECK(most_at_once({{0, 2, 5}, {2, 4, 7}, {3, 9, 1}}) == 8);
}

TEST_CASE("steps that are alike lie in a region from the second on, and take no more than it") {
  Pool pool;
  pool.lay_out_steps(true);
  const Handle state(pool, 1 << 20, Category::parameters, "state");
  RandomSteps steps(pool);
  steps.run(5, 200);
  const Size peak = pool.peak(), before = pool.peak_reserved(), region = pool.region();
  CHECK(region > 0);
  constexpr Size of_short_ones = 80'000;  // which lie elsewhere
  CHECK(region >= peak - state.bytes() - of_short_ones);
  CHECK(pool.reserved() == state.bytes() + region);
  CHECK(pool.reserved() < before);
  pool.reset_peak();
  for (int step = 0; step < 4; ++step) {
    steps.run(5, 200);
    CHECK(pool.peak() == peak);
    CHECK(pool.region() == region);
    CHECK(pool.peak_reserved() <= state.bytes() + region + of_short_ones);
  }
  CHECK(steps.wrong() == 0);
}

TEST_CASE("a step that was planned lies in a region from the first on, without other memory") {
  for (unsigned run = 0; run < 20; ++run) {
    CAPTURE(run);
    Pool paper;
    paper.lay_out_steps(false);
    const Handle of_paper(paper, 1 << 20, Category::parameters, "state");
    paper.begin_timeline();
    auto batch = std::make_unique<Handle>(paper, 12345, Category::data, "batch");
    RandomSteps(paper).run(run, 150);
    batch.reset();
    const MemoryTimeline planned = paper.end_timeline();
    CHECK(planned.step_begin == 1);
    CHECK(planned.step_end == planned.events() - 1);

    Pool pool;
    pool.lay_out_steps(true);
    const Handle state(pool, 1 << 20, Category::parameters, "state");
    pool.lay_out_next(planned);
    const Size region = pool.region();
    CHECK(region > 0);
    CHECK(pool.reserved() == state.bytes() + region);
    pool.lay_out_next(planned);
    CHECK(pool.reserved() == state.bytes() + region);
    RandomSteps steps(pool);
    for (int step = 0; step < 3; ++step) {
      const Handle own(pool, 12345, Category::data, "batch");
      steps.run(run, 150);
      CHECK(pool.region() == region);
      CHECK(pool.peak() == paper.peak());
      constexpr Size of_short_ones = 160'000;
      CHECK(pool.peak_reserved() <= state.bytes() + own.bytes() + region + of_short_ones);
    }
    CHECK(steps.wrong() == 0);
  }
}

TEST_CASE("between steps a region that is lent serves what is taken, and steps are as before") {
  Pool pool;
  pool.lay_out_steps(true);
  RandomSteps steps(pool);
  for (int step = 0; step < 2; ++step) steps.run(5, 200);
  const Size region = pool.region();
  REQUIRE(region > 0);
  pool.trim();  // all but the region, if nothing is in it
  for (int step = 0; step < 2; ++step) steps.run(5, 200);
  const Size reserved = pool.reserved();
  for (unsigned round = 0; round < 5; ++round) {
    pool.lend_region(true);
    {
      std::vector<Handle> blocks;
      Size all = 0;
      for (Size bytes = 5000; (all += bytes) < region / 2; bytes += 5000)
        blocks.emplace_back(pool, bytes, Category::activations, "evaluated");
      for (Handle& block : blocks) std::memset(block.data(), 7, static_cast<std::size_t>(block.bytes()));
      if (round % 2 == 1) blocks.erase(blocks.begin(), blocks.begin() + std::ssize(blocks) / 2);
      blocks.emplace_back(pool, region / 10, Category::activations, "evaluated");
    }
    pool.lend_region(false);
    CHECK(pool.region() == region);
    CHECK(pool.reserved() <= reserved);
    steps.run(5, 200);
    CHECK(pool.region() == region);
  }
  CHECK(steps.wrong() == 0);
}

TEST_CASE("a plan for which there is no room, or no step, gives no region") {
  Pool paper;
  paper.lay_out_steps(false);
  paper.begin_timeline();
  { const Handle between(paper, 1 << 20, Category::data, "between"); }
  const MemoryTimeline nothing = paper.end_timeline();
  CHECK(nothing.step_end == nothing.step_begin);
  paper.begin_timeline();
  RandomSteps(paper).run(1, 100);
  const MemoryTimeline planned = paper.end_timeline();
  Pool limited(paper.peak() / 2);
  limited.lay_out_steps(true);
  limited.lay_out_next(planned);
  CHECK(limited.region() == 0);
  limited.set_limit(0);
  limited.lay_out_next(nothing);
  CHECK(limited.region() == 0);
  limited.lay_out_steps(false);
  limited.lay_out_next(planned);
  CHECK(limited.region() == 0);
  limited.lay_out_steps(true);
  limited.lay_out_next(planned);
  CHECK(limited.region() > 0);
}

TEST_CASE("whatever steps do, and what comes between them, no block is in another's place, and the bound is kept") {
  Size with_region = 0, beyond = 0;
  for (unsigned run = 0; run < 40; ++run) {
    CAPTURE(run);
    std::mt19937 random(run);
    const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    Pool pool;
    pool.lay_out_steps(true);
    if (run % 5 == 4) pool.poison(true);
    RandomSteps steps(pool);
    if (run % 2 == 0) {  // planned, rightly or not
      Pool paper;
      paper.lay_out_steps(false);
      paper.begin_timeline();
      RandomSteps(paper).run(below(2) == 0 ? run : run + 1, below(3) == 0 ? 90 : 120);
      pool.lay_out_next(paper.end_timeline());
    }
    for (int step = 0; step < 20; ++step) {
      // Mostly alike; now and then another one, blocks that stay, an end that comes early, longer blocks from some
      // request on, and others in between.
      const unsigned kind = below(9);
      steps.run(kind == 0 ? below(3) : run, kind == 1 ? 60 : 120, kind == 2 ? static_cast<int>(below(6)) : 0,
                kind == 3 ? 1 + below(4) : 1);
      if (below(4) == 0) steps.between(below(9), static_cast<int>(below(30)));
      if (below(10) == 0) pool.trim();
      with_region += pool.region() > 0;
      CHECK(pool.reserved() <= Pool::reserved_at_most(pool.peak()));
      beyond += pool.peak_reserved() > Pool::reserved_at_most(pool.peak());
    }
    CHECK(steps.wrong() == 0);
  }
  CHECK(with_region > 200);
  CHECK(beyond < with_region / 20);  // while a step that is unlike the one before has blocks in its region
}

TEST_CASE("a few requests besides leave a step its region, and more take it after the step") {
  Pool pool;
  pool.lay_out_steps(true);
  const auto step = [&](int besides) {
    pool.begin_step();
    for (int i = 0; i < 40; ++i) {
      const Handle large(pool, 10000 + 64 * i, Category::activations, "large");
      const Handle small(pool, 3000, Category::activations, "small");
      if (i < besides) const Handle other(pool, 77777, Category::activations, "other");
    }
    pool.end_step();
  };
  step(0);
  const Size region = pool.region();
  CHECK(region > 0);
  step(10);
  CHECK(pool.region() == region);
  CHECK(pool.reserved() < region + 100000);  // what came besides is kept
  step(30);
  CHECK(pool.region() == 0);
  step(30);
  CHECK(pool.region() > 0);  // it was like the one before
  pool.lay_out_steps(false);
  CHECK(pool.region() == 0);
  step(0);
  CHECK(pool.region() == 0);
}

TEST_CASE("a region that nothing is in makes room for a request that is longer") {
  Pool pool;
  pool.lay_out_steps(true);
  pool.begin_step();
  for (const Size bytes : {3_MiB, 5_MiB, 4_MiB}) const Handle block(pool, bytes, Category::activations, "block");
  pool.end_step();
  const Size region = pool.region();
  CHECK(region == 5_MiB);
  {
    const Handle guest(pool, region / 2, Category::activations, "guest");
    CHECK(pool.reserved() == region);
  }
  const Handle longer(pool, 2 * region, Category::activations, "longer");
  CHECK(pool.region() == 0);
  CHECK(pool.reserved() == 2 * region);
}

TEST_CASE("a block that is returned in place of another leaves that one its place") {
  Pool pool;
  pool.lay_out_steps(true);
  const auto step = [&](bool returns_other) {
    pool.begin_step();
    Handle a(pool, 8192, Category::activations, "a"), b(pool, 8192, Category::activations, "b");
    (returns_other ? b : a).release();
    Handle c(pool, 8192, Category::activations, "c");
    const Handle& live = returns_other ? a : b;
    const bool apart = c.data() + c.bytes() <= live.data() || live.data() + live.bytes() <= c.data();
    CHECK(apart);
    a.release(), b.release(), c.release();
    pool.end_step();
  };
  step(false);
  CHECK(pool.region() == 2 * 8192);
  step(false);
  step(true);
  step(false);
}

TEST_CASE("a step that is given up is not laid out, and a limit holds for the region") {
  Pool pool;
  pool.lay_out_steps(true);
  pool.begin_step();
  { const Handle block(pool, 5000, Category::activations, "block"); }
  pool.abandon_step();
  pool.end_step();
  CHECK(pool.region() == 0);
  Pool free;
  free.lay_out_steps(false);
  RandomSteps(free).run(3, 60);
  const Size limit = free.peak() + free.peak() / 10;
  Pool limited(limit);
  limited.lay_out_steps(true);
  RandomSteps steps(limited);
  for (int step = 0; step < 5; ++step) {
    steps.run(3, 60);
    CHECK(limited.reserved() <= limit);
  }
  CHECK(limited.region() > 0);
  CHECK(steps.wrong() == 0);
}
