// SPDX-License-Identifier: Apache-2.0
/// Adam with decoupled weight decay.
#pragma once

#include <cmath>

#include <dspp/base/square_roots.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp {

/// g = scale * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// p = (1 - lr decay) p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).
///
/// As torch.optim.AdamW and DeepSpeed's CPUAdam and FusedAdam (adam_w_mode) have it.
///
/// Cost     one pass: bound by memory
/// Memory   two moments a parameter
/// Source   Loshchilov and Hutter 2017, Decoupled Weight Decay Regularization, algorithm 2
struct AdamW {
  static constexpr const char* name = "AdamW";
  static constexpr int moment_count = 2;

  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("beta1", beta1), f("beta2", beta2), f("epsilon", epsilon), f("weight_decay", weight_decay);
  }

  constexpr void check() const {
    // clang-format off
    require(detail::is_decay_rate(beta1) && detail::is_decay_rate(beta2), "dspp: AdamW needs betas from 0 to below 1, but got another. Change beta1 or beta2.");
    require(detail::is_at_least_zero(epsilon), "dspp: AdamW needs an epsilon of at least 0, but got another. Change it.");
    require(detail::is_at_least_zero(weight_decay), "dspp: AdamW needs a weight_decay of at least 0, but got another. Change it.");
    // clang-format on
  }

  /// In S, f32 or f64.
  template <class S>
  struct Rule {
    S keep1, add1, keep2, add2, rate, correction, shrink, small;

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
        b.new_value[k] = shrink * b.value[k] - rate * b.new_moments[0][k] / (root[k] * correction + small);
    }
  };
  template <class S>
  Rule<S> rule(const UpdateScalars& scalars) const;
};

template <class S>
AdamW::Rule<S> AdamW::rule(const UpdateScalars& scalars) const {
  const double step = static_cast<double>(scalars.step);
  return {.keep1 = static_cast<S>(beta1),
          .add1 = static_cast<S>(1 - beta1),
          .keep2 = static_cast<S>(beta2),
          .add2 = static_cast<S>(1 - beta2),
          .rate = static_cast<S>(scalars.lr / (1 - std::pow(beta1, step))),
          .correction = static_cast<S>(1 / std::sqrt(1 - std::pow(beta2, step))),
          .shrink = static_cast<S>(scalars.decay ? 1 - scalars.lr * weight_decay : 1),
          .small = static_cast<S>(epsilon)};
}

static_assert(IsOptimizer<AdamW>);

#if !DSPP_HAS_KERNELS()
DSPP_UPDATE_KERNELS(extern template, AdamW)
#endif

}  // namespace dspp
