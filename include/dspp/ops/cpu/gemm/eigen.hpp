// SPDX-License-Identifier: Apache-2.0
/// Matrix products by Eigen: f64 always, f32 in builds without oneDNN.
#pragma once

#include <Eigen/Core>

#include <dspp/base/config.hpp>
#include <dspp/ops/cpu/gemm/product.hpp>
#include <dspp/ops/write.hpp>

// Eigen's alignment depends on the processor, and on Eigen's macros that a translation unit may define.
#define DSPP_EIGEN_UNIT_OF(bytes, bytes_static) dspp_unit_with_eigen_aligned_to_##bytes##_static_##bytes_static
#define DSPP_EIGEN_UNIT(bytes, bytes_static) DSPP_EIGEN_UNIT_OF(bytes, bytes_static)
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_eigen_alignment,
                      DSPP_EIGEN_UNIT(EIGEN_MAX_ALIGN_BYTES, EIGEN_MAX_STATIC_ALIGN_BYTES))

namespace dspp::cpu {

/// c = op(a) op(b), or c += op(a) op(b), on the calling thread; T is float or double.
template <class T>
void gemm_eigen(const Product& p, const T* a, const T* b, T* c, Write write) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  using In = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;
  const bool ta = p.ta == Transpose::yes, tb = p.tb == Transpose::yes;
  const In am(a, ta ? p.k : p.m, ta ? p.m : p.k, Stride(p.lda));
  const In bm(b, tb ? p.n : p.k, tb ? p.k : p.n, Stride(p.ldb));
  Eigen::Map<Matrix, Eigen::Unaligned, Stride> cm(c, p.m, p.n, Stride(p.ldc));
  if (write == Write::overwrite) cm.setZero();
  if (ta && tb)
    cm.noalias() += am.transpose() * bm.transpose();
  else if (ta)
    cm.noalias() += am.transpose() * bm;
  else if (tb)
    cm.noalias() += am * bm.transpose();
  else
    cm.noalias() += am * bm;
}

}  // namespace dspp::cpu
