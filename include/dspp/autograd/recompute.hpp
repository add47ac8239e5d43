// SPDX-License-Identifier: Apache-2.0
/// Computes a function again in backward instead of keeping what it saved.
#pragma once

#include <dspp/autograd/variable.hpp>

namespace dspp {

/// `function(x)`, keeping only x. In backward the function runs again on a tape of its own, which is then run back.
///
/// Cost     one more forward of the function, its collectives included
/// Memory   x until the backward; there, what the function saves, for the time of its backward
/// Source   Chen et al. 2016, arXiv:1604.06174
///
/// Randomness draws by position (Philox), so the second run repeats the first bit for bit and no state is saved.
/// `function` must outlive the tape.
template <class Function, class T, int Rank, Device D, class Where>
constexpr auto recompute(const Function& function, const Variable<T, Rank, D, Where>& x) {
  using X = Variable<T, Rank, D, Where>;
  using Y = std::remove_cvref_t<decltype(function(x))>;
  if (!x.tape().recording()) return function(x);
  const auto silently = [&] {
    const typename Tape<D>::Recording off(x.tape(), false);
    return Y(function(x));
  };
  Y y = [&](const Y& result) { return Y(result.value(), result); }(silently());
  y.on_backward([&function, slot = x.slot(), value = x.value()](Tape<D>& tape, auto dy) mutable {
    Tape<D> again(tape.context());
    X x_again(std::move(value), again);
    const Slot input = x_again.slot();
    const Shape<Rank> shape = x_again.shape();
    Y y_again = function(x_again);
    const Slot output = y_again.slot();
    x_again = {};
    y_again = {};
    again.backward(output, std::move(dy));
    auto dx = again.template take<T, Rank>(input, shape);  // in the condition, nvcc loses it in constant expressions
    if (dx) tape.give(slot, std::move(dx));
  });
  return y;
}

}  // namespace dspp
