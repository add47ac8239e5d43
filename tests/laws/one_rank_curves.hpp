// SPDX-License-Identifier: Apache-2.0
/// The one-rank curves that files of the strategy matrix compare with, compiled once: engine/one_rank_curves.cpp.
#pragma once

#include <laws/small_llama.hpp>
#include <laws/stages.hpp>
#include <laws/tiled_model.hpp>

namespace dspp::laws {

extern template Trained train<Gpt<Policy<F64>>>(const Cell&);
extern template Trained train<Gpt<Policy<F32>>>(const Cell&);
extern template Trained train<Llama<Policy<F64>>>(const Cell&);
extern template Trained train<PlainGpt<Policy<F64>>>(const Cell&);

}  // namespace dspp::laws
