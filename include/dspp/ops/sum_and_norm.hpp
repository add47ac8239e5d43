// SPDX-License-Identifier: Apache-2.0
/// A residual sum and its norm.
#pragma once

#include <dspp/ops/in_place.hpp>
#include <dspp/tensor/kernel.hpp>

namespace dspp {

/// What add_layer_norm, add_rms_norm and a norm's of_sum give.
template <class Sum, class Norm = Sum>
struct SumAndNorm {
  Sum sum;
  Norm norm;
};

namespace ops::detail {

/// The tensor for x + residual: the residual's block if that has no other handle. Counts the sum's operations, and what
/// it moves beside the norm.
template <class T, int Rank, class D>
constexpr Tensor<T, Rank, D> room_for_sum(const Tensor<T, Rank, D>& x, Tensor<T, Rank, D>& residual, const char* who) {
  require_same_shape(x.shape(), residual.shape(), who);
  auto sum = in_place_or_new(residual, who);
  x.memory().count_flops(static_cast<double>(x.count()));
  note_moved(sum, sum);
  return sum;
}

}  // namespace ops::detail
}  // namespace dspp
