// SPDX-License-Identifier: Apache-2.0
/// What operators do not compute of integers: it would be rounded, or counted modulo 256, without a word.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

namespace detail {
[[noreturn]] void fail_of_number(double number, Size least, Size largest);
}

/// The sum of elements T, and their product with a number.
template <class T>
constexpr auto check_holds_sums() {
  static_assert(
      !std::same_as<T, std::uint8_t>,
      "dspp: a sum, or a product with a number, needs elements that hold it, but these are bytes, which end at 255. "
      "cast<std::int32_t>(x) or cast<ElementOf<P>>(x) first.");
}

/// A quotient or mean of elements T.
template <class T>
constexpr auto check_holds_quotients() {
  static_assert(!std::integral<T>,
                "dspp: a quotient or mean needs values that are no integers: it would be rounded to one. "
                "cast<ElementOf<P>>(x) first.");
}

/// A number beside elements T.
///
/// Throws   Error(usage) if they are integers, and the number is none of them
template <class T>
constexpr void require_element(double number) {
  if constexpr (std::integral<T>) {
    constexpr T least = std::numeric_limits<T>::min(), largest = std::numeric_limits<T>::max();
    constexpr double end = 2.0 * static_cast<double>(largest / 2 + 1);
    if (!(number >= static_cast<double>(least) && number < end) ||
        static_cast<double>(static_cast<std::int64_t>(number)) != number)
      detail::fail_of_number(number, least, largest);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_number(double number, Size least, Size largest) {
  fail(ErrorCode::usage, "dspp: an operator of integers and a number needs a whole one from " + std::to_string(least) +
                             " to " + std::to_string(largest) + ", but it is " + std::to_string(number) +
                             ". cast<ElementOf<P>>(x) the integers first.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
