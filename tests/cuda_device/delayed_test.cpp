// SPDX-License-Identifier: Apache-2.0
// Delayed<1> with Policy<..., Cuda>: updates on a stream beside that of the next step, on the GPU in software.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <laws/delayed_updates.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class... P>
struct Of {
  template <class... More>
  static void check(const Cell& cell) {
    check_delayed<Policy<Cuda, P...>, Policy<Cuda, P..., More..., Delayed<1>>, Policy<Cuda, P..., More...>>(cell);
  }
};

}  // namespace

TEST_CASE("on a GPU, a delayed update has the bits of the reference") {
  Of<F32>::check<Zero<0>>({.ranks = 1, .steps = 4});
  Of<F32>::check<Zero<1>>({.ranks = 2, .steps = 4, .delay_after = 1});
  Of<Bf16>::check<Zero<2>>({.ranks = 2, .accumulate = 2, .steps = 3});
  Of<Bf16>::check<Zero<3>, Offload<Optimizer, Host>>({.ranks = 2, .steps = 4});
  Of<Bf16>::check<Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>({.ranks = 2, .steps = 3});
}
