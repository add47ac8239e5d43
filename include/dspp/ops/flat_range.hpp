// SPDX-License-Identifier: Apache-2.0
/// A range of parameters with their gradients and optimizer state, and the blocks that an optimizer's rule works on.
#pragma once

#include <cstddef>

#include <dspp/base/types.hpp>

namespace dspp {

/// Largest number of moments per parameter.
inline constexpr int max_moments = 2;

/// One range of a flat shard, in a device's memory. T: the values that the model computes with; G: gradients, T or
/// wider; S: the state that accumulates small steps, f32 or f64.
template <class T, class G, class S>
struct FlatRange {
  const G* gradient = nullptr;
  T* parameter = nullptr;
  S* master = nullptr;           ///< null where T is S: the parameter is its own master
  S* moments[max_moments] = {};  ///< as many as the optimizer's moment_count
  Size count = 0;
};

/// What an update depends on beside the range.
struct UpdateScalars {
  Size step = 1;              ///< counts from 1
  double lr = 0;              ///< from the schedule, or else the optimizer
  double gradient_scale = 1;  ///< clipping and unscaling: the factor of gradients
  bool decay = true;          ///< whether weight decay applies to the range
};

/// What an optimizer's rule reads and writes: N elements in the state's type, as many as the device handles at once.
/// The gradient is already scaled, and what a rule does not write is unchanged.
template <class S, std::size_t N>
struct UpdateBlock {
  static constexpr int length = static_cast<int>(N);
  using Lanes = S[N];

  Lanes gradient;
  const S *value, *moments[max_moments];
  Lanes new_value, new_moments[max_moments];
};

}  // namespace dspp
