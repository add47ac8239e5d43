// SPDX-License-Identifier: Apache-2.0
// Every row of the table of operators on a GPU: values against naive formulas, gradients beside the Cpu's; attention
// with every extra.
// labels: cuda
// alone: its functors need the kernels, and the other files are to link them as a program does
#include <kernels/cuda_kernels.cuh>

#include <dspp/launch/cuda_rank.hpp>

#include <laws/attention_extras.hpp>
#include <laws/operator_pass.hpp>
#include <laws/placed.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// One rank on a GPU, without an engine.
struct CudaTestRank {
  CudaMemory memory;
  Pool pool{0, &memory};
  AnyCommunicator alone{Recorder(0, 1)};
  Context<Cuda> context{.memory = &pool, .along = {.tp = &alone}};
};

}  // namespace

TEST_CASE("on a GPU the values of every operator are those of its formula, its gradients the Cpu's") {
  const auto rows = operator_rows<float, Cuda>();
  const auto of_cpu = operator_rows<float, Cpu>();
  CudaTestRank there;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const Shape<3>& shape : full_shapes) {
      CAPTURE(rows[i].name);
      CAPTURE(to_string(shape));
      TestRank here;
      const Passed passed = pass(rows[i], shape, there.context);
      check_row_values(rows[i], shape, passed, 16 * rounding<float>);
      const auto expected = pass(of_cpu[i], shape, here.context).dx;
      CHECK(difference_to_largest(passed.dx, expected) < 16 * rounding<float>);
    }
  CHECK(there.pool.live() == 0);
}

TEST_CASE("on a GPU every operator passes values without elements, forward and backward") {
  CudaTestRank there;
  for (const auto& row : operator_rows<float, Cuda>())
    for (const Shape<3>& shape : empty_shapes) {
      if (row.needs_elements) continue;
      CAPTURE(row.name);
      CAPTURE(to_string(shape));
      CHECK(pass(row, shape, there.context).dx.empty());
    }
}

TEST_CASE(
    "on a GPU grouped heads attend as on the Cpu by a window, a soft cap, lengths, documents and a learned bias") {
  TestRank here;
  CudaTestRank there;
  const auto on_cpu = attend_with_extras<float>(here.context), on_gpu = attend_with_extras<float>(there.context);
  CHECK(on_cpu.size() > 2 * 70 * 70);
  CHECK(difference_to_largest(on_gpu, on_cpu) < 16 * rounding<float>);
}
