// SPDX-License-Identifier: Apache-2.0
/// A range of parameters with their gradients and state, and what an optimizer's rule sees of it.
#pragma once

#include <cstddef>

#include <dspp/base/types.hpp>

namespace dspp {

/// Of a parameter: as many as buckets have room for.
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
  double lr = 0;              ///< the schedule's, or the optimizer's own
  double gradient_scale = 1;  ///< clipping and unscaling: gradients are multiplied with it
  bool decay = true;          ///< whether weight decay applies to the range
};

/// What an optimizer's rule reads and writes: N elements in the state's type, as many as the device handles at once.
/// The gradient is scaled already, and what a rule does not write stays as it was.
template <class S, std::size_t N>
struct UpdateBlock {
  static constexpr int length = static_cast<int>(N);
  using Lanes = S[N];

  Lanes gradient;
  const S *value, *moments[max_moments];
  Lanes new_value, new_moments[max_moments];
};

}  // namespace dspp
