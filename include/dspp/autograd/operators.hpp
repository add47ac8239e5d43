// SPDX-License-Identifier: Apache-2.0
/// Local operators on Variables: values, gradients, and the placement rules that make a wrong sharding a compile error.
/// After its error sentence a wrong one returns x, so that a plan in a constant expression gives no further errors.
///
/// Dimensions are counted from the last; one of extent 1, or one that a side lacks, is repeated: [b, s, n] + [n]. The
/// gradient of what is repeated is summed in a fixed order.
#pragma once

#include <type_traits>

#include <dspp/autograd/integers.hpp>
#include <dspp/autograd/pointwise.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/broadcast.hpp>
#include <dspp/placement/broadcast_rules.hpp>

namespace dspp {

namespace detail {

/// Two values of one element type, device and Tp degree, of which one may be repeated.
template <class X, class Y>
constexpr bool one_policy =
    std::is_same_v<typename X::Element, typename Y::Element>&&
        std::is_same_v<typename X::DeviceType, typename Y::DeviceType>&& X::Placement::tp_degree ==
    Y::Placement::tp_degree;
template <class X, class Y>
constexpr auto check_operands() {
  check_kinds<0, Variable<typename X::Element, 0, typename X::DeviceType, typename X::Placement>,
              Variable<typename Y::Element, 0, typename Y::DeviceType, typename Y::Placement>>();
  check_degrees<typename X::Placement, typename Y::Placement>();
}

template <class X, class Y>
using BroadcastOf = Broadcast<typename X::Placement, X::rank, typename Y::Placement, Y::rank>;

/// The result in `State` over Tp.
template <class X, class Y, class State>
using BroadcastResult = Variable<typename X::Element, BroadcastOf<X, Y>::rank, typename X::DeviceType,
                                 with_tp<typename BroadcastOf<X, Y>::OverCp, State>>;

/// Throws where both sides have a dimension that ranks cut, but of two extents: one that is 1 on a rank is not 1.
template <class Both, int RankX, int RankY>
constexpr void require_equal_cuts(const Shape<RankX>& x, const Shape<RankY>& y, const char* who) {
  for (const int d : {Both::cut_over_tp, Both::cut_over_cp})
    if (d >= 0 && ops::detail::extent_from_last(x, d) != ops::detail::extent_from_last(y, d))
      fail(ErrorCode::shape, std::string("dspp: ") + who +
                                 " needs one extent of the dimension that ranks cut, but a rank has " + to_string(x) +
                                 " and " + to_string(y) + ". redistribute what is to be repeated to Replicate first.");
}

template <class X, class Y>
constexpr void require_broadcast(const X& x, const Y& y, const char* who) {
  require_equal_cuts<BroadcastOf<X, Y>>(x.shape(), y.shape(), who);
  if constexpr (is_padded<typename X::State> && is_padded<typename Y::State>) require_one_whole(x, y);
}

// What does not depend on the placement is instantiated once for an element type.

template <class T, int RankX, int RankY, class D>
constexpr auto product(const Tensor<T, RankX, D>& x, const Tensor<T, RankY, D>& y) {
  if constexpr (RankX == RankY)
    if (x.shape() == y.shape()) return ops::mul(x, y);
  return ops::combine(pointwise::Multiply{}, x, y, "mul");
}

}  // namespace detail

namespace operations {
template <int RankX, int RankY>
inline constexpr int larger_rank = RankX > RankY ? RankX : RankY;

/// A sum of two values of its shape, whose slots these are.
template <class T, int Rank, Device D>
constexpr TapedTensor<T, Rank, D> sum_on_tape(Tensor<T, Rank, D>&& sum, Tape<D>& tape, Slot a, Slot b) {
  TapedTensor<T, Rank, D> z(std::move(sum), tape);
  z.on_backward([a, b](Tape<D>& on, Tensor<T, Rank, D> dz) {
    on.give(a, dz);
    on.give(b, std::move(dz));
  });
  return z;
}

/// x + y, or with a sign of -1 x - y, one of which may be repeated.
template <class T, int RankX, int RankY, Device D>
struct Sum {
  static constexpr int rank = larger_rank<RankX, RankY>;
  using DeviceType = D;

