// SPDX-License-Identifier: Apache-2.0
/// The kernels of a GPU: declared here for any compiler, defined in kernels/cuda_kernels.cuh for nvcc. What they
/// compute is said in ops/kernels.hpp; a workspace, where a kernel needs one beside its arguments, comes last.
#pragma once

#include <cstddef>
#include <cstdint>

#include <dspp/cuda/cudnn.hpp>
#include <dspp/cuda/extents.hpp>
#include <dspp/cuda/memory.hpp>
#include <dspp/ops/kernels.hpp>
#include <dspp/ops/rope_scaling.hpp>

namespace dspp {

struct Cuda;

namespace detail {
template <class Name>
inline constexpr bool has_cuda_kernel = false;
}

/// Of names that have no kernel below.
template <class Name>
struct Kernel<Name, Cuda> {
  static_assert(detail::has_cuda_kernel<Name>,
                "dspp: Cuda needs a kernel for each operation, but has none for this one, nor for f64. Use F32, Bf16 "
                "or F16, another operation, or Cpu.");
};

// ---- elements -------------------------------------------------------------------------------------------------------

template <class F, class U, class T>
struct Kernel<kernels::Pointwise<F, U, T>, Cuda> {
  static void run(CudaMemory& on, F f, Size count, U* y, const T* x);
};
template <class F, class U, class T, class V>
struct Kernel<kernels::PointwisePair<F, U, T, V>, Cuda> {
  static void run(CudaMemory& on, F f, Size count, U* z, const T* x, const V* y);
};
template <class F, class T>
struct Kernel<kernels::PointwiseBroadcast<F, T>, Cuda> {
  static void run(CudaMemory& on, F f, const kernels::Repeats& at, T* z, const T* x, const T* y);
};
template <class F, class T>
struct Kernel<kernels::PointwiseVjpOfTwo<F, T>, Cuda> {
  static void run(CudaMemory& on, F f, Size count, T* da, T* db, const T* a, const T* b, const T* dy);
};
template <class T>
struct Kernel<kernels::ScaleBy<T>, Cuda> {
  static void run(CudaMemory& on, Size count, T* y, const T* x, const float* by, double factor);
};
template <class T>
struct Kernel<kernels::CopyRuns<T>, Cuda> {
  static void run(CudaMemory& on, Size outer, Size run, T* y, Size y_stride, const T* x, Size x_stride);
};
template <class T>
struct Kernel<kernels::ZeroRuns<T>, Cuda> {
  static void run(CudaMemory& on, Size outer, Size run, T* y, Size y_stride);
};
template <class T>
struct Kernel<kernels::CopyStrided<T>, Cuda> {
  static void run(CudaMemory& on, const kernels::Strides& at, T* y, const T* x);
};
template <class T>
struct Kernel<kernels::Exchange<T>, Cuda> {
  static void run(CudaMemory& on, Size count, T* x, T* y);
};
template <class T>
struct Kernel<kernels::SumAlong<T>, Cuda> {
  static void run(CudaMemory& on, const kernels::SumExtents& at, double divisor, T* y, const T* x);
};
template <class T>
struct Kernel<kernels::MaxAlong<T>, Cuda> {
  static void run(CudaMemory& on, Size outer, Size n, Size inner, T* y, std::int32_t* place, const T* x);
};
template <class T>
struct Kernel<kernels::MaxAlongVjp<T>, Cuda> {
  static void run(CudaMemory& on, Size outer, Size n, Size inner, T* dx, const T* dy, const std::int32_t* place);
};
template <class T, class M>
struct Kernel<kernels::Select<T, M>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, T* y, const M* mask, const T* a, double a_number, const T* b,
                  double b_number);
};
template <class T>
struct Kernel<kernels::Gather<T>, Cuda> {
  static void run(CudaMemory& on, Size outer, Size rows, Size count, Size n, T* y, const T* x, const std::int32_t* ids);
};
template <class T>
struct Kernel<kernels::GatherVjp<T>, Cuda> {
  static void run(CudaMemory& on, Size outer, Size rows, Size count, Size n, T* dx, const T* dy,
                  const std::int32_t* ids, std::int32_t* starts, std::int32_t* order);
};
template <class T>
struct Kernel<kernels::SumRepeats<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, Size times, T* y, const T* x);
};
template <class T>
struct Kernel<kernels::Sum<T>, Cuda> {
  static void run(CudaMemory& on, Size count, const T* x, double divisor, float* total);
};
template <class T, class U>
struct Kernel<kernels::SquaredNorm<T, U>, Cuda> {
  static void run(CudaMemory& on, Size count, const T* x, U* total);
};
template <class T>
struct Kernel<kernels::AllFinite<T>, Cuda> {
  static bool run(CudaMemory& on, Size count, const T* x);
};
template <class T>
struct Kernel<kernels::Broadcast<T>, Cuda> {
  static void run(CudaMemory& on, Size count, const float* value, double divisor, T* y);
};
template <>
struct Kernel<kernels::DigestOf, Cuda> {
  static std::uint64_t run(CudaMemory& on, std::uint64_t start, Size bytes, const std::byte* x);
};
template <>
struct Kernel<kernels::ContinueDigest, Cuda> {
  static void run(CudaMemory& on, Size bytes, const std::byte* x, std::uint64_t* digest);
};
template <>
struct Kernel<kernels::PlacedDigestOf, Cuda> {
  static void run(CudaMemory& on, Size bytes, const std::byte* x, std::uint64_t* digest);
};
template <>
struct Kernel<kernels::ComparePlacedDigest, Cuda> {
  static void run(CudaMemory& on, Size bytes, const std::byte* x, const std::uint64_t* digest, std::uint64_t* changed);
};
template <>
struct Kernel<kernels::NanIfAny, Cuda> {
  static void run(CudaMemory& on, Size words, Size stride, const std::uint64_t* word, Size count, double* y);
};
template <>
struct Kernel<kernels::Rotate, Cuda> {
  static void run(CudaMemory& on, Size bytes, Size by, std::byte* x);
};
template <class T>
struct Kernel<kernels::Quantize<T>, Cuda> {
  static void run(CudaMemory& on, const QuantizedParts& parts, Size rows, Size columns, const T* x, std::byte* to,
                  T* error = nullptr, double keep = 0);
};
template <class T>
struct Kernel<kernels::SumQuantized<T>, Cuda> {
  static void run(CudaMemory& on, const QuantizedParts& parts, Size senders, Size rows, const std::byte* from, T* y);
};

