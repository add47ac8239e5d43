// SPDX-License-Identifier: Apache-2.0
/// The kernels that dspp/cuda/kernels.hpp declares: each calls its launcher.
#pragma once

#include <dspp/cuda/device.hpp>
#include <dspp/ops/cpu/require.hpp>
#include <kernels/add_bias.cuh>
#include <kernels/broadcast.cuh>
#include <kernels/checks.cuh>
#include <kernels/column_sum.cuh>
#include <kernels/copy.cuh>
#include <kernels/cross_entropy.cuh>
#include <kernels/cuda_attention.cuh>
#include <kernels/cuda_libraries.cuh>
#include <kernels/cuda_memory.cuh>
#include <kernels/cuda_step_kernels.cuh>
#include <kernels/cuda_threads.cuh>
#include <kernels/digest.cuh>
#include <kernels/dropout.cuh>
#include <kernels/embedding.cuh>
#include <kernels/gelu.cuh>
#include <kernels/layer_norm.cuh>
#include <kernels/matmul.cuh>
#include <kernels/normals.cuh>
#include <kernels/pointwise.cuh>
#include <kernels/quantize.cuh>
#include <kernels/rms_norm.cuh>
#include <kernels/rotary.cuh>
#include <kernels/rotary_table.cuh>
#include <kernels/select.cuh>
#include <kernels/softmax.cuh>
#include <kernels/squared_norm.cuh>
#include <kernels/sum_along.cuh>
#include <kernels/swiglu.cuh>

