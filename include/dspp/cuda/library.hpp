// SPDX-License-Identifier: Apache-2.0
/// The kernels that dspp::cuda holds: one list, of which its units (kernels/library/) are instantiations. Programs that
/// link it are compiled by any compiler. Whatever else a program launches it compiles itself, by nvcc and with
/// kernels/cuda_kernels.cuh.
#pragma once

#include <cstdint>

#include <dspp/base/element.hpp>
#include <dspp/cuda/kernels.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>
#include <dspp/ops/pointwise/functions.hpp>
#include <dspp/ops/pointwise/gelu.hpp>
#include <dspp/ops/pointwise/relu.hpp>
#include <dspp/ops/pointwise/silu.hpp>

// Each list calls X(<name>), and the name may have commas.

#define DSPP_CUDA_ACTIVATION(X, T, F) \
  X(kernels::Pointwise<F, T, T>)      \
  X(kernels::PointwisePair<pointwise::Vjp<F>, T, T, T>)

/// dspp's own functors on values of type T: float, bf16 or f16.
#define DSPP_CUDA_POINTWISE_KERNELS(X, T)                  \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::GeluExact)         \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::GeluTanh)          \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Relu)              \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Silu)              \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Tanh)              \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Sigmoid)           \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Exp)               \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Log)               \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Sqrt)              \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::Square)            \
  DSPP_CUDA_ACTIVATION(X, T, pointwise::DivideInto<float>) \
  X(kernels::Pointwise<pointwise::Affine<float>, T, T>)    \
  X(kernels::Pointwise<pointwise::DivideBy<float>, T, T>)  \
  X(kernels::Pointwise<pointwise::Scale<float>, T, T>)     \
  X(kernels::Pointwise<pointwise::Identity, float, T>)     \
  X(kernels::Pointwise<pointwise::Identity, bf16, T>)      \
  X(kernels::Pointwise<pointwise::Identity, f16, T>)       \
  X(kernels::PointwisePair<pointwise::Add, T, T, T>)       \
  X(kernels::PointwisePair<pointwise::Multiply, T, T, T>)  \
  X(kernels::PointwiseBroadcast<pointwise::Add, T>)        \
  X(kernels::PointwiseBroadcast<pointwise::Subtract, T>)   \
  X(kernels::PointwiseBroadcast<pointwise::Multiply, T>)   \
  X(kernels::PointwiseBroadcast<pointwise::Divide, T>)

/// Of values of type T, which are moved, compared and summed.
#define DSPP_CUDA_VALUE_KERNELS(X, T) \
  X(kernels::ScaleBy<T>)              \
  X(kernels::CopyRuns<T>)             \
  X(kernels::ZeroRuns<T>)             \
  X(kernels::CopyStrided<T>)          \
  X(kernels::SumAlong<T>)             \
  X(kernels::MaxAlong<T>)             \
  X(kernels::MaxAlongVjp<T>)          \
  X(kernels::Select<T, std::uint8_t>) \
  X(kernels::Select<T, std::int32_t>) \
  X(kernels::Gather<T>)               \
  X(kernels::GatherVjp<T>)            \
  X(kernels::SumRepeats<T>)           \
  X(kernels::Quantize<T>)             \
  X(kernels::SumQuantized<T>)         \
  X(kernels::Sum<T>)                  \
  X(kernels::SquaredNorm<T, float>)   \
  X(kernels::SquaredNorm<T, double>)  \
  X(kernels::AllFinite<T>)            \
  X(kernels::AddSquares<T>)           \
  X(kernels::AddRowSquares<T>)        \
  X(kernels::Broadcast<T>)

/// Of layers whose values have type T.
#define DSPP_CUDA_LAYER_KERNELS(X, T) \
  X(kernels::AddBias<T>)              \
  X(kernels::LayerNorm<T>)            \
  X(kernels::RmsNorm<T>)              \
  X(kernels::Softmax<T>)              \
  X(kernels::SoftmaxVjp<T>)           \
  X(kernels::Swiglu<T>)               \
  X(kernels::SwigluVjp<T>)            \
  X(kernels::Rotary<T>)               \
  X(kernels::Dropout<T>)              \
  X(kernels::Normals<T>)              \
  X(kernels::Embedding<T>)            \
  X(kernels::CrossEntropyParts<T>)    \
  X(kernels::CrossEntropyVjp<T>)      \
  X(kernels::CrossEntropyInPlace<T>)  \
  X(kernels::CrossEntropyFinish<T>)   \
  X(kernels::BatchedMatmul<T>)        \
  X(kernels::Attention<T>)            \
  X(kernels::AttentionVjp<T>)         \
  X(kernels::GroupedAttention<T>)     \
  X(kernels::GroupedAttentionVjp<T>)

