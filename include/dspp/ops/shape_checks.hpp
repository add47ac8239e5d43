// SPDX-License-Identifier: Apache-2.0
/// What several operations need of extents.
#pragma once

#include <dspp/base/error.hpp>
#include <dspp/tensor/shape.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <string>
#endif

namespace dspp::ops::detail {

[[noreturn]] void fail_of_length(Size actual, Size expected, const char* who, const char* what);
[[noreturn]] void fail_of_dimension(int dimension, int rank, const char* who);
[[noreturn]] void fail_of_range(Size begin, Size extent, Size whole, const char* who);
[[noreturn]] void fail_of_valid_columns(Size valid_columns, Size columns, const char* who);

/// Throws unless `what` has the given number of elements.
constexpr void require_length(Size actual, Size expected, const char* who, const char* what) {
  if (actual != expected) fail_of_length(actual, expected, who, what);
}

/// Throws unless the dimension exists.
constexpr void require_dimension(int dimension, int rank, const char* who) {
  if (dimension < 0 || dimension >= rank) fail_of_dimension(dimension, rank, who);
}

/// Throws unless [begin, begin + extent) lies in [0, whole).
constexpr void require_range(Size begin, Size extent, Size whole, const char* who) {
  if (begin < 0 || extent < 0 || begin + extent > whole) fail_of_range(begin, extent, whole, who);
}

/// Throws if there are more valid columns than columns.
constexpr void require_columns(Size valid_columns, Size columns, const char* who) {
  if (valid_columns < 0 || valid_columns > columns) fail_of_valid_columns(valid_columns, columns, who);
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void fail_of_length(Size actual, Size expected, const char* who, const char* what) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs " + what + " of " + std::to_string(expected) +
                             " elements, but it has " + std::to_string(actual) +
                             ". Give one that fits the other arguments.");
}

DSPP_INLINE void fail_of_dimension(int dimension, int rank, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs a dimension from 0 to " + std::to_string(rank - 1) +
                             ", but it got " + std::to_string(dimension) + ". Count dimensions from the outermost.");
}

DSPP_INLINE void fail_of_range(Size begin, Size extent, Size whole, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs a range inside of 0 to " + std::to_string(whole) +
                             ", but it got " + std::to_string(begin) + " to " + std::to_string(begin + extent) +
                             ". Check the offset and the extent.");
}

DSPP_INLINE void fail_of_valid_columns(Size valid_columns, Size columns, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs valid_columns from 0 to the " + std::to_string(columns) +
                             " columns of the logits, but it got " + std::to_string(valid_columns) +
                             ". Count the columns of this rank without padding.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops::detail
