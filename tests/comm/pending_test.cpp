// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <dspp/comm/pending.hpp>

using namespace dspp;

namespace {

/// Records the calls it gets.
struct Log {
  std::vector<std::string> lines;

  Pending<> start(std::uint64_t ticket) {
    static constexpr detail::Completion completion = {
        [](void* who, std::uint64_t t) { static_cast<Log*>(who)->lines.push_back("wait " + std::to_string(t)); },
        [](void* who, std::uint64_t t) noexcept {
          static_cast<Log*>(who)->lines.push_back("drop " + std::to_string(t));
        }};
    return Pending<>(&completion, this, ticket);
  }
};

/// Records its destruction.
struct Memory {
  Log* log;
  explicit Memory(Log* l) : log(l) {}
  Memory(Memory&& other) noexcept : log(std::exchange(other.log, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    free();
    log = std::exchange(other.log, nullptr);
    return *this;
  }
  ~Memory() { free(); }
  void free() {
    if (log != nullptr) log->lines.push_back("free");
  }
};

using Lines = std::vector<std::string>;

constexpr int literal() {
  Pending<> a;
  Pending<int> b = std::move(a).keep(42);
  Pending<int> c = std::move(b);
  c = Pending<>().keep(43);
  a.wait();
  return std::move(c).wait();
}

}  // namespace

static_assert(literal() == 43);
static_assert(!std::is_copy_constructible_v<Pending<>> && !std::is_copy_assignable_v<Pending<>>);
static_assert(!std::is_copy_constructible_v<Pending<int>> && std::is_nothrow_move_constructible_v<Pending<>>);
static_assert(std::is_same_v<decltype(std::declval<Pending<>&>().wait()), void>);
static_assert(std::is_same_v<decltype(std::declval<Pending<int>>().wait()), int>);
static_assert(std::is_same_v<decltype(std::declval<Pending<int, char>>().wait()), std::tuple<int, char>>);

TEST_CASE("a Pending is waited for once, and then not dropped") {
  Log log;
  {
    Pending<> p = log.start(7);
    p.wait();
    p.wait();
  }
  CHECK(log.lines == Lines{"wait 7"});
}

TEST_CASE("a Pending without wait() is dropped once, wherever it was moved") {
  Log log;
  {
    Pending<> p = log.start(1);
    Pending<> q = std::move(p);
    Pending<> r;
    r = std::move(q);
  }
  CHECK(log.lines == Lines{"drop 1"});
}

TEST_CASE("assigning to a Pending first completes the operation that it had") {
  Log log;
  Pending<> p = log.start(1);
  p = log.start(2);
  CHECK(log.lines == Lines{"drop 1"});
  Pending<>& itself = p;
  p = std::move(itself);
  CHECK(log.lines == Lines{"drop 1"});
  p.wait();
  CHECK(log.lines == Lines{"drop 1", "wait 2"});
}

TEST_CASE("objects owned by a Pending are freed only after its operation is complete") {
  Log log;
  { const auto p = log.start(1).keep(Memory(&log)); }
  CHECK(log.lines == Lines{"drop 1", "free"});
  log.lines.clear();
  {
    auto p = log.start(1).keep(Memory(&log));
    p = log.start(2).keep(Memory(&log));
    CHECK(log.lines == Lines{"drop 1", "free"});
    const Memory back = std::move(p).wait();
    CHECK(log.lines == Lines{"drop 1", "free", "wait 2"});
  }
  CHECK(log.lines == Lines{"drop 1", "free", "wait 2", "free"});
}

TEST_CASE("a Pending returns everything that it owned") {
  Log log;
  auto [number, text] = log.start(3).keep(std::make_unique<int>(5), std::string("five")).wait();
  CHECK(*number == 5);
  CHECK(text == "five");
}

TEST_CASE("an operation is complete when its communicator says so, or has been waited for") {
  struct Count {
    std::uint64_t completed = 0;
  } count;
  static constexpr detail::Completion telling = {
      [](void*, std::uint64_t) {}, [](void*, std::uint64_t) noexcept {},
      [](const void* who, std::uint64_t ticket) { return static_cast<const Count*>(who)->completed > ticket; }};
  Pending<> pending(&telling, &count, 3);
  CHECK_FALSE(pending.is_complete());
  count.completed = 3;
  CHECK_FALSE(pending.is_complete());
  count.completed = 4;
  CHECK(pending.is_complete());
  Log log;
  Pending<> silent = log.start(1);
  CHECK_FALSE(silent.is_complete());
  silent.wait();
  CHECK(silent.is_complete());
  CHECK(Pending<>().is_complete());
}
