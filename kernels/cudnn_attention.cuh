// SPDX-License-Identifier: Apache-2.0
/// Attention by cuDNN, where it is compiled in and takes the extents (dspp/cuda/cudnn.hpp): causal and full masks,
/// causal windows, groups of heads, bf16 and f16. Formulas and shapes are those of attention.cuh.
///
/// The backward pass is the deterministic one. It runs in slices of samples, or of heads, for its workspace grows with
/// the square of the sequence.
///
/// Memory   forward cudnn_forward_workspace, of the stream's scratch; backward CudnnSlices::workspace_bytes; what cuDNN
///          takes itself, and on the host a graph for each shape and slice that was seen
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <string>

#include <dspp/cuda/cudnn.hpp>
#include <kernels/flash_tiles.cuh>

namespace dspp::gpu {

/// What one call of cuDNN is: `at` of a slice, and distances in elements. A sample's rows follow one another.
struct CudnnCall {
  Size samples = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  Size all_heads = 0;  ///< of a sample, in log_sum_exp
  Size q_stride = 0, k_stride = 0, v_stride = 0, y_stride = 0;
  Size dy_stride = 0, dq_stride = 0, dk_stride = 0, dv_stride = 0;  ///< 0: forward
  bool is_causal = false;
  Size window = 0;
  float scale = 0;
  ElementType type = ElementType::bf16;
  Size workspace_bytes = 0;

  bool is_backward() const { return dy_stride != 0; }
  auto operator<=>(const CudnnCall&) const = default;
};

/// Its operands: elements of `type`. Forward writes y and log_sum_exp, backward dq, dk and dv.
struct CudnnOperands {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *dy = nullptr;
  void *y = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float* log_sum_exp = nullptr;
};

/// cuDNN's handle, and a graph for each call that was seen. Defined in kernels/cudnn_graphs.cuh.
class CudnnAttention {
 public:
  CudnnAttention();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// True if cuDNN has an engine for the call that gives the same bits every time within its workspace.
  ///
  /// Throws   Error(state) if cuDNN fails at more than that
  bool takes(const CudnnCall& call);
  /// Why it had none when `takes` was last false.
  const std::string& last_refusal() const { return last_refusal_; }
  /// Throws   Error(state) if cuDNN fails
  void run(cudaStream_t stream, const CudnnCall& call, const CudnnOperands& at, void* workspace);

 private:
  struct Graph;
  Graph& graph_of(const CudnnCall& call);

