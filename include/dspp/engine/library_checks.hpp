// SPDX-License-Identifier: Apache-2.0
/// The parts of a step on the Cpu that depend on no model, which dspp::compiled holds: the list, and its declarations.
#pragma once

#include <vector>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/engine/gradient_check.hpp>
#include <dspp/engine/micro_step.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/rank_check.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/zero/library_units.hpp>

/// TEMPLATE is `template`, or `extern template` for declarations.
#define DSPP_CHECKS(TEMPLATE)                 \
  TEMPLATE class Tape<Cpu>;                   \
  TEMPLATE class RankCheck<Cpu>;              \
  TEMPLATE class StepTargets<Cpu>;            \
  TEMPLATE class detail::MicroStepState<Cpu>; \
  TEMPLATE std::vector<double> detail::gather_numbers(AnyCommunicator&, const std::vector<double>&);

/// Of values of type T.
#define DSPP_CHECKS_OF(TEMPLATE, T)           \
  TEMPLATE class detail::CheckedRank<T, Cpu>; \
  TEMPLATE detail::NonFiniteParameters detail::nonfinite_parameters(const Inventory<T, Cpu>&, ShardedState<T, Cpu>&);

#if !DSPP_HAS_DEFINITIONS()
namespace dspp {
DSPP_CHECKS(extern template)
DSPP_CHECKS_OF(extern template, double)
DSPP_CHECKS_OF(extern template, float)
DSPP_CHECKS_OF(extern template, bf16)
DSPP_CHECKS_OF(extern template, f16)
}  // namespace dspp
#endif
