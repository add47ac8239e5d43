// SPDX-License-Identifier: Apache-2.0
/// A layer cut over Tp against the same layer on one rank: output, dx and the gradient of every parameter.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "layer_gradient.hpp"

namespace dspp::laws {

/// All results of a layer, as global values: gradients by global name.
template <int In, int Out>
struct Outcome {
  Global<Out> y;
  Global<In> dx;
  std::map<std::string, std::vector<double>> gradients;
  Traffic forward, backward, replicated;  ///< of rank 0
  Size peak = 0;                          ///< of rank 0, of the whole test
};

namespace detail {
/// Collects a parameter's slices: elements that two ranks have must be equal.
template <class T>
void put_gradient(std::vector<double>& whole, std::vector<int>& owners, const ParameterBase<Cpu>& p, int rank,
                  const T* gradient) {
  const auto count = static_cast<std::size_t>(p.geometry.global_count());
  whole.resize(count);
  owners.resize(count, -1);
  std::vector<bool> valid(static_cast<std::size_t>(p.count()));
  p.geometry.for_each_run(rank, 0, p.count(), [&](Size local, Size global, Size n) {
    for (Size i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(global + i);
      const auto value = static_cast<double>(gradient[local + i]);
      if (owners[at] >= 0) CHECK(whole[at] == value);
      whole[at] = value;
      owners[at] = rank;
      valid.at(static_cast<std::size_t>(local + i)) = true;
    }
  });
  bool clean = true;  // beyond the global extent nothing may be written
  for (std::size_t i = 0; i < valid.size(); ++i) clean = clean && (valid[i] || static_cast<double>(gradient[i]) == 0);
  CHECK(clean);
}
}  // namespace detail

/// Runs `make()`, a layer of policy P, on P::tp ranks: forward of x in `XState`, backward of dy in the adjoint of
/// `YState`. `call(layer, x)` is its forward.
template <class P, class XState, class YState, int In, int Out, class Make, class Call>
Outcome<In, Out> run_layer(Make make, Call call, const Global<In>& x, const Global<Out>& dy) {
  using T = ElementOf<P>;
  using X = canonical_state<XState, In>;
  using Y = canonical_state<YState, Out>;
  constexpr int ranks = P::tp;
  Parts<Y, Out> y_parts(dy.shape, ranks);
  Parts<adjoint<X>, In> dx_parts(x.shape, ranks);
  Outcome<In, Out> outcome{dy, x, {}, {}, {}, {}, 0};
  std::map<std::string, std::vector<int>> owners;
  std::mutex mutex;
  on_tp_ranks(ranks, [&](TestRank& here) {
    auto layer = make();
    Home<T> home(layer, here);
    here.context.training = true;
    const Traffic start = here.tp.traffic();
    Value<P, In, X> input(part_of<X, T>(x, here.rank, ranks, here.pool), here.tape);
    const Slot slot = input.slot();
    const Shape<In> shape = input.shape();
    Slot output;
    using Result = decltype(call(layer, input));
    {
      Result y = call(layer, input);
      static_assert(std::is_same_v<state_of<Result>, Y>);
      input = {};
      y_parts.put(here.rank, y.value());
      output = y.slot();
    }
    const Traffic forward = here.tp.traffic();
    here.tape.backward(output, part_of<adjoint<Y>, typename Result::Element>(dy, here.rank, ranks, here.pool));
    const Traffic backward = here.tp.traffic();
    dx_parts.put(here.rank, here.tape.template take<T, In>(slot, shape));
    CHECK(home.finished_reports() == static_cast<int>(home.entries().size()));
    home.sum_partial_gradients(here.tp);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < home.entries().size(); ++i) {
      const auto& entry = home.entries()[i];
      detail::put_gradient(outcome.gradients[entry.name], owners[entry.name], *entry.parameter, here.rank,
                           home.gradient(i).data());
    }
    if (here.rank == 0) {
      outcome.forward = forward - start;
      outcome.backward = backward - forward;
      outcome.replicated = here.tp.traffic() - backward;
      outcome.peak = here.pool.peak();
    }
  });
  outcome.y = y_parts.all_or_none();
  outcome.dx = dx_parts.all_or_none();
  return outcome;
}

/// The same output, dx and gradients up to the order of sums: some hundred terms of order 1 in f64.
template <int In, int Out>
void check_same(const Outcome<In, Out>& outcome, const Outcome<In, Out>& dense, double bound = 1e-11) {
  CHECK(distance(outcome.y.at, dense.y.at) < bound);
  CHECK(distance(outcome.dx.at, dense.dx.at) < bound);
  REQUIRE(outcome.gradients.size() == dense.gradients.size());
  for (const auto& [global_name, gradient] : dense.gradients) {
    const std::string& name = global_name;  // clang 14 captures no structured binding
    CAPTURE(name);
    REQUIRE(outcome.gradients.contains(name));
    CHECK(distance(outcome.gradients.at(name), gradient) < bound);
  }
}

inline constexpr auto call_layer = [](const auto& layer, const auto& x) { return layer(x); };

/// The policies of degree N: with the residual stream whole, and split along the sequence.
template <int N>
using Whole = Policy<F64, Tp<N>>;
template <int N>
using Split = Policy<F64, Tp<N>, SequenceParallel>;

}  // namespace dspp::laws