/// Of values of type T with gradients of parameters, or a result, of type G.
#define DSPP_CUDA_GRADIENT_KERNELS(X, T, G) \
  X(kernels::SumRows<T, G>)                 \
  X(kernels::LayerNormVjp<T, G>)            \
  X(kernels::RmsNormVjp<T, G>)              \
  X(kernels::EmbeddingVjp<T, G>)            \
  X(kernels::Matmul<T, G>)

/// The same for each narrow T, whose gradients may be f32.
#define DSPP_CUDA_NARROW_KERNELS(X, T)    \
  DSPP_CUDA_POINTWISE_KERNELS(X, T)       \
  DSPP_CUDA_VALUE_KERNELS(X, T)           \
  DSPP_CUDA_LAYER_KERNELS(X, T)           \
  DSPP_CUDA_GRADIENT_KERNELS(X, T, T)     \
  DSPP_CUDA_GRADIENT_KERNELS(X, T, float) \
  X(kernels::PointwisePair<pointwise::Add, float, float, T>)

#define DSPP_CUDA_BF16_KERNELS(X) DSPP_CUDA_NARROW_KERNELS(X, bf16)
#define DSPP_CUDA_F16_KERNELS(X) DSPP_CUDA_NARROW_KERNELS(X, f16)
#define DSPP_CUDA_F32_KERNELS(X)              \
  DSPP_CUDA_POINTWISE_KERNELS(X, float)       \
  DSPP_CUDA_VALUE_KERNELS(X, float)           \
  DSPP_CUDA_LAYER_KERNELS(X, float)           \
  DSPP_CUDA_GRADIENT_KERNELS(X, float, float) \
  X(kernels::Exchange<float>)                 \
  X(kernels::PointwisePair<detail::Combination, float, float, float>)

/// Of integers of type T, which are moved and looked at.
#define DSPP_CUDA_INTEGERS(X, T) \
  X(kernels::AllFinite<T>)       \
  X(kernels::CopyRuns<T>)        \
  X(kernels::ZeroRuns<T>)        \
  X(kernels::CopyStrided<T>)
/// The same, converted to values and back, as masks and labels are in arithmetic.
#define DSPP_CUDA_CONVERTED_INTEGERS(X, T)             \
  DSPP_CUDA_INTEGERS(X, T)                             \
  X(kernels::Pointwise<pointwise::Identity, float, T>) \
  X(kernels::Pointwise<pointwise::Identity, bf16, T>)  \
  X(kernels::Pointwise<pointwise::Identity, f16, T>)   \
  X(kernels::Pointwise<pointwise::Identity, T, float>) \
  X(kernels::Pointwise<pointwise::Identity, T, bf16>)  \
  X(kernels::Pointwise<pointwise::Identity, T, f16>)   \
  X(kernels::PointwisePair<pointwise::Add, T, T, T>)
#define DSPP_CUDA_INTEGER_KERNELS(X)                                \
  DSPP_CUDA_CONVERTED_INTEGERS(X, std::int32_t)                     \
  DSPP_CUDA_CONVERTED_INTEGERS(X, std::uint8_t)                     \
  DSPP_CUDA_INTEGERS(X, std::int64_t)                               \
  X(kernels::PointwisePair<pointwise::Add, double, double, double>) \
  X(kernels::Pointwise<pointwise::Scale<double>, double, double>)

/// Of optimizer O, in every combination of element types.
#define DSPP_CUDA_FOR_UPDATES(X, Name, O)  \
  X(kernels::Name<O, float, float, float>) \
  X(kernels::Name<O, bf16, bf16, float>)   \
  X(kernels::Name<O, bf16, float, float>)  \
  X(kernels::Name<O, f16, f16, float>)     \
  X(kernels::Name<O, f16, float, float>)