  static constexpr TapedTensor<T, rank, D> run(const TapedTensor<T, RankX, D>& x, const TapedTensor<T, RankY, D>& y,
                                               double sign) {
    if constexpr (RankX == RankY)
      if (sign == 1 && x.shape() == y.shape()) return of_one_shape(x, y);
    TapedTensor<T, rank, D> z(sum_of(x.value(), y.value(), sign), x.tape());
    z.on_backward(
        [a = x.slot(), of_x = x.shape(), b = y.slot(), of_y = y.shape(), sign](Tape<D>& tape, Tensor<T, rank, D> dz) {
          if (a.takes_gradient()) tape.give(a, ops::sum_to(dz, of_x));
          if (!b.takes_gradient()) return;
          auto dy = ops::sum_to(std::move(dz), of_y);
          if (sign != 1) dy = ops::scale(std::move(dy), sign);
          tape.give(b, std::move(dy));
        });
    return z;
  }

 private:
  // Not a conditional expression: in a constant one g++ 12 releases its temporary twice.
  static constexpr Tensor<T, rank, D> sum_of(const Tensor<T, RankX, D>& x, const Tensor<T, RankY, D>& y, double sign) {
    if (sign == 1) return ops::combine(pointwise::Add{}, x, y, "add");
    return ops::combine(pointwise::Subtract{}, x, y, "subtract");
  }
  static constexpr TapedTensor<T, rank, D> of_one_shape(const TapedTensor<T, rank, D>& x,
                                                        const TapedTensor<T, rank, D>& y) {
    return sum_on_tape(ops::add(x.value(), y.value()), x.tape(), x.slot(), y.slot());
  }
};

/// x * y, one of which may be repeated.
template <class T, int RankX, int RankY, Device D>
struct Product {
  static constexpr int rank = larger_rank<RankX, RankY>;
  using DeviceType = D;

  static constexpr TapedTensor<T, rank, D> run(const TapedTensor<T, RankX, D>& x, const TapedTensor<T, RankY, D>& y) {
    TapedTensor<T, rank, D> z(detail::product(x.value(), y.value()), x.tape());
    z.on_backward([a = x.slot(), b = y.slot(), u = x.value(), v = y.value()](Tape<D>& tape, Tensor<T, rank, D> dz) {
      if (a.takes_gradient()) tape.give(a, ops::sum_to(detail::product(dz, v), u.shape()));
      if (b.takes_gradient()) tape.give(b, ops::sum_to(detail::product(dz, u), v.shape()));
    });
    return z;
  }
};

/// z = x / y, one of which may be repeated: dx = dz / y, dy = -dx z.
template <class T, int RankX, int RankY, Device D>
struct Quotient {
  static constexpr int rank = larger_rank<RankX, RankY>;
  using DeviceType = D;

