// SPDX-License-Identifier: Apache-2.0
// The curves that strategies are compared with, compiled once.
#include <laws/one_rank_curves.hpp>

namespace dspp::laws {

template Trained train<Gpt<Policy<F64>>>(const Cell&);
template Trained train<Gpt<Policy<F32>>>(const Cell&);
template Trained train<Llama<Policy<F64>>>(const Cell&);
template Trained train<PlainGpt<Policy<F64>>>(const Cell&);

}  // namespace dspp::laws
