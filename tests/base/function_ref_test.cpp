// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <dspp/base/function_ref.hpp>

using namespace dspp;

namespace {

int apply(FunctionRef<int(int)> f, int x) {
  return f(x);
}

}  // namespace

TEST_CASE("a FunctionRef calls the object that it refers to") {
  int calls = 0;
  const auto count = [&calls](int x) { return calls += x; };
  CHECK(apply(count, 2) == 2);
  CHECK(apply(count, 3) == 5);
  const FunctionRef<int(int)> one = count;
  const FunctionRef<int(int)> same = one;
  CHECK(same(1) == 6);
  CHECK(calls == 6);
}

TEST_CASE("arguments are moved through, results converted, exceptions pass") {
  const auto take = [](std::unique_ptr<int> x) { return *x; };
  const FunctionRef<long(std::unique_ptr<int>)> f = take;
  CHECK(f(std::make_unique<int>(7)) == 7);
  const auto fails = [](int) -> int { throw std::string("thrown"); };
  CHECK_THROWS_AS(apply(fails, 1), std::string);
  static_assert(!std::is_constructible_v<FunctionRef<int(int)>, std::string>);
}