  static constexpr TapedTensor<T, rank, D> run(const TapedTensor<T, RankX, D>& x, const TapedTensor<T, RankY, D>& y) {
    TapedTensor<T, rank, D> quotient(ops::combine(pointwise::Divide{}, x.value(), y.value(), "divide"), x.tape());
    quotient.on_backward([a = x.slot(), of_x = x.shape(), b = y.slot(), divisor = y.value(), z = quotient.value()](
                             Tape<D>& tape, const Tensor<T, rank, D>& dz) {
      const auto dx = ops::combine(pointwise::Divide{}, dz, divisor, "divide");
      if (b.takes_gradient()) tape.give(b, ops::scale(ops::sum_to(ops::mul(dx, z), divisor.shape()), -1));
      tape.give(a, ops::sum_to(dx, of_x));
    });
    return quotient;
  }
};

/// factor * x.
template <class T, int Rank, Device D>
struct Scale {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x, double factor) {
    TapedTensor<T, Rank, D> y(ops::scale(x.value(), factor), x.tape());
    y.on_backward([slot = x.slot(), factor](Tape<D>& tape, Tensor<T, Rank, D> dy) {
      tape.give(slot, ops::scale(std::move(dy), factor));
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_ARITHMETIC_OPERATIONS(TEMPLATE, T)                          \
  TEMPLATE struct CompiledOperation<operations::Sum<T, 1, 1, Cpu>>;      \
  TEMPLATE struct CompiledOperation<operations::Sum<T, 2, 2, Cpu>>;      \
  TEMPLATE struct CompiledOperation<operations::Sum<T, 3, 3, Cpu>>;      \
  TEMPLATE struct CompiledOperation<operations::Product<T, 1, 2, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Product<T, 2, 2, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Product<T, 3, 3, Cpu>>;  \
  TEMPLATE struct CompiledOperation<operations::Quotient<T, 2, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Scale<T, 2, Cpu>>;       \
  TEMPLATE struct CompiledOperation<operations::Scale<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_ARITHMETIC_OPERATIONS)

namespace detail {
/// x + y, or with a sign of -1 x - y.
template <Tracked X, Tracked Y>
constexpr auto sum_of(const X& x, const Y& y, double sign) {
  using Z = BroadcastResult<X, Y, typename BroadcastOf<X, Y>::LeftState>;
  require_broadcast(x, y, sign == 1 ? "+" : "-");
  require_no_weights(y);
  using Operation = operations::Sum<typename X::Element, X::rank, Y::rank, typename X::DeviceType>;
  return Z(perform<Operation>(x, y, sign), x);
}

/// The operator is right for these types: else its sentences were said.
template <class X, class Y>
constexpr bool can_add = false;
template <class X, class Y>
requires one_policy<X, Y>
constexpr bool can_add<X, Y> =
    std::is_same_v<typename BroadcastOf<X, Y>::LeftState, typename BroadcastOf<X, Y>::RightState> &&
    BroadcastOf<X, Y>::alike_over_cp;

template <Tracked X, Tracked Y>
constexpr auto check_sum_of() {
  check_operands<X, Y>();
  using Both = BroadcastOf<X, Y>;
  if constexpr (one_policy<X, Y>) check_sum<typename Both::LeftState, typename Both::RightState>();
  check_broadcast_over_cp<Both>();
}

template <class X, class Y>
constexpr bool can_multiply_values = false;
template <class X, class Y>
requires one_policy<X, Y>
constexpr bool can_multiply_values<X, Y> =
    can_multiply<typename BroadcastOf<X, Y>::LeftState, typename BroadcastOf<X, Y>::RightState> &&
    BroadcastOf<X, Y>::alike_over_cp;

}  // namespace detail

/// x + y, element by element.
///
/// Placement   both sides alike; Partial + Partial is Partial. What one side lacks a dimension for may be cut along it
///             if that side is Replicate: Shard.
/// Memory      the result; keeps nothing
/// Throws      Error(shape)
template <Tracked X, Tracked Y>
constexpr auto operator+(const X& x, const Y& y) {
  detail::check_sum_of<X, Y>();
  if constexpr (detail::can_add<X, Y>)
    return detail::sum_of(x, y, 1);
  else
    return x;
}

/// x - y. Placement, Memory, Throws as +.
template <Tracked X, Tracked Y>
constexpr auto operator-(const X& x, const Y& y) {
  detail::check_sum_of<X, Y>();
  if constexpr (detail::can_add<X, Y>)
    return detail::sum_of(x, y, -1);
  else
    return x;
}

/// x * y, element by element.
///
/// Placement   both sides alike, or Partial with Replicate: Partial. Partial times Partial does not compile. Repeated
///             sides as in +.
/// Memory      the result; keeps x and y
/// Throws      Error(shape)
template <Tracked X, Tracked Y>
constexpr auto operator*(const X& x, const Y& y) {
  detail::check_operands<X, Y>();
  using Both = detail::BroadcastOf<X, Y>;
  check_broadcast_over_cp<Both>();
  using State = product_state<typename Both::LeftState, typename Both::RightState>;
  if constexpr (detail::can_multiply_values<X, Y>) {
    detail::require_broadcast(x, y, "*");
    detail::require_no_weights(y);
    using Z = detail::BroadcastResult<X, Y, State>;
    using Operation = operations::Product<typename X::Element, X::rank, Y::rank, typename X::DeviceType>;
    return Z(perform<Operation>(x, y), x);
  } else {
    return x;
  }
}

/// x / y, element by element.
///
/// Placement   both sides alike and finished, or a Partial x with a Replicate y: Partial. Repeated sides as in +.
/// Memory      the result; keeps it and y
/// Throws      Error(shape)
template <Tracked X, Tracked Y>
constexpr auto operator/(const X& x, const Y& y) {
  detail::check_operands<X, Y>();
  check_holds_quotients<typename X::Element>();
  using Both = detail::BroadcastOf<X, Y>;
  check_broadcast_over_cp<Both>();
  check_divisor<typename Both::RightState>();
  check_equal_slices<typename Both::RightState>();
  using State = product_state<typename Both::LeftState, typename Both::RightState>;
  constexpr bool right = Finished<typename Both::RightState> && !is_padded<typename Both::RightState>;
  if constexpr (right && detail::can_multiply_values<X, Y>) {
    detail::require_broadcast(x, y, "/");
    using Z = detail::BroadcastResult<X, Y, State>;
    using Operation = operations::Quotient<typename X::Element, X::rank, Y::rank, typename X::DeviceType>;
    return Z(perform<Operation>(x, y), x);
  } else {
    return x;
  }
}

namespace detail {
template <class T, int Rank, Device D>
constexpr auto scale_backward(Slot slot, double factor) {
  return [slot, factor](Tape<D>& tape, Tensor<T, Rank, D> dy) { tape.give(slot, ops::scale(std::move(dy), factor)); };
}
template <class T, int Rank, Device D>
constexpr auto divide_backward(Slot slot, double divisor) {
  return [slot, divisor](Tape<D>& tape, const Tensor<T, Rank, D>& dy) {
    using By = pointwise::DivideBy<Compute<T>>;
    tape.give(slot, ops::apply(By{static_cast<Compute<T>>(divisor)}, dy));
  };
}
}  // namespace detail

/// factor * x.
///
/// Placement   any, kept: scaling is linear
/// Throws      Error(usage) for integers and a factor that is none of theirs, as + and - of a number
template <class T, int Rank, Device D, class W>
constexpr auto operator*(double factor, const Variable<T, Rank, D, W>& x) {
  check_holds_sums<T>();
  require_element<T>(factor);
  return Variable<T, Rank, D, W>(perform<operations::Scale<T, Rank, D>>(x, factor), x);
}
template <class T, int Rank, Device D, class W>
constexpr auto operator*(const Variable<T, Rank, D, W>& x, double factor) {
  return factor * x;
}
template <class T, int Rank, Device D, class W>
constexpr auto operator-(const Variable<T, Rank, D, W>& x) {
  return -1.0 * x;
}

/// x / divisor. Placement as factor * x.
template <class T, int Rank, Device D, class W>
constexpr auto operator/(const Variable<T, Rank, D, W>& x, double divisor) {
  check_holds_quotients<T>();
  using By = pointwise::DivideBy<Compute<T>>;
  Variable<T, Rank, D, W> y(ops::apply(By{static_cast<Compute<T>>(divisor)}, x.value()), x);
  y.on_backward(detail::divide_backward<T, Rank, D>(x.slot(), divisor));
  return y;
}

namespace detail {
/// factor x + number.
template <class T, int Rank, Device D, class W>
constexpr auto affine_of(double factor, const Variable<T, Rank, D, W>& x, double number) {
  check_plus_number<typename W::tp>();
  check_holds_sums<T>();
  require_element<T>(number);
  using C = Compute<T>;
  using F = pointwise::Affine<C>;
  Variable<T, Rank, D, W> y(ops::apply(F{static_cast<C>(factor), static_cast<C>(number)}, x.value()), x);
  y.on_backward(scale_backward<T, Rank, D>(x.slot(), factor));
  return y;
}
}  // namespace detail

/// x + number, number + x, x - number, number - x.
///
/// Placement   any finished one, kept
/// Memory      the result; keeps nothing
template <class T, int Rank, Device D, class W>
constexpr auto operator+(const Variable<T, Rank, D, W>& x, double number) {
  return detail::affine_of(1, x, number);
}
template <class T, int Rank, Device D, class W>
constexpr auto operator+(double number, const Variable<T, Rank, D, W>& x) {
  return detail::affine_of(1, x, number);
}
template <class T, int Rank, Device D, class W>
constexpr auto operator-(const Variable<T, Rank, D, W>& x, double number) {
  return detail::affine_of(1, x, -number);
}
template <class T, int Rank, Device D, class W>
constexpr auto operator-(double number, const Variable<T, Rank, D, W>& x) {
  return detail::affine_of(-1, x, number);
}

/// dividend / x.
///
/// Placement   any finished one without padding, kept
/// Memory      the result; keeps x
template <class T, int Rank, Device D, class W>
constexpr auto operator/(double dividend, const Variable<T, Rank, D, W>& x) {
  check_holds_quotients<T>();
  check_divisor<typename W::tp>();
  check_equal_slices<typename W::tp>();
  using C = Compute<T>;
  if constexpr (Finished<typename W::tp>)
    return detail::pointwise(dspp::pointwise::DivideInto<C>{static_cast<C>(dividend)}, x);
  else
    return x;
}

}  // namespace dspp
