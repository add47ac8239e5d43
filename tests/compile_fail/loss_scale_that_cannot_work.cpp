// SPDX-License-Identifier: Apache-2.0
/// A loss scale whose minimum is 0, which no overflow would ever reach. The twin also plans a model in f16.
// expected-error {{dspp: LossScale needs 0 < minimum <= initial <= 2^127, but got others. Change one of them.}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
constexpr LossScale scale(LossScaleConfig{.initial = 1024, .minimum = 0.25});
using P = Policy<Zero<2>, F16, Tp<2>, SequenceParallel>;
constexpr GptConfig gpt2{.layers = 12, .width = 768, .heads = 12, .vocabulary = 50257, .sequence = 1024};
constexpr auto paper = plan<Gpt<P>>(gpt2, {.micro_batch = 1, .sequence = 1024}, {.data = 4});
static_assert(must_fit<paper, 8_GiB>() && scale.value() == 1024);
#else
constexpr LossScale scale(LossScaleConfig{.minimum = 0});
#endif
