// SPDX-License-Identifier: Apache-2.0
/// Sums of gradients that wait for their update.
#pragma once

#include <dspp/optim/optimizer.hpp>

namespace dspp {

/// A rule of updates beside those of optimizers: values are sums of gradients, which it scales as an update does.
struct GradientSum {
  static constexpr int moment_count = 0;
  enum class How {
    begin,  ///< the value becomes the gradient
    add,    ///< the gradient is added to the value
    keep,   ///< the value stays, and the parameter is rounded from it
  };
  How how = How::begin;

  /// In S, f32 or f64.
  template <class S>
  struct Rule {
    How how;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& b) const {
      for (std::size_t k = 0; k < N; ++k) {
        const S gradient = b.gradient[k], value = b.value[k];
        b.new_value[k] = how == How::begin ? gradient : how == How::add ? value + gradient : value;
      }
    }
  };
  template <class S>
  Rule<S> rule(const UpdateScalars&) const {
    return {how};
  }
};

#if !DSPP_HAS_KERNELS()
DSPP_UPDATE_KERNELS(extern template, GradientSum)
#endif

}  // namespace dspp
