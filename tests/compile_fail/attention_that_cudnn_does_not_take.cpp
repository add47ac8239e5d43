// SPDX-License-Identifier: Apache-2.0
/// AttentionBy<CuDnn> in constant expressions, as in a plan, of what cuDNN does not take.
// expected-error {{dspp: AttentionBy<CuDnn> needs what cuDNN takes (16-bit values, 128 tokens or more, heads of 32}}
// expected-error {{to 128 columns that 8 divides, windows under a causal mask only; no soft cap, lengths,}}
// expected-error {{documents, bias or keys of another sequence), but this attention is another. Change it, or take}}
// expected-error {{AttentionBy<Fastest>.}}
// expected-error {{dspp: AttentionBy<CuDnn> needs a backward pass of at most 1088 MiB of workspace for one head of}}
// expected-error {{keys and values, but this one has more. Shorten the sequence, or take AttentionBy<Fastest>.}}
#include <dspp/cuda/cudnn.hpp>

using namespace dspp;

/// Fewer than 128 tokens.
namespace cudnn_attention_of_few_tokens {
constexpr bool takes(Size tokens) {
  kernels::AttentionExtents at{1, tokens, 2, 2, 64, {}};
  at.by = AttentionKernels::cudnn;
  gpu::require_cudnn_takes<bf16>(at, false);
  return true;
}
#ifdef DSPP_TWIN
constexpr bool taken = takes(128);
#else
constexpr bool taken = takes(100);
#endif
}  // namespace cudnn_attention_of_few_tokens

/// A backward pass whose workspace is too large.
namespace cudnn_attention_of_many_tokens {
constexpr bool takes(Size tokens) {
  kernels::AttentionExtents at{1, tokens, 2, 2, 64, {}};
  at.by = AttentionKernels::cudnn;
  gpu::require_cudnn_takes_backward<bf16>(at, false);
  return true;
}
#ifdef DSPP_TWIN
constexpr bool taken = takes(16384);
#else
constexpr bool taken = takes(32768);
#endif
}  // namespace cudnn_attention_of_many_tokens
