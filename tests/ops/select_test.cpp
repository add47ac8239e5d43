// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/custom.hpp>
#include <dspp/ops/select.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {
template <class M>
Tensor<M, 2> pattern(Pool& pool, Size rows, Size columns, int modulus) {
  auto x = Tensor<M, 2>::uninitialized(shape(rows, columns), pool);
  for (Size i = 0; i < x.count(); ++i) x.data()[i] = static_cast<M>(i % modulus);
  return x;
}
}  // namespace

TEST_CASE("a vjp of select is in place where dy has no other handle, in every element type") {
  const auto check = []<class T>(T) {
    Pool pool;
    const auto mask = pattern<std::uint8_t>(pool, 3, 5, 2);
    for (const bool keep : {true, false}) {
      auto dy = laws::random<T>(shape(3, 5, 7), pool, 1);
      const auto other = laws::copy<T>(dy), expected = ops::select_vjp(mask, other, keep);
      const T* const block = dy.data();
      const auto dx = ops::select_vjp(mask, std::move(dy), keep);
      CHECK(dx.data() == block);
      CHECK(laws::same_bits(dx, expected));
      for (Size i = 0; i < dx.count(); ++i)
        CHECK(static_cast<double>(dx.data()[i]) ==
              ((i / 7 % 2 == 1) == keep ? static_cast<double>(other.data()[i]) : 0));
    }
  };
  check(double());
  check(float());
  check(bf16());
  check(f16());
}

TEST_CASE("rows that are gathered often receive sums that are rounded once, on any number of threads") {
  Pool pool;
  const auto ids = pattern<std::int32_t>(pool, 2, 300, 3);
  const auto dy = laws::random<bf16>(shape(2, 300, 37), pool, 1);
  const auto dx = ops::gather_vjp(shape(2, 4, 37), ids, dy);
  laws::check_threads([&] { return ops::gather_vjp(shape(2, 4, 37), ids, dy); });
  for (Size b = 0; b < 2; ++b)
    for (Size r = 0; r < 4; ++r)
      for (Size j = 0; j < 37; ++j) {
        float sum = 0;
        for (Size k = 0; k < 300; ++k)
          if (ids.data()[b * 300 + k] == r) sum += static_cast<float>(dy.data()[(b * 300 + k) * 37 + j]);
        CHECK(dx.data()[(b * 4 + r) * 37 + j].bits == bf16(sum).bits);
      }
}

TEST_CASE("ids outside of the dimension, and masks of other extents, are errors in words") {
  Pool pool;
  const auto x = laws::random<float>(shape(2, 3, 4), pool, 1);
  auto ids = pattern<std::int32_t>(pool, 2, 3, 3);
  ids.data()[4] = 3;
  CHECK_THROWS_AS(ops::gather(x, ids), Error);
  CHECK_THROWS_AS(ops::gather(x, pattern<std::int32_t>(pool, 3, 2, 2)), Error);
  CHECK_THROWS_WITH_AS(ops::select(pattern<std::int32_t>(pool, 3, 2, 2), x, x),
                       "dspp: where needs a mask of the first extents of its values, but [3, 2] stands beside [2, 3, "
                       "4]. Reshape one of them first.",
                       Error);
  CHECK_THROWS_AS(ops::select(pattern<std::int32_t>(pool, 2, 2, 2), x, 1.0), Error);
}
