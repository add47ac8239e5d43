// SPDX-License-Identifier: Apache-2.0
// A plan counts the workspaces of the device that the policy names, not those of the Cpu.
#include <doctest/doctest.h>

#include <dspp/cuda.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

#include <support/roomy_device.hpp>

using namespace dspp;

template <class P>
constexpr Plan small_plan() {
  return plan<Gpt<P>>(GptConfig{.layers = 1, .width = 8, .heads = 2, .sequence = 4}, {.micro_batch = 1, .sequence = 4});
}

TEST_CASE("a policy's paper imitates its device, and paper itself imitates what it did") {
  static_assert(std::is_same_v<PaperOf<Cpu>, Meta> && std::is_same_v<PaperOf<Meta>, Meta>);
  static_assert(std::is_same_v<PaperOf<Roomy>, MetaOf<Roomy>> && std::is_same_v<PaperOf<MetaOf<Roomy>>, MetaOf<Roomy>>);
  static_assert(
      std::is_same_v<rebind<Gpt<Policy<F32, Zero<3>, Roomy>>, MetaOf<Roomy>>, Gpt<Policy<F32, MetaOf<Roomy>>>>);
}

TEST_CASE("a plan counts the workspaces of the policy's device") {
  constexpr Plan cpu = small_plan<Policy<F32>>(), roomy = small_plan<Policy<F32, Roomy>>();
  const auto rounded = [](Size bytes) { return round_up(bytes, block_alignment); };
  const Size own = cpu.by_category[Category::workspace], others = roomy.by_category[Category::workspace];
  CHECK(others > own);
  CHECK(others - own <= rounded(Roomy::more * 4));
  CHECK(others >= Roomy::more * 4);
  CHECK(roomy.state[Category::parameters] == cpu.state[Category::parameters]);
  CHECK(roomy.forward_flops == cpu.forward_flops);
}

TEST_CASE("a plan for a GPU needs neither nvcc nor a GPU, and counts what its kernels need") {
  constexpr Plan cpu = small_plan<Policy<Bf16, Zero<2>>>(), on_gpu = small_plan<Policy<Bf16, Zero<2>, Cuda>>();
  CHECK(on_gpu.by_category[Category::workspace] >= gpu::most_sort_workspace(4) + 4 * gpu::embedding_parts(4, 8));
  CHECK(on_gpu.by_category[Category::workspace] > cpu.by_category[Category::workspace]);
  CHECK(on_gpu.state[Category::parameters] == cpu.state[Category::parameters]);
  CHECK(on_gpu.forward_flops == cpu.forward_flops);
}