namespace dspp {

/// This unit compiles what it launches.
template <class Name>
inline constexpr bool detail::compiles_kernels<Cuda, Name> = true;

// ---- elements -------------------------------------------------------------------------------------------------------

template <class F, class U, class T>
void Kernel<kernels::Pointwise<F, U, T>, Cuda>::run(CudaMemory& on, F f, Size count, U* y, const T* x) {
  const gpu::Work work{"pointwise", 1, count};
  if constexpr (gpu::are_floats<T, U>)
    gpu::pointwise(work, gpu::stream_of(on), f, count, y, x);
  else
    gpu::launch_each(work, gpu::stream_of(on), count, gpu::AnyPointwise<F, U, T>{f, y, x});
}
template <class F, class U, class T, class V>
void Kernel<kernels::PointwisePair<F, U, T, V>, Cuda>::run(CudaMemory& on, F f, Size count, U* z, const T* x,
                                                           const V* y) {
  const gpu::Work work{"pointwise_pair", 1, count};
  if constexpr (gpu::are_floats<T, U, V>)
    gpu::pointwise_pair(work, gpu::stream_of(on), f, count, z, x, y);
  else
    gpu::launch_each(work, gpu::stream_of(on), count, gpu::AnyPointwisePair<F, U, T, V>{f, z, x, y});
}
template <class F, class T>
void Kernel<kernels::PointwiseBroadcast<F, T>, Cuda>::run(CudaMemory& on, F f, const kernels::Repeats& at, T* z,
                                                          const T* x, const T* y) {
  gpu::pointwise_broadcast(gpu::stream_of(on), f, at, z, x, y);
}
template <class F, class T>
void Kernel<kernels::PointwiseVjpOfTwo<F, T>, Cuda>::run(CudaMemory& on, F f, Size count, T* da, T* db, const T* a,
                                                         const T* b, const T* dy) {
  gpu::pointwise_vjp_of_two(gpu::stream_of(on), f, count, da, db, a, b, dy);
}
template <class T>
void Kernel<kernels::ScaleBy<T>, Cuda>::run(CudaMemory& on, Size count, T* y, const T* x, const float* by,
                                            double factor) {
  gpu::scale_by(gpu::stream_of(on), count, y, x, by, factor);
}
template <class T>
void Kernel<kernels::CopyRuns<T>, Cuda>::run(CudaMemory& on, Size outer, Size run, T* y, Size y_stride, const T* x,
                                             Size x_stride) {
  gpu::copy_runs(gpu::stream_of(on), outer, run, y, y_stride, x, x_stride);
}
template <class T>
void Kernel<kernels::ZeroRuns<T>, Cuda>::run(CudaMemory& on, Size outer, Size run, T* y, Size y_stride) {
  gpu::zero_runs(gpu::stream_of(on), outer, run, y, y_stride);
}
template <class T>
void Kernel<kernels::CopyStrided<T>, Cuda>::run(CudaMemory& on, const kernels::Strides& at, T* y, const T* x) {
  gpu::copy_strided(gpu::stream_of(on), at, y, x);
}
template <class T>
void Kernel<kernels::Exchange<T>, Cuda>::run(CudaMemory& on, Size count, T* x, T* y) {
  gpu::exchange(gpu::stream_of(on), count, x, y);
}
template <class T>
void Kernel<kernels::SumAlong<T>, Cuda>::run(CudaMemory& on, const kernels::SumExtents& at, double divisor, T* y,
                                             const T* x) {
  gpu::sum_along(gpu::stream_of(on), at, divisor, y, x);
}
template <class T>
void Kernel<kernels::MaxAlong<T>, Cuda>::run(CudaMemory& on, Size outer, Size n, Size inner, T* y, std::int32_t* place,
                                             const T* x) {
  gpu::max_along(gpu::stream_of(on), outer, n, inner, y, place, x);
}
template <class T>
void Kernel<kernels::MaxAlongVjp<T>, Cuda>::run(CudaMemory& on, Size outer, Size n, Size inner, T* dx, const T* dy,
                                                const std::int32_t* place) {
  gpu::max_along_backward(gpu::stream_of(on), outer, n, inner, dx, dy, place);
}
template <class T, class M>
void Kernel<kernels::Select<T, M>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* y, const M* mask, const T* a,
                                              double a_number, const T* b, double b_number) {
  gpu::select(gpu::stream_of(on), rows, n, y, mask, a, a_number, b, b_number);
}
template <class T>
void Kernel<kernels::Gather<T>, Cuda>::run(CudaMemory& on, Size outer, Size rows, Size count, Size n, T* y, const T* x,
                                           const std::int32_t* ids) {
  gpu::gather(gpu::stream_of(on), outer, rows, count, n, y, x, ids);
}
template <class T>
void Kernel<kernels::GatherVjp<T>, Cuda>::run(CudaMemory& on, Size outer, Size rows, Size count, Size n, T* dx,
                                              const T* dy, const std::int32_t* ids, std::int32_t*, std::int32_t*) {
  gpu::gather_backward(gpu::stream_of(on), outer, rows, count, n, dx, dy, ids);
}
template <class T>
void Kernel<kernels::SumRepeats<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, Size times, T* y, const T* x) {
  gpu::sum_repeats(gpu::stream_of(on), rows, n, times, y, x);
}
template <class T>
void Kernel<kernels::Sum<T>, Cuda>::run(CudaMemory& on, Size count, const T* x, double divisor, float* total) {
  gpu::sum(gpu::stream_of(on), count, x, on.scratch(), divisor, total);
}
template <class T, class U>
void Kernel<kernels::SquaredNorm<T, U>, Cuda>::run(CudaMemory& on, Size count, const T* x, U* total) {
  gpu::squared_norm(gpu::stream_of(on), count, x, on.scratch(), total);
}
template <class T>
bool Kernel<kernels::AllFinite<T>, Cuda>::run(CudaMemory& on, Size count, const T* x) {
  if constexpr (std::is_integral_v<T>) {
    return true;
  } else {
    double total = 0;
    gpu::squared_norm(gpu::stream_of(on), count, x, on.scratch(), on.scratch() + gpu::most_norm_pieces);
    on.to_host(&total, reinterpret_cast<const std::byte*>(on.scratch() + gpu::most_norm_pieces), sizeof total);
    return total - total == 0;
  }
}
template <class T>
void Kernel<kernels::Broadcast<T>, Cuda>::run(CudaMemory& on, Size count, const float* value, double divisor, T* y) {
  gpu::broadcast(gpu::stream_of(on), count, value, divisor, y);
}

