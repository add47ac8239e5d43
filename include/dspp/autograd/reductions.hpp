// SPDX-License-Identifier: Apache-2.0
/// Reductions of Variables over all their elements, or along one dimension. Over a split dimension every rank has a
/// summand: the result of a sum or mean is Partial.
#pragma once

#include <dspp/autograd/integers.hpp>
#include <dspp/autograd/variable.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/broadcast.hpp>
#include <dspp/ops/reduce.hpp>
#include <dspp/ops/reduce_along.hpp>
#include <dspp/placement/dimension_rules.hpp>

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

namespace operations {
/// `share` times the mean of all elements.
template <class T, int Rank, Device D>
struct Mean {
  using DeviceType = D;
  static constexpr TapedTensor<Compute<T>, 0, D> run(const TapedTensor<T, Rank, D>& x, double share) {
    TapedTensor<Compute<T>, 0, D> y(ops::scale(ops::mean(x.value()), share), x.tape());
    y.on_backward([slot = x.slot(), shape = x.shape(), share](Tape<D>& tape, Scalar<Compute<T>, D> dy) {
      tape.give(slot, ops::mean_vjp<T>(shape, ops::scale(std::move(dy), share)));
    });
    return y;
  }
};
}  // namespace operations

/// The sum of all elements.
///
/// Placement   Invariant, Replicate and Partial are kept; Shard gives Partial
/// Memory      one number; keeps nothing. bf16 and f16 are summed and returned in f32.
template <class T, int Rank, Device D, class W>
constexpr auto sum(const Variable<T, Rank, D, W>& x) {
  check_unpadded<typename W::tp>();
  check_holds_sums<T>();
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
  check_holds_quotients<T>();
  x.tape().context().takes_plain_mean();
  const double share = 1 / detail::parts_of(x);
  return detail::Reduced<Variable<T, Rank, D, W>>(perform<operations::Mean<T, Rank, D>>(x, share));
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

/// As a second argument of a reduction along a dimension: that dimension stays, with extent 1, so that the result is
/// repeated beside x: `x / sum<-1>(x, keep_dimension)`.
struct KeepDimension {};
inline constexpr KeepDimension keep_dimension{};

namespace detail {
template <int Dim, int Rank>
inline constexpr int counted_dimension = Dim < 0 ? Dim + Rank : Dim;

// What does not depend on the placement is instantiated once for an element type.

template <class T, int Rank, int YRank, Device D>
constexpr auto max_along_backward(Slot slot, const Shape<Rank>& shape, int dimension,
                                  const Tensor<std::int32_t, Rank - 1, D>& place) {
  return [slot, shape, dimension, place](Tape<D>& tape, const Tensor<T, YRank, D>& dy) {
    tape.give(slot, ops::max_along_vjp(shape, dimension, place, dy.reshape(place.shape())));
  };
}
}  // namespace detail

namespace operations {
/// The sum along a dimension over `divisor`. The dimension stays if both ranks are equal.
template <class T, int Rank, int ResultRank, Device D>
struct SumAlong {
  using DeviceType = D;
  static constexpr TapedTensor<T, ResultRank, D> run(const TapedTensor<T, Rank, D>& x, int dimension, double divisor) {
    auto value = ops::sum_along(x.value(), dimension, divisor);
    TapedTensor<T, ResultRank, D> y = [&] {
      if constexpr (ResultRank == Rank)
        return TapedTensor<T, Rank, D>(value.reshape(x.shape().with(dimension, 1)), x.tape());
      else
        return TapedTensor<T, ResultRank, D>(std::move(value), x.tape());
    }();
    y.on_backward([slot = x.slot(), shape = x.shape(), dimension, divisor](Tape<D>& tape, Tensor<T, ResultRank, D> dy) {
      auto one = dy.reshape(shape.with(dimension, 1));
      dy.release();
      if (divisor != 1) one = ops::scale(std::move(one), 1 / divisor);
      tape.give(slot, ops::broadcast_to(one, shape));
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_REDUCTION_OPERATIONS(TEMPLATE, T)                           \
  TEMPLATE struct CompiledOperation<operations::Mean<T, 1, Cpu>>;        \
  TEMPLATE struct CompiledOperation<operations::Mean<T, 2, Cpu>>;        \
  TEMPLATE struct CompiledOperation<operations::SumAlong<T, 2, 1, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::SumAlong<T, 2, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::SumAlong<T, 3, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::SumAlong<T, 3, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_REDUCTION_OPERATIONS)

namespace detail {
/// The result of a reduction of X along Dim in the given placement, whose dimension stays or is left out.
template <int Dim, bool keep, class X, class Where>
using ReducedAlong = Variable<typename X::Element, keep ? X::rank : X::rank - 1, typename X::DeviceType,
                              std::conditional_t<keep, Where, placement_without<Where, Dim>>>;

/// The sum along a dimension over `divisor`.
template <int Dim, bool keep, class T, int Rank, Device D, class W>
constexpr auto sum_over(const Variable<T, Rank, D, W>& x, double divisor) {
  if constexpr (is_padded<typename W::tp> || is_cut_over_cp<W, Dim, Rank>) {
    return x;
  } else {
    using Y = ReducedAlong<Dim, keep, Variable<T, Rank, D, W>, summed_placement<W, Dim>>;
    return Y(perform<operations::SumAlong<T, Rank, Y::rank, D>>(x, Dim, divisor), x);
  }
}

template <int Dim, bool keep, class T, int Rank, Device D, class W>
constexpr auto sum_of_dimension(const Variable<T, Rank, D, W>& x) {
  check_reduction_along<W, Dim, Rank>();
  check_holds_sums<T>();
  return sum_over<counted_dimension<Dim, Rank>, keep>(x, 1);
}

template <int Dim, bool keep, class T, int Rank, Device D, class W>
constexpr auto mean_of_dimension(const Variable<T, Rank, D, W>& x) {
  check_reduction_along<W, Dim, Rank>();
  check_holds_quotients<T>();
  constexpr int dimension = counted_dimension<Dim, Rank>;
  if constexpr (dimension == 0) x.tape().context().takes_plain_mean();
  const double parts = is_cut_along<typename W::tp, dimension> ? parts_of(x) : 1;
  return sum_over<dimension, keep>(x, static_cast<double>(x[dimension]) * parts);
}

template <int Dim, bool keep, class T, int Rank, Device D, class W>
constexpr auto max_of_dimension(const Variable<T, Rank, D, W>& x) {
  check_reduction_along<W, Dim, Rank>();
  constexpr int dimension = counted_dimension<Dim, Rank>;
  check_max_along<typename W::tp, dimension>();
  if constexpr (is_shard<typename W::tp> && (is_padded<typename W::tp> || is_cut_along<typename W::tp, dimension>)) {
    return x;
  } else if constexpr (is_cut_over_cp<W, dimension, Rank>) {
    return x;
  } else {
    using Y = ReducedAlong<dimension, keep, Variable<T, Rank, D, W>, W>;
    auto largest = ops::max_along(x.value(), dimension);
    const Shape<Y::rank> shape = [&] {
      if constexpr (keep)
        return x.shape().with(dimension, 1);
      else
        return largest.y.shape();
    }();
    Y y(largest.y.reshape(shape), x);
    largest.y.release();
    y.on_backward(max_along_backward<T, Rank, Y::rank, D>(x.slot(), x.shape(), dimension, largest.place));
    return y;
  }
}
}  // namespace detail

/// The sum along dimension Dim, which is left out: `sum<-1>(x)`, or which stays: `sum<-1>(x, keep_dimension)`.
///
///   x [b, s, n] -> [b, s], or [b, s, 1]
///
/// Placement   kept; Dim split over Tp gives Partial; Cp must not cut Dim. Along dimension 0 the sum is over this
///             rank's part of the batch.
/// Memory      the result; keeps nothing. bf16 and f16 are summed in f32 and rounded once.
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto sum(const Variable<T, Rank, D, W>& x) {
  return detail::sum_of_dimension<Dim, false>(x);
}
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto sum(const Variable<T, Rank, D, W>& x, KeepDimension) {
  return detail::sum_of_dimension<Dim, true>(x);
}

/// The mean along dimension Dim, over all ranks that Tp splits it over. Placement, Memory as sum. Along dimension 0 it
/// has the Note of mean(x); samples that a reshape or transpose moved to another dimension are not seen.
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto mean(const Variable<T, Rank, D, W>& x) {
  return detail::mean_of_dimension<Dim, false>(x);
}
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto mean(const Variable<T, Rank, D, W>& x, KeepDimension) {
  return detail::mean_of_dimension<Dim, true>(x);
}

/// The largest elements along dimension Dim. The gradient of each goes to the first of equal ones, as that of
/// torch.max(x, dim).
///
/// Placement   finished and whole along Dim; kept
/// Memory      the result; keeps a number of 32 bits for each of its elements
/// Throws      Error(shape) if Dim has no element
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto max(const Variable<T, Rank, D, W>& x) {
  return detail::max_of_dimension<Dim, false>(x);
}
template <int Dim, class T, int Rank, Device D, class W>
constexpr auto max(const Variable<T, Rank, D, W>& x, KeepDimension) {
  return detail::max_of_dimension<Dim, true>(x);
}

}  // namespace dspp
