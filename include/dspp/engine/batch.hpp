// SPDX-License-Identifier: Apache-2.0
/// What one rank computes on in one micro-step.
#pragma once

#include <cstdint>

#include <dspp/tensor/tensor.hpp>

namespace dspp {

/// Token ids and, for each, the token to predict: [micro_batch, sequence]. `first_sample` is the global index of the
/// first row, counted over all ranks and micro-steps: it keys dropout.
template <Device D>
struct Batch {
  Tensor<std::int32_t, 2, D> tokens, targets;
  Size first_sample = 0;
};

}  // namespace dspp
