// SPDX-License-Identifier: Apache-2.0
/// Lion: the sign of an average of gradients.
#pragma once

#include <dspp/optim/optimizer.hpp>

namespace dspp {

/// g = scale * gradient;  c = beta1 m + (1 - beta1) g;  p = (1 - lr decay) p - lr sign(c);
/// m = beta2 m + (1 - beta2) g.
///
/// sign(0) = 0. As DeepSpeed's FusedLion and CPULion. A gradient that is 0 but for rounding moves its parameter by lr
/// in a direction that depends on the rounding: strategies that sum in another order part there, such as Tp from dense.
///
/// Cost     one pass: bound by memory
/// Memory   one moment a parameter
/// Source   Chen et al. 2023, arXiv:2302.06675, algorithm 2
struct Lion {
  static constexpr const char* name = "Lion";
  static constexpr int moment_count = 1;

  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("beta1", beta1), f("beta2", beta2), f("weight_decay", weight_decay);
  }
  constexpr void check() const {
    // clang-format off
    require(detail::is_decay_rate(beta1) && detail::is_decay_rate(beta2), "dspp: Lion needs betas from 0 to below 1, but got another. Change beta1 or beta2.");
    require(detail::is_at_least_zero(weight_decay), "dspp: Lion needs a weight_decay of at least 0, but got another. Change it.");
    // clang-format on
  }

  /// In S, f32 or f64.
  template <class S>
  struct Rule {
    S keep1, add1, keep2, add2, rate, shrink;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& b) const {
      for (std::size_t k = 0; k < N; ++k) {
        const S g = b.gradient[k];
        const S c = keep1 * b.moments[0][k] + add1 * g;
        const S sign = static_cast<S>(c > S(0)) - static_cast<S>(c < S(0));
        b.new_moments[0][k] = keep2 * b.moments[0][k] + add2 * g;
        b.new_value[k] = shrink * b.value[k] - rate * sign;
      }
    }
  };
  template <class S>
  Rule<S> rule(const UpdateScalars& scalars) const {
    return {.keep1 = static_cast<S>(beta1),
            .add1 = static_cast<S>(1 - beta1),
            .keep2 = static_cast<S>(beta2),
            .add2 = static_cast<S>(1 - beta2),
            .rate = static_cast<S>(scalars.lr),
            .shrink = static_cast<S>(scalars.decay ? 1 - scalars.lr * weight_decay : 1)};
  }
};

static_assert(IsOptimizer<Lion>);

#if !DSPP_HAS_KERNELS()
DSPP_UPDATE_KERNELS(extern template, Lion)
#endif

}  // namespace dspp
