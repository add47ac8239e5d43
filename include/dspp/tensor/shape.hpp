// SPDX-License-Identifier: Apache-2.0
/// Extents of a tensor: the rank is static (at most 6), the extents are run-time values.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

inline constexpr int max_rank = 6;

/// Of a shape of any rank, which it refers to. (Not std::span: constant expressions count each of its checks.)
struct Extents {
  const Size* first;
  int rank;

  constexpr const Size* begin() const { return first; }
  constexpr const Size* end() const { return first + rank; }
  constexpr Size operator[](int dimension) const { return first[dimension]; }
};

namespace detail {
Size bytes_of_extents(Extents extents, Size element_bytes);
[[noreturn]] void fail_of_shapes(Extents a, Extents b, const char* who);
}  // namespace detail

/// Row-major extents. Negative dimensions count from the end: shape[-1] is the last extent.
template <int Rank>
struct Shape {
  static_assert(Rank >= 0 && Rank <= max_rank, "dspp: a tensor has at most 6 dimensions. Merge some of them.");
  Size extents[static_cast<std::size_t>(Rank == 0 ? 1 : Rank)] = {};

  constexpr Size operator[](int dimension) const { return extents[dimension < 0 ? dimension + Rank : dimension]; }
  constexpr Size& operator[](int dimension) { return extents[dimension < 0 ? dimension + Rank : dimension]; }
  constexpr operator Extents() const { return {extents, Rank}; }

  /// Number of elements; 1 for a scalar.
  constexpr Size count() const {
    static_assert(max_rank == 6);
    // One expression rather than a loop or another call: constant expressions count statements.
    return (Rank > 0 ? extents[0] : 1) * (Rank > 1 ? extents[Rank > 1 ? 1 : 0] : 1) *
           (Rank > 2 ? extents[Rank > 2 ? 2 : 0] : 1) * (Rank > 3 ? extents[Rank > 3 ? 3 : 0] : 1) *
           (Rank > 4 ? extents[Rank > 4 ? 4 : 0] : 1) * (Rank > 5 ? extents[Rank > 5 ? 5 : 0] : 1);
  }

  /// Product of all extents but the last: the number of rows that a row-wise operation sees.
  constexpr Size rows() const { return multiply(std::make_integer_sequence<int, Rank - 1>{}); }

  /// Product of the extents [begin, end).
  constexpr Size product(int begin, int end) const {
    Size result = 1;
    for (int i = begin; i < end; ++i) result *= extents[i];
    return result;
  }

  /// The same shape with one extent replaced.
  constexpr Shape with(int dimension, Size extent) const {
    Shape changed = *this;
    changed[dimension] = extent;
    return changed;
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  template <int... I>
  constexpr Size multiply(std::integer_sequence<int, I...>) const {
    return (Size{1} * ... * extents[I]);
  }
};

/// Shape of the given extents: `shape(2, 3)` is a Shape<2>.
template <class... Sizes>
constexpr auto shape(Sizes... extents) {
  Shape<static_cast<int>(sizeof...(Sizes))> result{};
  int i = 0;
  ((result.extents[i++] = static_cast<Size>(extents)), ...);
  return result;
}

/// The shape as people write it: [2, 3, 4].
std::string to_string(Extents extents);

/// The bytes of that many elements.
///
/// Throws   Error(shape) for an extent below 0, and for bytes that 63 bits do not count
template <int Rank>
constexpr Size bytes_of(const Shape<Rank>& shape, Size element_bytes) {
  if (__builtin_is_constant_evaluated()) return shape.count() * element_bytes;  // too many do not compile
  return detail::bytes_of_extents(shape, element_bytes);
}

/// Fails with both shapes in the sentence unless they are equal. `who` is the operation, e.g. "add".
template <int Rank>
constexpr void require_same_shape(const Shape<Rank>& a, const Shape<Rank>& b, const char* who) {
  if (!(a == b)) detail::fail_of_shapes(a, b, who);
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string to_string(Extents extents) {
  std::string text = "[";
  for (const Size& extent : extents) text += (&extent == extents.first ? "" : ", ") + std::to_string(extent);
  return text + "]";
}

namespace detail {

DSPP_INLINE Size bytes_of_extents(Extents extents, Size element_bytes) {
  Size bytes = element_bytes;
  bool fits = true, empty = false;
  for (const Size extent : extents) {
    fits = fits && extent >= 0;
    empty = empty || extent == 0;
  }
  for (int i = 0; i < extents.rank && fits && !empty; ++i) fits = !__builtin_mul_overflow(bytes, extents[i], &bytes);
  if (!fits)
    fail(ErrorCode::shape, "dspp: a tensor needs extents of at least 0 and fewer than 2^63 bytes, but got " +
                               to_string(extents) + " of " + std::to_string(element_bytes) +
                               " bytes each. Check what the extents are computed from.");
  return empty ? 0 : bytes;
}

DSPP_INLINE void fail_of_shapes(Extents a, Extents b, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs two tensors of one shape, but they are " + to_string(a) +
                             " and " + to_string(b) + ". Reshape or broadcast one of them first.");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
