// SPDX-License-Identifier: Apache-2.0
// What batches compute of their integers: lengths, other ids, counts; exact, or an error.
#include <cstdint>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <dspp/autograd.hpp>
#include <dspp/nn/layer.hpp>

#include <laws/parallel_layer.hpp>
using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64>;

template <class T, int Rank, class F>
Input<P, T, Rank> filled(TestRank& here, const Shape<Rank>& extents, F f) {
  const auto values = Tensor<T, Rank>::zeros(extents, here.pool);
  for (Size i = 0; i < values.count(); ++i) values.data()[i] = static_cast<T>(f(i));
  return Input<P, T, Rank>::constant(values, here.tape);
}

}  // namespace

TEST_CASE("lengths of a mask count beyond a byte, of every row and of all") {
  TestRank here;
  constexpr Size rows = 3, columns = 700;
  const auto mask =
      filled<std::uint8_t, 2>(here, shape(rows, columns), [](Size i) { return i % columns < 300 + i / columns; });
  const auto lengths = sum<1>(cast<std::int32_t>(mask));
  for (Size i = 0; i < rows; ++i) CHECK(lengths.value().data()[i] == 300 + i);
  CHECK(sum(cast<std::int32_t>(mask)).value().data()[0] == 903);
  CHECK(sum(cast<std::int64_t>(mask)).value().data()[0] == 903);
  CHECK(mean(cast<double>(mask)).value().data()[0] == 903.0 / (rows * columns));
}

TEST_CASE("ids are chosen, gathered, compared and shifted as integers") {
  TestRank here;
  const auto ids = filled<std::int32_t, 2>(here, shape(2, 4), [](Size i) { return i == 5 ? -100 : 7 * i; });
  const auto known = filled<std::uint8_t, 2>(here, shape(2, 4), [](Size i) { return i != 5; });
  const auto chosen = where(known, ids, 0), shifted = 2.0 * chosen + 2, others = 50.0 - ids;
  for (Size i = 0; i < 8; ++i) {
    const std::int32_t id = i == 5 ? -100 : static_cast<std::int32_t>(7 * i);
    CHECK(chosen.value().data()[i] == (i == 5 ? 0 : id));
    CHECK(shifted.value().data()[i] == 2 * (i == 5 ? 0 : id) + 2);
    CHECK(others.value().data()[i] == 50 - id);
  }
  const auto largest = max<1>(ids);
  CHECK(largest.value().data()[0] == 21);
  CHECK(largest.value().data()[1] == 49);
  const auto places = filled<std::int32_t, 2>(here, shape(2, 1), [](Size i) { return 3 - i; });
  const auto picked = gather(ids, places);
  CHECK(picked.value().data()[0] == 21);
  CHECK(picked.value().data()[1] == 42);
}

TEST_CASE("a number that integers do not have is an error, not another number") {
  TestRank here;
  const auto ids = filled<std::int32_t, 1>(here, shape(4), [](Size i) { return i; });
  const auto mask = filled<std::uint8_t, 1>(here, shape(4), [](Size) { return 1; });
  const auto refused = [](const char* number, auto f, const char* range) {
    const std::string sentence = "dspp: an operator of integers and a number needs a whole one from " +
                                 std::string(range) + ", but it is " + number +
                                 ". cast<ElementOf<P>>(x) the integers first.";
    CHECK_THROWS_WITH_AS(f(), sentence.c_str(), Error);
  };
  const char* const all = "-2147483648 to 2147483647";
  refused(
      "0.500000", [&] { return 0.5 * ids; }, all);
  refused(
      "-0.500000", [&] { return ids - 0.5; }, all);
  refused(
      "2147483648.000000", [&] { return ids + 2147483648.0; }, all);
  refused(
      "nan", [&] { return std::numeric_limits<double>::quiet_NaN() * ids; }, all);
  refused(
      "inf", [&] { return where(mask, ids, std::numeric_limits<double>::infinity()); }, all);
  refused(
      "-1.000000", [&] { return where(mask, mask, -1.0); }, "0 to 255");
  refused(
      "256.000000", [&] { return where(mask, mask, 256.0); }, "0 to 255");
  CHECK((ids - 2147483648.0 + 2147483647.0).value().data()[3] == 2);
}

TEST_CASE("an operator loses the weights of targets on neither side without a word") {
  TestRank here;
  const auto mask = filled<std::uint8_t, 2>(here, shape(2, 4), [](Size i) { return i % 2; });
  const auto plain = filled<std::int32_t, 2>(here, shape(2, 4), [](Size i) { return i; });
  auto weighted = plain;
  weighted.target_weights = Tensor<float, 2>::zeros(shape(2, 4), here.pool);
  const auto check = [&](auto f) {
    CHECK_NOTHROW(f(plain, plain));
    CHECK_THROWS_WITH_AS(f(weighted, plain), doctest::Contains("targets with target_weights need"), Error);
    CHECK_THROWS_WITH_AS(f(plain, weighted), doctest::Contains("targets with target_weights need"), Error);
  };
  check([&](const auto& a, const auto& b) { return where(mask, a, b); });
  check([](const auto& a, const auto& b) { return concat<0>(a, b); });
  check([](const auto& a, const auto& b) { return concat<1>(a, a, b); });
  check([](const auto& a, const auto& b) { return a + b; });
  check([](const auto& a, const auto& b) { return a - b; });
  check([](const auto& a, const auto& b) { return a * b; });
}
