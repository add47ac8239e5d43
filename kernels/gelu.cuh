// SPDX-License-Identifier: Apache-2.0
/// gelu, forward and backward, in both forms.
///
///   exact   y[i] = x[i] Phi(x[i])                           Phi the normal distribution function
///   tanh    y[i] = x[i] (1 + tanh(u)) / 2                   u = sqrt(2/pi) (x + 0.044715 x^3)
///   dx[i] = y'(x[i]) dy[i]                                  x, y, dx, dy [count]
///
/// Bytes     forward 2 sizeof(T) an element, backward 3 sizeof(T)
/// Source    Hendrycks and Gimpel 2016, Gaussian Error Linear Units, section 2
#pragma once

#include <dspp/ops/gelu_form.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>
#include <dspp/ops/pointwise/gelu.hpp>
#include <kernels/pointwise.cuh>

namespace dspp::gpu {

/// y may be x.
template <class T>
void gelu(cudaStream_t stream, GeluForm form, Size count, T* y, const T* x) {
  const Work work{"gelu", 1, count};
  if (form == GeluForm::exact)
    gpu::pointwise(work, stream, dspp::pointwise::GeluExact{}, count, y, x);
  else
    gpu::pointwise(work, stream, dspp::pointwise::GeluTanh{}, count, y, x);
}

/// dx may be x or dy.
template <class T>
void gelu_backward(cudaStream_t stream, GeluForm form, Size count, T* dx, const T* x, const T* dy) {
  const Work work{"gelu_backward", 1, count};
  if (form == GeluForm::exact)
    pointwise_pair(work, stream, dspp::pointwise::Vjp<dspp::pointwise::GeluExact>{}, count, dx, x, dy);
  else
    pointwise_pair(work, stream, dspp::pointwise::Vjp<dspp::pointwise::GeluTanh>{}, count, dx, x, dy);
}

}  // namespace dspp::gpu
