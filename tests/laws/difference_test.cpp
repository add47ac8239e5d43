// SPDX-License-Identifier: Apache-2.0
// The tests' comparisons: a number that is not finite is never close or equal to another, nor a valid difference.
#include <iterator>
#include <limits>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include <laws/difference.hpp>
#include <laws/layer_precision.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double nonfinite[] = {not_a_number, infinite, -infinite};

/// Calls check(a, b, what) with two vectors that are equal but for one element: one value that is not finite in either
/// operand or two in both, at the beginning, in the middle and at the end.
template <class Check>
void for_each_nonfinite_pair(Check check) {
  const std::vector<double> finite{1, -2, 3, 0, 5};
  for (const std::size_t at : {0, 2, 4})
    for (const double x : nonfinite) {
      CAPTURE(at);
      CAPTURE(x);
      auto wrong = finite;
      wrong[at] = x;
      check(wrong, finite);
      check(finite, wrong);
      check(wrong, wrong);
      for (const double y : nonfinite) {
        auto other = finite;
        other[at] = y;
        check(wrong, other);
      }
    }
  const std::vector<double> nothing_but(5, not_a_number);
  check(nothing_but, finite);
  check(finite, nothing_but);
  check(nothing_but, nothing_but);
}

Trained trained_with(const std::vector<double>& values) {
  Trained trained;
  trained.losses = trained.norms = values;
  trained.parameters["weight"] = values;
  return trained;
}

}  // namespace

TEST_CASE("a difference of finite numbers is computed as defined") {
  CHECK(difference(1, 1) == 0);
  CHECK(difference(3, 1) == 2);
  CHECK(difference(3, 1, 4) == 0.5);
  CHECK(difference(0, 0, 0) == 0);
  CHECK(difference(1, 0, 0) == infinite);
  CHECK(difference(-1.7e308, 1.7e308) == infinite);  // their difference is larger than any number
  CHECK(worst_difference(std::vector{1.0, 5.0}, std::vector{1.5f, 2.0f}) == 3);
  CHECK(difference_to_largest(std::vector{1.0, 5.0}, std::vector{1.5, 2.0}) == 1.5);
  CHECK(largest_of(std::vector{1.0, -5.0}) == 5);
  CHECK(close(1.1, 1, 0.11));
  CHECK(!close(1.1, 1, 0.09));
  CHECK(close(110, 100, 0.11));
  CHECK(differ(std::vector{1.0}, std::vector{2.0}));
  CHECK(!differ(std::vector{1.0}, std::vector{1.0}));
}

TEST_CASE("nothing, and vectors of unequal lengths, are not close") {
  const std::vector<double> none, one{1}, two{1, 1};
  CHECK(worst_difference(none, none) == infinite);
  CHECK(worst_difference(one, two) == infinite);
  CHECK(worst_difference(two, one) == infinite);
  CHECK(difference_to_largest(one, two) == infinite);
  CHECK(!differ(one, two));
  CHECK(relative_gap(one, two) == infinite);
}

TEST_CASE("the worst of a series stays the worst after NaN") {
  Worst worst;
  CHECK(worst.value() == 0);
  worst.add(1);
  worst.add(0.5);
  CHECK(worst.value() == 1);
  worst.add(not_a_number);
  worst.add(0.5);
  CHECK(worst.value() == infinite);
}

TEST_CASE("NaN or infinity in either operand, at any position, is an infinite difference") {
  for (const double x : nonfinite) {
    CHECK(difference(x, 1) == infinite);
    CHECK(difference(1, x) == infinite);
    CHECK(difference(1, 1, x) == infinite);
    CHECK(!close(x, 1, 1e300));
    CHECK(!close(1, x, 1e300));
    for (const double y : nonfinite) {
      CHECK(difference(x, y) == infinite);
      CHECK(!close(x, y, 1e300));
      CHECK(same_or_both_nan(x, y) == (x == y || (std::isnan(x) && std::isnan(y))));
    }
  }
  for_each_nonfinite_pair([](const auto& a, const auto& b) {
    CHECK(worst_difference(a, b) == infinite);
    CHECK(difference_to_largest(a, b) == infinite);
    CHECK(std::max(largest_of(a), largest_of(b)) == infinite);
    CHECK(!differ(a, b));
  });
}

TEST_CASE("the same in the comparisons of the laws") {
  for_each_nonfinite_pair([](const auto& a, const auto& b) {
    CHECK(distance(a, b) == infinite);
    CHECK(!(relative_distance(a, b) < 1e300));
    CHECK(relative_gap(a, b) == infinite);
    CHECK(parameter_gap(trained_with(a), trained_with(b)) == infinite);
    Pool pool;
    const auto x = Tensor<double, 1, Cpu>::uninitialized(shape(5), pool), y = copy(x);
    std::copy(a.begin(), a.end(), x.data());
    std::copy(b.begin(), b.end(), y.data());
    CHECK(!(worst_relative(x, y, 1) < 1e300));
    CHECK(!(worst_relative(copy<float>(x), y, 0) < 1e300));
    CHECK(!same_bits(x, y));
  });
}

TEST_CASE("gradients with NaN in all or in one element fail the check") {
  Pool pool;
  const auto x = random<double>(shape(7), pool, 1);
  const auto half_square = [&] { return 0.5 * dot(x, x); };
  CHECK(gradient_error(x, copy(x), half_square) < 1e-7);
  for (const double wrong : nonfinite)
    for (Size i = 0; i < 7; ++i) {
      const auto dx = copy(x);
      dx.data()[i] = wrong;
      CHECK(gradient_error(x, dx, half_square) == infinite);
    }
  const auto dx = copy(x);
  dx.fill(not_a_number);
  CHECK(gradient_error(x, dx, half_square) == infinite);
  CHECK(gradient_error(x, copy(x), [] { return not_a_number; }) == infinite);
}
