// SPDX-License-Identifier: Apache-2.0
/// The pointwise kernels of dspp's own functors, which dspp::compiled holds: the list, and its declarations.
#pragma once

#include <dspp/ops/cpu/broadcast.hpp>
#include <dspp/ops/cpu/pointwise.hpp>
#include <dspp/ops/pointwise/functions.hpp>
#include <dspp/ops/pointwise/gelu.hpp>
#include <dspp/ops/pointwise/relu.hpp>
#include <dspp/ops/pointwise/silu.hpp>

#define DSPP_ACTIVATION_KERNELS(TEMPLATE, T, F)             \
  TEMPLATE struct Kernel<kernels::Pointwise<F, T, T>, Cpu>; \
  TEMPLATE struct Kernel<kernels::PointwisePair<pointwise::Vjp<F>, T, T, T>, Cpu>;

/// On values of type T; TEMPLATE is `template`, or `extern template` for declarations.
#define DSPP_POINTWISE_KERNELS(TEMPLATE, T)                                               \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::GeluExact)                              \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::GeluTanh)                               \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Relu)                                   \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Silu)                                   \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Tanh)                                   \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Sigmoid)                                \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Exp)                                    \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Log)                                    \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Sqrt)                                   \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::Square)                                 \
  DSPP_ACTIVATION_KERNELS(TEMPLATE, T, pointwise::DivideInto<Compute<T>>)                 \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::Affine<Compute<T>>, T, T>, Cpu>;   \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::DivideBy<Compute<T>>, T, T>, Cpu>; \
  TEMPLATE struct Kernel<kernels::PointwiseBroadcast<pointwise::Add, T>, Cpu>;            \
  TEMPLATE struct Kernel<kernels::PointwiseBroadcast<pointwise::Subtract, T>, Cpu>;       \
  TEMPLATE struct Kernel<kernels::PointwiseBroadcast<pointwise::Multiply, T>, Cpu>;       \
  TEMPLATE struct Kernel<kernels::PointwiseBroadcast<pointwise::Divide, T>, Cpu>;         \
  TEMPLATE struct Kernel<kernels::PointwisePair<pointwise::Add, T, T, T>, Cpu>;           \
  TEMPLATE struct Kernel<kernels::PointwisePair<pointwise::Multiply, T, T, T>, Cpu>;      \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::Scale<Compute<T>>, T, T>, Cpu>;    \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::Identity, double, T>, Cpu>;        \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::Identity, float, T>, Cpu>;         \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::Identity, bf16, T>, Cpu>;          \
  TEMPLATE struct Kernel<kernels::Pointwise<pointwise::Identity, f16, T>, Cpu>;

/// On values of bf16 or f16 with gradients of parameters in f32.
#define DSPP_WIDE_POINTWISE_KERNELS(TEMPLATE, T) \
  TEMPLATE struct Kernel<kernels::PointwisePair<pointwise::Add, float, float, T>, Cpu>;

#if !DSPP_HAS_KERNELS()
namespace dspp {
DSPP_POINTWISE_KERNELS(extern template, double)
DSPP_POINTWISE_KERNELS(extern template, float)
DSPP_POINTWISE_KERNELS(extern template, bf16)
DSPP_POINTWISE_KERNELS(extern template, f16)
DSPP_WIDE_POINTWISE_KERNELS(extern template, bf16)
DSPP_WIDE_POINTWISE_KERNELS(extern template, f16)
}  // namespace dspp
#endif
