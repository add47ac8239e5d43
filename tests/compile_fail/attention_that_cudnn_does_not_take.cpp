// SPDX-License-Identifier: Apache-2.0
/// AttentionBy<CuDnn> in constant expressions, as in a plan, of what cuDNN does not take.
// expected-error {{dspp: AttentionBy<CuDnn> needs values of 16 bits, but has wider ones. Take Bf16 or F16, or}}
// expected-error {{AttentionBy<Fastest>.}}
// expected-error {{dspp: AttentionBy<CuDnn> needs no soft cap, lengths, documents, bias or other keys, but has one.}}
// expected-error {{Drop it, or take AttentionBy<Fastest>.}}
// expected-error {{dspp: AttentionBy<CuDnn> needs 128 tokens or more and heads of 32 to 128 columns that 8 divides,}}
// expected-error {{but has others. Change them, or take Fastest.}}
// expected-error {{dspp: AttentionBy<CuDnn> needs a causal mask beside a window, but has a full one. Change it, or}}
// expected-error {{dspp: AttentionBy<CuDnn> needs at most 1088 MiB of workspace for a head in backward, but}}
// expected-error {{takes more. Shorten the sequence, or take AttentionBy<Fastest>.}}
#include <dspp/cuda/cudnn.hpp>

using namespace dspp;

/// One sample of two heads by cuDNN.
template <class T = bf16>
constexpr bool takes(Size tokens, const AttentionRule& rule = {}, bool backward = false) {
  kernels::AttentionExtents at{1, tokens, 2, 2, 64, rule};
  at.by = AttentionKernels::cudnn;
  backward ? gpu::require_cudnn_takes_backward<T>(at, false) : gpu::require_cudnn_takes<T>(at, false);
  return true;
}

/// Values of 32 bits.
namespace cudnn_attention_of_wide_values {
#ifdef DSPP_TWIN
constexpr bool taken = takes<f16>(128);
#else
constexpr bool taken = takes<float>(128);
#endif
}  // namespace cudnn_attention_of_wide_values

/// A soft cap.
namespace cudnn_attention_with_softcap {
#ifdef DSPP_TWIN
constexpr bool taken = takes(128, {.scale = 0.5});
#else
constexpr bool taken = takes(128, {.softcap = 30});
#endif
}  // namespace cudnn_attention_with_softcap

/// Fewer than 128 tokens.
namespace cudnn_attention_of_few_tokens {
#ifdef DSPP_TWIN
constexpr bool taken = takes(128);
#else
constexpr bool taken = takes(127);
#endif
}  // namespace cudnn_attention_of_few_tokens

/// A window under a full mask.
namespace cudnn_attention_by_full_window {
#ifdef DSPP_TWIN
constexpr bool taken = takes(128, {.window = 9});
#else
constexpr bool taken = takes(128, {.mask = AttentionMask::full, .window = 9});
#endif
}  // namespace cudnn_attention_by_full_window

/// A backward pass whose workspace is too large.
namespace cudnn_attention_of_many_tokens {
#ifdef DSPP_TWIN
constexpr bool taken = takes(16384, {}, true);
#else
constexpr bool taken = takes(32768, {}, true);
#endif
}  // namespace cudnn_attention_of_many_tokens
