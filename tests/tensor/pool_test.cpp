// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <dspp/base/philox.hpp>
#include <dspp/tensor/tensor.hpp>

using namespace dspp;

namespace {
using Handle = Storage<Pool>;

std::string message_of(auto f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::out_of_memory);
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("a Pool counts live bytes, rounded up to 64, and peaks, in all and by category") {
  Pool pool;
  {
    Handle a(pool, 100, Category::parameters, "a");
    CHECK(pool.live() == 128);
    {
      Handle b(pool, 1, Category::activations, "b");
      CHECK(pool.live_by_category()[Category::activations] == 64);
      CHECK(pool.peak() == 192);
    }
    Handle c(pool, 64, Category::gradients, "c");
    CHECK(pool.live() == 192);
    CHECK(pool.peak() == 192);
    CHECK(pool.at_peak()[Category::activations] == 64);
    CHECK(pool.at_peak()[Category::gradients] == 0);
    CHECK(pool.peak_by_category()[Category::gradients] == 64);
  }
  CHECK(pool.live() == 0);
  pool.reset_peak();
  CHECK(pool.peak() == 0);
  CHECK(pool.peak_by_category() == CategoryBytes{});
}

TEST_CASE("a Pool reuses a block for the next request of its size, and trim() returns it to the system") {
  Pool pool;
  const std::byte* first = Handle(pool, 256, Category::activations, "a").data();
  CHECK(pool.reserved() == 256);
  {
    Handle again(pool, 200, Category::workspace, "b");
    CHECK(again.data() == first);
    Handle other(pool, 512, Category::workspace, "c");
    CHECK(pool.reserved() == 768);
    pool.trim();
    CHECK(pool.reserved() == 768);
  }
  pool.trim();
  CHECK(pool.reserved() == 0);
}

TEST_CASE("a poisoned Pool fills uninitialised and freed blocks with NaN") {
  Pool pool;
  pool.poison(true);
  const auto first_of = [](const std::byte* data, auto type) {
    std::memcpy(&type, data, sizeof(type));
    return type;
  };
  const std::byte* given_back = nullptr;
  {
    Handle block(pool, 100, Category::activations, "a");
    given_back = block.data();
    CHECK(std::isnan(first_of(block.data(), 0.0)));
    CHECK(std::isnan(first_of(block.data() + 124, 0.0F)));
    std::memset(block.data(), 0, 128);
    Handle other(pool, 100, Category::activations, "b");
    CHECK(first_of(block.data(), 0.0) == 0);
  }
  CHECK(std::isnan(first_of(given_back, 0.0)));  // kept, so that it can be read
  pool.poison(false);
  Handle again(pool, 100, Category::activations, "c");
  std::memset(again.data(), 0, 128);
  CHECK(first_of(again.data(), 0.0) == 0);
}

TEST_CASE("blocks are aligned to 64 bytes") {
  Pool pool;
  for (const Size bytes : {1, 63, 65, 4000}) {
    Handle block(pool, bytes, Category::activations, "a");
    CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 64 == 0);
  }
}

TEST_CASE("beyond the limit a Pool throws a map of the memory, and is otherwise unchanged") {
  Pool pool(1024);
  const int somebody = 0, another = 0;
  pool.set_remedies(&somebody, {{"Recompute", 300}});
  pool.set_remedies(&another, {{"a smaller model", 400}});
  pool.set_remedies(&another, {});
  Handle a(pool, 512, Category::parameters, "table"), b(pool, 256, Category::activations, "scores");
  { Handle kept(pool, 128, Category::workspace, "scratch"); }
  const std::string map = message_of([&] { Handle c(pool, 512, Category::gradients, "dW"); });
  CHECK(map.starts_with(
      "dspp: a Pool needs 512 B more for gradients (dW), but 768 B are in use of a limit of 1.0 KiB. "));
  for (const char* line :
       {"free under the limit   256 B", "reserved by the Pool   896 B", "largest kept block     128 B",
        "parameters             512 B", "activations            256 B", "largest: 512 B  parameters  table",
        "largest: 256 B  activations  scores", "Recompute saves 300 B"}) {
    CAPTURE(line);
    CHECK(map.find(line) != std::string::npos);
  }
  CHECK(map.find("table") < map.find("scores"));
  CHECK(map.find("a smaller model") == std::string::npos);
  CHECK(pool.live() == 768);
  Handle fits(pool, 256, Category::gradients, "dW");
  CHECK(pool.live() == 1024);
}

