// SPDX-License-Identifier: Apache-2.0
/// The axes along which the ranks of a world are arranged.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// From the outermost to the innermost: neighbouring ranks differ in Tp. Expert parallelism factors Data x Cp and takes
/// no ranks of its own, so it has no axis here.
enum class Axis { Pp, Data, Cp, Tp };
inline constexpr int axis_count = 4;
inline constexpr Axis all_axes[axis_count] = {Axis::Pp, Axis::Data, Axis::Cp, Axis::Tp};

constexpr const char* name_of(Axis axis) {
  switch (axis) {
    case Axis::Pp: return "Pp";
    case Axis::Data: return "Data";
    case Axis::Cp: return "Cp";
    case Axis::Tp: return "Tp";
  }
  return "?";
}

}  // namespace dspp