// ---- parameters -----------------------------------------------------------------------------------------------------

/// `run` is the caller's, and calls `update` for each range, a launch. An optimizer's rules are functors with
/// DSPP_HOST_DEVICE on their call.
template <class O, class T, class G>
struct Kernel<kernels::Update<O, T, G, float>, Cuda> {
  using Range = FlatRange<T, G, float>;
  template <class Ranges>
  static void run(CudaMemory& on, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                  const double* step) {
    ranges([&](const Range& range, const RangeSettings& settings) {
      update(on, optimizer_of(optimizer, settings), range, scalars_of(scalars, settings), step);
    });
  }
  static void update(CudaMemory& on, const O& optimizer, const Range& range, const UpdateScalars& scalars,
                     const double* step);
};
template <class O, class T, class G>
struct Kernel<kernels::AddUpdateSquares<O, T, G, float>, Cuda> {
  using Range = FlatRange<T, G, float>;
  template <class Ranges>
  static void run(CudaMemory& on, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                  const double* step) {
    ranges([&](const Range& range, const RangeSettings& settings, double* sums) {
      update(on, optimizer_of(optimizer, settings), range, scalars_of(scalars, settings), step, sums);
    });
  }
  static void update(CudaMemory& on, const O& optimizer, const Range& range, const UpdateScalars& scalars,
                     const double* step, double* sums);
};
template <class O, class T, class G>
struct Kernel<kernels::UpdateByNorms<O, T, G, float>, Cuda> {
  using Range = FlatRange<T, G, float>;
  template <class Ranges>
  static void run(CudaMemory& on, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                  const double* step) {
    ranges([&](const Range& range, const RangeSettings& settings, const double* sums) {
      update(on, optimizer_of(optimizer, settings), range, scalars_of(scalars, settings), step, sums);
    });
  }
  static void update(CudaMemory& on, const O& optimizer, const Range& range, const UpdateScalars& scalars,
                     const double* step, const double* sums);
};
template <class O, class T, class G>
struct Kernel<kernels::MatrixDirections<O, T, G, float>, Cuda> {
  using Range = FlatRange<T, G, float>;
  template <class Ranges>
  static void run(CudaMemory& on, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                  const double* step) {
    ranges([&](const Range& range, const RangeSettings& settings, float* to) {
      update(on, optimizer_of(optimizer, settings), range, scalars_of(scalars, settings), step, to);
    });
  }
  static void update(CudaMemory& on, const O& optimizer, const Range& range, const UpdateScalars& scalars,
                     const double* step, float* to);
};
template <class O, class T>
struct Kernel<kernels::UpdateMatrices<O, T, float>, Cuda> {
  using Range = FlatRange<T, float, float>;
  template <class Ranges>
  static void run(CudaMemory& on, const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars,
                  const double* step) {
    ranges([&](const Range& range, const RangeSettings& settings, const MatrixShape& shape) {
      update(on, optimizer_of(optimizer, settings), range, scalars_of(scalars, settings), step, shape);
    });
  }
  static void update(CudaMemory& on, const O& optimizer, const Range& range, const UpdateScalars& scalars,
                     const double* step, const MatrixShape& shape);
};
template <>
struct Kernel<kernels::Normalize<float>, Cuda> {
  static void run(CudaMemory& on, Size count, double epsilon, float* y, const float* x);
};
template <>
struct Kernel<kernels::AddPairs, Cuda> {
  template <class Ranges>
  static void run(CudaMemory& on, const Ranges& ranges) {
    ranges([&](Size count, Size stride, const double* parts, double* sums) { add(on, count, stride, parts, sums); });
  }
  static void add(CudaMemory& on, Size count, Size stride, const double* parts, double* sums);
};
template <class T>
struct Kernel<kernels::AddSquares<T>, Cuda> {
  template <class Ranges>
  static void run(CudaMemory& on, const Ranges& ranges) {
    ranges([&](Size count, const T* x, double* sum) { add(on, count, x, sum); });
  }
  static void add(CudaMemory& on, Size count, const T* x, double* sum);
};
template <class T>
struct Kernel<kernels::AddRowSquares<T>, Cuda> {
  template <class Ranges>
  static void run(CudaMemory& on, const Ranges& ranges) {
    ranges([&](Size count, Size columns, Size first, const T* x, double* sums) {
      add(on, count, columns, first, x, sums);
    });
  }
  static void add(CudaMemory& on, Size count, Size columns, Size first, const T* x, double* sums);
};
template <>
struct Kernel<kernels::SumPairs, Cuda> {
  static void run(CudaMemory& on, Size pairs, const double* x, double* sum);
};
template <>
struct Kernel<kernels::NormOfPairs, Cuda> {
  static void run(CudaMemory& on, int ranks, double* squares);
};
template <>
struct Kernel<kernels::JudgeStep, Cuda> {
  static void run(CudaMemory& on, const StepLimits& limits, const double* norm, double* scalars);
};

