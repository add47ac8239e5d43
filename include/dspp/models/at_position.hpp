// SPDX-License-Identifier: Apache-2.0
/// One position of the residual stream, for inference.
#pragma once

#include <utility>

#include <dspp/nn/layer.hpp>
#include <dspp/ops/slice.hpp>

namespace dspp {

/// x[:, position, :] of this rank's part of the sequences, without a gradient: [batch, 1, width], Invariant.
///
/// Cost     under SequenceParallel an all-gather of x
template <class P>
constexpr auto at_position(const Hidden<P>& x, Size position) {
  const auto whole = redistribute<Invariant>(x);
  using Whole = std::remove_cvref_t<decltype(whole)>;
  return Whole::constant(ops::slice(whole.value(), 1, position, 1), x.tape());
}

}  // namespace dspp
