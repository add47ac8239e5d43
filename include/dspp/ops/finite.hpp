// SPDX-License-Identifier: Apache-2.0
/// Whether values are numbers.
#pragma once

#include <dspp/ops/cpu/finite.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops {

/// Whether none of `count` elements, which are D's, is NaN or infinite; on paper none is.
///
/// Cost     reads them once; waits
template <class T, class D>
constexpr bool all_finite(Memory<D>& memory, Size count, const T* x) {
  return ask<kernels::AllFinite<T>, D>(memory, true, count, x);
}

template <class T, int Rank, class D>
constexpr bool all_finite(const Tensor<T, Rank, D>& x) {
  return all_finite<T, D>(x.memory(), x.count(), x.data());
}

}  // namespace dspp::ops