// ---- counted targets ------------------------------------------------------------------------------------------------

template <>
struct Kernel<kernels::SumTargetWeights, Cuda> {
  static void run(CudaMemory& on, Size count, const std::int32_t* targets, const float* weights, double* counts);
};
template <>
struct Kernel<kernels::RequireSameCounts, Cuda> {
  static void run(CudaMemory& on, const double* reported, const double* other);
};
template <>
struct Kernel<kernels::RequireSumOfWeights, Cuda> {
  static void run(CudaMemory& on, const double* reported, const double* sum);
};
template <>
struct Kernel<kernels::CountTargets<float>, Cuda> {
  static void run(CudaMemory& on, double all, const double* counted, const double* nonzero, const float* loss,
                  double* counts);
};
template <>
struct Kernel<kernels::Widen<float>, Cuda> {
  static void run(CudaMemory& on, const float* value, double* number);
};
template <>
struct Kernel<kernels::AddCounted, Cuda> {
  static void run(CudaMemory& on, const double* counts, const double* number, double* sum);
};
template <>
struct Kernel<kernels::SeedLoss<float>, Cuda> {
  static void run(CudaMemory& on, const kernels::SeedArguments& of, const double* counts, const float* loss,
                  double* sums, float* seed);
};
template <>
struct Kernel<kernels::SumUpTargets, Cuda> {
  static void run(CudaMemory& on, int replicas, Size micro_steps, const double* sums, const double* totals,
                  double* scalars);
};

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class T>
struct Kernel<kernels::AddBias<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, T* y, const T* x, const T* bias);
};
template <class T, class G>
struct Kernel<kernels::SumRows<T, G>, Cuda> {
  static constexpr Size workspace_bytes(Size rows, Size n) { return 4 * gpu::column_sum_scratch<T>(rows, n); }
  static void run(CudaMemory& on, Size rows, Size n, G* into, Write write, const T* x, kernels::Workspace workspace);
};
template <class T>
struct Kernel<kernels::LayerNorm<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, const T* x, const T* residual, const T* gamma, const T* beta,
                  double epsilon, T* sum, T* y, float* mean, float* rstd);
};
template <class T, class G>
struct Kernel<kernels::LayerNormVjp<T, G>, Cuda> {
  static constexpr Size scratch_count(Size rows, Size n) { return gpu::layer_norm_scratch(rows, n); }
  static void run(CudaMemory& on, Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma,
                  const float* mean, const float* rstd, float* scratch, G* dgamma, Write write_gamma, G* dbeta,
                  Write write_beta);
};
template <class T>
struct Kernel<kernels::RmsNorm<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, const T* x, const T* residual, const T* gamma, double epsilon,
                  T* sum, T* y, float* inverse_root);
};
template <class T, class G>
struct Kernel<kernels::RmsNormVjp<T, G>, Cuda> {
  static constexpr Size scratch_count(Size rows, Size n) { return gpu::rms_norm_scratch(rows, n); }
  static void run(CudaMemory& on, Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier, const T* gamma,
                  const float* inverse_root, float* scratch, G* dgamma, Write write);
};
template <class T>
struct Kernel<kernels::Softmax<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, T* y, const T* x);
};
template <class T>
struct Kernel<kernels::SoftmaxVjp<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, T* dx, const T* dy, const T* y);
};
template <class T>
struct Kernel<kernels::Swiglu<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, T* y, const T* x);
};
template <class T>
struct Kernel<kernels::SwigluVjp<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size n, T* dx, const T* x, const T* dy);
};
/// In the arithmetic of the Cpu's.
template <>
struct Kernel<kernels::RotaryTable<float>, Cuda> {
  static void run(CudaMemory& on, Size first, Size count, Size head_dim, double theta, const RopeScaling& scaling,
                  float* table);
};
template <class T>
struct Kernel<kernels::Rotary<T>, Cuda> {
  static void run(CudaMemory& on, const kernels::RotaryExtents& at, T* y, const T* x, const float* table, double sign);
};
template <class T>
struct Kernel<kernels::Dropout<T>, Cuda> {
  static void run(CudaMemory& on, const kernels::DropoutArguments& at, T* y, const T* x);
};
template <class T>
struct Kernel<kernels::Normals<T>, Cuda> {
  static void run(CudaMemory& on, const PhiloxStream& stream, Size first, Size count, double deviation, T* y);
};

