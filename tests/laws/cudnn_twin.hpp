// SPDX-License-Identifier: Apache-2.0
/// A twin of cuDNN's attention: dspp's kernels behind its calls.
#pragma once

#include <algorithm>
#include <vector>

#include <kernels/attention_choice.cuh>
#include <kernels/cudnn_attention.cuh>
#include <laws/device_array.hpp>

namespace dspp::laws {

/// dspp's own kernels behind cuDNN's calls, a sample at a time. It writes all of the workspace, as cuDNN may.
template <class T>
struct CudnnTwin {
  AttentionKernels by = AttentionKernels::fastest;  ///< plain: other bits than dspp's own
  bool refuses = false;
  int runs = 0;
  Size most_workspace = 0;

  bool takes(const gpu::CudnnCall&) const { return !refuses; }

  void run(cudaStream_t stream, const gpu::CudnnCall& call, const gpu::CudnnOperands& at, void* workspace) {
    ++runs;
    most_workspace = std::max(most_workspace, call.workspace_bytes);
    check_cuda(cudaMemsetAsync(workspace, 0xff, static_cast<std::size_t>(call.workspace_bytes), stream));
    const AttentionRule rule{.mask = call.is_causal ? AttentionMask::causal : AttentionMask::full,
                             .window = call.window,
                             .scale = call.scale};
    for (Size b = 0; b < call.samples; ++b) {
      const auto part = [&](auto* base, Size stride) { return base + b * call.sequence * stride; };
      const auto of = [&](const void* base, Size stride) {
        return gpu::HeadsOf<const T>{part(static_cast<const T*>(base), stride), stride};
      };
      const auto to = [&](void* base, Size stride) {
        return gpu::HeadsOf<T>{part(static_cast<T*>(base), stride), stride};
      };
      const kernels::AttentionExtents extents{1, call.sequence, call.heads, call.kv_heads, call.head_dim, rule};
      const auto operands = gpu::attention_operands<T>(extents, {}, of(at.q, call.q_stride), of(at.k, call.k_stride),
                                                       of(at.v, call.v_stride));
      float* const lse = at.log_sum_exp + b * call.all_heads * call.sequence;
      if (!call.is_backward()) {
        gpu::attention<T>(stream, operands, to(at.y, call.y_stride), lse, by);
        continue;
      }
      const DeviceArray<float> own(call.heads * call.sequence);
      gpu::attention_backward<T>(stream, {operands, of(at.y, call.y_stride), of(at.dy, call.dy_stride), lse},
                                 to(at.dq, call.dq_stride), to(at.dk, call.dk_stride), to(at.dv, call.dv_stride),
                                 nullptr, own, by);
      check_cuda(cudaStreamSynchronize(stream));
    }
  }
};

}  // namespace dspp::laws
