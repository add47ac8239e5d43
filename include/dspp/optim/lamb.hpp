// SPDX-License-Identifier: Apache-2.0
/// LAMB: Adam with a rate for each parameter, from the norms of the parameter and of its update.
#pragma once

#include <cmath>

#include <dspp/base/square_roots.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp {

/// g = scale * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay p;  p = p - lr ratio u,
/// ratio = |p| / |u| between min_ratio and max_ratio, of the whole parameter; 1 where either norm is 0.
///
/// Algorithm 2 of the paper, with the bounds of the ratio that DeepSpeed's FusedLamb has.
///
/// Cost     two passes over parameters, gradients and moments; an all-reduce over the replicas of 16 bytes per
///          parameter and slice, and over Tp an all-gather of 16 bytes per parameter
/// Memory   two moments a parameter
/// Source   You et al. 2019, arXiv:1904.00962, algorithm 2
struct Lamb {
  static constexpr const char* name = "Lamb";
  static constexpr int moment_count = 2;

  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double min_ratio = 0.01;
  double max_ratio = 10;

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("beta1", beta1), f("beta2", beta2), f("epsilon", epsilon), f("weight_decay", weight_decay);
    f("min_ratio", min_ratio), f("max_ratio", max_ratio);
  }
  constexpr void check() const {
    // clang-format off
    require(detail::is_decay_rate(beta1) && detail::is_decay_rate(beta2), "dspp: Lamb needs betas from 0 to below 1, but got another. Change beta1 or beta2.");
    require(detail::is_at_least_zero(epsilon), "dspp: Lamb needs an epsilon of at least 0, but got another. Change it.");
    require(detail::is_at_least_zero(weight_decay), "dspp: Lamb needs a weight_decay of at least 0, but got another. Change it.");
    require(detail::is_at_least_zero(min_ratio) && detail::is_at_least_zero(max_ratio) && min_ratio <= max_ratio, "dspp: Lamb needs 0 <= min_ratio <= max_ratio, but got others. Change one of them.");
    // clang-format on
  }

  /// Gives the update, in S, f32 or f64.
  template <class S>
  struct Direction {
    S keep1, add1, keep2, add2, correction1, correction2, decay, small;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& b) const {
      S root[N];
      for (std::size_t k = 0; k < N; ++k) {
        const S g = b.gradient[k];
        b.new_moments[0][k] = keep1 * b.moments[0][k] + add1 * g;
        b.new_moments[1][k] = root[k] = keep2 * b.moments[1][k] + add2 * g * g;
      }
      square_roots(root);
      for (std::size_t k = 0; k < N; ++k)
        b.new_value[k] = correction1 * b.new_moments[0][k] / (root[k] * correction2 + small) + decay * b.value[k];
    }
  };
  template <class S>
  Direction<S> direction(const UpdateScalars& scalars) const;
  DSPP_HOST_DEVICE double ratio(double parameter_norm, double update_norm) const {
    if (!(parameter_norm > 0 && update_norm > 0)) return 1;
    const double quotient = parameter_norm / update_norm;
    return quotient < min_ratio ? min_ratio : quotient > max_ratio ? max_ratio : quotient;
  }
};

template <class S>
Lamb::Direction<S> Lamb::direction(const UpdateScalars& scalars) const {
  const double step = static_cast<double>(scalars.step);
  return {.keep1 = static_cast<S>(beta1),
          .add1 = static_cast<S>(1 - beta1),
          .keep2 = static_cast<S>(beta2),
          .add2 = static_cast<S>(1 - beta2),
          .correction1 = static_cast<S>(1 / (1 - std::pow(beta1, step))),
          .correction2 = static_cast<S>(1 / std::sqrt(1 - std::pow(beta2, step))),
          .decay = static_cast<S>(scalars.decay ? weight_decay : 0),
          .small = static_cast<S>(epsilon)};
}

static_assert(IsOptimizer<Lamb>);

}  // namespace dspp
