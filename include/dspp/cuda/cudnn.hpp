// SPDX-License-Identifier: Apache-2.0
/// Which attention cuDNN computes, and in which slices: functions of extents alone, so that a plan knows the workspace.
#pragma once

#include <algorithm>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>
#include <dspp/ops/kernels.hpp>

#if DSPP_HAS_CUDNN()
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_cudnn, dspp_unit_with_cudnn)
#elif !defined(DSPP_COMPILES_CUDA)
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_cudnn, dspp_unit_without_cudnn)
#endif

namespace dspp::gpu {

/// A backward pass of cuDNN that gives the same bits in every run writes ds, [sequence, sequence] in 16 bits, for every
/// query head. So it runs in slices: of samples, `usual` bytes of them, or one of at most `most`; else of heads of one
/// sample, again `usual` bytes of them, or one head of keys and values with its queries of at most `most`. Beyond that
/// it is dspp's own.
struct CudnnSlices {
  static constexpr Size usual = Size{512} << 20, most = Size{1088} << 20;  // 8 queries a head at 8,192 tokens

  Size samples = 0, kv_heads = 0;  ///< of a slice, the last ones may have fewer; 0: none fits
  Size head_bytes = 0;             ///< the workspace of one head of keys and values

  constexpr Size workspace_bytes() const { return samples == 0 ? 0 : samples * kv_heads * head_bytes + 1024; }
};

/// head_bytes are read off cuDNN 9.19 on an H100.
constexpr CudnnSlices cudnn_slices(const kernels::AttentionExtents& at, Size usual = CudnnSlices::usual,
                                   Size most = CudnnSlices::most) {
  const Size padded = round_up(at.sequence, 128);
  CudnnSlices slices;
  if (at.batch < 1 || at.sequence < 1 || at.kv_heads < 1) return slices;
  slices.head_bytes = at.group() * (2 * padded * padded + 4 * padded + (at.group() > 1 ? 4 * padded * at.head_dim : 0));
  if (slices.head_bytes > most) return slices;
  const auto equal_parts = [](Size count, Size fit) {
    const Size parts = (count + fit - 1) / fit;
    return (count + parts - 1) / parts;
  };
  const Size sample = at.kv_heads * slices.head_bytes;
  const bool holds_samples = sample <= most;
  slices.kv_heads =
      holds_samples ? at.kv_heads : equal_parts(at.kv_heads, std::max(usual / slices.head_bytes, Size{1}));
  slices.samples = holds_samples ? equal_parts(at.batch, std::min(std::max(usual / sample, Size{1}), at.batch)) : 1;
  return slices;
}

namespace detail {
constexpr bool is_for_cudnn(const kernels::AttentionExtents& at, bool has_extras) {
  return !has_extras && at.keys() == at.sequence && at.rule.softcap == 0;
}
constexpr bool has_extents_of_cudnn(const kernels::AttentionExtents& at) {
  return at.sequence >= 128 && at.head_dim >= 32 && at.head_dim <= 128 && at.head_dim % 8 == 0;
}
constexpr bool has_window_of_cudnn(const kernels::AttentionExtents& at) {
  return at.rule.window == 0 || at.rule.window >= at.sequence || at.rule.mask == AttentionMask::causal;
}
}  // namespace detail

/// Whether it is left to cuDNN, backward if a slice fits, too, where that is compiled in (DSPP_WITH_CUDNN=1): bf16 and
/// f16, heads of 32 to 128 columns, causal or full masks, causal windows, from 128 tokens on. has_extras: ranges of
/// keys, or a bias.
template <class T>
constexpr bool cudnn_takes(const kernels::AttentionExtents& at, bool has_extras) {
  return sizeof(T) == 2 && at.batch > 0 && at.heads > 0 && detail::is_for_cudnn(at, has_extras) &&
         detail::has_extents_of_cudnn(at) && detail::has_window_of_cudnn(at);
}

constexpr bool may_be_by_cudnn(AttentionKernels by) {
  return by == AttentionKernels::fastest || by == AttentionKernels::cudnn;
}
/// An attention without queries, which nothing computes.
constexpr bool is_empty(const kernels::AttentionExtents& at) {
  return at.batch == 0 || at.sequence == 0 || at.heads == 0;
}

/// Where a policy asks for cuDNN its workspace is planned also by a program without it.
template <class T>
constexpr Size cudnn_workspace(const kernels::AttentionExtents& at, bool has_extras) {
  const bool asked = at.by == AttentionKernels::cudnn || (at.by == AttentionKernels::fastest && DSPP_HAS_CUDNN());
  return asked && cudnn_takes<T>(at, has_extras) ? cudnn_slices(at).workspace_bytes() : 0;
}

/// Throws   Error(usage) where cuDNN is asked for an attention that it does not take
template <class T>
constexpr void require_cudnn_takes(const kernels::AttentionExtents& at, bool has_extras) {
  if (at.by != AttentionKernels::cudnn || is_empty(at)) return;
  // clang-format off
  require(sizeof(T) == 2, "dspp: AttentionBy<CuDnn> needs values of 16 bits, but has wider ones. Take Bf16 or F16, or AttentionBy<Fastest>.");
  require(detail::is_for_cudnn(at, has_extras), "dspp: AttentionBy<CuDnn> needs no soft cap, lengths, documents, bias or other keys, but has one. Drop it, or take AttentionBy<Fastest>.");
  require(detail::has_extents_of_cudnn(at), "dspp: AttentionBy<CuDnn> needs 128 tokens or more and heads of 32 to 128 columns that 8 divides, but has others. Change them, or take Fastest.",
          ErrorCode::usage, {{"sequence", at.sequence}, {"head_dim", at.head_dim}});
  require(detail::has_window_of_cudnn(at), "dspp: AttentionBy<CuDnn> needs a causal mask beside a window, but has a full one. Change it, or take AttentionBy<Fastest>.",
          ErrorCode::usage, {{"window", at.rule.window}});
  // clang-format on
}
/// The same of the backward pass.
template <class T>
constexpr void require_cudnn_takes_backward(const kernels::AttentionExtents& at, bool has_extras) {
  require_cudnn_takes<T>(at, has_extras);
  if (at.by != AttentionKernels::cudnn || is_empty(at)) return;
  // clang-format off
  require(cudnn_slices(at).samples > 0, "dspp: AttentionBy<CuDnn> needs at most 1088 MiB of workspace for a head in backward, but takes more. Shorten the sequence, or take AttentionBy<Fastest>.",
          ErrorCode::usage, {{"sequence", at.sequence}, {"queries_of_a_head", at.group()}});
  // clang-format on
}

}  // namespace dspp::gpu
