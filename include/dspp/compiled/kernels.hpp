// SPDX-License-Identifier: Apache-2.0
/// The kernels of the Cpu that dspp::compiled holds, as lists of instantiations; those of dspp's functors are listed in
/// ops/cpu/library_pointwise.hpp, those of its optimizers in ops/cpu/update.hpp. What has a functor or an optimizer of
/// the user's is instantiated where it is used.
#pragma once

#include <dspp/ops.hpp>

/// Of elements of type T, integers too, that are moved, chosen and looked at.
#define DSPP_MOVES_OF(T)                                         \
  template struct Kernel<kernels::AllFinite<T>, Cpu>;            \
  template struct Kernel<kernels::CopyRuns<T>, Cpu>;             \
  template struct Kernel<kernels::ZeroRuns<T>, Cpu>;             \
  template struct Kernel<kernels::CopyStrided<T>, Cpu>;          \
  template struct Kernel<kernels::MaxAlong<T>, Cpu>;             \
  template struct Kernel<kernels::MaxAlongVjp<T>, Cpu>;          \
  template struct Kernel<kernels::Select<T, std::uint8_t>, Cpu>; \
  template struct Kernel<kernels::Select<T, std::int32_t>, Cpu>; \
  template struct Kernel<kernels::Gather<T>, Cpu>;               \
  template struct Kernel<kernels::GatherVjp<T>, Cpu>;

/// Of elements of type T that hold sums: not of bytes.
#define DSPP_SUMS_OF(T)                               \
  template struct Kernel<kernels::Sum<T>, Cpu>;       \
  template struct Kernel<kernels::Broadcast<T>, Cpu>; \
  template struct Kernel<kernels::SumAlong<T>, Cpu>;

/// Of values of type T.
#define DSPP_KERNELS_OF(T)                                      \
  DSPP_MOVES_OF(T)                                              \
  DSPP_SUMS_OF(T)                                               \
  template struct Kernel<kernels::SumRepeats<T>, Cpu>;          \
  template struct Kernel<kernels::Quantize<T>, Cpu>;            \
  template struct Kernel<kernels::SumQuantized<T>, Cpu>;        \
  template struct Kernel<kernels::SquaredNorm<T, double>, Cpu>; \
  template struct Kernel<kernels::AddBias<T>, Cpu>;             \
  template struct Kernel<kernels::LayerNorm<T>, Cpu>;           \
  template struct Kernel<kernels::RmsNorm<T>, Cpu>;             \
  template struct Kernel<kernels::Softmax<T>, Cpu>;             \
  template struct Kernel<kernels::SoftmaxVjp<T>, Cpu>;          \
  template struct Kernel<kernels::Swiglu<T>, Cpu>;              \
  template struct Kernel<kernels::SwigluVjp<T>, Cpu>;           \
  template struct Kernel<kernels::Rotary<T>, Cpu>;              \
  template struct Kernel<kernels::Dropout<T>, Cpu>;             \
  template struct Kernel<kernels::Normals<T>, Cpu>;             \
  template struct Kernel<kernels::Embedding<T>, Cpu>;           \
  template struct Kernel<kernels::CrossEntropyParts<T>, Cpu>;   \
  template struct Kernel<kernels::CrossEntropyVjp<T>, Cpu>;     \
  template struct Kernel<kernels::CrossEntropyInPlace<T>, Cpu>; \
  template struct Kernel<kernels::CrossEntropyFinish<T>, Cpu>;  \
  template struct Kernel<kernels::BatchedMatmul<T>, Cpu>;       \
  template struct Kernel<kernels::Attention<T>, Cpu>;           \
  template struct Kernel<kernels::AttentionVjp<T>, Cpu>;        \
  template struct Kernel<kernels::GroupedAttention<T>, Cpu>;    \
  template struct Kernel<kernels::GroupedAttentionVjp<T>, Cpu>;

/// Of values of type T with gradients of parameters, or a result, of type G.
#define DSPP_KERNELS_WITH_GRADIENTS(T, G)                   \
  template struct Kernel<kernels::SumRows<T, G>, Cpu>;      \
  template struct Kernel<kernels::LayerNormVjp<T, G>, Cpu>; \
  template struct Kernel<kernels::RmsNormVjp<T, G>, Cpu>;   \
  template struct Kernel<kernels::EmbeddingVjp<T, G>, Cpu>; \
  template struct Kernel<kernels::Matmul<T, G>, Cpu>;

/// Of sums of type C: float or double.
#define DSPP_KERNELS_OF_SUMS(C)                                 \
  template struct Kernel<kernels::RotaryTable<C>, Cpu>;         \
  template struct Kernel<kernels::Exchange<C>, Cpu>;            \
  template struct Kernel<kernels::CrossEntropyCombine<C>, Cpu>; \
  template struct Kernel<kernels::CountTargets<C>, Cpu>;        \
  template struct Kernel<kernels::Widen<C>, Cpu>;               \
  template struct Kernel<kernels::SeedLoss<C>, Cpu>;

/// Of integers of type T: ids, lengths, masks.
#define DSPP_KERNELS_OF_INTEGERS(T)                                                 \
  DSPP_MOVES_OF(T)                                                                  \
  template struct Kernel<kernels::PointwiseBroadcast<pointwise::Add, T>, Cpu>;      \
  template struct Kernel<kernels::PointwiseBroadcast<pointwise::Subtract, T>, Cpu>; \
  template struct Kernel<kernels::PointwiseBroadcast<pointwise::Multiply, T>, Cpu>;
