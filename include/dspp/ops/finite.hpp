// SPDX-License-Identifier: Apache-2.0
/// Whether values are finite.
#pragma once

#include <dspp/ops/cpu/finite.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops {

/// True if none of `count` elements in D's memory is NaN or infinite; always true on paper.
///
/// Cost     reads them once; synchronizes
template <class T, class D>
constexpr bool all_finite(Memory<D>& memory, Size count, const T* x) {
  return ask<kernels::AllFinite<T>, D>(memory, true, count, x);
}

template <class T, int Rank, class D>
constexpr bool all_finite(const Tensor<T, Rank, D>& x) {
  return all_finite<T, D>(x.memory(), x.count(), x.data());
}

}  // namespace dspp::ops
