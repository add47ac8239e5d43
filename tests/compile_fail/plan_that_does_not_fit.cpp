// SPDX-License-Identifier: Apache-2.0
/// GPT-2 XL on 64 ranks of 16 GiB: its state is sharded in the twin, and whole on every rank here. (The twin also
/// checks that a plan of 48 blocks is within every compiler's default limit of constant expressions.)
// expected-error {{dspp: a plan needs to fit the memory it is given, but its peak is larger; the types beside this}}
// expected-error {{sentence are its table of bytes. Raise the ZeRO stage or Tp<n>, lower micro_batch or sequence, or}}
// expected-error {{use Recompute.}}
// expected-error {{parameters<3115393024}}
// expected-error {{gradients<3100024832}}
// expected-error {{optimizer<18692358144}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;
constexpr GptConfig gpt2_xl{.layers = 48, .width = 1600, .heads = 50, .vocabulary = 50257, .sequence = 1024};

#ifdef DSPP_TWIN
using P = Policy<Zero<3>, Bf16, Tp<2>, SequenceParallel>;
#else
using P = Policy<Zero<0>, Bf16>;
#endif
constexpr auto paper = plan<Gpt<P>>(gpt2_xl, {.micro_batch = 1, .sequence = 1024}, {.data = 64 / P::tp});
static_assert(must_fit<paper, 16_GiB>());
