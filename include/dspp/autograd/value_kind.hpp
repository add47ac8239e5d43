// SPDX-License-Identifier: Apache-2.0
/// Shape and element type of a value as run-time values, and the error sentences for a gradient unlike its variable.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/element.hpp>
#include <dspp/tensor/shape.hpp>

namespace dspp {

/// The shape and element type that a variable and its gradient share.
struct ValueKind {
  ElementType type = ElementType::f32;
  int rank = 0;
  Size extents[max_rank] = {};

  template <class T, int Rank>
  static constexpr ValueKind of(const Shape<Rank>& shape);
  friend constexpr bool operator==(const ValueKind&, const ValueKind&) = default;
};

namespace detail {
/// The index of a kind in a list, to which a new one is added. Few are looked at: most values of a model share kinds.
int index_of_kind(std::vector<ValueKind>& kinds, const ValueKind& kind);
void require_kind(const ValueKind& wanted, const ValueKind& given);
[[noreturn]] void fail_of_pass(bool same_tape);
[[noreturn]] void fail_of_late_gradient();
[[noreturn]] void fail_of_rehearsed();
[[noreturn]] void fail_of_kept();
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

// One expression each rather than a loop: constant expressions count statements.
namespace detail {
template <class T, int Rank, int... I>
constexpr ValueKind kind_of(const Shape<Rank>& shape, std::integer_sequence<int, I...>) {
  return {element_type<T>, Rank, {shape.extents[I]...}};
}
/// A hash of the kind, in constant expressions; two different kinds collide with probability 2^-31.
template <class T, int Rank, int... I>
constexpr int digest_of_kind(const Shape<Rank>& shape, std::integer_sequence<int, I...>) {
  std::uint64_t digest = static_cast<std::uint64_t>(element_type<T>) * (max_rank + 1) + Rank;
  ((digest = (digest ^ static_cast<std::uint64_t>(shape.extents[I])) * 0x9e3779b97f4a7c15u), ...);
  return static_cast<int>(digest >> 33);
}
}  // namespace detail

/// "[2, 3] of f32".
std::string to_string(const ValueKind& kind);

template <class T, int Rank>
constexpr ValueKind ValueKind::of(const Shape<Rank>& shape) {
  return detail::kind_of<T>(shape, std::make_integer_sequence<int, Rank>{});
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string to_string(const ValueKind& kind) {
  return to_string({kind.extents, kind.rank}) + " of " + name_of(kind.type);
}

namespace detail {

DSPP_INLINE int index_of_kind(std::vector<ValueKind>& kinds, const ValueKind& kind) {
  constexpr std::size_t looked_at = 8;
  const std::size_t count = kinds.size();
  for (std::size_t i = count; i-- > 0 && count - i <= looked_at;)
    if (kinds[i] == kind) return static_cast<int>(i);
  kinds.push_back(kind);
  return static_cast<int>(count);
}

DSPP_INLINE void require_kind(const ValueKind& wanted, const ValueKind& given) {
  if (wanted == given) return;
  fail(ErrorCode::shape, "dspp: a gradient needs the shape and element type of its variable, " + to_string(wanted) +
                             ", but it is " + to_string(given) + ". reshape or cast it before tape.give(slot, dx).");
}

DSPP_INLINE void fail_of_pass(bool same_tape) {
  fail(ErrorCode::state,
       std::string("dspp: a gradient needs a variable of the pass that runs back, but this variable is of ") +
           (same_tape ? "an earlier pass of the tape" : "another tape") +
           ". Compute it in this pass, or use Variable::constant(x.value(), tape) if it needs no gradient.");
}

DSPP_INLINE void fail_of_late_gradient() {
  fail(ErrorCode::state,
       "dspp: a gradient needs to come before the backward of its variable, but that has run: the gradient would be "
       "lost. Compute the variable again after backward, or call backward once for all that uses it.");
}

DSPP_INLINE void fail_of_rehearsed() {
  fail(ErrorCode::state,
       "dspp: a value made inside a function that backward runs again needs to stay inside, but one was used outside, "
       "where it has no gradient. Return it from the function, or compute it outside.");
}

DSPP_INLINE void fail_of_kept() {
  fail(ErrorCode::state,
       "dspp: recomputed(slot) needs a value that recomputation_of(slot) has before its own backward, but this one is "
       "not. Keep the value.");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
