// SPDX-License-Identifier: Apache-2.0
/// Stochastic gradient descent, without and with momentum, on a flat shard.
///
///   g = scale gradient + decay p;  p = p - lr g
///   with momentum:  m = momentum m + g;  p = p - lr m, or p - lr (g + momentum m) with nesterov
///
/// Bytes     bf16 parameters and gradients, f32 values: 12 an element, 20 with momentum
/// Source    Sutskever, Martens, Dahl, Hinton 2013, On the importance of initialization and momentum
#pragma once

#include <kernels/update.cuh>

namespace dspp::gpu {

struct SgdRule {
  static constexpr int moment_count = 0;
  float lr;

  __device__ void operator()(const Segment& settings, float g, float& p, float (&)[max_moments]) const {
    p -= lr * settings.lr_factor * (g + settings.weight_decay * p);
  }
};

struct MomentumSgdRule {
  static constexpr int moment_count = 1;
  float lr, momentum, direct, through;

  __device__ void operator()(const Segment& settings, float g, float& p, float (&m)[max_moments]) const {
    g += settings.weight_decay * p;
    m[0] = momentum * m[0] + g;
    p -= lr * settings.lr_factor * (direct * g + through * m[0]);
  }
};

/// `step` holds StepScalars, or is null.
template <class T, class G>
void sgd(cudaStream_t stream, const Shard<T, G>& shard, double lr, const double* step) {
  launch_update("sgd", stream, SgdRule{static_cast<float>(lr)}, shard, step);
}

template <class T, class G>
void momentum_sgd(cudaStream_t stream, const Shard<T, G>& shard, double lr, double momentum, bool nesterov,
                  const double* step) {
  const auto keep = static_cast<float>(momentum);
  const MomentumSgdRule rule{static_cast<float>(lr), keep, nesterov ? 1.0f : 0.0f, nesterov ? keep : 1.0f};
  launch_update("momentum_sgd", stream, rule, shard, step);
}

}  // namespace dspp::gpu