namespace gpu {
/// A digest whose pieces are in the memory's scratch.
inline SumDigest digest_of(const CudaMemory& on, Size bytes, const std::byte* x) {
  return digest_pieces_of(stream_of(on), bytes, reinterpret_cast<const std::uint8_t*>(x),
                          reinterpret_cast<std::uint64_t*>(on.scratch()));
}
static_assert(CudaMemory::scratch_doubles > most_norm_pieces && CudaMemory::scratch_doubles > most_digest_pieces);
}  // namespace gpu

DSPP_CUDA_INLINE std::uint64_t Kernel<kernels::DigestOf, Cuda>::run(CudaMemory& on, std::uint64_t start, Size bytes,
                                                                    const std::byte* x) {
  auto* const word = reinterpret_cast<std::uint64_t*>(on.scratch()) + gpu::most_digest_pieces;
  on.from_host(reinterpret_cast<std::byte*>(word), &start, sizeof start);
  Kernel<kernels::ContinueDigest, Cuda>::run(on, bytes, x, word);
  std::uint64_t digest = 0;
  on.to_host(&digest, reinterpret_cast<const std::byte*>(word), sizeof digest);
  return digest;
}
DSPP_CUDA_INLINE void Kernel<kernels::ContinueDigest, Cuda>::run(CudaMemory& on, Size bytes, const std::byte* x,
                                                                 std::uint64_t* digest) {
  const auto sum = gpu::digest_of(on, bytes, x);
  gpu::launch_once(gpu::Work{"digest", 1, bytes}, gpu::stream_of(on), gpu::ContinueDigest{sum, digest});
}
DSPP_CUDA_INLINE void Kernel<kernels::PlacedDigestOf, Cuda>::run(CudaMemory& on, Size bytes, const std::byte* x,
                                                                 std::uint64_t* digest) {
  const auto sum = gpu::digest_of(on, bytes, x);
  gpu::launch_once(gpu::Work{"digest", 1, bytes}, gpu::stream_of(on), gpu::StoreDigest{sum, digest});
}
DSPP_CUDA_INLINE void Kernel<kernels::ComparePlacedDigest, Cuda>::run(CudaMemory& on, Size bytes, const std::byte* x,
                                                                      const std::uint64_t* digest,
                                                                      std::uint64_t* changed) {
  const auto sum = gpu::digest_of(on, bytes, x);
  gpu::launch_once(gpu::Work{"digest", 1, bytes}, gpu::stream_of(on), gpu::CompareDigest{sum, digest, changed});
}
DSPP_CUDA_INLINE void Kernel<kernels::NanIfAny, Cuda>::run(CudaMemory& on, Size words, Size stride,
                                                           const std::uint64_t* word, Size count, double* y) {
  gpu::launch_once(gpu::Work{"nan_if_any", 1, words}, gpu::stream_of(on), gpu::NanIfAny{words, stride, word, count, y});
}
DSPP_CUDA_INLINE void Kernel<kernels::Rotate, Cuda>::run(CudaMemory& on, Size bytes, Size by, std::byte* x) {
  gpu::rotate(gpu::stream_of(on), bytes, by, reinterpret_cast<std::uint8_t*>(x));
}

