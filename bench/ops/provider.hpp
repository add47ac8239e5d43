// SPDX-License-Identifier: Apache-2.0
/// The best provider's products on packed operands: the reference for dspp's products.
#pragma once

#include <algorithm>
#include <random>
#include <type_traits>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/ops/cpu/gemm/gemm.hpp>

#include "gpt_products.hpp"

namespace dspp::bench {

/// Operands large enough for every product of a list, in T and in the type it computes in.
template <class T>
struct Operands {
  explicit Operands(const std::vector<StepProduct>& list) {
    Size largest = 0;
    for (const StepProduct& step : list) {
      const cpu::Product& p = step.product;
      largest = std::max({largest, p.m * p.k, p.k * p.n, p.m * p.n});
    }
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Size i = 0; i < largest; ++i) wide.push_back(static_cast<Compute<T>>(normal(random)));
    for (const auto value : wide) narrow.push_back(T(value));
    result.resize(wide.size());
    narrow_result.resize(wide.size());
  }
  std::vector<Compute<T>> wide, result;
  std::vector<T> narrow, narrow_result;
};

template <class T>
const char* provider_name() {
#if DSPP_HAS_ONEDNN()
  if (std::is_same_v<T, bf16> && cpu::onednn_prefers_bf16()) return "oneDNN bf16";
  if (std::is_same_v<T, bf16>)
    return cpu::onednn_has_bf16() ? "oneDNN f32, faster than bf16 here" : "oneDNN f32, for want of bf16";
  if (!std::is_same_v<T, double>) return std::is_same_v<T, f16> ? "oneDNN f32, for want of f16" : "oneDNN";
#endif
  if (std::is_same_v<T, f16>) return "Eigen f32, for want of f16";
  return std::is_same_v<T, bf16> ? "Eigen f32, for want of bf16" : "Eigen";
}

/// One call of the provider, which chooses its threads itself.
template <class T>
void by_provider(const cpu::Product& p, Operands<T>& x) {
#if DSPP_HAS_ONEDNN()
  if constexpr (std::is_same_v<T, bf16>)
    if (cpu::onednn_prefers_bf16())
      return cpu::gemm_onednn_primitive(p, x.narrow.data(), x.narrow.data(), x.result.data(), Write::overwrite);
#endif
  cpu::gemm_direct(p, x.wide.data(), x.wide.data(), x.result.data(), Write::overwrite);
}

}  // namespace dspp::bench
