// SPDX-License-Identifier: Apache-2.0
/// A layer in f32, bf16 and f16 against the same layer in f64 on one rank, within bounds that count its roundings.
#pragma once

#include <map>
#include <string>

#include "parallel_layer.hpp"

namespace dspp::laws {

/// The roundings on the longest path to a result: `results` are rounded to the element type T, and `sums`, the terms of
/// all sums in succession, to Compute<T>.
///
/// A rounding moves a value by at most u = rounding<T> of it. Over many values with logarithmic mantissas its root mean
/// square is 0.39 u, and independent roundings add in squares: n of them make 0.39 sqrt(n) u. A sum of n terms of
/// random sign, whose partial sums grow like sqrt(k), makes 0.28 sqrt(n) u. The bound, in the 2-norm of a whole tensor,
/// is sqrt(results) u(T) + sqrt(sums) u(Compute<T>): what is expected with a margin of 2.5, for what an operation makes
/// of the errors before it. A sum of n >= 64 terms in bf16 instead of f32 would by itself be 0.28 sqrt(n) u >= 2.2 u
/// away: beyond the bound of four roundings. (Kernels that sum in 32 lanes need n terms in each of them to be caught.)
struct Roundings {
  double results = 0, sums = 0;

  template <class T>
  double bound() const {
    return std::sqrt(results) * rounding<T> + std::sqrt(sums) * rounding<Compute<T>>;
  }
};

struct LayerRoundings {
  Roundings y, dx, parameters;
};

/// |a - b| / |b|, 2-norms of all elements.
inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double between = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    between += difference(a[i], b[i]) * difference(a[i], b[i]);
    size += b[i] * b[i];
  }
  return difference(std::sqrt(between), 0, std::sqrt(size));
}

/// The nearest numbers that every element type holds.
template <int Rank>
Global<Rank> in_every_type(Global<Rank> x) {
  for (double& value : x.at) value = static_cast<double>(f16(static_cast<float>(bf16(value))));
  return x;
}

namespace detail {
template <class T, int In, int Out>
void check_roundings(const Outcome<In, Out>& rounded, const Outcome<In, Out>& exact, const LayerRoundings& counted) {
  CAPTURE(std::string(name_of(element_type<T>)));
  CHECK(relative_distance(rounded.y.at, exact.y.at) <= counted.y.bound<T>());
  CHECK(relative_distance(rounded.dx.at, exact.dx.at) <= counted.dx.bound<T>());
  REQUIRE(rounded.gradients.size() == exact.gradients.size());
  for (const auto& [global_name, gradient] : exact.gradients) {
    const std::string& name = global_name;  // clang 14 captures no structured binding
    CAPTURE(name);
    CHECK(relative_distance(rounded.gradients.at(name), gradient) <= counted.parameters.bound<T>());
  }
}
}  // namespace detail

/// The layer `make.operator()<P>()` of Policy<F32, Tp<N>>, of Bf16 and of F16, on N ranks, from the same parameters,
/// x and dy: output, dx and the gradient of every parameter are within the bounds of the f64 ones of one
/// rank. x comes in XState, dy belongs to YState.
template <int N = 1, class XState = Invariant, class YState = Invariant, int In, int Out, class Make, class Call>
void check_layer_precision(Make make, Call call, const Global<In>& x, const Global<Out>& dy,
                           const LayerRoundings& counted) {
  CAPTURE(N);
  const auto x_held = in_every_type(x);
  const auto dy_held = in_every_type(dy);
  const auto run = [&]<class P>() {
    return run_layer<P, XState, YState>([&] { return make.template operator()<P>(); }, call, x_held, dy_held);
  };
  const auto exact = run.template operator()<Policy<F64>>();
  detail::check_roundings<float>(run.template operator()<Policy<F32, Tp<N>>>(), exact, counted);
  detail::check_roundings<bf16>(run.template operator()<Policy<Bf16, Tp<N>>>(), exact, counted);
  detail::check_roundings<f16>(run.template operator()<Policy<F16, Tp<N>>>(), exact, counted);
}

/// The same for a layer that is called with x alone, under the placements of the residual stream.
template <int N = 1, class XState = Invariant, class YState = Invariant, int In, int Out, class Make>
void check_layer_precision(Make make, const Global<In>& x, const Global<Out>& dy, const LayerRoundings& counted) {
  check_layer_precision<N, XState, YState>(make, call_layer, x, dy, counted);
}

}  // namespace dspp::laws
