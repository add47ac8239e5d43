// SPDX-License-Identifier: Apache-2.0
/// The kernels of attention that dspp/cuda/kernels.hpp declares: by cuDNN or by dspp's own, as the policy says.
#pragma once

#include <string>

#include <dspp/cuda/kernels.hpp>
#include <kernels/attention_choice.cuh>
#include <kernels/cuda_libraries.cuh>
#include <kernels/cuda_memory.cuh>

namespace dspp {

namespace gpu {
/// Throws   Error(usage) where cuDNN did not compute an attention that only it may
inline void require_other_kernels([[maybe_unused]] CudaMemory& on, const kernels::AttentionExtents& at) {
  if (at.by != AttentionKernels::cudnn || is_empty(at)) return;
#if DSPP_HAS_CUDNN()
  const std::string& refusal = libraries_of(on).attention.last_refusal();
  fail(ErrorCode::usage, "dspp: AttentionBy<CuDnn> needs cuDNN to take this attention (sequence " +
                             std::to_string(at.sequence) + ", heads " + std::to_string(at.heads) + " of " +
                             std::to_string(at.head_dim) + "; " + place_of_thread() + "), but it does not" +
                             (refusal.empty() ? "" : ": '" + refusal + "'") +
                             ". Change it, or take AttentionBy<Fastest>.");
#else
  fail(ErrorCode::usage,
       "dspp: AttentionBy<CuDnn> needs cuDNN, but this program's kernels were compiled without it. Configure with "
       "-DDSPP_CUDNN=ON, or compile with -DDSPP_WITH_CUDNN=1 and <kernels/cudnn_graphs.cuh>; else take "
       "AttentionBy<Fastest>.");
#endif
}
/// By cuDNN, where it may and takes them; else by dspp's own kernels.
template <class T>
void attention_on(CudaMemory& on, const AttentionOperands<T>& of, HeadsOf<T> y, float* log_sum_exp) {
  const cudaStream_t stream = stream_of(on);
#if DSPP_HAS_CUDNN()
  if constexpr (sizeof(T) == 2)
    if (may_be_by_cudnn(of.at.by) &&
        cudnn_attention(libraries_of(on).attention, stream, of, y, log_sum_exp, on.scratch()))
      return;
#endif
  require_other_kernels(on, of.at);
  attention(stream, of, y, log_sum_exp, of.at.by);
}
template <class T>
void attention_backward_on(CudaMemory& on, const AttentionUpstream<T>& from, HeadsOf<T> dq, HeadsOf<T> dk,
                           HeadsOf<T> dv, float* dbias, float* own, [[maybe_unused]] kernels::Workspace workspace) {
  const cudaStream_t stream = stream_of(on);
#if DSPP_HAS_CUDNN()
  if constexpr (sizeof(T) == 2)
    if (may_be_by_cudnn(from.of.at.by) &&
        cudnn_attention_backward(libraries_of(on).attention, stream, from, dq, dk, dv, workspace))
      return;
#endif
  require_other_kernels(on, from.of.at);
  attention_backward(stream, from, dq, dk, dv, dbias, own, from.of.at.by);
}
/// The fused qkv [batch, sequence, 3, width].
template <class T>
AttentionOperands<T> fused_operands(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                                    const T* qkv) {
  const Size stride = 3 * at.width();
  return attention_operands<T>(at, extras, {qkv, stride}, {qkv + at.width(), stride}, {qkv + 2 * at.width(), stride});
}
/// q [batch, sequence, width] and kv [batch, keys, 2, kv_width].
template <class T>
AttentionOperands<T> grouped_operands(const kernels::AttentionExtents& at, const kernels::AttentionExtras<T>& extras,
                                      const T* q, const T* kv) {
  const Size stride = 2 * at.kv_width();
  return attention_operands<T>(at, extras, {q, at.width()}, {kv, stride}, {kv + at.kv_width(), stride});
}
}  // namespace gpu

template <class T>
void Kernel<kernels::Attention<T>, Cuda>::run(CudaMemory& on, const kernels::AttentionExtents& at,
                                              const kernels::AttentionExtras<T>& extras, const T* qkv, T* y,
                                              float* log_sum_exp) {
  gpu::attention_on<T>(on, gpu::fused_operands(at, extras, qkv), {y, at.width()}, log_sum_exp);
}
template <class T>
void Kernel<kernels::AttentionVjp<T>, Cuda>::run(CudaMemory& on, const kernels::AttentionExtents& at,
                                                 const kernels::AttentionExtras<T>& extras, const T* qkv, const T* y,
                                                 const float* log_sum_exp, const T* dy, T* dqkv, float* dq_sum,
                                                 float* dbias, kernels::Workspace workspace) {
  const Size stride = 3 * at.width();
  gpu::attention_backward_on<T>(
      on, {gpu::fused_operands(at, extras, qkv), {y, at.width()}, {dy, at.width()}, log_sum_exp}, {dqkv, stride},
      {dqkv + at.width(), stride}, {dqkv + 2 * at.width(), stride}, dbias, dq_sum, workspace);
}
template <class T>
void Kernel<kernels::GroupedAttention<T>, Cuda>::run(CudaMemory& on, const kernels::AttentionExtents& at,
                                                     const kernels::AttentionExtras<T>& extras, const T* q, const T* kv,
                                                     T* y, float* log_sum_exp) {
  gpu::attention_on<T>(on, gpu::grouped_operands(at, extras, q, kv), {y, at.width()}, log_sum_exp);
}
template <class T>
void Kernel<kernels::GroupedAttentionVjp<T>, Cuda>::run(CudaMemory& on, const kernels::AttentionExtents& at,
                                                        const kernels::AttentionExtras<T>& extras, const T* q,
                                                        const T* kv, const T* y, const float* log_sum_exp, const T* dy,
                                                        T* dq, T* dkv, float* dq_sum, float* dbias,
                                                        kernels::Workspace workspace) {
  const Size stride = 2 * at.kv_width();
  gpu::attention_backward_on<T>(
      on, {gpu::grouped_operands(at, extras, q, kv), {y, at.width()}, {dy, at.width()}, log_sum_exp}, {dq, at.width()},
      {dkv, stride}, {dkv + at.kv_width(), stride}, dbias, dq_sum, workspace);
}

}  // namespace dspp
