// SPDX-License-Identifier: Apache-2.0
/// What every communicator checks before it accepts an operation: counts, types, roots, overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include <dspp/base/error.hpp>
#include <dspp/comm/buffer.hpp>

namespace dspp::detail {

[[noreturn]] void fail_counts(const char* who, const char* whole, const char* part, Size whole_count, Size part_count,
                              int size);

[[noreturn]] void fail_counts_apart(Size in, Size out);
[[noreturn]] void fail_types(const char* who, ElementType in, ElementType out);
[[noreturn]] void fail_sum_of_bytes(const char* who);
[[noreturn]] void fail_root(int root, int size);
[[noreturn]] void fail_negative(const char* who, Size count);
[[noreturn]] void fail_null(const char* who, Size count);
[[noreturn]] void fail_overlap(const char* who, const char* part, const char* whole);
[[noreturn]] void fail_rank(int rank, int size);

constexpr void check_rank(int rank, int size) {
  if (rank < 0 || rank >= size) fail_rank(rank, size);
}

constexpr void check_all_reduce(const Buffer& x) {
  if (x.count < 0) fail_negative("all_reduce", x.count);
  if (x.type == ElementType::u8) fail_sum_of_bytes("all_reduce");
}

constexpr void check_reduce_scatter(const ConstBuffer& in, const Buffer& out, int size) {
  if (out.count < 0) fail_negative("reduce_scatter", out.count);
  if (in.type != out.type) fail_types("reduce_scatter", in.type, out.type);
  if (in.count != out.count * size) fail_counts("reduce_scatter", "in", "out", in.count, out.count, size);
  if (out.type == ElementType::u8) fail_sum_of_bytes("reduce_scatter");
}

constexpr void check_all_gather(const ConstBuffer& in, const Buffer& out, int size) {
  if (in.count < 0) fail_negative("all_gather", in.count);
  if (in.type != out.type) fail_types("all_gather", in.type, out.type);
  if (out.count != in.count * size) fail_counts("all_gather", "out", "in", out.count, in.count, size);
}

[[noreturn]] void fail_equal_parts(const char* which, Size count, int size);
[[noreturn]] void fail_parts(const char* which, const char* whole, std::span<const Size> parts, Size count, int size);

constexpr void check_parts(const char* which, const char* whole, std::span<const Size> parts, Size count, int size) {
  Size sum = 0;
  bool right = std::ssize(parts) == size;
  for (const Size part : parts) {
    right = right && part >= 0;
    sum += part;
  }
  if (!right || sum != count) fail_parts(which, whole, parts, count, size);
}

constexpr void check_all_to_all(const ConstBuffer& in, const Buffer& out, const PartCounts& parts, int size) {
  if (in.count < 0 || out.count < 0) fail_negative("all_to_all", std::min(in.count, out.count));
  if (in.type != out.type) fail_types("all_to_all", in.type, out.type);
  if (!parts.equal()) {
    check_parts("sent", "in", parts.sent, in.count, size);
    check_parts("received", "out", parts.received, out.count, size);
    return;
  }
  if (in.count != out.count) fail_counts_apart(in.count, out.count);
  if (in.count % size != 0) fail_equal_parts("in", in.count, size);
}

constexpr void check_broadcast(const Buffer& x, int root, int size) {
  if (x.count < 0) fail_negative("broadcast", x.count);
  if (root < 0 || root >= size) fail_root(root, size);
}

[[noreturn]] void fail_peer(const char* who, const char* end, int peer, int rank, int size);

constexpr void check_send(const ConstBuffer& in, int to, int rank, int size) {
  if (in.count < 0) fail_negative("send", in.count);
  if (to < 0 || to >= size || to == rank) fail_peer("send", "send to", to, rank, size);
}

constexpr void check_receive(const Buffer& out, int from, int rank, int size) {
  if (out.count < 0) fail_negative("receive", out.count);
  if (from < 0 || from >= size || from == rank) fail_peer("receive", "receive from", from, rank, size);
}

constexpr void check_memory(const char* who, const void* data, Size count) {
  if (data == nullptr && count > 0) fail_null(who, count);
}

/// `part` must be slice `rank` of `whole` or not overlap it. Only for communicators that move real memory.
void check_place(const char* who, const char* part_name, const char* whole_name, const ConstBuffer& part,
                 const ConstBuffer& whole, int rank);

/// `in` and `out` must not overlap. Only for communicators that move real memory.
void check_apart(const char* who, const ConstBuffer& in, const ConstBuffer& out);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void fail_counts(const char* who, const char* whole, const char* part, Size whole_count, Size part_count,
                             int size) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " over " + std::to_string(size) + " ranks needs " + whole +
                             ".count == " + std::to_string(size) + " x " + part + ".count, but got " +
                             std::to_string(whole_count) + " and " + std::to_string(part_count) +
                             ". Pad to a multiple of the ranks, or pass matching buffers.");
}

