// SPDX-License-Identifier: Apache-2.0
/// Adagrad: rates that fall with the sum of squared gradients.
#pragma once

#include <dspp/base/square_roots.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp {

/// g = scale * gradient + decay p;  s = s + g^2;  p = p - lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + epsilon).
///
/// As torch.optim.Adagrad with an initial accumulator of 0, and DeepSpeed's CPUAdagrad with lr_decay = 0.
///
/// Cost     one pass: bound by memory
/// Memory   one moment a parameter
/// Source   Duchi, Hazan, Singer 2011, Adaptive subgradient methods, figure 1
struct Adagrad {
  static constexpr const char* name = "Adagrad";
  static constexpr int moment_count = 1;

  double lr = 1e-2;
  double lr_decay = 0;
  double epsilon = 1e-10;
  double weight_decay = 0;

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("lr_decay", lr_decay), f("epsilon", epsilon), f("weight_decay", weight_decay);
  }
  constexpr void check() const {
    // clang-format off
    require(detail::is_at_least_zero(lr_decay), "dspp: Adagrad needs an lr_decay of at least 0, but got another. Change it.");
    require(detail::is_at_least_zero(epsilon), "dspp: Adagrad needs an epsilon of at least 0, but got another. Change it.");
    require(detail::is_at_least_zero(weight_decay), "dspp: Adagrad needs a weight_decay of at least 0, but got another. Change it.");
    // clang-format on
  }

  /// In S, f32 or f64.
  template <class S>
  struct Rule {
    S rate, decay, small;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& b) const {
      S g[N], root[N];
      for (std::size_t k = 0; k < N; ++k) {
        g[k] = b.gradient[k] + decay * b.value[k];
        b.new_moments[0][k] = root[k] = b.moments[0][k] + g[k] * g[k];
      }
      square_roots(root);
      for (std::size_t k = 0; k < N; ++k) b.new_value[k] = b.value[k] - rate * g[k] / (root[k] + small);
    }
  };
  template <class S>
  Rule<S> rule(const UpdateScalars& scalars) const {
    return {.rate = static_cast<S>(scalars.lr / (1 + static_cast<double>(scalars.step - 1) * lr_decay)),
            .decay = static_cast<S>(scalars.decay ? weight_decay : 0),
            .small = static_cast<S>(epsilon)};
  }
};

static_assert(IsOptimizer<Adagrad>);

#if !DSPP_HAS_KERNELS()
DSPP_UPDATE_KERNELS(extern template, Adagrad)
#endif

}  // namespace dspp
