// SPDX-License-Identifier: Apache-2.0
/// Differences from expected numbers. A number that is not finite, in either operand, has an infinite difference, so
/// that no bound accepts it: std::max(worst, NaN) is `worst`, and two NaN are not equal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

namespace dspp::laws {

inline constexpr double infinitely_far = std::numeric_limits<double>::infinity();

/// |is - expected| / unit; 0 where both are the same finite number, infinite where one of the three is not finite.
inline double difference(double is, double expected, double unit = 1) {
  if (!std::isfinite(is) || !std::isfinite(expected) || !std::isfinite(unit)) return infinitely_far;
  return is == expected ? 0 : std::abs(is - expected) / unit;
}

/// The largest of the added numbers. NaN is larger than every number, and stays.
class Worst {
 public:
  void add(double error) { worst_ = std::isnan(error) ? infinitely_far : std::max(worst_, error); }
  double value() const { return worst_; }

 private:
  double worst_ = 0;
};

/// The largest difference over all elements, unit(expected) being that of one; infinite if the sizes differ or there is
/// nothing to compare.
template <class A, class B, class Unit>
double worst_difference(const A& is, const B& expected, Unit unit) {
  const auto count = static_cast<std::size_t>(std::size(expected));
  if (count == 0 || static_cast<std::size_t>(std::size(is)) != count) return infinitely_far;
  Worst worst;
  for (std::size_t i = 0; i < count; ++i) {
    const auto e = static_cast<double>(expected[i]);
    worst.add(difference(static_cast<double>(is[i]), e, unit(e)));
  }
  return worst.value();
}

/// The largest |is - expected|.
template <class A, class B>
double worst_difference(const A& is, const B& expected) {
  return worst_difference(is, expected, [](double) { return 1.0; });
}

/// The largest |x|; infinite if one is not finite.
template <class A>
double largest_of(const A& values) {
  Worst worst;
  for (const auto& x : values) worst.add(difference(static_cast<double>(x), 0));
  return worst.value();
}

/// The largest |is - expected| over the largest |expected|.
template <class A, class B>
double difference_to_largest(const A& is, const B& expected) {
  const double largest = largest_of(expected);
  return worst_difference(is, expected, [&](double) { return largest; });
}

/// |is - expected| <= bound * max(|expected|, floor).
inline bool close(double is, double expected, double bound, double floor = 1) {
  return difference(is, expected, std::max(std::abs(expected), floor)) <= bound;
}

/// Equal, or both NaN: for operations that must keep NaN and infinity.
inline bool same_or_both_nan(double is, double expected) {
  return is == expected || (std::isnan(is) && std::isnan(expected));
}

/// All are finite and some element differs: `a != b` is true of NaN as well.
template <class A, class B>
bool differ(const A& a, const B& b) {
  const double worst = worst_difference(a, b);
  return worst > 0 && worst < infinitely_far;
}

}  // namespace dspp::laws
