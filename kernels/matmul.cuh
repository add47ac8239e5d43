// SPDX-License-Identifier: Apache-2.0
/// A matrix product of any layout, plainly: a thread has an element of c. It is what other products are compared with.
///
///   c[i, j] (+)= sum over p of op(a)[i, p] op(b)[p, j], plus bias[j];   activated = gelu(c), of c as it is rounded;
///   or c[i, j] = that sum, rounded, times gelu'(before[i, j])
///
/// In f32, in order of p, rounded once.
///
/// Bytes     of a and b every element once for each of c's that it enters, from the caches: far from a GPU's rate
#pragma once

#include <dspp/ops/kernels.hpp>
#include <dspp/ops/pointwise/gelu.hpp>
#include <kernels/each.cuh>

namespace dspp::gpu {

template <class T, class R>
struct PlainProduct {
  kernels::Product p;
  const T *a, *b;
  kernels::Finish<R> finish;
  Size a_batch, b_batch, c_batch;  // elements from one product to the next

  __device__ void operator()(Size index) const {
    const Size batch = index / (p.m * p.n), i = index / p.n % p.m, j = index % p.n;
    const bool at = p.ta == Transpose::yes, bt = p.tb == Transpose::yes;
    const T* const row = a + batch * a_batch + (at ? i : i * p.lda);
    const T* const column = b + batch * b_batch + (bt ? j * p.ldb : j);
    const Size a_step = at ? p.lda : 1, b_step = bt ? 1 : p.ldb;
    float sum = 0;
    for (Size k = 0; k < p.k; ++k) sum += to_float(row[k * a_step]) * to_float(column[k * b_step]);
    const Size place = batch * c_batch + i * p.ldc + j;
    if (finish.bias != nullptr) sum += to_float(finish.bias[j]);
    if (finish.write == Write::accumulate) sum += to_float(finish.c[place]);
    if (finish.before != nullptr) {
      const float x = to_float(finish.before[place]);
      sum = to_float(from_float<R>(sum));
      sum *=
          finish.form == GeluForm::exact ? pointwise::GeluExact{}.derivative(x) : pointwise::GeluTanh{}.derivative(x);
    }
    const R rounded = from_float<R>(sum);
    finish.c[place] = rounded;
    if (finish.activated == nullptr) return;
    const float x = to_float(rounded);
    finish.activated[place] =
        from_float<R>(finish.form == GeluForm::exact ? pointwise::GeluExact{}(x) : pointwise::GeluTanh{}(x));
  }
};

/// `batch` products, operands one after another.
template <class T, class R>
void plain_matmul(cudaStream_t stream, Size batch, const kernels::Product& p, const T* a, const T* b,
                  const kernels::Finish<R>& finish) {
  const Size a_batch = (p.ta == Transpose::yes ? p.k : p.m) * p.lda,
             b_batch = (p.tb == Transpose::yes ? p.n : p.k) * p.ldb;
  launch_each(Work{"matmul", batch * p.m, p.n}, stream, batch * p.m * p.n,
              PlainProduct<T, R>{p, a, b, finish, a_batch, b_batch, p.m * p.ldc});
}

}  // namespace dspp::gpu
