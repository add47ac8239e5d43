// SPDX-License-Identifier: Apache-2.0
/// Layer normalisation of rows, forward and backward.
///
///   y[i, j] = (x[i, j] - mean[i]) rstd[i] gamma[j] + beta[j]    x, y [rows, n]; mean, rstd [rows]; gamma, beta [n]
///
/// Bytes     forward 2 sizeof(T) an element, 4 with the residual; backward 3, 4 with an earlier dx
/// Source    Ba, Kiros, Hinton 2016, Layer Normalization, section 3
#pragma once

#include <kernels/row_norm.cuh>
#include <kernels/row_norm_backward.cuh>

namespace dspp::gpu {

/// With a residual (else null, and `sum`, too), sum = x + residual is written and normalised, rounded to T first, as by
/// two operations. `sum` may be x or residual, y may be x.
template <class T>
void layer_norm(cudaStream_t stream, Size rows, Size n, const T* x, const T* residual, const T* gamma, const T* beta,
                double epsilon, T* sum, T* y, float* mean, float* rstd) {
  const Work work{"layer_norm", rows, n};
  if (rows_are_aligned<T>(n, x, residual, gamma, beta, sum, y))
    launch_norm<true, pack_length<T>>(work, stream, x, residual, gamma, beta, epsilon, sum, y, mean, rstd);
  else
    launch_norm<true, 1>(work, stream, x, residual, gamma, beta, epsilon, sum, y, mean, rstd);
}

/// dx + earlier, the gradient that x has already (null: none), rounded once, and dgamma and dbeta, summed in f32 and
/// rounded once to G. dx may be dy or earlier. scratch: layer_norm_scratch floats.
template <class T, class G>
void layer_norm_backward(cudaStream_t stream, Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier,
                         const T* gamma, const float* mean, const float* rstd, float* scratch, G* dgamma,
                         Write write_gamma, G* dbeta, Write write_beta) {
  const Work work{"layer_norm_backward", rows, n};
  if (rows_are_aligned<T>(n, dx, dy, x, earlier, gamma) && is_aligned(scratch))
    launch_norm_backward<true, pack_length<T>>(work, stream, dx, dy, x, earlier, gamma, mean, rstd, scratch);
  else
    launch_norm_backward<true, 1>(work, stream, dx, dy, x, earlier, gamma, mean, rstd, scratch);
  sum_pieces(work, stream, norm_pieces(rows, n), n, 2 * n, scratch, dgamma, write_gamma, dbeta, write_beta);
}

}  // namespace dspp::gpu
