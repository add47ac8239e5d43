// SPDX-License-Identifier: Apache-2.0
/// Elements as whole numbers of few bits, for traffic: to them, and sums of them.
#pragma once

#include <dspp/ops/cpu/quantize.hpp>

namespace dspp::ops {

/// Part (c, r) of `to` is part (r, c) of x, which is [rows, columns, parts.count], quantized. With an `error` of as
/// many elements, x + error is, and error becomes keep error + (1 - keep) times what that lost; 0 in blocks of NaN.
///
/// Cost     reads x once; reads and writes `error` once
template <class T, class D>
constexpr void quantize(Memory<D>& memory, const QuantizedParts& parts, Size rows, Size columns, const T* x,
                        std::byte* to, T* error = nullptr, double keep = 0) {
  launch<kernels::Quantize<T>, D>(memory, parts, rows, columns, x, to, error, keep);
}

/// y[p, i] = the sum over s of element i of part p of sender s, in order of the senders, in Compute<T>, rounded once.
/// `from`: [senders, rows] parts; y: [rows, parts.count]. Of one sender, its elements.
///
/// Cost     reads `from` once
template <class T, class D>
constexpr void sum_quantized(Memory<D>& memory, const QuantizedParts& parts, Size senders, Size rows,
                             const std::byte* from, T* y) {
  launch<kernels::SumQuantized<T>, D>(memory, parts, senders, rows, from, y);
}

}  // namespace dspp::ops
