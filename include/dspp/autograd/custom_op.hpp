// SPDX-License-Identifier: Apache-2.0
/// An operation of a user's own, from a function of elements and its vjp.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <dspp/autograd/variable.hpp>
#include <dspp/ops/activation.hpp>
#include <dspp/ops/custom.hpp>
#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {

template <class R>
inline constexpr bool is_number = std::is_arithmetic_v<R> && !std::is_same_v<R, bool>;

template <class C, std::size_t>
using Repeated = C;

/// What a functor returns for elements of type C and Count numbers; void if it does not take them.
template <class C, class F, class Numbers, class... Elements>
struct ResultOfCustom;
template <class C, class F, std::size_t... I, class... Elements>
struct ResultOfCustom<C, F, std::index_sequence<I...>, Elements...> {
  template <class G>
  static auto of(int) -> std::remove_cvref_t<std::invoke_result_t<const G&, Elements..., Repeated<C, I>...>>;
  template <class>
  static void of(...);
  using type = decltype(of<F>(0));
};
template <class C, class F, std::size_t Count, class... Elements>
using result_of_custom = typename ResultOfCustom<C, F, std::make_index_sequence<Count>, Elements...>::type;

template <class R>
concept TupleOfTwo = requires {
  std::tuple_size<R>::value;
}
&&std::tuple_size<R>::value == 2 && is_number<std::tuple_element_t<0, R>>&& is_number<std::tuple_element_t<1, R>>;
template <class R>
concept TwoNumbers = TupleOfTwo<R> ||
    (std::is_same_v<R, TwoGradients<decltype(R::first)>>&& is_number<decltype(R::first)>);

/// The functors are right for one input, or for two, of elements computed in C.
template <class C, class Forward, class Vjp, std::size_t Count>
struct CustomOfOne {
  static constexpr bool forward = is_number<result_of_custom<C, Forward, Count, C>>;
  static constexpr bool vjp = is_number<result_of_custom<C, Vjp, Count, C, C, C>>;
};
template <class C, class Forward, class Vjp, std::size_t Count>
struct CustomOfTwo {
  static constexpr bool forward = is_number<result_of_custom<C, Forward, Count, C, C>>;
  static constexpr bool vjp = TwoNumbers<result_of_custom<C, Vjp, Count, C, C, C, C>>;
};

// What does not depend on the placement is instantiated once for an element type.

template <class V, class T, int Rank, Device D>
constexpr auto custom_backward(V vjp, Slot slot, const Tensor<T, Rank, D>& x) {
  return [vjp, slot, v = x](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    tape.give(slot, ops::custom_vjp(vjp, v, std::move(dy)));
  };
}
template <class V, class T, int Rank, Device D>
constexpr auto custom_backward(V vjp, Slot a, const Tensor<T, Rank, D>& x, Slot b, const Tensor<T, Rank, D>& y) {
  return [vjp, a, b, u = x, v = y](Tape<D>& tape, Tensor<T, Rank, D> dz) {
    auto both = ops::custom_vjp(vjp, u, v, std::move(dz));
    tape.give(a, std::move(both.first));
    tape.give(b, std::move(both.second));
  };
}

}  // namespace detail

/// What custom_op returns: a function of one Variable, or of two of one shape.
///
/// Placement   finished and without padding, kept; two values alike
/// Cost        forward counts as 1 operation an element, backward as 2
/// Memory      the result; keeps its inputs, from which y is computed again
/// Throws      Error(shape)
template <class Forward, class Vjp, std::size_t Count>
struct CustomOp {
  Forward forward;
  Vjp vjp;
  double numbers[Count > 0 ? Count : 1];

  template <class T, int Rank, Device D, class W>
  constexpr auto operator()(const Variable<T, Rank, D, W>& x) const {
    using Types = detail::CustomOfOne<Compute<T>, Forward, Vjp, Count>;
    check_types<Types>();
    check_activation<typename W::tp>();
    check_equal_slices<typename W::tp>();
    if constexpr (Types::forward && Types::vjp && !is_padded<typename W::tp>) {
      Variable<T, Rank, D, W> y(ops::apply(forward_functor(), x.value()), x);
      y.on_backward(detail::custom_backward(vjp_functor(), x.slot(), x.value()));
      return y;
    } else {
      return x;
    }
  }

