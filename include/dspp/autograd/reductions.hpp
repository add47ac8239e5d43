// SPDX-License-Identifier: Apache-2.0
/// Sums of Variables over all their elements. Over a split dimension every rank has a summand: the result is Partial.
#pragma once

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/reduce.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
/// The scalar result of a reduction of X. Over Cp, as over Data, it is that of this rank's part.
template <class X>
using Reduced = Variable<Compute<typename X::Element>, 0, typename X::DeviceType,
                         with_tp<with_cp<typename X::Placement, -1>, reduced_state<typename X::State>>>;

/// The number of equal parts that the whole of `x` is split into.
template <class X>
constexpr double parts_of(const X& x) {
  return is_shard<typename X::State> ? static_cast<double>(x.tape().context().along.tp->size()) : 1;
}
}  // namespace detail

/// The sum of all elements.
///
/// Placement   Invariant, Replicate and Partial are kept; Shard gives Partial
/// Memory      one number; keeps nothing. bf16 and f16 are summed and returned in f32.
template <class T, int Rank, Device D, class W>
constexpr auto sum(const Variable<T, Rank, D, W>& x) {
  check_unpadded<typename W::tp>();
  using C = Compute<T>;
  detail::Reduced<Variable<T, Rank, D, W>> y(ops::sum(x.value()), x.tape());
  y.on_backward([slot = x.slot(), shape = x.shape()](Tape<D>& tape, const Scalar<C, D>& dy) {
    tape.give(slot, ops::sum_vjp<T>(shape, dy));
  });
  return y;
}

/// The mean of all elements, including those of other ranks: of a Shard, sum / (elements of all ranks).
///
/// Placement, Memory   as sum
/// Note     a loss term that averages this rank's elements: an error of Engine beside a cross_entropy if ranks or
///          micro-steps ignore unequal shares of targets. Use sum(x) / (the batch's counted targets) there.
template <class T, int Rank, Device D, class W>
constexpr auto mean(const Variable<T, Rank, D, W>& x) {
  check_unpadded<typename W::tp>();
  using C = Compute<T>;
  x.tape().context().takes_plain_mean();
  const double share = 1 / detail::parts_of(x);
  detail::Reduced<Variable<T, Rank, D, W>> y(ops::scale(ops::mean(x.value()), share), x.tape());
  y.on_backward([slot = x.slot(), shape = x.shape(), share](Tape<D>& tape, Scalar<C, D> dy) {
    tape.give(slot, ops::mean_vjp<T>(shape, ops::scale(std::move(dy), share)));
  });
  return y;
}

/// The sum of the squares of all elements.
///
/// Placement   Invariant and Replicate are kept; Shard gives Partial; Partial does not compile
/// Memory      one number; keeps x
template <class T, int Rank, Device D, class W>
constexpr auto squared_norm(const Variable<T, Rank, D, W>& x) {
  using C = Compute<T>;
  check_squared_norm<typename W::tp>();
  check_unpadded<typename W::tp>();
  auto norm = ops::squared_norm<C>(x.value());
  detail::Reduced<Variable<T, Rank, D, W>> y(std::move(norm), x.tape());
  y.on_backward([slot = x.slot(), v = x.value()](Tape<D>& tape, const Scalar<C, D>& dy) {
    tape.give(slot, ops::scale_by(v, dy, 2));
  });
  return y;
}

}  // namespace dspp