template <class T>
void Kernel<kernels::Quantize<T>, Cuda>::run(CudaMemory& on, const QuantizedParts& parts, Size rows, Size columns,
                                             const T* x, std::byte* to, T* error, double keep) {
  gpu::quantize(gpu::stream_of(on), parts, rows, columns, x, reinterpret_cast<std::uint8_t*>(to), error,
                static_cast<float>(keep));
}
template <class T>
void Kernel<kernels::SumQuantized<T>, Cuda>::run(CudaMemory& on, const QuantizedParts& parts, Size senders, Size rows,
                                                 const std::byte* from, T* y) {
  gpu::sum_quantized(gpu::stream_of(on), parts, senders, rows, reinterpret_cast<const std::uint8_t*>(from), y);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

template <class T>
void Kernel<kernels::AddBias<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* y, const T* x, const T* bias) {
  gpu::add_bias(gpu::stream_of(on), rows, n, y, x, bias);
}
template <class T, class G>
void Kernel<kernels::SumRows<T, G>, Cuda>::run(CudaMemory& on, Size rows, Size n, G* into, Write write, const T* x,
                                               kernels::Workspace workspace) {
  gpu::column_sum(gpu::stream_of(on), rows, n, x, reinterpret_cast<float*>(workspace.data), into, write);
}
template <class T>
void Kernel<kernels::LayerNorm<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, const T* x, const T* residual,
                                              const T* gamma, const T* beta, double epsilon, T* sum, T* y, float* mean,
                                              float* rstd) {
  gpu::layer_norm(gpu::stream_of(on), rows, n, x, residual, gamma, beta, epsilon, sum, y, mean, rstd);
}
template <class T, class G>
void Kernel<kernels::LayerNormVjp<T, G>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* dx, const T* dy, const T* x,
                                                    const T* earlier, const T* gamma, const float* mean,
                                                    const float* rstd, float* scratch, G* dgamma, Write write_gamma,
                                                    G* dbeta, Write write_beta) {
  gpu::layer_norm_backward(gpu::stream_of(on), rows, n, dx, dy, x, earlier, gamma, mean, rstd, scratch, dgamma,
                           write_gamma, dbeta, write_beta);
}
template <class T>
void Kernel<kernels::RmsNorm<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, const T* x, const T* residual,
                                            const T* gamma, double epsilon, T* sum, T* y, float* inverse_root) {
  gpu::rms_norm(gpu::stream_of(on), rows, n, x, residual, gamma, epsilon, sum, y, inverse_root);
}
template <class T, class G>
void Kernel<kernels::RmsNormVjp<T, G>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* dx, const T* dy, const T* x,
                                                  const T* earlier, const T* gamma, const float* inverse_root,
                                                  float* scratch, G* dgamma, Write write) {
  gpu::rms_norm_backward(gpu::stream_of(on), rows, n, dx, dy, x, earlier, gamma, inverse_root, scratch, dgamma, write);
}
template <class T>
void Kernel<kernels::Softmax<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* y, const T* x) {
  gpu::softmax(gpu::stream_of(on), rows, n, y, x);
}
template <class T>
void Kernel<kernels::SoftmaxVjp<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* dx, const T* dy, const T* y) {
  gpu::softmax_backward(gpu::stream_of(on), rows, n, dx, dy, y);
}
template <class T>
void Kernel<kernels::Swiglu<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* y, const T* x) {
  gpu::swiglu(gpu::stream_of(on), rows, n, y, x);
}
template <class T>
void Kernel<kernels::SwigluVjp<T>, Cuda>::run(CudaMemory& on, Size rows, Size n, T* dx, const T* x, const T* dy) {
  gpu::swiglu_backward(gpu::stream_of(on), rows, n, dx, x, dy);
}
DSPP_CUDA_INLINE void Kernel<kernels::RotaryTable<float>, Cuda>::run(CudaMemory& on, Size first, Size count,
                                                                     Size head_dim, double theta,
                                                                     const RopeScaling& scaling, float* table) {
  gpu::rotary_table(gpu::stream_of(on), first, count, head_dim, theta, scaling, table);
}
template <class T>
void Kernel<kernels::Rotary<T>, Cuda>::run(CudaMemory& on, const kernels::RotaryExtents& at, T* y, const T* x,
                                           const float* table, double sign) {
  gpu::rotary(gpu::stream_of(on), at, y, x, table, sign);
}
template <class T>
void Kernel<kernels::Dropout<T>, Cuda>::run(CudaMemory& on, const kernels::DropoutArguments& at, T* y, const T* x) {
  gpu::dropout(gpu::stream_of(on), at, y, x);
}
template <class T>
void Kernel<kernels::Normals<T>, Cuda>::run(CudaMemory& on, const PhiloxStream& stream, Size first, Size count,
                                            double deviation, T* y) {
  gpu::normals(gpu::stream_of(on), stream, first, count, deviation, y);
}

// ---- tables and losses ----------------------------------------------------------------------------------------------

