// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/copy.hpp>

using namespace dspp;

TEST_CASE("exchange exchanges all elements of two tensors, or parts of larger ones, and refuses other shapes") {
  Pool pool;
  for (const Size count : {1, 100, 40000}) {
    const auto x = Tensor<float, 1>::zeros(shape(count), pool), whole = Tensor<float, 1>::zeros(shape(count + 7), pool);
    const auto y = Tensor<float, 1>::view(whole.storage(), 3, shape(count));
    for (Size i = 0; i < count; ++i) x.data()[i] = static_cast<float>(i), y.data()[i] = static_cast<float>(-1 - i);
    ops::exchange(x, y);
    bool exchanged = true;
    for (Size i = 0; i < count; ++i)
      exchanged = exchanged && x.data()[i] == static_cast<float>(-1 - i) && y.data()[i] == static_cast<float>(i);
    CHECK(exchanged);
    for (const Size i : {Size{0}, Size{1}, Size{2}, count + 3, count + 6}) CHECK(whole.data()[i] == 0);
    CHECK_THROWS_AS(ops::exchange(x, whole), Error);
  }
}
