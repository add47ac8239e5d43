// SPDX-License-Identifier: Apache-2.0
// Comparisons inverted at run time, for mutations.sh: `a < b` becomes `a < Turned<7>{} < b`, which is `a < b` unless
// the environment's DSPP_TURNED is 7, and in constant expressions, and else `a <= b`.
#pragma once
#include <cstdlib>
#include <type_traits>

namespace dspp::turned {

template <int number>
struct Turned {};

template <int number, class A>
struct Left {
  const A& value;
};

inline const int chosen = std::getenv("DSPP_TURNED") ? std::atoi(std::getenv("DSPP_TURNED")) : 0;

constexpr bool is_turned(int number) {
  return !std::is_constant_evaluated() && chosen == number;
}

#define DSPP_TURNED_OPERATOR(from, to)                                  \
  template <int number, class A>                                        \
  constexpr Left<number, A> operator from(const A& a, Turned<number>) { \
    return {a};                                                         \
  }                                                                     \
  template <int number, class A, class B>                               \
  constexpr bool operator from(const Left<number, A>& a, const B& b) {  \
    return is_turned(number) ? a.value to b : a.value from b;           \
  }
DSPP_TURNED_OPERATOR(==, !=)
DSPP_TURNED_OPERATOR(!=, ==)
DSPP_TURNED_OPERATOR(<, <=)
DSPP_TURNED_OPERATOR(>, >=)
DSPP_TURNED_OPERATOR(<=, <)
DSPP_TURNED_OPERATOR(>=, >)
#undef DSPP_TURNED_OPERATOR

}  // namespace dspp::turned
