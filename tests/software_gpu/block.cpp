// SPDX-License-Identifier: Apache-2.0
#include <software_gpu/block.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <software_gpu/fiber.hpp>
#include <software_gpu/warpgroup.hpp>

namespace dspp::software_gpu {

namespace {

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes, zeros, group;
};

struct WarpOperation {
  int kind;
  const void* memory;
  std::size_t stride;
  bool operator==(const WarpOperation&) const = default;
};

struct Product {
  float* sums;
  std::function<void(float*)> add;
  std::size_t group;
  const std::uint32_t* operand;
  std::vector<std::uint32_t> words;  // what is in it
};

/// Sums that are not the thread's: what they are by now, and how many products are under way for them.
struct HeldSums {
  float* place;
  std::vector<float> values;
  int products;
};

struct Thread {
  Fiber fiber;
  uint3 at;
  Barrier barrier = Barrier::none;
  unsigned slots = 0;
  int barriers = 0;  // of the block, that it came to
  std::deque<Copy> copies;
  std::size_t groups = 0;
  std::size_t operations = 0;  // of the warp, that it came to
  std::deque<Product> products;
  std::vector<HeldSums> held;
  std::size_t product_groups = 0;
  std::vector<const void*> begun;  // registers with which products may follow
  bool copies_fenced = true;
};

struct Warp {
  std::uint64_t slots[2][warp_size];
  float operands[2][2 * 256];
  std::vector<WarpOperation> operations;
  std::vector<std::pair<const void*, const void*>> group_products;  // of its warpgroup, that it came to: their operands
};

// One block at a time, on one thread of the host.
struct State {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  unsigned count = 0;    // threads of the block
  unsigned running = 0;  // the thread that runs
  int left_out = -1;
  bool waits_left_out = false;
  struct alignas(32) Shared {
    unsigned char bytes[32];
  };
  std::vector<Shared> shared;
  std::mt19937 random{first_seed()};
  unsigned times_seeded = 0;
  std::uint8_t places[8][256];  // by kind, lane and element
  bool has_places = false;
};
State only;
State& state() {
  return only;
}

[[noreturn]] void divergent(const std::string& what) {
  const std::string block = std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y);
  fail(ErrorCode::state, "dspp: a barrier of the GPU in software needs every thread, but in block (" + block + ") " +
                             what + ". Move it out of the branch.");
}

void run_thread(unsigned number) {
  State& s = state();
  Thread& thread = *s.threads[number];
  s.running = number;
  threadIdx = thread.at;
  thread.barrier = Barrier::none;
  thread.fiber.resume();
}

/// Runs each thread of a warp to its next barrier, or its end. Where they are then: at the block's barrier, at the
/// warp's, or, with none, at the end.
Barrier run_warp(unsigned warp) {
  State& s = state();
  const unsigned first = warp * warp_size, turn = random_below(warp_size);
  for (unsigned i = 0; i < warp_size; ++i) run_thread(first + (i + turn) % warp_size);
  unsigned ended = 0, at_block = 0, at_warp = 0;
  for (unsigned number = first; number < first + warp_size; ++number) {
    const Thread& thread = *s.threads[number];
    if (thread.fiber.ended())
      ++ended;
    else
      ++(thread.barrier == Barrier::block ? at_block : at_warp);
    if (thread.operations != s.threads[first]->operations)
      divergent("some lanes of a warp passed by a load or a store of a fragment");
  }
  if (at_block > 0 && at_warp > 0) divergent("some lanes of a warp wait at __syncthreads and some at a shuffle");
  if (ended > 0 && ended < warp_size) divergent("some lanes of a warp have ended while others wait");
  return ended > 0 ? Barrier::none : at_block > 0 ? Barrier::block : Barrier::warp;
}

