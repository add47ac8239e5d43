// SPDX-License-Identifier: Apache-2.0
// labels: data thread
// Batches prepared ahead: the same bits in any order of reading, errors at their own batch, no thread left behind.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include <dspp/data/host_batches.hpp>

using namespace dspp;

namespace {

/// Batch n holds bytes that depend on n and their place, and as many of them as n says.
void fill(Size number, data::HostBatch& batch) {
  batch.fields.resize(2);
  batch.fields[0].resize(144 - static_cast<std::size_t>(number)), batch.fields[1].resize(12);
  for (std::size_t field = 0; field < 2; ++field)
    for (std::size_t i = 0; i < batch.fields[field].size(); ++i)
      batch.fields[field][i] = static_cast<std::byte>(static_cast<std::size_t>(number) * 31 + field * 7 + i);
  batch.extents = {number, 3}, batch.first_sample = 5 * number;
}

bool holds(data::HostBatches& batches, Size number) {
  bool right = false;
  batches.read(number, [&](const data::HostBatch& batch) {
    data::HostBatch expected;
    fill(number, expected);
    right = batch.fields == expected.fields && batch.extents[0] == number && batch.first_sample == 5 * number;
  });
  return right;
}

}  // namespace

TEST_CASE("batches are the same in any order, prepared ahead or not") {
  for (const Size ahead : {0, 1, 2, 5, 40}) {
    CAPTURE(ahead);
    data::HostBatches batches(20, ahead, fill);
    for (Size n = 0; n < 20; ++n) CHECK(holds(batches, n));
    for (const Size n : {0, 1, 2, 2, 2, 19, 18, 5, 6, 7, 0, 13, 14, 14, 19}) CHECK(holds(batches, n));
    for (const Size n : {-1, 20})
      CHECK_THROWS_WITH_AS(batches.read(n, [](auto&) {}),
                           ("dspp: batches need a number in [0, 20), but got " + std::to_string(n) +
                            ". Count the micro-batches of all steps from 0.")
                               .c_str(),
                           Error);
    CHECK(holds(batches, 3));
  }
  CHECK_THROWS_AS(data::HostBatches(20, -1, fill), Error);
}

TEST_CASE("as many batches as asked for are prepared while the reader uses one, by a thread of its own") {
  std::atomic<Size> most{-1}, running{0};
  std::promise<void> three;
  const auto reader = std::this_thread::get_id();
  data::HostBatches batches(20, 3, [&](Size number, data::HostBatch&) {
    CHECK(++running == 1);  // never two at a time
    CHECK(std::this_thread::get_id() != reader);
    most = number;
    --running;
    if (number == 3) three.set_value();
  });
  CHECK(most == -1);  // nothing before the first read
  batches.read(0, [](auto&) {});
  CHECK(three.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(most == 3);  // and no further
}

TEST_CASE("an error of the source comes with its own batch, and a later read tries again") {
  for (const Size ahead : {0, 1, 4}) {
    CAPTURE(ahead);
    std::atomic<int> failures{1};
    data::HostBatches batches(9, ahead, [&](Size number, data::HostBatch& batch) {
      fill(number, batch);
      if (number == 4 && failures > 0) throw std::runtime_error("disk " + std::to_string(failures--));
    });
    for (Size n = 0; n < 4; ++n) CHECK(holds(batches, n));
    CHECK_THROWS_WITH_AS(batches.read(4, [](auto&) {}), "disk 1", std::runtime_error);
    CHECK(holds(batches, 4));
    for (Size n = 5; n < 9; ++n) CHECK(holds(batches, n));
  }
}

TEST_CASE("the thread ends with its batches: before it is done, after an error, and in the middle of a fill") {
  std::atomic<int> alive{0};
  struct Alive {
    std::atomic<int>* count;
    explicit Alive(std::atomic<int>& c) : count(&c) { ++c; }
    ~Alive() { --*count; }
  };
  for (const Size ahead : {1, 3}) {
    for (const Size bad : {-1, 0, 1, 2}) {
      data::HostBatches batches(9, ahead, [&](Size number, data::HostBatch&) {
        const Alive here(alive);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (number == bad) throw std::runtime_error("bad");
      });
      if (bad == 0)
        CHECK_THROWS_AS(batches.read(0, [](auto&) {}), std::runtime_error);
      else
        batches.read(0, [](auto&) {});
    }
    CHECK(alive == 0);
    const data::HostBatches unread(9, ahead, fill);
  }
}

TEST_CASE("several readers get the batches that they ask for") {
  data::HostBatches batches(30, 2, fill);
  std::atomic<int> right{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r)
    readers.emplace_back([&, r] {
      for (Size n = r; n < 30; n += 3) right += holds(batches, n);
    });
  for (auto& reader : readers) reader.join();
  CHECK(right == 30);
}

TEST_CASE("a rank has its part of each row") {
  data::HostField field{.name = "x", .outer = 2, .extent = 6, .inner_bytes = 3, .part = 1, .parts = 3};
  std::vector<std::byte> whole(36), part(12);
  for (std::size_t i = 0; i < 36; ++i) whole[i] = static_cast<std::byte>(i);
  REQUIRE(field.whole_bytes() == 36);
  REQUIRE(field.row_bytes() == 12);
  field.cut(whole.data(), part.data());
  for (std::size_t o = 0; o < 2; ++o)
    for (std::size_t i = 0; i < 6; ++i) CHECK(part[o * 6 + i] == static_cast<std::byte>(o * 18 + 6 + i));
  field.parts = 4;
  CHECK_THROWS_AS(data::check_cut({field}), Error);
}
