// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <dspp/tensor/pool_trace.hpp>

using namespace dspp;

namespace {
using Handle = Storage<Pool>;

/// A Pool with a resident block, and the trace of a step: 128 bytes that end in it, and 64 that it leaves.
struct Traced {
  Pool pool;
  Handle resident{pool, 256, Category::parameters, "resident"};
  std::byte *inner = nullptr, *left = nullptr;
  BlockTrace trace;
  TracedBlock left_block;

  explicit Traced(bool uses_resident = true) {
    pool.begin_trace();
    pool.trace(true);
    {
      Handle result(pool, 64, Category::gradients, "left");
      left = result.data(), left_block = pool.traced(result);
      const Handle own(pool, 128, Category::activations, "inner");
      inner = own.data();
      pool.trace(false);
      trace = pool.end_trace(uses_resident ? std::vector<const std::byte*>{resident.data()}
                                           : std::vector<const std::byte*>{});
      CHECK(!pool.may_repeat(trace));  // its blocks are in use
    }
  }
};

}  // namespace

TEST_CASE("a trace may be repeated while its blocks are kept and what it used is as it was") {
  Traced of;
  CHECK(of.pool.may_repeat(of.trace));
  SUBCASE("a block in use") {
    const Handle held(of.pool, 128, Category::data, "held");
    CHECK(held.data() == of.inner);
    CHECK(!of.pool.may_repeat(of.trace));
  }
  SUBCASE("what it used, given back, also where it is taken again") {
    of.resident.release();
    CHECK(!of.pool.may_repeat(of.trace));
    of.resident = Handle(of.pool, 256, Category::parameters, "resident");
    CHECK(!of.pool.may_repeat(of.trace));
  }
  SUBCASE("memory returned to the system") {
    of.pool.trim();
    CHECK(!of.pool.may_repeat(of.trace));
  }
  SUBCASE("a limit that it exceeds") {
    of.pool.set_limit(256 + 64 + 127);
    CHECK(!of.pool.may_repeat(of.trace));
    of.pool.set_limit(256 + 64 + 128);
    CHECK(of.pool.may_repeat(of.trace));
  }
}

TEST_CASE("what a trace did not use may be given back") {
  Traced of(false);
  of.resident.release();
  CHECK(of.pool.may_repeat(of.trace));
}

TEST_CASE("a repetition raises the peaks as its trace did, above what is live, and has its blocks alone") {
  Traced of;
  CHECK(of.pool.peak() == 256 + 192);
  const Handle more(of.pool, 1024, Category::data, "more");
  of.pool.reset_peak();
  of.pool.begin_repeat(of.trace);
  CHECK(of.pool.peak() == 256 + 1024 + 192);
  CHECK(of.pool.live() == 256 + 1024);
  CHECK(of.pool.at_peak()[Category::activations] == 128);
  CHECK(of.pool.at_peak()[Category::gradients] == 64);
  CHECK(of.pool.at_peak()[Category::data] == 1024);
  CHECK(of.pool.peak_by_category()[Category::activations] == 128);
  const Handle meanwhile(of.pool, 128, Category::data, "meanwhile");
  CHECK(meanwhile.data() != of.inner);
  of.pool.end_repeat(of.trace);
  {
    const Handle left = of.pool.take_again(of.left_block);
    CHECK(left.data() == of.left);
    CHECK(left.bytes() == 64);
    CHECK(of.pool.live_by_category()[Category::gradients] == 64);
    CHECK(!of.pool.may_repeat(of.trace));
  }
  CHECK(of.pool.may_repeat(of.trace));
  CHECK(!of.pool.take_again({}));
}

TEST_CASE("a peak before a trace stays the peak") {
  Pool pool;
  { const Handle large(pool, 4096, Category::data, "large"); }
  pool.begin_trace();
  pool.trace(true);
  { const Handle small(pool, 64, Category::activations, "small"); }
  const BlockTrace trace = pool.end_trace({});
  CHECK(trace.peak == 64);
  CHECK(pool.peak() == 4096);
  CHECK(pool.at_peak()[Category::data] == 4096);
}

TEST_CASE(
    "blocks of a trace that others use are left out of the next, and others get traced ones only if there is no "
    "other") {
  Pool pool;
  { const Handle one(pool, 64, Category::data, "one"), other(pool, 64, Category::data, "other"); }
  const auto trace_of = [&] {
    pool.begin_trace();
    pool.trace(true);
    { const Handle own(pool, 64, Category::activations, "own"); }
    pool.trace(false);
    return pool.end_trace({});
  };
  const BlockTrace first = trace_of();
  Handle held(pool, 64, Category::data, "held");
  CHECK(pool.may_repeat(first));
  Handle again(pool, 64, Category::data, "again");
  CHECK(!pool.may_repeat(first));
  CHECK(pool.mark_others(first));
  CHECK(!pool.mark_others(first));
  held.release(), again.release();
  CHECK(pool.may_repeat(first));
  const BlockTrace second = trace_of();
  REQUIRE(second.taken.size() == 1);
  CHECK(second.taken[0] != first.taken[0]);
  CHECK(pool.reserved() == 128);
  pool.trim();
  CHECK(!pool.mark_others(second));
}

TEST_CASE("a trace of which blocks were returned meanwhile is no whole one") {
  Pool pool;
  pool.begin_trace();
  pool.trace(true);
  { const Handle own(pool, 64, Category::activations, "own"); }
  pool.trim();
  const BlockTrace trace = pool.end_trace({});
  CHECK(!trace.is_whole);
  CHECK(!pool.may_repeat(trace));
}

TEST_CASE("the same steps of a trace take the same blocks, in whatever order they were given back") {
  Pool pool;
  std::vector<std::vector<const std::byte*>> seen;
  pool.begin_trace();
  for (int step = 0; step < 3; ++step) {
    pool.trace(true);
    std::vector<Handle> held;
    for (int i = 0; i < 5; ++i) held.emplace_back(pool, 64, Category::activations, "held");
    seen.emplace_back();
    for (const Handle& handle : held) seen.back().push_back(handle.data());
    for (const std::size_t i : {2, 0, 4, 1, 3}) held[i].release();
    pool.trace(false);
  }
  pool.end_trace({});
  CHECK(seen[1] == seen[2]);
}