TEST_CASE("where the machine gives no more, the limit is not blamed") {
  struct Empty final : MemorySource {
    std::byte* take(Size) noexcept override { return nullptr; }
    void give(std::byte*, Size) noexcept override {}
    void fill(std::byte*, Size, unsigned char) noexcept override {}
  } empty;
  for (const Size limit : {Size{0}, Size{1024}}) {
    Pool pool(limit, &empty);
    const std::string map = message_of([&] { Handle a(pool, 512, Category::gradients, "dW"); });
    CHECK(
        map.starts_with("dspp: a Pool needs 512 B more for gradients (dW), but 0 B are in use and the machine gives "
                        "no more. Lower the largest below.\n"));
  }
}

TEST_CASE("kept blocks are released to stay under the limit") {
  Pool pool(1024);
  { Handle a(pool, 640, Category::activations, "a"); }
  Handle b(pool, 1024, Category::activations, "b");
  CHECK(pool.reserved() == 1024);
}

TEST_CASE("the map names the five largest tensors") {
  Pool pool(2048);
  std::vector<Handle> held;
  for (const Size bytes : {64, 128, 192, 256, 320, 384}) held.emplace_back(pool, bytes, Category::activations, "x");
  const std::string map = message_of([&] { Handle c(pool, 4096, Category::activations, "y"); });
  std::size_t lines = 0;
  for (std::size_t at = map.find("largest: "); at != std::string::npos; at = map.find("largest: ", at + 1)) ++lines;
  CHECK(lines == 5);
  CHECK(map.find("largest: 64 B") == std::string::npos);
}

TEST_CASE("fail_nth_request() makes the n-th request fail, once") {
  Pool pool;
  pool.fail_nth_request(2);
  Handle a(pool, 64, Category::activations, "a");
  CHECK(message_of([&] { Handle b(pool, 64, Category::activations, "b"); }) != "");
  CHECK(pool.live() == 64);
  Handle c(pool, 64, Category::activations, "c");
  CHECK(pool.live() == 128);
}

namespace {
/// 2,000 random allocations and frees.
template <class Memory>
void random_sequence(Memory& memory, std::vector<Size>& trace) {
  std::vector<Storage<Memory>> held;
  const PhiloxStream numbers{{5}, 0, 0, 0};
  for (Size i = 0; i < 2000; ++i) {
    const double draw = std::abs(static_cast<double>(philox_normal(numbers, i)));
    const auto at = held.empty() ? 0 : static_cast<std::size_t>(draw * 1000) % held.size();
    if (i % 3 != 2 || held.empty())
      held.emplace_back(memory, static_cast<Size>(draw * 700), static_cast<Category>(i % category_count), "x");
    else
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    trace.push_back(memory.live());
  }
}
}  // namespace

namespace {

/// A training step on sequences of `length` tokens: layers of blocks [length, width] and [length, length], freed in
/// reverse. Every block carries its number in its first word and its last.
void step_of(Pool& pool, Size length) {
  std::vector<Handle> held;
  const auto take = [&](Size words) {
    held.emplace_back(pool, words * 8, Category::activations, "x");
    auto* data = reinterpret_cast<std::int64_t*>(held.back().data());
    data[0] = data[words - 1] = static_cast<std::int64_t>(held.size());
    const Handle scratch(pool, words * 4, Category::workspace, "scratch");
    std::memset(scratch.data(), 0xff, static_cast<std::size_t>(scratch.bytes()));
  };
  for (int layer = 0; layer < 4; ++layer)
    for (const Size words : {length * 64, length * 192, length * length, length * 256, length * 256}) take(words);
  for (; !held.empty(); held.pop_back()) {
    const auto* data = reinterpret_cast<const std::int64_t*>(held.back().data());
    const auto number = static_cast<std::int64_t>(held.size());
    REQUIRE(data[0] == number);
    REQUIRE(data[held.back().bytes() / 8 - 1] == number);
  }
}

}  // namespace

