// SPDX-License-Identifier: Apache-2.0
/// Parallel axes as policy members: the name of the axis and its degree.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// Tensor parallelism of degree N: layers are cut over N ranks. Shoeybi et al. 2019, arXiv:1909.08053.
template <int N>
struct Tp {
  static_assert(N >= 1, "dspp: Tp<N> needs a degree of at least 1. Write Tp<1> for no tensor parallelism.");
  static constexpr int degree = N;
};

/// Pipeline parallelism of degree N: blocks are divided into N stages.
template <int N>
struct Pp {
  static_assert(N == 1, "dspp: Pp<N> has no schedules yet, but N is not 1. Leave Pp out of the policy.");
  static constexpr int degree = N;
};

/// Context parallelism of degree N: sequences are cut over N ranks, which exchange slices of them for heads in
/// attention. Jacobs et al. 2023, arXiv:2309.14509 (DeepSpeed-Ulysses).
template <int N>
struct Cp {
  static_assert(N >= 1, "dspp: Cp<N> needs a degree of at least 1. Write Cp<1> for no context parallelism.");
  static constexpr int degree = N;
};

/// Expert parallelism of degree N: factors Data x Cp and takes no ranks of its own.
template <int N>
struct Ep {
  static_assert(N == 1, "dspp: Ep<N> has no expert layers yet, but N is not 1. Leave Ep out of the policy.");
  static constexpr int degree = N;
};

}  // namespace dspp