// ---- tables and losses ----------------------------------------------------------------------------------------------

template <>
struct Kernel<kernels::RequireIds, Cuda> {
  static void run(CudaMemory& on, Size count, const std::int32_t* ids, Size vocabulary, bool ignored, const char* who);
};
template <>
struct Kernel<kernels::RequireWeights, Cuda> {
  static void run(CudaMemory& on, Size count, const float* weights, const char* who);
};
template <>
struct Kernel<kernels::RequireLengths, Cuda> {
  static void run(CudaMemory& on, Size count, const std::int32_t* lengths, Size sequence, const char* who);
};
template <class T>
struct Kernel<kernels::Embedding<T>, Cuda> {
  static void run(CudaMemory& on, Size count, Size rows, Size n, T* y, const T* table, const std::int32_t* ids,
                  Size first_row);
};
template <class T, class G>
struct Kernel<kernels::EmbeddingVjp<T, G>, Cuda> {
  /// Keys, both sorted arrays, the parts, and what the sort needs; positions are in `order`, and `starts` is not used.
  static constexpr Size workspace_bytes(Size count, Size n) {
    return 3 * round_up(4 * count, 16) + 4 * gpu::embedding_parts(count, n) + gpu::most_sort_workspace(count);
  }
  static void run(CudaMemory& on, Size count, Size rows, Size n, G* into, Write write, const T* dy,
                  const std::int32_t* ids, Size first_row, std::int32_t* starts, std::int32_t* order,
                  kernels::Workspace workspace);
};
template <class T>
struct Kernel<kernels::CrossEntropyParts<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size columns, const T* logits, const std::int32_t* targets,
                  Size first_column, Size valid_columns, float* parts, const TargetProbabilities& wanted);
};
template <>
struct Kernel<kernels::CrossEntropyCombine<float>, Cuda> {
  static void run(CudaMemory& on, Size ranks, Size rows, const float* parts, const std::int32_t* targets,
                  const float* weights, float* log_sum_exp, float* loss, double* counted);
};
template <class T>
struct Kernel<kernels::CrossEntropyVjp<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size columns, T* dlogits, const T* logits, const std::int32_t* targets,
                  const float* weights, const float* log_sum_exp, Size first_column, Size valid_columns,
                  const float* dy, const double* counted, const TargetProbabilities& wanted);
};

