// SPDX-License-Identifier: Apache-2.0
/// Adam with decoupled weight decay, on a flat shard.
///
///   g = scale gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
///   p = (1 - lr decay) p - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
///
/// Bytes     bf16 parameters and gradients, f32 values and moments: 30 an element
/// Source    Loshchilov and Hutter 2017, Decoupled Weight Decay Regularization, algorithm 2
#pragma once

#include <cmath>

#include <kernels/update.cuh>

namespace dspp::gpu {

struct AdamWRule {
  static constexpr int moment_count = 2;
  float keep1, add1, keep2, add2, lr, first_correction, second_correction, epsilon;

  __device__ void operator()(const Segment& settings, float g, float& p, float (&m)[max_moments]) const {
    const float own_lr = lr * settings.lr_factor;
    m[0] = keep1 * m[0] + add1 * g;
    m[1] = keep2 * m[1] + add2 * g * g;
    p = (1 - own_lr * settings.weight_decay) * p -
        own_lr * first_correction * m[0] / (sqrtf(m[1]) * second_correction + epsilon);
  }
};

/// Step t counts from 1. `step` holds StepScalars, or is null.
template <class T, class G>
void adamw(cudaStream_t stream, const Shard<T, G>& shard, Size t, double lr, double beta1, double beta2, double epsilon,
           const double* step) {
  const auto f32 = [](double x) { return static_cast<float>(x); };
  const double steps = static_cast<double>(t);
  const AdamWRule rule{f32(beta1),
                       f32(1 - beta1),
                       f32(beta2),
                       f32(1 - beta2),
                       f32(lr),
                       f32(1 / (1 - std::pow(beta1, steps))),
                       f32(1 / std::sqrt(1 - std::pow(beta2, steps))),
                       f32(epsilon)};
  launch_update("adamw", stream, rule, shard, step);
}

}  // namespace dspp::gpu
