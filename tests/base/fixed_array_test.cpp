// SPDX-License-Identifier: Apache-2.0
// A FixedArray constructs its items in place, destroys them in order, and works in constant expressions.
#include <stdexcept>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <dspp/base/fixed_array.hpp>

using namespace dspp;

namespace {

/// Writes down that it ends; neither copied nor moved.
class Item {
 public:
  constexpr Item(char name, std::string& ended) : name_(name), ended_(ended) {
    if (name == '!') throw std::runtime_error("this one is refused");
  }
  Item(const Item&) = delete;
  Item& operator=(const Item&) = delete;
  constexpr ~Item() { ended_ += name_; }
  constexpr char name() const { return name_; }

 private:
  char name_;
  std::string& ended_;
};

struct Digit {
  int* sum;
  int value;
  constexpr Digit(int* of, int digit) : sum(of), value(digit) {}
  constexpr ~Digit() { *sum = 10 * *sum + value; }
};

constexpr int digits_in_the_order_of_their_ends() {
  int sum = 0;
  {
    FixedArray<Digit> first(3);
    for (int i = 1; i <= 3; ++i) first.emplace_back(&sum, i);
    FixedArray<Digit> second = std::move(first);
    if (first.size() != 0 || second.size() != 3 || second[2].value != 3) return -1;
    first = std::move(second);
  }
  return sum;
}
static_assert(digits_in_the_order_of_their_ends() == 123);

}  // namespace

TEST_CASE("a FixedArray holds items that do not move, and ends them from the first to the last") {
  std::string ended, names;
  {
    FixedArray<Item> items(3);
    items.emplace_back('a', ended);
    items.emplace_back('b', ended);
    const Item* const first = items.begin();
    FixedArray<Item> moved = std::move(items);
    CHECK(moved.begin() == first);
    CHECK(items.size() == 0);
    moved.emplace_back('c', ended);
    for (const Item& item : std::as_const(moved)) names += item.name();
    CHECK(moved.front().name() == 'a');
    CHECK(moved.back().name() == 'c');
    CHECK_THROWS_WITH_AS(moved.emplace_back('d', ended),
                         "dspp: a FixedArray needs room for one more item, but is full. Give it the capacity.", Error);
    CHECK(ended.empty());
  }
  CHECK(names == "abc");
  CHECK(ended == "abc");
}

TEST_CASE("a FixedArray without items, and one whose next item throws, end what there is") {
  std::string ended;
  {
    FixedArray<Item> none, empty(0);
    CHECK(none.empty());
    CHECK(empty.begin() == empty.end());
    CHECK_THROWS_AS(none.emplace_back('n', ended), Error);
    CHECK_THROWS_AS(empty.emplace_back('n', ended), Error);
  }
  {
    FixedArray<Item> items(2);
    items.emplace_back('a', ended);
    CHECK_THROWS_AS(items.emplace_back('!', ended), std::runtime_error);
    CHECK(items.size() == 1);
  }
  CHECK(ended == "a");
  {
    FixedArray<Item> given(1), taken(1);
    given.emplace_back('g', ended);
    taken.emplace_back('t', ended);
    taken = std::move(given);
    CHECK(taken[0].name() == 'g');
  }
  CHECK(ended.substr(0, 1) == "a");
  CHECK(ended.size() == 3);
}