template <class T>
struct Kernel<kernels::CrossEntropyInPlace<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size columns, T* logits, const std::int32_t* targets, const float* weights,
                  Size valid_columns, float dy, float* parts, float* log_sum_exp, float* loss, double* counted,
                  const TargetProbabilities& wanted);
};
template <class T>
struct Kernel<kernels::CrossEntropyFinish<T>, Cuda> {
  static void run(CudaMemory& on, Size rows, Size columns, T* logits, const std::int32_t* targets, const float* weights,
                  const float* log_sum_exp, Size valid_columns, float given, const float* dy, const double* counted,
                  const TargetProbabilities& wanted);
};

// ---- products and attention -----------------------------------------------------------------------------------------

template <class T, class R>
struct Kernel<kernels::Matmul<T, R>, Cuda> {
  static constexpr Size workspace_bytes(Size rows, Size columns) { return gpu::product_workspace(rows, columns); }
  static void run(CudaMemory& on, const kernels::Product& p, const T* a, const T* b, const kernels::Finish<R>& finish,
                  kernels::Workspace workspace);
};
template <class T>
struct Kernel<kernels::BatchedMatmul<T>, Cuda> {
  static constexpr Size workspace_bytes(Size rows, Size columns) { return gpu::product_workspace(rows, columns); }
  static void run(CudaMemory& on, Size batch, const kernels::Product& p, const T* a, const T* b, T* c,
                  kernels::Workspace workspace);
};
template <>
struct Kernel<kernels::KeyRanges, Cuda> {
  static void run(CudaMemory& on, Size batch, Size sequence, Size keys, const std::int32_t* lengths,
                  const std::int32_t* documents, std::int32_t* ranges);
};
template <class T>
struct Kernel<kernels::Attention<T>, Cuda> {
  static constexpr void require_takes(const kernels::AttentionExtents& at, bool has_extras) {
    gpu::require_cudnn_takes<T>(at, has_extras);
  }
  static void run(CudaMemory& on, const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                  const T* qkv, T* y, float* log_sum_exp);
};
template <class T>
struct Kernel<kernels::AttentionVjp<T>, Cuda> {
  static constexpr void require_takes(const kernels::AttentionExtents& at, bool has_extras) {
    gpu::require_cudnn_takes_backward<T>(at, has_extras);
  }
  static constexpr Size dq_sum_columns = 1;  ///< dy y of each query and head
  static constexpr Size workspace_bytes(const kernels::AttentionExtents& at, bool has_extras) {
    return gpu::cudnn_workspace<T>(at, has_extras);
  }
  static void run(CudaMemory& on, const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                  const T* qkv, const T* y, const float* log_sum_exp, const T* dy, T* dqkv, float* dq_sum, float* dbias,
                  kernels::Workspace workspace);
};
template <class T>
struct Kernel<kernels::GroupedAttention<T>, Cuda> {
  static constexpr void require_takes(const kernels::AttentionExtents& at, bool has_extras) {
    gpu::require_cudnn_takes<T>(at, has_extras);
  }
  static void run(CudaMemory& on, const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                  const T* q, const T* kv, T* y, float* log_sum_exp);
};
template <class T>
struct Kernel<kernels::GroupedAttentionVjp<T>, Cuda> {
  static constexpr void require_takes(const kernels::AttentionExtents& at, bool has_extras) {
    gpu::require_cudnn_takes_backward<T>(at, has_extras);
  }
  static constexpr Size dq_sum_columns = 1;
  static constexpr Size workspace_bytes(const kernels::AttentionExtents& at, bool has_extras) {
    return gpu::cudnn_workspace<T>(at, has_extras);
  }
  static void run(CudaMemory& on, const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                  const T* q, const T* kv, const T* y, const float* log_sum_exp, const T* dy, T* dq, T* dkv,
                  float* dq_sum, float* dbias, kernels::Workspace workspace);
};

}  // namespace dspp