  struct Handle;
  std::unique_ptr<Handle> handle_;
  std::map<CudnnCall, std::unique_ptr<Graph>> graphs_;
  std::string last_refusal_;
};

/// Bytes of the forward pass's workspace.
inline constexpr Size cudnn_forward_workspace = 4096;

namespace detail {
template <class T>
CudnnCall cudnn_call(const AttentionOperands<T>& of, Size y_stride) {
  const auto& at = of.at;
  CudnnCall call;
  call.samples = at.batch, call.sequence = at.sequence, call.heads = call.all_heads = at.heads;
  call.kv_heads = at.kv_heads, call.head_dim = at.head_dim;
  call.q_stride = of.q.stride, call.k_stride = of.k.stride, call.v_stride = of.v.stride, call.y_stride = y_stride;
  call.is_causal = at.rule.mask == AttentionMask::causal;
  call.window = at.rule.window < at.sequence ? at.rule.window : 0;
  call.scale = of.scale, call.type = element_type<T>, call.workspace_bytes = cudnn_forward_workspace;
  return call;
}
template <class T, class... H>
bool cudnn_takes_these(const AttentionOperands<T>& of, const H&... others) {
  const bool has_extras = of.extras.ranges != nullptr || of.extras.bias != nullptr;
  const auto lies = [](const auto& heads) { return heads.stride % 8 == 0 && is_aligned(heads.base); };
  return cudnn_takes<T>(of.at, has_extras) && lies(of.q) && lies(of.k) && lies(of.v) && (lies(others) && ...);
}
}  // namespace detail

/// False if cuDNN does not take it. `workspace` has cudnn_forward_workspace bytes, as all of the stream's share. Cudnn:
/// CudnnAttention.
template <class Cudnn, class T>
bool cudnn_attention(Cudnn& cudnn, cudaStream_t stream, const AttentionOperands<T>& of, HeadsOf<T> y,
                     float* log_sum_exp, void* workspace) {
  if (!detail::cudnn_takes_these(of, y)) return false;
  const CudnnCall call = detail::cudnn_call(of, y.stride);
  if (!cudnn.takes(call)) return false;
  CudnnOperands operands;
  operands.q = of.q.base, operands.k = of.k.base, operands.v = of.v.base;
  operands.y = y.base, operands.log_sum_exp = log_sum_exp;
  cudnn.run(stream, call, operands, workspace);
  check_issued({"attention", call.samples * call.sequence, call.heads * call.head_dim}, stream, cudaSuccess);
  return true;
}

/// The same of the backward pass, in these slices. False, too, if the workspace is too small: cuDNN was not planned
/// with.
template <class Cudnn, class T>
bool cudnn_attention_backward(Cudnn& cudnn, cudaStream_t stream, const AttentionUpstream<T>& from, HeadsOf<T> dq,
                              HeadsOf<T> dk, HeadsOf<T> dv, kernels::Workspace workspace, const CudnnSlices& slices) {
  const auto& of = from.of;
  const auto& at = of.at;
  const Size bytes = slices.workspace_bytes();
  if (bytes == 0 || workspace.bytes < bytes || !detail::cudnn_takes_these(of, from.y, from.dy, dq, dk, dv))
    return false;
  CudnnCall call = detail::cudnn_call(of, from.y.stride);
  call.dy_stride = from.dy.stride, call.dq_stride = dq.stride, call.dk_stride = dk.stride, call.dv_stride = dv.stride;
  call.workspace_bytes = bytes;
  // f(slice, first sample, first head of keys and values), until it is false
  const auto each_slice = [&](auto f) {
    for (Size b = 0; b < at.batch; b += slices.samples)
      for (Size h = 0; h < at.kv_heads; h += slices.kv_heads) {
        CudnnCall slice = call;
        slice.samples = std::min(slices.samples, at.batch - b);
        slice.kv_heads = std::min(slices.kv_heads, at.kv_heads - h);
        slice.heads = slice.kv_heads * at.group();
        if (slice.samples == 1) slice.all_heads = slice.heads;  // no other sample: its sums are packed
        if (!f(slice, b, h)) return false;
      }
    return true;
  };
  if (!each_slice([&](const CudnnCall& slice, Size, Size) { return cudnn.takes(slice); })) return false;
  return each_slice([&](const CudnnCall& slice, Size b, Size h) {
    const auto part = [&](const auto& heads, Size head) {
      return heads.base + b * at.sequence * heads.stride + head * at.head_dim;
    };
    const Size first = h * at.group();
    CudnnOperands operands;
    operands.q = part(of.q, first), operands.k = part(of.k, h), operands.v = part(of.v, h);
    operands.y = const_cast<T*>(part(from.y, first)), operands.dy = part(from.dy, first);
    operands.dq = part(dq, first), operands.dk = part(dk, h), operands.dv = part(dv, h);
    operands.log_sum_exp = const_cast<float*>(from.log_sum_exp) + (b * at.heads + first) * at.sequence;
    cudnn.run(stream, slice, operands, workspace.data);
    check_issued({"attention_vjp", slice.samples * slice.sequence, slice.heads * slice.head_dim}, stream, cudaSuccess);
    return true;
  });
}
template <class Cudnn, class T>
bool cudnn_attention_backward(Cudnn& cudnn, cudaStream_t stream, const AttentionUpstream<T>& from, HeadsOf<T> dq,
                              HeadsOf<T> dk, HeadsOf<T> dv, kernels::Workspace workspace) {
  return cudnn_attention_backward(cudnn, stream, from, dq, dk, dv, workspace, cudnn_slices(from.of.at));
}

}  // namespace dspp::gpu
