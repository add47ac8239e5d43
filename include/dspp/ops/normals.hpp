// SPDX-License-Identifier: Apache-2.0
/// Numbers of a normal distribution, each a function of its place.
#pragma once

#include <dspp/ops/cpu/normals.hpp>
#include <dspp/tensor/kernel.hpp>

namespace dspp::ops {

/// y[i] = deviation times the standard normal of element first + i of the stream, for i < count.
///
/// Cost     a call of Philox for every four elements, on all threads of the rank
template <Device D, class T>
constexpr void draw_normals(Memory<D>& memory, const PhiloxStream& stream, Size first, Size count, double deviation,
                            T* y) {
  launch<kernels::Normals<T>, D>(memory, stream, first, count, deviation, y);
}

}  // namespace dspp::ops
