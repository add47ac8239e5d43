// SPDX-License-Identifier: Apache-2.0
/// What an optimizer is: a description with an update of one contiguous range of parameters.
#pragma once

#include <concepts>

#include <dspp/base/element.hpp>

namespace dspp {

/// One range of a flat shard. T: the values that the model computes with; G: gradients, T or wider; S: the state that
/// accumulates small steps, f32 or f64.
template <class T, class G, class S>
struct FlatRange {
  const G* gradient = nullptr;
  T* parameter = nullptr;
  S* master = nullptr;  ///< null where T is S: the parameter is its own master
  S* moments[2] = {};   ///< as many as the optimizer's moment_count
  Size count = 0;
};

/// What is the same for all ranges of one step.
struct UpdateScalars {
  Size step = 1;              ///< counts from 1
  double lr = 0;              ///< the schedule's, or the optimizer's own
  double gradient_scale = 1;  ///< clipping and unscaling: gradients are multiplied with it
  bool decay = true;          ///< whether weight decay applies to this range
};

/// A literal aggregate that allocates nothing; `update` is one pass that touches each array once. It gives the same
/// bits however a shard is cut into ranges, and on any number of threads. With a `name` and a `describe(f)` that calls
/// f("lr", lr) for each of its numbers, training states know whose moments they hold.
template <class O>
concept Optimizer = requires(const O& optimizer, const UpdateScalars& scalars) {
  { O::moment_count } -> std::convertible_to<int>;
  { optimizer.lr } -> std::convertible_to<double>;
  optimizer.update(FlatRange<float, float, float>{}, scalars);
  optimizer.update(FlatRange<bf16, float, float>{}, scalars);
  optimizer.update(FlatRange<bf16, bf16, float>{}, scalars);
  optimizer.update(FlatRange<f16, f16, float>{}, scalars);
  optimizer.update(FlatRange<double, double, double>{}, scalars);
};

}  // namespace dspp