DSPP_CUDA_INLINE void Kernel<kernels::RequireIds, Cuda>::run(CudaMemory& on, Size count, const std::int32_t* ids,
                                                             Size vocabulary, bool ignored, const char* who) {
  const auto check = on.add_check([=](const CudaFault& found) {
    Kernel<kernels::RequireIds, Cpu>::fail_id(found.position, static_cast<std::int32_t>(found.a), vocabulary, ignored,
                                              who);
  });
  gpu::note_first("require_ids", gpu::stream_of(on), count, gpu::WrongId{ids, vocabulary, ignored}, check, on.fault());
}
DSPP_CUDA_INLINE void Kernel<kernels::RequireWeights, Cuda>::run(CudaMemory& on, Size count, const float* weights,
                                                                 const char* who) {
  const auto check = on.add_check([=](const CudaFault& found) {
    Kernel<kernels::RequireWeights, Cpu>::fail_weight(found.position, static_cast<float>(found.a), who);
  });
  gpu::note_first("require_weights", gpu::stream_of(on), count, gpu::WrongWeight{weights}, check, on.fault());
}
DSPP_CUDA_INLINE void Kernel<kernels::RequireLengths, Cuda>::run(CudaMemory& on, Size count,
                                                                 const std::int32_t* lengths, Size sequence,
                                                                 const char* who) {
  const auto check = on.add_check([=](const CudaFault& found) {
    Kernel<kernels::RequireLengths, Cpu>::fail_length(found.position, static_cast<std::int32_t>(found.a), sequence,
                                                      who);
  });
  gpu::note_first("require_lengths", gpu::stream_of(on), count, gpu::WrongLength{lengths, sequence}, check, on.fault());
}
template <class T>
void Kernel<kernels::Embedding<T>, Cuda>::run(CudaMemory& on, Size count, Size rows, Size n, T* y, const T* table,
                                              const std::int32_t* ids, Size first_row) {
  gpu::embedding(gpu::stream_of(on), count, rows, n, y, table, ids, first_row);
}
template <class T, class G>
void Kernel<kernels::EmbeddingVjp<T, G>, Cuda>::run(CudaMemory& on, Size count, Size rows, Size n, G* into, Write write,
                                                    const T* dy, const std::int32_t* ids, Size first_row, std::int32_t*,
                                                    std::int32_t* order, kernels::Workspace workspace) {
  gpu::EmbeddingScratch scratch;
  const auto cut = [&](Size bytes) {
    std::uint8_t* const part = workspace.data;
    workspace.data += bytes;
    return part;
  };
  scratch.positions = order;
  scratch.keys = reinterpret_cast<std::uint32_t*>(cut(round_up(4 * count, 16)));
  scratch.sorted_keys = reinterpret_cast<std::uint32_t*>(cut(round_up(4 * count, 16)));
  scratch.sorted_positions = reinterpret_cast<std::int32_t*>(cut(round_up(4 * count, 16)));
  scratch.parts = reinterpret_cast<float*>(cut(4 * gpu::embedding_parts(count, n)));
  scratch.workspace_bytes = gpu::most_sort_workspace(count);
  scratch.workspace = cut(scratch.workspace_bytes);
  gpu::embedding_backward(gpu::stream_of(on), count, rows, n, into, write, dy, ids, first_row, scratch);
}
template <class T>
void Kernel<kernels::CrossEntropyParts<T>, Cuda>::run(CudaMemory& on, Size rows, Size columns, const T* logits,
                                                      const std::int32_t* targets, Size first_column,
                                                      Size valid_columns, float* parts,
                                                      const TargetProbabilities& wanted) {
  gpu::cross_entropy_parts(gpu::stream_of(on), rows, {columns, first_column, valid_columns}, logits, targets, wanted,
                           parts);
}
DSPP_CUDA_INLINE void Kernel<kernels::CrossEntropyCombine<float>, Cuda>::run(CudaMemory& on, Size ranks, Size rows,
                                                                             const float* parts,
                                                                             const std::int32_t* targets,
                                                                             const float* weights, float* log_sum_exp,
                                                                             float* loss, double* counted) {
  gpu::cross_entropy_combine(gpu::stream_of(on), ranks, rows, parts, targets, weights, log_sum_exp, loss, counted);
}
template <class T>
void Kernel<kernels::CrossEntropyVjp<T>, Cuda>::run(CudaMemory& on, Size rows, Size columns, T* dlogits,
                                                    const T* logits, const std::int32_t* targets, const float* weights,
                                                    const float* log_sum_exp, Size first_column, Size valid_columns,
                                                    const float* dy, const double* counted,
                                                    const TargetProbabilities& wanted) {
  gpu::cross_entropy_gradient(gpu::stream_of(on), rows, {columns, first_column, valid_columns}, dlogits, logits,
                              targets, weights, log_sum_exp, wanted, dy, counted);
}

