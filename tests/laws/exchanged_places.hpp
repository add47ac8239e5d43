// SPDX-License-Identifier: Apache-2.0
/// Values that are their global place, sent through the exchanges over Tp and Cp: each must lie where it belongs.
#pragma once

#include <string>

#include <dspp/autograd/redistribute.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/parallel/context.hpp>

namespace dspp::laws {

namespace detail {

/// Where a part of [2, sequence, features] begins: its features in `parts` equal parts, each cut by itself.
struct PlaceOfPart {
  Size position = 0, feature = 0;
  Size parts = 1, features = 0;  ///< of the whole

  /// The number of element (b, s, f) of a part with `own` features.
  double at(Size b, Size s, Size f, Size own) const {
    const Size each = own / parts, global = f / each * (features / parts) + feature + f % each;
    return static_cast<double>((b * 1000 + position + s) * 1000 + global);
  }
};

template <class X>
bool lies(const X& x, const PlaceOfPart& where) {
  const auto& values = x.data();
  for (Size b = 0, i = 0; b < x[0]; ++b)
    for (Size s = 0; s < x[1]; ++s)
      for (Size f = 0; f < x[2]; ++f, ++i)
        if (static_cast<double>(values[i]) != where.at(b, s, f, x[2])) return false;
  return true;
}

}  // namespace detail

/// What lies elsewhere, or "", of `own` positions of each rank along Cp. For f32 and f64, which hold the numbers.
template <class P>
std::string misplaced(World<P>& world, Tape<Cpu>& tape, Size own) {
  using T = typename P::Element;
  const Size features = 6 * P::tp * P::cp, cp = world.cp_rank(), tp = world.tp_rank();
  const detail::PlaceOfPart whole{.position = cp * own, .features = features};
  auto numbers = Tensor<T, 3>::uninitialized(shape(Size{2}, own, features), world.memory());
  for (Size i = 0; i < numbers.count(); ++i)
    numbers.data()[i] = static_cast<T>(whole.at(i / (own * features), i / features % own, i % features, features));
  const Value<P, 3, Invariant> x(numbers, tape);

  const auto cut = redistribute<Shard<2>>(x);
  detail::PlaceOfPart place = whole;
  place.feature = tp * (features / P::tp);
  if (!detail::lies(cut.value(), place)) return "Shard<2> lies elsewhere; ";
  if (!detail::lies(redistribute<Replicate>(cut).value(), whole)) return "what Tp gathers lies elsewhere; ";
  if (own % P::tp == 0) {
    const auto along = redistribute<Shard<1>>(cut);
    place = whole, place.position += tp * (own / P::tp);
    if (!detail::lies(along.value(), place)) return "Shard<2> to Shard<1> lies elsewhere; ";
    if (!detail::lies(redistribute<Invariant>(along).value(), whole)) return "what Tp gathers lies elsewhere; ";
  }
  for (Size parts : {Size{1}, Size{2}, Size{3}}) {
    const auto sequences = whole_sequences(tape.context(), x.value(), parts);
    place = {.feature = cp * (features / parts / P::cp), .parts = parts, .features = features};
    if (!detail::lies(sequences, place)) return "a whole sequence lies elsewhere; ";
    if (!detail::lies(whole_features(tape.context(), sequences, parts), whole)) return "whole features lie elsewhere; ";
  }
  place = whole, place.position = 0;
  if (P::cp > 1 && !detail::lies(redistribute<Replicate, Axis::Cp>(x).value(), place))
    return "what Cp gathers lies elsewhere; ";
  return {};
}

}  // namespace dspp::laws
