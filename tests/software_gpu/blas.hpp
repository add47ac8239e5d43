// SPDX-License-Identifier: Apache-2.0
/// The twin of cublasLtMatmul: matrices whose columns follow one another, and what cuBLASLt demands of them.
#pragma once

#include <cstdint>
#include <cstring>

#include <dspp/base/element.hpp>
#include <dspp/ops/pointwise/gelu.hpp>
#include <software_gpu/runtime.hpp>

namespace dspp::software_gpu {

inline float element_at(const void* x, ElementType type, std::int64_t i) {
  if (type == ElementType::bf16) return static_cast<float>(static_cast<const bf16*>(x)[i]);
  if (type == ElementType::f16) return static_cast<float>(static_cast<const f16*>(x)[i]);
  return static_cast<const float*>(x)[i];
}
inline void set_element_at(void* x, ElementType type, std::int64_t i, float value) {
  if (type == ElementType::bf16)
    static_cast<bf16*>(x)[i] = bf16(value);
  else if (type == ElementType::f16)
    static_cast<f16*>(x)[i] = f16(value);
  else
    static_cast<float*>(x)[i] = value;
}

/// p: a gpu::BlasProduct, operands: a gpu::BlasOperands.
template <class Product, class Operands>
cudaError_t blas_multiply(Stream* stream, const Product& p, const Operands& operands) {
  if (call_fails("cublasLtMatmul")) return cudaErrorLaunchFailure;
  const bool known = (p.operands == ElementType::f32 && p.result == ElementType::f32) ||
                     ((p.operands == ElementType::bf16 || p.operands == ElementType::f16) &&
                      (p.result == p.operands || p.result == ElementType::f32));
  const bool apart = p.ld_first >= (p.transposes_first ? p.depth : p.rows) &&
                     p.ld_second >= (p.transposes_second ? p.columns : p.depth) && p.ld_result >= p.rows;
  const auto aligned = [&](const void* x) {
    return reinterpret_cast<std::uintptr_t>(x) % static_cast<unsigned>(p.alignment) == 0;
  };
  if (!known || !apart || p.rows < 1 || p.columns < 1 || p.depth < 1 || p.batch < 1 || !aligned(operands.first) ||
      !aligned(operands.second) || !aligned(operands.result) ||
      (p.has_bias && (operands.bias == nullptr || p.accumulates)) || p.workspace_bytes < 0 ||
      (operands.workspace == nullptr) != (p.workspace_bytes == 0) ||
      reinterpret_cast<std::uintptr_t>(operands.workspace) % 256 != 0)
    return cudaErrorInvalidValue;
  if (p.has_before() && (p.has_bias != p.has_gelu || p.accumulates || p.batch != 1 || p.result != p.operands ||
                         p.result == ElementType::f32 || p.ld_result % 8 != 0 || p.alignment != 16 ||
                         operands.before == nullptr || !aligned(operands.before)))
    return cudaErrorInvalidValue;
  issues_product(2.0 * static_cast<double>(p.rows * p.columns * p.depth * p.batch));
  issue(stream, [=] {
    const auto [first, second, bias, result, before, workspace] = operands;
    if (workspace) std::memset(workspace, 0xff, static_cast<std::size_t>(p.workspace_bytes));  // not what was in it
    for (std::int64_t at = 0; at < p.batch; ++at)
      for (std::int64_t j = 0; j < p.columns; ++j)
        for (std::int64_t i = 0; i < p.rows; ++i) {
          float sum = 0;
          for (std::int64_t k = 0; k < p.depth; ++k)
            sum += element_at(first, p.operands,
                              at * p.stride_first + (p.transposes_first ? i * p.ld_first + k : k * p.ld_first + i)) *
                   element_at(second, p.operands,
                              at * p.stride_second + (p.transposes_second ? k * p.ld_second + j : j * p.ld_second + k));
          const std::int64_t place = at * p.stride_result + j * p.ld_result + i;
          if (p.accumulates) sum += element_at(result, p.result, place);
          if (p.has_bias) sum += element_at(bias, p.result, i);
          if (p.has_gelu_vjp) {
            set_element_at(result, p.result, place, sum);
            sum = element_at(result, p.result, place) *
                  pointwise::GeluTanh{}.derivative(element_at(before, p.result, place));
          }
          if (p.has_gelu) {
            set_element_at(before, p.result, place, sum);
            sum = pointwise::GeluTanh{}(sum);
          }
          set_element_at(result, p.result, place, sum);
        }
  });
  return cudaSuccess;
}

}  // namespace dspp::software_gpu