/// Runs the warps of `order` until each has ended or waits for the block, one after another or in turns. Returns those
/// that wait.
std::vector<unsigned> run_warps(std::vector<unsigned> order) {
  std::vector<unsigned> waiting;
  const bool in_turns = random_below(2) == 0;
  std::shuffle(order.begin(), order.end(), state().random);
  while (!order.empty()) {
    if (in_turns) std::swap(order[random_below(static_cast<unsigned>(order.size()))], order.back());
    const Barrier at = run_warp(order.back());
    if (at == Barrier::warp) continue;
    if (at == Barrier::block) waiting.push_back(order.back());
    order.pop_back();
  }
  return waiting;
}

void run_block(void (*kernel)(void*), void* arguments) {
  State& s = state();
  for (unsigned t = 0; t < s.count; ++t) {
    s.threads[t]->slots = 0;
    s.threads[t]->barriers = 0;
    s.threads[t]->copies.clear();
    s.threads[t]->groups = 0;
    s.threads[t]->operations = 0;
    s.threads[t]->products.clear();
    s.threads[t]->held.clear();
    s.threads[t]->product_groups = 0;
    s.threads[t]->begun.clear();
    s.threads[t]->copies_fenced = true;
    s.threads[t]->fiber.start(kernel, arguments);
  }
  for (Warp& warp : s.warps) warp.operations.clear(), warp.group_products.clear();
  std::vector<unsigned> order(s.count / warp_size);
  std::iota(order.begin(), order.end(), 0u);
  while (!order.empty()) {
    const std::size_t running = order.size();
    order = run_warps(std::move(order));
    if (!order.empty() && order.size() != running)
      divergent("some warps have ended while others wait at __syncthreads");
  }
  for (unsigned t = 0; t < s.count; ++t)
    require(s.threads[t]->copies.empty() || s.waits_left_out,
            "dspp: a thread of the GPU in software needs to wait for its copies, but one ended before. They could come "
            "later than what it wrote.",
            ErrorCode::state);
  for (unsigned t = 0; t < s.count; ++t)
    require(s.threads[t]->products.empty(),
            "dspp: a thread of the GPU in software needs to wait for its products, but one ended before. They could "
            "read shared memory that is another block's.",
            ErrorCode::state);
  for (std::size_t warp = 0; warp < s.warps.size(); ++warp)
    if (s.warps[warp].group_products != s.warps[warp / 4 * 4].group_products)
      divergent("the warps of a warpgroup come to different products");
}

}  // namespace

void wait_at(Barrier barrier) {
  State& s = state();
  Thread& thread = *s.threads[s.running];
  if (barrier == Barrier::block && thread.barriers++ == s.left_out) return;
  thread.barrier = barrier;
  Fiber::yield();
}

void copy_later(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
  State& s = state();
  Thread& thread = *s.threads[s.running];
  require((bytes == 4 || bytes == 8 || bytes == 16) && zeros <= bytes,
          "dspp: __pipeline_memcpy_async needs 4, 8 or 16 bytes, but got another number. Copy whole packs.");
  require(reinterpret_cast<std::uintptr_t>(to) % bytes == 0 && reinterpret_cast<std::uintptr_t>(from) % bytes == 0,
          "dspp: __pipeline_memcpy_async needs addresses of its alignment, but got another. Look at the pack's place.");
  thread.copies.push_back({to, from, bytes, zeros, thread.groups});
}

void end_group_of_copies() {
  State& s = state();
  ++s.threads[s.running]->groups;
}

void wait_for_copies(std::size_t later) {
  State& s = state();
  Thread& thread = *s.threads[s.running];
  if (s.waits_left_out) return;
  for (; !thread.copies.empty() && thread.copies.front().group + later < thread.groups; thread.copies.pop_front()) {
    const Copy& copy = thread.copies.front();
    if (copy.bytes > copy.zeros) std::memcpy(copy.to, copy.from, copy.bytes - copy.zeros);
    std::memset(static_cast<char*>(copy.to) + copy.bytes - copy.zeros, 0, copy.zeros);
    thread.copies_fenced = false;
  }
}

