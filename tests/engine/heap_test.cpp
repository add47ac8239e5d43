// SPDX-License-Identifier: Apache-2.0
// The heap outside of the Pools, counted at operator new: bounded per tape node, and growing never.
// Not under the sanitizers: they have an allocator of their own.
// labels: engine
#include <atomic>
#include <cstdlib>
#include <new>

#include <laws/heap_meter.hpp>
#include <laws/training_run.hpp>

// ---- the meter: every block carries its size in front ---------------------------------------------------------------

namespace {

std::atomic<std::int64_t> all_bytes{0}, all_blocks{0};
thread_local dspp::laws::HeapCount own_count;
thread_local std::int64_t own_peak = 0;

void note(std::int64_t bytes, std::int64_t blocks) noexcept {
  all_bytes.fetch_add(bytes, std::memory_order_relaxed);
  all_blocks.fetch_add(blocks, std::memory_order_relaxed);
  own_count.bytes += bytes;
  own_count.blocks += blocks;
  if (own_count.bytes > own_peak) own_peak = own_count.bytes;
}

void* counted_new(std::size_t bytes, std::size_t alignment) {
  const std::size_t front = alignment < 16 ? 16 : alignment;
  const std::size_t whole = (bytes + front + alignment - 1) / alignment * alignment;
  char* block = static_cast<char*>(std::aligned_alloc(alignment, whole));
  if (!block) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(block + front - sizeof(std::size_t)) = bytes;
  note(static_cast<std::int64_t>(bytes), 1);
  return block + front;
}

void counted_delete(void* place, std::size_t alignment) noexcept {
  if (!place) return;
  const std::size_t front = alignment < 16 ? 16 : alignment;
  char* block = static_cast<char*>(place) - front;
  note(-static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block + front - sizeof(std::size_t))), -1);
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted_new(bytes, 16);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_new(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* place) noexcept {
  counted_delete(place, 16);
}
void operator delete(void* place, std::size_t) noexcept {
  counted_delete(place, 16);
}
void operator delete(void* place, std::align_val_t alignment) noexcept {
  counted_delete(place, static_cast<std::size_t>(alignment));
}
void operator delete(void* place, std::size_t, std::align_val_t alignment) noexcept {
  counted_delete(place, static_cast<std::size_t>(alignment));
}

namespace dspp::laws {
HeapCount heap_live() noexcept {
  return {all_bytes.load(), all_blocks.load()};
}
HeapCount heap_of_this_thread() noexcept {
  return own_count;
}
std::int64_t heap_peak_of_this_thread() noexcept {
  return own_peak;
}
void reset_heap_peak_of_this_thread() noexcept {
  own_peak = own_count.bytes;
}
}  // namespace dspp::laws

// ---- what is true ---------------------------------------------------------------------------------------------------

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Heap bytes outside of the Pool per tape node, at most: a node with what it captured by value (handles, shapes), its
/// entry in the tape's list and its gradient's slot. Measured: 125 to 133.
constexpr std::int64_t bytes_per_node = 192;

struct HeapOfStep {
  Size nodes = 0;
  std::int64_t forward = 0;  ///< held between forward and backward
  std::int64_t peak = 0;     ///< at any moment of the step
  std::int64_t kept = 0;     ///< more after the step than before it
};

/// The eighth step of a run, as rank 0 of `ranks` sees it: the first ones fill caches.
template <class Model>
HeapOfStep warm_step(int ranks) {
  using P = typename Model::policy;
  HeapOfStep seen;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<Model, AdamW> engine(world, Model(small_gpt(0.1)), AdamW{}, {.bucket_bytes = 8000});
    for (Size step = 0; step < 8; ++step) {
      const auto before = heap_of_this_thread().bytes;
      reset_heap_peak_of_this_thread();
      HeapOfStep now;
      {
        auto batch = batch_of(world.memory(), step * 4, 2 * world.data_rank(), 2, 12, 61);
        auto loss = engine.forward(batch);
        now.nodes = loss.tape().node_count();
        now.forward = heap_of_this_thread().bytes - before;
        engine.backward(loss);
      }
      engine.step();
      now.peak = heap_peak_of_this_thread() - before;
      now.kept = heap_of_this_thread().bytes - before;
      if (step == 7 && world.is_first()) seen = now;
    }
  });
  return seen;
}

template <class Model>
void check_heap(int ranks) {
  const HeapOfStep seen = warm_step<Model>(ranks);
  MESSAGE("nodes " << seen.nodes << ", heap bytes per node " << seen.forward / seen.nodes
                   << ", at the peak of the step " << seen.peak / seen.nodes);
  CHECK(seen.nodes > 20);
  CHECK(seen.forward <= bytes_per_node * seen.nodes);
  CHECK(seen.peak <= bytes_per_node * seen.nodes);
  CHECK(seen.kept == 0);
}

}  // namespace

TEST_CASE("the heap outside of the Pool is at most 192 bytes per tape node, and all of it comes back") {
  check_heap<Gpt<Policy<F64>>>(1);
  check_heap<Gpt<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>>(4);
}

TEST_CASE("nothing grows over 1,000 steps: Pool, heap, tape nodes") {
  using P = Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>;
  using Model = RecomputedGpt<P>;
  constexpr int ranks = 4;
  struct Level {
    Size live = 0, reserved = 0, peak = 0, nodes = 0;
    std::int64_t heap_bytes = 0, heap_blocks = 0;
    bool operator==(const Level&) const = default;
  };
  std::array<Level, 2 * ranks> levels{};  // after the third step, after the last
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    GptConfig config = small_gpt(0.1);
    config.layers = 1;
    Engine<Model, AdamW> engine(world, Model(config), AdamW{}, {.accumulate = 2, .bucket_bytes = 4000});
    for (Size step = 0; step < 1000; ++step) {
      Size nodes = 0;
      for (Size a = 0; a < 2; ++a) {
        auto batch = batch_of(world.memory(), step * 4, a * 2 + world.data_rank(), 1, 4, 61);
        auto loss = engine.forward(batch);
        nodes = loss.tape().node_count();
        engine.backward(loss);
        engine.step();
      }
      if (step != 2 && step != 999) continue;
      const Pool& pool = world.memory();
      const HeapCount heap = heap_of_this_thread();
      levels[static_cast<std::size_t>(world.rank() + (step == 2 ? 0 : ranks))] = {
          pool.live(), pool.reserved(), pool.peak(), nodes, heap.bytes, heap.blocks};
    }
  });
  for (std::size_t r = 0; r < ranks; ++r) {
    CAPTURE(r);
    CHECK(levels[r].live > 0);
    CHECK(levels[ranks + r].live == levels[r].live);
    CHECK(levels[ranks + r].reserved == levels[r].reserved);
    CHECK(levels[ranks + r].peak == levels[r].peak);
    CHECK(levels[ranks + r].nodes == levels[r].nodes);
    CHECK(levels[ranks + r].heap_bytes == levels[r].heap_bytes);
    CHECK(levels[ranks + r].heap_blocks == levels[r].heap_blocks);
  }
}

TEST_CASE("a run leaves nothing on the heap") {
  const auto run_once = [] {
    warm_step<Gpt<Policy<F64>>>(1), warm_step<Gpt<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>>(4);
  };
  run_once();
  const HeapCount before = heap_live();
  run_once();
  const HeapCount after = heap_live();
  CHECK(after.bytes == before.bytes);
  CHECK(after.blocks == before.blocks);
}