TEST_CASE("a loop over thirteen sequence lengths reserves at most a fifth more than its peak") {
  for (const bool shuffled : {false, true}) {
    Pool pool;
    for (Size step = 0; step < 65; ++step) {
      step_of(pool, 448 - 28 * (shuffled ? step * step % 13 : step % 13));
      REQUIRE(pool.reserved() <= Pool::reserved_at_most(pool.peak()));
    }
    CHECK(pool.peak() > 16_MiB);
    CHECK(5 * pool.peak_reserved() <= 6 * pool.peak());
    CHECK(pool.peak_reserved() >= pool.peak());
    pool.trim();
    CHECK(pool.reserved() == 0);
  }
}

TEST_CASE("the steady state of one shape reuses the same blocks") {
  Pool pool;
  const auto blocks_of_step = [&] {
    std::vector<const std::byte*> seen;
    std::vector<Handle> held;
    for (const Size bytes : {5000, 640, 5000, 70000, 640, 128}) {
      held.emplace_back(pool, bytes, Category::activations, "x");
      seen.push_back(held.back().data());
      if (seen.size() % 3 == 0) held.erase(held.begin());
    }
    std::sort(seen.begin(), seen.end());
    return seen;
  };
  const auto first = blocks_of_step();
  const Size reserved = pool.reserved();
  for (int step = 0; step < 20; ++step) CHECK(blocks_of_step() == first);
  CHECK(pool.reserved() == reserved);
}

TEST_CASE("random requests keep their data, do not overlap and keep the bound, with a limit and without") {
  for (const Size limit : {Size{0}, 6_MiB}) {
    Pool pool(limit);
    struct Held {
      Handle block;
      std::uint64_t mark;
    };
    std::vector<Held> held;
    Size used = 0, most_used = 0;
    const PhiloxStream numbers{{17}, 0, 0, 0};
    auto draw = [&, at = Size{0}](Size count) mutable { return Size{philox_bits(numbers, at++)} % count; };
    const auto marked = [](const Held& h) {
      const auto* words = reinterpret_cast<const std::uint64_t*>(h.block.data());
      for (Size i = 0; i < h.block.bytes() / 8; ++i)
        if (words[i] != h.mark) return false;
      return true;
    };
    for (Size i = 0; i < 4000; ++i) {
      const Size bytes = Size{64} << draw(14) | draw(600);
      if (used + round_up(bytes, 64) > 6_MiB || (held.size() > 2 && draw(100) < (i / 500 % 2 == 0 ? 35 : 65))) {
        const auto at = held.begin() + static_cast<std::ptrdiff_t>(draw(static_cast<Size>(held.size())));
        REQUIRE(marked(*at));
        used -= at->block.bytes();
        held.erase(at);
      } else {
        held.push_back({Handle(pool, bytes, Category::activations, "x"), static_cast<std::uint64_t>(i)});
        REQUIRE(held.back().block.bytes() == round_up(bytes, 64));
        used += held.back().block.bytes();
        most_used = std::max(most_used, used);
        std::fill_n(reinterpret_cast<std::uint64_t*>(held.back().block.data()), held.back().block.bytes() / 8,
                    held.back().mark);
      }
      if (draw(500) == 0) pool.trim();
      REQUIRE(pool.live() == used);
      REQUIRE(pool.peak() == most_used);
      REQUIRE(pool.reserved() >= used);
      REQUIRE(pool.reserved() <= (limit > 0 ? limit : Pool::reserved_at_most(most_used)));
    }
    for (const Held& h : held) CHECK(marked(h));
    CHECK(most_used > 5_MiB);
  }
}

TEST_CASE("a Ledger counts as a Pool for the same sequence of requests") {
  Pool pool;
  Ledger ledger;
  std::vector<Size> real, paper;
  random_sequence(pool, real);
  random_sequence(ledger, paper);
  CHECK(real == paper);
  CHECK(pool.peak() == ledger.peak());
  CHECK(pool.at_peak() == ledger.at_peak());
  CHECK(pool.peak_by_category() == ledger.peak_by_category());
  CHECK(pool.live() == 0);
  CHECK(ledger.live() == 0);
}

TEST_CASE("bytes are readable for people") {
  CHECK(readable_bytes(0) == "0 B");
  CHECK(readable_bytes(1536) == "1.5 KiB");
  CHECK(readable_bytes(3_MiB) == "3.0 MiB");
  CHECK(readable_bytes(2_GiB) == "2.0 GiB");
}