void fence_copies() {
  State& s = state();
  s.threads[s.running]->copies_fenced = true;
}

void begin_products(std::initializer_list<const void*> registers) {
  State& s = state();
  auto& begun = s.threads[s.running]->begun;
  begun.insert(begun.end(), registers);
}

void multiply_later(float* sums, int count, bool adds, const void* left, const void* right,
                    std::function<void(float*)> product, const std::uint32_t* operand, std::size_t words) {
  State& s = state();
  Thread& thread = *s.threads[s.running];
  const auto has_begun = [&](const void* registers) {
    return std::find(thread.begun.begin(), thread.begun.end(), registers) != thread.begun.end();
  };
  require(s.count % 128 == 0,
          "dspp: a product of a warpgroup needs blocks of whole warpgroups, but got another. Take a multiple of 128 "
          "threads.");
  require(has_begun(sums) && (operand == nullptr || has_begun(operand)),
          "dspp: a product of a warpgroup needs begin_products() of its registers after threads waited for others, but "
          "got none. Call it before the product.");
  for (unsigned t = 0; t < s.count; ++t)
    require(s.threads[t]->copies_fenced,
            "dspp: a product of a warpgroup needs what threads copied to shared memory, but one has waited for its "
            "copies and not called fence_shared(). Call it before the barrier.");
  begin_warp_operation(40, left, static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(right)));
  if (lane_of_thread() == 0) s.warps[s.running / warp_size].group_products.emplace_back(left, right);
  auto held = std::find_if(thread.held.begin(), thread.held.end(), [&](const auto& h) { return h.place == sums; });
  if (held == thread.held.end()) {
    thread.held.push_back({sums, std::vector<float>(sums, sums + count), 0});
    held = thread.held.end() - 1;
  }
  ++held->products;
  thread.products.push_back({sums,
                             [count, adds, product = std::move(product)](float* x) {
                               if (!adds) std::fill_n(x, count, 0.0f);
                               product(x);
                             },
                             thread.product_groups, operand, std::vector<std::uint32_t>(operand, operand + words)});
  std::fill_n(sums, count, std::numeric_limits<float>::quiet_NaN());
}

void end_group_of_products() {
  State& s = state();
  ++s.threads[s.running]->product_groups;
}

void wait_for_products(std::size_t later, std::initializer_list<const void*> registers) {
  State& s = state();
  Thread& thread = *s.threads[s.running];
  thread.begun.clear();
  for (; !thread.products.empty() && thread.products.front().group + later < thread.product_groups;
       thread.products.pop_front()) {
    const Product& first = thread.products.front();
    require(std::equal(first.words.begin(), first.words.end(), first.operand),
            "dspp: a product of a warpgroup needs its operand until it has ended, but the thread wrote to it before. "
            "Wait first.");
    const auto held =
        std::find_if(thread.held.begin(), thread.held.end(), [&](const auto& h) { return h.place == first.sums; });
    first.add(held->values.data());
    --held->products;
  }
  for (const void* const place : registers) {
    const auto under_way = [&](const Product& product) { return product.sums == place || product.operand == place; };
    require(std::none_of(thread.products.begin(), thread.products.end(), under_way),
            "dspp: a wait for products needs to name registers whose products have ended, but one has not. Wait for "
            "more groups.");
    const auto held =
        std::find_if(thread.held.begin(), thread.held.end(), [&](const auto& h) { return h.place == place; });
    if (held == thread.held.end()) continue;
    std::copy(held->values.begin(), held->values.end(), held->place);
    thread.held.erase(held);
  }
}

std::uint64_t& slot_of_lane(unsigned lane) {
  State& s = state();
  return s.warps[s.running / warp_size].slots[s.threads[s.running]->slots][lane];
}

void next_slots() {
  State& s = state();
  s.threads[s.running]->slots ^= 1u;
}

