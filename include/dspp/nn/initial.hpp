// SPDX-License-Identifier: Apache-2.0
/// The initial values of a parameter: a description that every rank evaluates for its own slice only.
#pragma once

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// Element i of a parameter starts as a function of (seed, site, i) alone, so a model starts from the same values under
/// every strategy and no rank ever holds more than its shard.
struct Initial {
  enum class Kind { zeros, ones, normal };
  Kind kind = Kind::normal;
  double stddev = 0.02;  ///< of the normal distribution with mean 0

  static constexpr Initial zeros() { return {Kind::zeros, 0}; }
  static constexpr Initial ones() { return {Kind::ones, 0}; }
  /// Throws   Error(usage) unless it is a number of at least 0
  static constexpr Initial normal(double stddev) {
    require(stddev >= 0 && stddev - stddev == 0,
            "dspp: an initial value needs a standard deviation of at least 0, but got less, infinity or NaN. Change "
            "init_std.");
    return {Kind::normal, stddev};
  }
};

}  // namespace dspp
