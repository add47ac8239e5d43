// SPDX-License-Identifier: Apache-2.0
// A List behaves as a vector, destroys dropped items, and works in constant expressions.
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/base/list.hpp>

using namespace dspp;

namespace {

template <class T>
std::vector<T> all(const List<T>& list) {
  return {list.begin(), list.end()};
}

/// Counts its instances that own something.
class Counted {
 public:
  constexpr Counted() = default;
  constexpr Counted(int value, int& alive) : value_(value), alive_(&alive) { ++*alive_; }
  constexpr Counted(const Counted&) = delete;
  constexpr Counted(Counted&& other) noexcept : value_(other.value_), alive_(other.alive_) { other.alive_ = nullptr; }
  constexpr Counted& operator=(Counted&& other) noexcept {
    if (alive_) --*alive_;
    value_ = other.value_;
    alive_ = other.alive_;
    other.alive_ = nullptr;
    return *this;
  }
  constexpr ~Counted() {
    if (alive_) --*alive_;
  }
  constexpr int value() const { return alive_ ? value_ : -1; }

 private:
  int value_ = 0;
  int* alive_ = nullptr;
};

/// The rest of 0, ..., n - 1 after the first is taken and the list is cut to `kept`; -1 for removed items.
constexpr int sum_of_kept(int n, std::size_t kept) {
  int alive = 0, sum = 0;
  {
    List<Counted> list;
    for (int i = 0; i < n; ++i) list.push_back(Counted(i, alive));
    if (list.take_front().value() != 0) return -1;
    list.resize(kept);
    if (alive != static_cast<int>(kept)) return -1;
    for (const Counted& one : list) sum += one.value();
    list.resize(kept + 3);
    if (list.back().value() != -1) return -1;
  }
  return alive == 0 ? sum : -1;
}

static_assert(sum_of_kept(7, 4) == 1 + 2 + 3 + 4);

}  // namespace

TEST_CASE("a list equals a vector after the same calls") {
  List<int> list;
  std::vector<int> expected;
  for (int i = 0; i < 40; ++i) {
    list.push_back(i * i);
    expected.push_back(i * i);
    if (i % 3 == 1) {
      CHECK(list.take_front() == expected.front());
      expected.erase(expected.begin());
    }
    if (i % 7 == 2) list.pop_back(), expected.pop_back();
    if (i % 11 == 5) list.resize(list.size() + 3), expected.resize(expected.size() + 3);
    if (i % 13 == 6) list.resize(list.size() / 2), expected.resize(expected.size() / 2);
    REQUIRE(all(list) == expected);
    CHECK(list.size() == expected.size());
    CHECK(list.front() == expected.front());
    CHECK(list.back() == expected.back());
    CHECK(list[expected.size() / 2] == expected[expected.size() / 2]);
  }
}

TEST_CASE("a list of a move-only type destroys dropped items, once") {
  CHECK(sum_of_kept(7, 4) == 10);
  List<std::unique_ptr<int>> list;
  for (int i = 0; i < 5; ++i) list.push_back(std::make_unique<int>(i));
  CHECK(*list.take_front() == 0);
  list.pop_back();
  CHECK(*list.back() == 3);
  list.resize(4);
  CHECK(list.back() == nullptr);
  list.clear();
  CHECK(list.empty());
  list.push_back(std::make_unique<int>(9));
  CHECK(*list.front() == 9);
  list.free();
  CHECK(list.begin() == list.end());
}

TEST_CASE("a copy of a list is independent, and a moved-from list is empty") {
  List<int> first{1, 2, 3};
  List<int> second = first;
  second.push_back(4);
  CHECK(all(first) == std::vector{1, 2, 3});
  CHECK(all(second) == std::vector{1, 2, 3, 4});
  first = second;
  const List<int>& same = first;
  first = same;
  CHECK(all(first) == std::vector{1, 2, 3, 4});
  const List<int> third = std::move(second);
  CHECK(all(third) == std::vector{1, 2, 3, 4});
  CHECK(second.empty());
  first = {5};
  CHECK(all(first) == std::vector{5});
  second = std::move(first);
  CHECK(all(second) == std::vector{5});
  CHECK(first.empty());
}