const std::uint8_t* places_of_fragment(int kind) {
  State& s = state();
  if (!s.has_places)
    for (auto& places : s.places) {
      std::iota(places, places + 256, static_cast<std::uint8_t>(0));
      std::shuffle(places, places + 256, s.random);
    }
  s.has_places = true;
  return s.places[kind] + static_cast<std::size_t>(lane_of_thread()) * fragment_elements;
}

void begin_warp_operation(int kind, const void* memory, std::size_t stride) {
  State& s = state();
  auto& operations = s.warps[s.running / warp_size].operations;
  const std::size_t number = s.threads[s.running]->operations++;
  const WarpOperation own{kind, memory, stride};
  if (number == operations.size()) operations.push_back(own);
  if (operations[number] == own) return;
  divergent("lanes of a warp come to a load, store or product of fragments with different arguments");
}

float* operands_of_warp() {
  State& s = state();
  return s.warps[s.running / warp_size].operands[s.threads[s.running]->slots];
}

void multiply_operands(const std::uint8_t* places, float* d, const float* c) {
  const float *const left = operands_of_warp(), *const right = left + 256;
  for (int i = 0; i < fragment_elements; ++i) {
    const float *const row = left + places[i] / 16 * 16, *const column = right + places[i] % 16 * 16;
    float products[16];
    for (int k = 0; k < 16; ++k) products[k] = row[k] * column[k];
    float sum = c[i];
    for (const float product : products) sum += product;
    d[i] = sum;
  }
}

unsigned lane_of_thread() {
  return state().running % warp_size;
}

void require_all_lanes(unsigned mask) {
  require(mask == all_lanes,
          "dspp: a shuffle of the GPU in software needs all lanes, but got another mask. Use 0xffffffff.");
}

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(void*), void* arguments) {
  State& s = state();
  State::Shared nan_bytes;
  std::fill_n(nan_bytes.bytes, sizeof nan_bytes.bytes, static_cast<unsigned char>(0xff));
  s.count = block.x * block.y * block.z;
  require(s.count % warp_size == 0 && s.count > 0 && s.count <= 1024,
          "dspp: a block of the GPU in software needs whole warps, at most 32, but has others. Round up its threads.");
  while (s.threads.size() < s.count) s.threads.push_back(std::make_unique<Thread>());
  s.warps.resize(s.count / warp_size);
  for (unsigned t = 0; t < s.count; ++t)
    s.threads[t]->at = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
  s.has_places = false;
  gridDim = grid;
  blockDim = block;
  std::vector<unsigned> order(grid.x * grid.y * grid.z);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), s.random);
  for (unsigned b : order) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
    s.shared.assign((shared_bytes + sizeof nan_bytes - 1) / sizeof nan_bytes, nan_bytes);
    run_block(kernel, arguments);
  }
}

void* shared_memory() {
  return state().shared.data();
}

void leave_out_barrier(int number) {
  state().left_out = number;
}

void leave_out_waits_for_copies(bool out) {
  state().waits_left_out = out;
}

unsigned number_of_environment(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::string_view all = text;
  unsigned number = 0;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  if (error != std::errc() || end != all.data() + all.size())
    fail(ErrorCode::usage, std::string("dspp: ") + name + " needs a number below 2^32, but got '" + text +
                               "'. Write one, or leave it out.");
  return number;
}

unsigned first_seed() {
  static const unsigned number = number_of_environment("DSPP_GPU_SEED", 1);
  return number;
}

namespace {
std::atomic<unsigned>& last_seed() {
  static std::atomic<unsigned> number{first_seed()};
  return number;
}
}  // namespace

void seed(unsigned number) {
  last_seed() = number;
  ++state().times_seeded;
  state().random.seed(number);
}

unsigned current_seed() {
  return last_seed();
}

unsigned times_seeded() {
  return state().times_seeded;
}

unsigned random_below(unsigned bound) {
  return static_cast<unsigned>(state().random() % bound);
}

}  // namespace dspp::software_gpu
