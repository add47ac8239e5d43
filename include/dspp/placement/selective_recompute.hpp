// SPDX-License-Identifier: Apache-2.0
/// What is computed again in backward instead of being kept: SelectiveRecompute<Norms>.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// The results of LayerNorm and RmsNorm.
struct Norms {};
/// The results of gelu, relu, silu, swiglu and other functions of one value; not of softmax, nor of a custom_op.
struct ActivationFunctions {};

/// A member of a policy; it may name both, one after the other. A Linear whose input is such a result does not keep it:
/// its backward has it computed again, once for all that need it, from what the norm or the function keeps in any case.
/// What else keeps its input keeps it as before: Recompute, Tiled, an operator, a Linear in another unit of ZeRO than
/// the norm. A result that both kinds take is kept, and computed again, too. Beside SequenceParallel a column-parallel
/// layer keeps its gathered input, unless the policy has RegatherInputs.
///
/// Values and gradients are those without it, bit for bit; on Cuda in 16 bits unless a gelu is fused with a product,
/// which takes it before rounding.
///
/// Cost     one more forward of the norm, or of the function, in backward
/// Source   Korthikanti et al. 2022, arXiv:2205.05198, section 5; Megatron-Core's recompute_modules
template <class What>
struct SelectiveRecompute {};

}  // namespace dspp
