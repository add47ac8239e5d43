// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <dspp/comm/flight_recorder.hpp>

using namespace dspp;
using namespace dspp::detail;

namespace {

Posted sum_of(Size count, CallSite site) {
  return {Collective::all_reduce, Purpose::gradient, 0, {{nullptr, nullptr, count, ElementType::f32}}, {site, site}};
}

}  // namespace

TEST_CASE("a recorder keeps the last 16 operations, the newest first, and which of them are complete") {
  FlightRecorder recorder;
  CHECK(recorder.read().empty());
  const NameWords group = words_of_name("axis Data");
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::uint64_t number =
        recorder.enter(sum_of(100 + static_cast<Size>(i), {"/a/b/c.cpp", int(i)}), 2, i, group);
    CHECK(number == i);
    if (i != 18) recorder.leave(number);
  }
  recorder.leave(2);  // is no longer kept
  const auto all = recorder.read();
  REQUIRE(all.size() == FlightRecorder::kept);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].number == 19 - i);
    CHECK(all[i].left == (all[i].number != 18));
  }
  CHECK(all[0].text == "all_reduce(f32 x 119), the 20th operation of axis Data at b/c.cpp:19");
}

TEST_CASE("an operation is recorded as error sentences describe it") {
  const CallPlace at{{"/home/me/train.cpp", 41}, {"/usr/include/dspp/zero/replicas.hpp", 115}};
  const auto pair = [](Size count) { return PostedPair{nullptr, nullptr, count, ElementType::bf16}; };
  const auto text = [&](Posted posted, int size) {
    FlightRecorder recorder;
    posted.at = at;
    recorder.enter(posted, size, 6, words_of_name("the world"));
    return recorder.read().front().text;
  };
  const std::string where = ", the 7th operation of the world at me/train.cpp:41 (zero/replicas.hpp:115)";
  for (const Posted& posted :
       {Posted{Collective::all_reduce, Purpose::gradient, 0, {pair(5)}},
        Posted{Collective::barrier, Purpose::scalar, 0, {}},
        Posted{Collective::reduce_scatter, Purpose::gradient, 0, {pair(5)}},
        Posted{Collective::all_gather, Purpose::gradient, 0, {pair(5), pair(6), pair(1LL << 40)}},
        Posted{Collective::all_to_all, Purpose::gradient, 0, {pair(5), pair(0), pair(7)}},
        Posted{Collective::broadcast, Purpose::gradient, 70'000, {pair(5)}},
        Posted{Collective::send, Purpose::gradient, sender, {pair(5)}},
        Posted{Collective::send, Purpose::gradient, receiver, {pair(5)}},
        Posted{Collective::all_gather, Purpose::gradient, 0, {}}})
    CHECK(text(posted, 3) == describe(posted, 3) + where);
}

TEST_CASE("with very many ranks each has fewer lines, and an unreadable one is listed as such") {
  FlightRecorder recorder;
  for (std::uint64_t i = 0; i < 16; ++i) recorder.enter(Posted{}, 1, i, words_of_name("the world"));
  const auto lines = [&](int ranks) {
    const std::string list = list_operations(ranks, [&](int r) { return r == 1 ? nullptr : &recorder; });
    CHECK(list.find("rank 1 cannot be read from here") != list.npos);
    return std::count(list.begin(), list.end(), '\n');
  };
  CHECK(lines(2) == 16 + 1);
  CHECK(lines(16) == 15 * 8 + 1);
  CHECK(lines(200) == 199 * 2 + 1);
}

TEST_CASE("a read during recording is consistent: name, line and count are of one operation") {
  const auto recorder = std::make_unique<FlightRecorder>();
  const char* files[] = {"/a/even.cpp", "/a/odd.cpp"};
  std::atomic<bool> stop{false};
  std::jthread rank([&] {
    for (std::uint64_t i = 0; !stop; ++i) {
      const CallSite site{files[i % 2], static_cast<int>(i % 1'000'000)};
      recorder->leave(recorder->enter(sum_of(site.line, site), 2, site.line, words_of_name(i % 2 ? "odd" : "even")));
    }
  });
  std::size_t seen = 0;
  for (int i = 0; i < 2000 || seen < 1000; ++i)
    for (const auto& one : recorder->read()) {
      const std::string n = std::to_string(one.number % 1'000'000), name = one.number % 2 ? "odd" : "even";
      ++seen;
      if (one.text != "all_reduce(f32 x " + n + "), the " + ordinal(one.number % 1'000'000) + " operation of " + name +
                          " at a/" + name + ".cpp:" + n) {
        stop = true;
        FAIL(one.text);
      }
    }
  stop = true;
}
