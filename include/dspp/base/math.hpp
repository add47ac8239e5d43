// SPDX-License-Identifier: Apache-2.0
/// exp, log, tanh and erf of f32 without calls, so that loops over them vectorise; those of f64 are libm's.
#pragma once

#include <cmath>

namespace dspp::math {

inline float exp(float x) {
  return std::exp(x);
}
inline double exp(double x) {
  return std::exp(x);
}
inline float log(float x) {
  return std::log(x);
}
inline double log(double x) {
  return std::log(x);
}
inline float tanh(float x) {
  return std::tanh(x);
}
inline double tanh(double x) {
  return std::tanh(x);
}
inline float erf(float x) {
  return std::erf(x);
}
inline double erf(double x) {
  return std::erf(x);
}

}  // namespace dspp::math
