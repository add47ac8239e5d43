// SPDX-License-Identifier: Apache-2.0
/// Root-mean-square normalisation of rows, forward and backward.
///
///   y[i, j] = x[i, j] inverse_root[i] gamma[j]    inverse_root = 1 / sqrt(mean of squares + epsilon)
///   x, y [rows, n]; inverse_root [rows]; gamma [n]
///
/// Bytes     forward 2 sizeof(T) an element, 4 with the residual; backward 3, 4 with an earlier dx
/// Source    Zhang and Sennrich 2019, Root Mean Square Layer Normalization, section 4
#pragma once

#include <kernels/row_norm.cuh>
#include <kernels/row_norm_backward.cuh>

namespace dspp::gpu {

/// With a residual (else null, and `sum`, too), sum = x + residual is written and normalised, rounded to T first, as by
/// two operations. `sum` may be x or residual, y may be x.
template <class T>
void rms_norm(cudaStream_t stream, Size rows, Size n, const T* x, const T* residual, const T* gamma, double epsilon,
              T* sum, T* y, float* inverse_root) {
  const Work work{"rms_norm", rows, n};
  const T* const no_beta = nullptr;
  float* const no_mean = nullptr;
  if (rows_are_aligned<T>(n, x, residual, gamma, sum, y))
    launch_norm<false, pack_length<T>>(work, stream, x, residual, gamma, no_beta, epsilon, sum, y, no_mean,
                                       inverse_root);
  else
    launch_norm<false, 1>(work, stream, x, residual, gamma, no_beta, epsilon, sum, y, no_mean, inverse_root);
}

/// dx + earlier, the gradient that x has already (null: none), rounded once, and dgamma, summed in f32 and rounded once
/// to G. dx may be dy or earlier. scratch: rms_norm_scratch floats.
template <class T, class G>
void rms_norm_backward(cudaStream_t stream, Size rows, Size n, T* dx, const T* dy, const T* x, const T* earlier,
                       const T* gamma, const float* inverse_root, float* scratch, G* dgamma, Write write) {
  const Work work{"rms_norm_backward", rows, n};
  const float* const no_mean = nullptr;
  if (rows_are_aligned<T>(n, dx, dy, x, earlier, gamma) && is_aligned(scratch))
    launch_norm_backward<false, pack_length<T>>(work, stream, dx, dy, x, earlier, gamma, no_mean, inverse_root,
                                                scratch);
  else
    launch_norm_backward<false, 1>(work, stream, dx, dy, x, earlier, gamma, no_mean, inverse_root, scratch);
  sum_pieces(work, stream, norm_pieces(rows, n), n, n, scratch, dgamma, write);
}

}  // namespace dspp::gpu
