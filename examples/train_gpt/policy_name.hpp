// SPDX-License-Identifier: Apache-2.0
/// A policy as source text.
#pragma once

#include <string>
#include <type_traits>

#include <dspp/base/config.hpp>
#include <dspp/placement/policy.hpp>

namespace train_gpt {

/// Bf16 if the target processor multiplies it, else F32: bf16 products computed in f32 have two thirds of the speed.
#if DSPP_HAS_AVX512BF16()
using FastPrecision = dspp::Bf16;
#else
using FastPrecision = dspp::F32;
#endif

template <class P>
struct PolicyName;

/// Names the ZeRO stage, the precision and every other member that differs from the default.
template <class Z, class Precision, class Gradient, class Tensor, class Pl, class C, class E, class Sequence,
          class Inputs, class Attention, class D>
struct PolicyName<dspp::Strategy<Z, Precision, Gradient, Tensor, Pl, C, E, Sequence, Inputs, Attention, D>> {
  static std::string text() {
    std::string name = "Policy<Zero<" + std::to_string(Z::stage) + ">, " + precision<Precision>();
    if (std::is_same_v<Gradient, dspp::Gradients<Precision>>)
      name += ", Gradients<" + precision<Precision>() + ">";
    else if (!std::is_same_v<Gradient, dspp::Gradients<dspp::ByUse>>)
      name += ", Gradients<F32>";
    if (C::degree > 1) name += ", Cp<" + std::to_string(C::degree) + ">";
    if (Tensor::degree > 1) name += ", Tp<" + std::to_string(Tensor::degree) + ">";
    if (std::is_same_v<Sequence, dspp::SequenceParallel>) name += ", SequenceParallel";
    if (std::is_same_v<Inputs, dspp::RegatherInputs>) name += ", RegatherInputs";
    if (std::is_same_v<Attention, dspp::CuDnn>) name += ", AttentionBy<CuDnn>";
    if (std::is_same_v<Attention, dspp::FlashKernels>) name += ", AttentionBy<FlashKernels>";
    if (std::is_same_v<Attention, dspp::PlainKernels>) name += ", AttentionBy<PlainKernels>";
    if (!std::is_same_v<D, dspp::Cpu>) name += ", Cuda";
    return name + ">";
  }

  template <class X>
  static std::string precision() {
    if (std::is_same_v<X, dspp::F64>) return "F64";
    if (std::is_same_v<X, dspp::F16>) return "F16";
    return std::is_same_v<X, dspp::F32> ? "F32" : "Bf16";
  }
};

}  // namespace train_gpt
