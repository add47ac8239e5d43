// SPDX-License-Identifier: Apache-2.0
/// Which of dspp's kernels compute attention: by warpgroups, by warps on tensor cores, or plainly.
#pragma once

#include <dspp/ops/attention_kernels.hpp>
#include <kernels/warpgroup_attention_backward.cuh>

namespace dspp::gpu {

using dspp::AttentionKernels;

namespace detail {
constexpr bool may_be_by_warpgroups(AttentionKernels by) {
  return by != AttentionKernels::by_warps && by != AttentionKernels::plain;
}
}  // namespace detail

/// Whether the GPU has warpgroups, and the program code for them: a kernel without a body needs few registers.
inline bool device_has_warpgroups() {
#if DSPP_HAS_NVCC()
  const Work work{"attention"};
  int device = 0, major = 0, minor = 0;
  check(work, cudaGetDevice(&device));
  check(work, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(work, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major != 9 || minor != 0) return false;
  static const bool has_code = [&] {
    cudaFuncAttributes attributes{};
    check(work, cudaFuncGetAttributes(&attributes, group_attention_kernel<bf16, 64>));
    return attributes.numRegs > 64;
  }();
  return has_code;
#else
  return true;
#endif
}

/// What by_warps takes, where there are warpgroups. Tiles of the queries of a group are counted in 32 bits.
template <class T, class... H>
bool group_takes(const AttentionOperands<T>& of, const H&... others) {
  return of.at.sequence * of.at.heads <= most_flash_sequence * of.at.kv_heads && flash_takes(of, others...) &&
         device_has_warpgroups();
}

/// By dspp's kernels, of those that `by` allows by the first that takes the operands.
template <class T>
void attention(cudaStream_t stream, const AttentionOperands<T>& of, HeadsOf<T> y, float* log_sum_exp,
               AttentionKernels by = AttentionKernels::fastest) {
  if constexpr (sizeof(T) == 2) {
    if (detail::may_be_by_warpgroups(by) && group_takes(of, y)) return group_attention(stream, of, y, log_sum_exp);
    if (by != AttentionKernels::plain && flash_takes(of, y)) return flash_attention(stream, of, y, log_sum_exp);
  }
  plain_attention(stream, of, y, log_sum_exp);
}

/// dbias may be null, else it grows. `own`: f32 [batch, heads, sequence], of no use afterwards; it may be null where T
/// is f32.
template <class T>
void attention_backward(cudaStream_t stream, const AttentionUpstream<T>& from, HeadsOf<T> dq, HeadsOf<T> dk,
                        HeadsOf<T> dv, float* dbias, float* own, AttentionKernels by = AttentionKernels::fastest) {
  if constexpr (sizeof(T) == 2)
    if (by != AttentionKernels::plain && dbias == nullptr && flash_takes(from.of, from.y, from.dy, dq, dk, dv)) {
      if (detail::may_be_by_warpgroups(by) && group_takes(from.of))
        return group_attention_backward(stream, from, dq, dk, dv, own);
      return flash_attention_backward(stream, from, dq, dk, dv, own);
    }
  plain_attention_backward(stream, from, dq, dk, dv, dbias);
}

}  // namespace dspp::gpu
