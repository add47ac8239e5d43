// SPDX-License-Identifier: Apache-2.0
/// Stochastic gradient descent, without and with momentum.
#pragma once

#include <dspp/optim/optimizer.hpp>

namespace dspp {

/// g = scale * gradient + decay p;  p = p - lr g. As torch.optim.SGD.
///
/// Cost     one pass: bound by memory
struct Sgd {
  static constexpr const char* name = "Sgd";
  static constexpr int moment_count = 0;

  double lr = 1e-3;
  double weight_decay = 0;

  constexpr void describe(auto&& f) const { f("lr", lr), f("weight_decay", weight_decay); }
  constexpr void check() const {
    // clang-format off
    require(detail::is_at_least_zero(weight_decay), "dspp: Sgd needs a weight_decay of at least 0, but got another. Change it.");
    // clang-format on
  }

  /// In S, f32 or f64.
  template <class S>
  struct Rule {
    S rate, decay;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& b) const {
      for (std::size_t k = 0; k < N; ++k) b.new_value[k] = b.value[k] - rate * (b.gradient[k] + decay * b.value[k]);
    }
  };
  template <class S>
  Rule<S> rule(const UpdateScalars& scalars) const {
    return {static_cast<S>(scalars.lr), static_cast<S>(scalars.decay ? weight_decay : 0)};
  }
};

/// g = scale * gradient + decay p;  m = momentum m + g;  p = p - lr m, or p - lr (g + momentum m) with nesterov.
/// As torch.optim.SGD without dampening.
///
/// Cost     one pass: bound by memory
/// Memory   one moment a parameter
/// Source   Sutskever, Martens, Dahl, Hinton 2013, On the importance of initialization and momentum
struct MomentumSgd {
  static constexpr const char* name = "MomentumSgd";
  static constexpr int moment_count = 1;

  double lr = 1e-3;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;

  constexpr void describe(auto&& f) const {
    f("lr", lr), f("momentum", momentum), f("nesterov", nesterov), f("weight_decay", weight_decay);
  }
  constexpr void check() const {
    // clang-format off
    require(detail::is_decay_rate(momentum), "dspp: MomentumSgd needs a momentum from 0 to below 1, but got another. Change it.");
    require(momentum > 0 || !nesterov, "dspp: MomentumSgd needs a momentum above 0 for nesterov, but it is 0. Change one of them.");
    require(detail::is_at_least_zero(weight_decay), "dspp: MomentumSgd needs a weight_decay of at least 0, but got another. Change it.");
    // clang-format on
  }

  /// In S, f32 or f64.
  template <class S>
  struct Rule {
    S rate, decay, keep, direct, through;

    template <std::size_t N>
    DSPP_HOST_DEVICE void operator()(UpdateBlock<S, N>& b) const {
      for (std::size_t k = 0; k < N; ++k) {
        const S g = b.gradient[k] + decay * b.value[k];
        const S m = keep * b.moments[0][k] + g;
        b.new_moments[0][k] = m;
        b.new_value[k] = b.value[k] - rate * (direct * g + through * m);
      }
    }
  };
  template <class S>
  Rule<S> rule(const UpdateScalars& scalars) const {
    const S keep = static_cast<S>(momentum);
    return {.rate = static_cast<S>(scalars.lr),
            .decay = static_cast<S>(scalars.decay ? weight_decay : 0),
            .keep = keep,
            .direct = nesterov ? S(1) : S(0),
            .through = nesterov ? keep : S(1)};
  }
};

static_assert(IsOptimizer<Sgd> && IsOptimizer<MomentumSgd>);

#if !DSPP_HAS_KERNELS()
DSPP_UPDATE_KERNELS(extern template, Sgd)
DSPP_UPDATE_KERNELS(extern template, MomentumSgd)
#endif

}  // namespace dspp