  template <class T, int Rank, Device D, class A, class B>
  constexpr auto operator()(const Variable<T, Rank, D, A>& x, const Variable<T, Rank, D, B>& y) const {
    using Types = detail::CustomOfTwo<Compute<T>, Forward, Vjp, Count>;
    check_types<Types>();
    check_degrees<A, B>();
    check_alike_over_cp<A, B>();
    check_activation<typename A::tp>();
    check_activation<typename B::tp>();
    check_equal_slices<typename A::tp>();
    constexpr bool finished = Finished<typename A::tp> && Finished<typename B::tp>;
    static_assert(!finished || std::is_same_v<typename A::tp, typename B::tp>,
                  "dspp: a custom_op of two values needs both placed alike, but they are placed differently over Tp. "
                  "redistribute one of them first.");
    if constexpr (Types::forward && Types::vjp && finished && std::is_same_v<A, B> && !is_padded<typename A::tp>) {
      Variable<T, Rank, D, A> z(ops::apply_to_two(forward_functor(), x.value(), y.value()), x);
      z.on_backward(detail::custom_backward(vjp_functor(), x.slot(), x.value(), y.slot(), y.value()));
      return z;
    } else {
      return x;
    }
  }

  /// Two values that it does not take together get a sentence, not a list of candidates.
  template <Tracked X, Tracked Y>
  requires(!detail::same_kind<X, Y>) constexpr X operator()(const X& x, const Y&) const {
    detail::check_kinds<0, X, Y>();
    return x;
  }

 private:
  template <class Types>
  static constexpr auto check_types() {
    static_assert(
        Types::forward,
        "dspp: custom_op needs a forward that takes an element of each input and the parameters, and returns a "
        "number, but this one does not. Write [](auto x, auto parameter) { return ...; }, or [](auto a, auto b, "
        "auto parameter) for two inputs.");
    static_assert(
        Types::vjp,
        "dspp: custom_op needs a vjp that takes an element of each input, y, dy and the parameters, and returns "
        "the gradient of each input, but this one does not. Write [](auto x, auto y, auto dy) { return ...; }, "
        "or for two inputs [](auto a, auto b, auto y, auto dy) { return std::pair(da, db); }.");
  }
  constexpr auto forward_functor() const {
    pointwise::Custom<Forward, Count> of_elements{forward, {}};
    for (std::size_t i = 0; i < std::extent_v<decltype(numbers)>; ++i) of_elements.numbers[i] = numbers[i];
    return of_elements;
  }
  constexpr auto vjp_functor() const { return pointwise::CustomVjp<Forward, Vjp, Count>{forward_functor(), vjp}; }
};

/// An operation from functions of elements, which run on every device: y = forward(x, parameters...) and dx = vjp(x, y,
/// dy, parameters...). Elements and parameters are of the type that is computed in, float or double. For two inputs,
/// forward(a, b, ...) and vjp(a, b, y, dy, ...), which returns std::pair(da, db) or TwoGradients{da, db}.
///
/// nvcc takes functors whose call is DSPP_HOST_DEVICE in place of lambdas, with dspp::math for std and TwoGradients.
///
/// Example
///   constexpr auto squared_relu = custom_op([](auto x) { return x > 0 ? x * x : 0 * x; },
///                                           [](auto x, auto, auto dy) { return x > 0 ? 2 * x * dy : 0 * x; });
///   const auto y = squared_relu(x);
template <class Forward, class Vjp, class... Numbers>
constexpr auto custom_op(Forward forward, Vjp vjp, Numbers... parameters) {
  static_assert(std::is_empty_v<Forward> && std::is_empty_v<Vjp>,
                "dspp: custom_op needs functions without captures, since they run on devices, but one has some. Pass "
                "numbers as parameters: custom_op(forward, vjp, 0.5).");
  static_assert((std::is_arithmetic_v<Numbers> && ...),
                "dspp: custom_op needs numbers as parameters, but one is of another type. Pass tensors as inputs.");
  return CustomOp<Forward, Vjp, sizeof...(Numbers)>{forward, vjp, {static_cast<double>(parameters)...}};
}

}  // namespace dspp