#define DSPP_CUDA_UPDATE_KERNELS(X)                \
  DSPP_CUDA_FOR_UPDATES(X, Update, AdamW)          \
  DSPP_CUDA_FOR_UPDATES(X, Update, Adagrad)        \
  DSPP_CUDA_FOR_UPDATES(X, Update, Lion)           \
  DSPP_CUDA_FOR_UPDATES(X, Update, Sgd)            \
  DSPP_CUDA_FOR_UPDATES(X, Update, MomentumSgd)    \
  DSPP_CUDA_FOR_UPDATES(X, Update, Muon)           \
  DSPP_CUDA_FOR_UPDATES(X, Update, GradientSum)    \
  DSPP_CUDA_FOR_UPDATES(X, MatrixDirections, Muon) \
  X(kernels::UpdateMatrices<Muon, float, float>)   \
  X(kernels::UpdateMatrices<Muon, bf16, float>)    \
  X(kernels::UpdateMatrices<Muon, f16, float>)     \
  DSPP_CUDA_FOR_UPDATES(X, AddUpdateSquares, Lamb) \
  DSPP_CUDA_FOR_UPDATES(X, UpdateByNorms, Lamb)

/// Those that depend on no type: kernels/cuda_kernels.cuh and cuda_step_kernels.cuh define them, no list instantiates.
#define DSPP_CUDA_PLAIN_KERNELS(X)       \
  X(kernels::DigestOf)                   \
  X(kernels::ContinueDigest)             \
  X(kernels::PlacedDigestOf)             \
  X(kernels::ComparePlacedDigest)        \
  X(kernels::NanIfAny)                   \
  X(kernels::Rotate)                     \
  X(kernels::Normalize<float>)           \
  X(kernels::AddPairs)                   \
  X(kernels::SumPairs)                   \
  X(kernels::NormOfPairs)                \
  X(kernels::JudgeStep)                  \
  X(kernels::SumTargetWeights)           \
  X(kernels::RequireSameCounts)          \
  X(kernels::RequireSumOfWeights)        \
  X(kernels::CountTargets<float>)        \
  X(kernels::Widen<float>)               \
  X(kernels::AddCounted)                 \
  X(kernels::SeedLoss<float>)            \
  X(kernels::SumUpTargets)               \
  X(kernels::RotaryTable<float>)         \
  X(kernels::RequireIds)                 \
  X(kernels::RequireWeights)             \
  X(kernels::RequireLengths)             \
  X(kernels::CrossEntropyCombine<float>) \
  X(kernels::KeyRanges)

namespace dspp {

struct AdamW;
struct GradientSum;
struct Adagrad;
struct Lion;
struct Sgd;
struct MomentumSgd;
struct Muon;
struct Lamb;

namespace detail {
struct Combination;

/// Whether dspp::cuda holds the kernel.
template <class Name>
inline constexpr bool in_cuda_library = false;
/// Whether this unit compiles kernels of device D itself, as kernels/cuda_kernels.cuh says.
template <class D, class Name>
inline constexpr bool compiles_kernels = false;

#define DSPP_IN_CUDA_LIBRARY(...) \
  template <>                     \
  inline constexpr bool in_cuda_library<__VA_ARGS__> = true;
DSPP_CUDA_F32_KERNELS(DSPP_IN_CUDA_LIBRARY)
DSPP_CUDA_BF16_KERNELS(DSPP_IN_CUDA_LIBRARY)
DSPP_CUDA_F16_KERNELS(DSPP_IN_CUDA_LIBRARY)
DSPP_CUDA_INTEGER_KERNELS(DSPP_IN_CUDA_LIBRARY)
DSPP_CUDA_UPDATE_KERNELS(DSPP_IN_CUDA_LIBRARY)
DSPP_CUDA_PLAIN_KERNELS(DSPP_IN_CUDA_LIBRARY)
#undef DSPP_IN_CUDA_LIBRARY

/// Refuses a kernel that this unit would neither link nor compile.
template <class Name>
constexpr void check_cuda_kernel() {
  static_assert(in_cuda_library<Name> || compiles_kernels<Cuda, Name>,
                "dspp: Cuda needs nvcc for element code of your own (custom_op, functors, optimizers), but this unit "
                "compiles no kernels, and dspp::cuda holds none for this one. Compile it by nvcc, and include "
                "<kernels/cuda_kernels.cuh>; f64 is not for GPUs.");
}
}  // namespace detail

}  // namespace dspp
