// SPDX-License-Identifier: Apache-2.0
/// A cell under every ZeRO stage, and the bits that the stages share.
#pragma once

#include <array>

#include <laws/tensor_traffic.hpp>

namespace dspp::laws {

/// check_cell, and the traffic over Tp. For models without Recompute.
template <class Model>
Trained check_cell_of_gpt(const Cell& cell, const Trained& one_rank, double tolerance) {
  Trained trained = check_cell<Model>(cell, one_rank, tolerance);
  check_tensor_traffic(trained);
  return trained;
}

/// Stages 0 = 1 and 2 = 3 in all bits, all four without accumulation; with it the losses of the pairs agree to `pairs`,
/// and in f64 or after one step the parameters, too. (Over more steps Adam magnifies the last digits of small
/// gradients: in f32 parameters differ by 1e-4 of the largest after 20 steps.)
inline void check_stage_bits(const std::array<Trained, 4>& stages, double pairs) {
  check_same_bits(stages[1], stages[0]);
  check_same_bits(stages[3], stages[2]);
  if (stages[0].cell.accumulate == 1) check_same_bits(stages[2], stages[0]);
  CHECK(relative_gap(stages[2].losses, stages[0].losses) <= pairs);
  const bool exact = stages[0].facts.element == 8 || stages[0].cell.steps == 1;
  if (exact) CHECK(parameter_gap(stages[2], stages[0]) <= pairs);
}

/// Model<0> to Model<3> in one cell: each follows the one-rank curve, and they share their bits. The name of the alias
/// template must be unique to its file: g++ 12 confuses those of two unnamed namespaces.
template <template <int> class Model>
std::array<Trained, 4> check_every_stage(const Cell& cell, const Trained& one_rank, double tolerance, double pairs) {
  std::array<Trained, 4> stages{
      check_cell_of_gpt<Model<0>>(cell, one_rank, tolerance), check_cell_of_gpt<Model<1>>(cell, one_rank, tolerance),
      check_cell_of_gpt<Model<2>>(cell, one_rank, tolerance), check_cell_of_gpt<Model<3>>(cell, one_rank, tolerance)};
  check_stage_bits(stages, pairs);
  return stages;
}

}  // namespace dspp::laws