DSPP_INLINE void fail_counts_apart(Size in, Size out) {
  fail(ErrorCode::shape, "dspp: all_to_all of equal parts needs in.count == out.count, but got " + std::to_string(in) +
                             " and " + std::to_string(out) + ". Pass matching buffers, or give the parts.");
}

DSPP_INLINE void fail_types(const char* who, ElementType in, ElementType out) {
  fail(ErrorCode::usage, std::string("dspp: ") + who + " needs in and out of one element type, but got " + name_of(in) +
                             " and " + name_of(out) + ". Cast one of them first.");
}

DSPP_INLINE void fail_sum_of_bytes(const char* who) {
  fail(ErrorCode::usage, std::string("dspp: ") + who +
                             " needs elements that can be summed (f64, f32, bf16, f16, i32, i64), but got u8. "
                             "Cast to i32 first, or all_gather the bytes.");
}

DSPP_INLINE void fail_root(int root, int size) {
  fail(ErrorCode::usage, "dspp: broadcast over " + std::to_string(size) + " ranks needs a root from 0 to " +
                             std::to_string(size - 1) + ", but got " + std::to_string(root) +
                             ". Name a rank of the group.");
}

DSPP_INLINE void fail_negative(const char* who, Size count) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs a count of at least 0, but got " +
                             std::to_string(count) + ". Check the extents that it was computed from.");
}

DSPP_INLINE void fail_null(const char* who, Size count) {
  fail(ErrorCode::usage, std::string("dspp: ") + who + " needs memory to work on, but got a null pointer for " +
                             std::to_string(count) +
                             " elements. Only a Recorder on paper takes buffers without memory.");
}

DSPP_INLINE void fail_overlap(const char* who, const char* part, const char* whole) {
  fail(ErrorCode::usage, std::string("dspp: ") + who + " needs in and out apart, or " + part +
                             " exactly as slice rank() of " + whole +
                             ", but they overlap otherwise. Give them memory of their own.");
}

DSPP_INLINE void fail_rank(int rank, int size) {
  fail(ErrorCode::usage, "dspp: a group of " + std::to_string(size) + " ranks needs a rank from 0 to " +
                             std::to_string(size - 1) + ", but got " + std::to_string(rank) +
                             ". Name a rank of the group.");
}

DSPP_INLINE void fail_equal_parts(const char* which, Size count, int size) {
  fail(ErrorCode::shape, "dspp: all_to_all over " + std::to_string(size) + " ranks needs " + which +
                             ".count to be a multiple of " + std::to_string(size) + ", but got " +
                             std::to_string(count) + ". Pad it, or give the parts.");
}

DSPP_INLINE void fail_parts(const char* which, const char* whole, std::span<const Size> parts, Size count, int size) {
  std::string text;
  for (const Size part : parts) text += (text.empty() ? "" : ", ") + std::to_string(part);
  fail(ErrorCode::shape, "dspp: all_to_all over " + std::to_string(size) + " ranks needs " + std::to_string(size) +
                             " parts " + which + " of at least 0 that add up to " + whole + ".count, but got {" + text +
                             "} for " + std::to_string(count) + ". Give one count for each rank.");
}

DSPP_INLINE void fail_peer(const char* who, const char* end, int peer, int rank, int size) {
  fail(ErrorCode::usage,
       std::string("dspp: ") + who + " needs another rank of its group of " + std::to_string(size) + " to " + end +
           ", but rank " + std::to_string(rank) + " names " + std::to_string(peer) +
           (size == 1 ? ". A group of one has none."
                      : ". Name a rank from 0 to " + std::to_string(size - 1) + " that is not its own."));
}

DSPP_INLINE void check_place(const char* who, const char* part_name, const char* whole_name, const ConstBuffer& part,
                             const ConstBuffer& whole, int rank) {
  check_memory(who, part.data, part.count);
  check_memory(who, whole.data, whole.count);
  const auto p = reinterpret_cast<std::uintptr_t>(part.data);
  const auto w = reinterpret_cast<std::uintptr_t>(whole.data);
  const auto part_bytes = static_cast<std::uintptr_t>(part.bytes());
  const auto whole_bytes = static_cast<std::uintptr_t>(whole.bytes());
  const bool apart = p + part_bytes <= w || w + whole_bytes <= p;
  const bool in_place = p == w + part_bytes * static_cast<std::uintptr_t>(rank);
  if (!apart && !in_place) fail_overlap(who, part_name, whole_name);
}

DSPP_INLINE void check_apart(const char* who, const ConstBuffer& in, const ConstBuffer& out) {
  check_memory(who, in.data, in.count);
  check_memory(who, out.data, out.count);
  const auto a = reinterpret_cast<std::uintptr_t>(in.data), b = reinterpret_cast<std::uintptr_t>(out.data);
  const auto a_bytes = static_cast<std::uintptr_t>(in.bytes()), b_bytes = static_cast<std::uintptr_t>(out.bytes());
  if (a_bytes == 0 || b_bytes == 0 || a + a_bytes <= b || b + b_bytes <= a) return;
  fail(ErrorCode::usage,
       std::string("dspp: ") + who + " needs in and out apart, but they overlap. Give them memory of their own.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
