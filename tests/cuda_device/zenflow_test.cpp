// SPDX-License-Identifier: Apache-2.0
// ZenFlow with Policy<..., Cuda>: rows by their marks, the others on a stream beside the next steps, on the GPU in
// software.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <laws/zenflow_updates.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("on a GPU, where all rows are important, or all are updated at once, the bits are those without") {
  using W = Policy<Cuda, Bf16>;
  check_like_without<W, Policy<Cuda, Bf16, Zero<2>, ZenFlow>, Policy<Cuda, Bf16, Zero<2>>>(
      {.ranks = 2, .accumulate = 2, .steps = 5, .samples = 4});
}

TEST_CASE("on a GPU, stages and tiers share the bits of a schedule, which are near those of the Cpu") {
  Cell cell{.ranks = 2, .steps = 7, .samples = 4};
  cell.zenflow = {.topk_ratio = 0.3, .update_interval = 2, .select_interval = 4};
  using W = Policy<Cuda, Bf16>;
  const Course whole = zenflow_course<W, Policy<Cuda, Bf16, ZenFlow>>(cell);
  check_same_course(zenflow_course<W, Policy<Cuda, Bf16, Zero<2>, Offload<Optimizer, Host>, ZenFlow>>(cell), whole);
  check_same_course(
      zenflow_course<W, Policy<Cuda, Bf16, Zero<3>, Offload<Optimizer, Host>, Offload<Parameters, Host>, ZenFlow>>(
          cell),
      whole);
  const Course on_gpu = zenflow_course<Policy<Cuda, F32>, Policy<Cuda, F32, Zero<2>, ZenFlow>>(cell);
  const Course on_cpu = zenflow_course<Policy<F32>, Policy<F32, Zero<2>, ZenFlow>>(cell);
  for (std::size_t i = 0; i < on_cpu.losses.size(); ++i)
    CHECK(on_gpu.losses[i] == doctest::Approx(on_cpu.losses[i]).epsilon(1e-4));
}
