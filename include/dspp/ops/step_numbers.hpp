// SPDX-License-Identifier: Apache-2.0
/// What a device needs that repeats the launches of a step: the numbers that change from step to step.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

/// What changes from micro-step to micro-step among the arguments of a step's launches, in a device's memory: a launch
/// that is given their address reads them there, and what it has in their place is the same in every step.
struct StepNumbers {
  Size random_step = 0;   ///< added to the step of a PhiloxStream
  Size first_sample = 0;  ///< and to its sample
  Size micro_step = 1;    ///< of the step, counted from 1
  double seed = 1;        ///< of backward if all targets count: loss scale / (replicas x micro-steps)
  double loss_scale = 1;
};

/// How a step is issued: launch by launch; the same, while a device notes the launches to repeat them; or repeated.
enum class StepWay { eager, captured, repeated };

}  // namespace dspp
