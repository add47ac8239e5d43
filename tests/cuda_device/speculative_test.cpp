// SPDX-License-Identifier: Apache-2.0
// Speculative with Policy<..., Cuda>: updates on a stream beside backward, on the GPU in software.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <laws/speculative_updates.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("on a GPU, an update ahead has the bits of one in the step") {
  check_speculative<AdamW, Compiled<Cuda, F32>, Zero<0>>({.ranks = 1, .steps = 4});
  check_speculative<AdamW, Compiled<Cuda, F32>, Zero<1>>({.ranks = 2, .steps = 4});
  check_speculative<AdamW, Compiled<Cuda, Bf16>, Zero<2>>({.ranks = 2, .accumulate = 2, .steps = 4});
  check_speculative<AdamW, Compiled<Cuda, Bf16>, Zero<3>, Offload<Optimizer, Host>>({.ranks = 2, .steps = 4});
  check_speculative<AdamW, Compiled<Cuda, Bf16>, Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>(
      {.ranks = 2, .steps = 4});
}
