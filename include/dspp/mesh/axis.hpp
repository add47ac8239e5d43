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

/// A T of each axis, by name or by index: `Degrees{.data = 3, .tp = 2}`, degrees.tp, degrees[Axis::Tp]. A new axis is
/// an enumerator of Axis and a member here.
template <class T, auto... initial>
struct PerAxis {
  T pp{initial...};
  T data{initial...};
  T cp{initial...};
  T tp{initial...};

  constexpr T& operator[](Axis axis) { return at(*this, axis); }
  constexpr const T& operator[](Axis axis) const { return at(*this, axis); }
  friend constexpr bool operator==(const PerAxis&, const PerAxis&) = default;

 private:
  template <class Self>
  static constexpr auto& at(Self& self, Axis axis) {
    switch (axis) {
      case Axis::Pp: return self.pp;
      case Axis::Data: return self.data;
      case Axis::Cp: return self.cp;
      case Axis::Tp: break;
    }
    return self.tp;
  }
};

/// How many ranks each axis has.
using Degrees = PerAxis<int, 1>;

/// The position of a rank along each axis: rank = ((pp * data_degree + data) * cp_degree + cp) * tp_degree + tp.
using Coordinates = PerAxis<int, 0>;

}  // namespace dspp
