// SPDX-License-Identifier: Apache-2.0
/// What operations need of extents: checks that many share, and the sentences of all, which dspp::compiled holds.
#pragma once

#include <cstddef>

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
[[noreturn]] void fail_of_permutation(std::size_t dimension, int times, std::size_t rank);
[[noreturn]] void fail_of_broadcast(Extents x, Extents y, const char* who);
[[noreturn]] void fail_of_broadcast_to(Extents from, Extents to);
[[noreturn]] void fail_of_operands(Extents a, bool ta, Extents b, bool tb, const char* who);
[[noreturn]] void fail_of_result(Extents given, Extents needed, const char* what, const char* who);
[[noreturn]] void fail_of_batches(Extents a, Extents b);
[[noreturn]] void fail_of_columns(Size first, Size extent, Extents matrix);
[[noreturn]] void fail_of_first_extents(Extents mask, Extents x, const char* who, const char* what);
[[noreturn]] void fail_of_repeats(Size rows, Size times);
[[noreturn]] void fail_of_max(Extents x, int dimension);
[[noreturn]] void fail_of_gates(Extents x);
[[noreturn]] void fail_of_heads(Extents qkv, Size heads);
[[noreturn]] void fail_of_heads(Extents q, Extents kv, Size heads, Size kv_heads);
[[noreturn]] void fail_of_rotary_features(Size head_dim);
[[noreturn]] void fail_of_rotary_heads(Size head_dim, Size turned, Size columns);
[[noreturn]] void fail_of_window(int dimension, Size origin, Size extent, Size global);
[[noreturn]] void fail_of_dropout(double probability);
[[noreturn]] void fail_of_smoothing(double label_smoothing);

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

DSPP_INLINE void fail_of_permutation(std::size_t dimension, int times, std::size_t rank) {
  fail(ErrorCode::shape, "dspp: transpose needs each dimension once, but dimension " + std::to_string(dimension) +
                             " is given " + std::to_string(times) + " times. List 0 to " + std::to_string(rank - 1) +
                             " in the new order.");
}

DSPP_INLINE void fail_of_broadcast(Extents x, Extents y, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who +
                             " needs extents that are equal or 1, counted from the last dimension, but they are " +
                             to_string(x) + " and " + to_string(y) + ". Reshape one of them first.");
}

DSPP_INLINE void fail_of_broadcast_to(Extents from, Extents to) {
  fail(ErrorCode::shape,
       "dspp: broadcast_to needs extents that are equal or 1, counted from the last dimension, "
       "but goes from " +
           to_string(from) + " to " + to_string(to) + ". Reshape the value first.");
}

DSPP_INLINE void fail_of_operands(Extents a, bool ta, Extents b, bool tb, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs two operands of one inner extent, but they are " +
                             to_string(a) + (ta ? " transposed" : "") + " and " + to_string(b) +
                             (tb ? " transposed" : "") + ". Transpose one of them, or change its shape.");
}

DSPP_INLINE void fail_of_result(Extents given, Extents needed, const char* what, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs " + what + " of shape " + to_string(needed) +
                             ", but it is " + to_string(given) + ". Give one that fits the product.");
}

DSPP_INLINE void fail_of_batches(Extents a, Extents b) {
  fail(ErrorCode::shape, "dspp: batched_matmul needs two operands of one batch, but they are " + to_string(a) +
                             " and " + to_string(b) + ". Repeat the smaller one, or use matmul on each.");
}

DSPP_INLINE void fail_of_columns(Size first, Size extent, Extents matrix) {
  fail(ErrorCode::shape, "dspp: Columns needs columns of its matrix, but it got " + std::to_string(first) + " to " +
                             std::to_string(first + extent) + " of " + to_string(matrix) +
                             ". Check the first one and their number.");
}

DSPP_INLINE void fail_of_first_extents(Extents mask, Extents x, const char* who, const char* what) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs " + what + " of the first extents of its values, but " +
                             to_string(mask) + " stands beside " + to_string(x) + ". Reshape one of them first.");
}

DSPP_INLINE void fail_of_repeats(Size rows, Size times) {
  fail(ErrorCode::shape, "dspp: sum_repeats needs rows that the repeats divide, but got " + std::to_string(rows) +
                             " and " + std::to_string(times) + ". Check the extents.");
}

DSPP_INLINE void fail_of_max(Extents x, int dimension) {
  fail(ErrorCode::shape, "dspp: max needs at least one element along its dimension, but " + to_string(x) +
                             " has none along dimension " + std::to_string(dimension) + ". Check the extents.");
}

DSPP_INLINE void fail_of_gates(Extents x) {
  fail(ErrorCode::shape, "dspp: swiglu needs as many gates as values, but its input is " + to_string(x) +
                             ": an odd number. Give it both halves, one product in two groups.");
}

DSPP_INLINE void fail_of_heads(Extents qkv, Size heads) {
  fail(ErrorCode::shape,
       "dspp: attention needs [batch, sequence, 3, heads * head_dim] and a number of heads that divides the last "
       "extent, but it got " +
           to_string(qkv) + " and " + std::to_string(heads) + " heads. Choose heads that divide the width.");
}

DSPP_INLINE void fail_of_heads(Extents q, Extents kv, Size heads, Size kv_heads) {
  fail(ErrorCode::shape,
       "dspp: grouped_attention needs q [batch, sequence, heads * head_dim], kv [batch, sequence, 2, kv_heads * "
       "head_dim] and kv_heads that divide heads, but it got " +
           to_string(q) + ", " + to_string(kv) + ", " + std::to_string(heads) + " heads and " +
           std::to_string(kv_heads) + " of keys and values. Choose heads that fit the extents.");
}

DSPP_INLINE void fail_of_rotary_features(Size head_dim) {
  fail(ErrorCode::shape, "dspp: rotary needs heads of an even number of features, but they have " +
                             std::to_string(head_dim) + ". Change head_dim.");
}

DSPP_INLINE void fail_of_rotary_heads(Size head_dim, Size turned, Size columns) {
  fail(ErrorCode::shape, "dspp: rotary needs whole heads of " + std::to_string(head_dim) + " features, but it got " +
                             std::to_string(turned) + " of the " + std::to_string(columns) +
                             " elements of a position. Choose a head_dim that divides them.");
}

DSPP_INLINE void fail_of_window(int dimension, Size origin, Size extent, Size global) {
  fail(ErrorCode::shape, "dspp: dropout needs a window inside the global sample, but dimension " +
                             std::to_string(dimension) + " has elements " + std::to_string(origin) + " to " +
                             std::to_string(origin + extent) + " of " + std::to_string(global) +
                             ". Check the slice's origin.");
}

DSPP_INLINE void fail_of_dropout(double probability) {
  fail(ErrorCode::usage, "dspp: dropout needs a probability from 0 to below 1, but it got " +
                             std::to_string(probability) + ". Give the share of elements to drop.");
}

DSPP_INLINE void fail_of_smoothing(double label_smoothing) {
  fail(ErrorCode::usage, "dspp: cross_entropy needs a label_smoothing from 0 to 1, but it is " +
                             std::to_string(label_smoothing) + ". Give the share that all classes have together.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops::detail