template <class T>
void Kernel<kernels::CrossEntropyInPlace<T>, Cuda>::run(CudaMemory& on, Size rows, Size columns, T* logits,
                                                        const std::int32_t* targets, const float* weights,
                                                        Size valid_columns, float dy, float* parts, float* log_sum_exp,
                                                        float* loss, double* counted,
                                                        const TargetProbabilities& wanted) {
  gpu::cross_entropy(gpu::stream_of(on), rows, columns, logits, {targets, weights, valid_columns, wanted, dy, true},
                     {parts, log_sum_exp, loss, counted});
}
template <class T>
void Kernel<kernels::CrossEntropyFinish<T>, Cuda>::run(CudaMemory& on, Size rows, Size columns, T* logits,
                                                       const std::int32_t* targets, const float* weights,
                                                       const float* log_sum_exp, Size valid_columns, float given,
                                                       const float* dy, const double* counted,
                                                       const TargetProbabilities& wanted) {
  gpu::cross_entropy_finish(gpu::stream_of(on), rows, columns, logits,
                            {targets, weights, valid_columns, wanted, given, true}, log_sum_exp, dy, counted);
}

// ---- products and attention -----------------------------------------------------------------------------------------

template <class T, class R>
void Kernel<kernels::Matmul<T, R>, Cuda>::run(CudaMemory& on, const kernels::Product& p, const T* a, const T* b,
                                              const kernels::Finish<R>& finish, kernels::Workspace workspace) {
  const cudaStream_t stream = gpu::stream_of(on);
  if (p.k == 0 || ((finish.activated != nullptr || finish.before != nullptr) && p.ldc != p.n))
    return gpu::plain_matmul(stream, Size{1}, p, a, b, finish);
  if constexpr (sizeof(T) == 2 && std::is_same_v<T, R>) {
    if (finish.before != nullptr && finish.form == GeluForm::tanh &&
        gpu::blas_matmul_gelu_vjp(gpu::blas_of(on), stream, p, a, b, finish.before, finish.c, workspace))
      return;
    if (finish.activated != nullptr && finish.bias != nullptr && finish.form == GeluForm::tanh &&
        gpu::blas_matmul_gelu(gpu::blas_of(on), stream, p, a, b, finish.c, finish.activated, finish.bias, workspace))
      return;
  }
  gpu::blas_matmul(gpu::blas_of(on), stream, Size{1}, p, a, b, finish.c, finish.write, finish.bias, workspace);
  if (finish.before != nullptr)
    gpu::gelu_backward(stream, finish.form, p.m * p.n, finish.c, finish.before, static_cast<const R*>(finish.c));
  if (finish.activated != nullptr) gpu::gelu(stream, finish.form, p.m * p.n, finish.activated, finish.c);
}
template <class T>
void Kernel<kernels::BatchedMatmul<T>, Cuda>::run(CudaMemory& on, Size batch, const kernels::Product& p, const T* a,
                                                  const T* b, T* c, kernels::Workspace workspace) {
  const T* const no_bias = nullptr;
  if (p.k == 0) return gpu::plain_matmul(gpu::stream_of(on), batch, p, a, b, kernels::Finish<T>{.c = c});
  gpu::blas_matmul(gpu::blas_of(on), gpu::stream_of(on), batch, p, a, b, c, Write::overwrite, no_bias, workspace);
}
DSPP_CUDA_INLINE void Kernel<kernels::KeyRanges, Cuda>::run(CudaMemory& on, Size batch, Size sequence, Size keys,
                                                            const std::int32_t* lengths, const std::int32_t* documents,
                                                            std::int32_t* ranges) {
  gpu::key_ranges(gpu::stream_of(on), batch, sequence, keys, lengths, documents, ranges);
}

}  // namespace dspp
