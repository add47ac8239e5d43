// SPDX-License-Identifier: Apache-2.0
/// Operations of a user's own whose functions are not what a device can run.
// expected-error {{dspp: custom_op needs functions without captures, since they run on devices, but one has}}
// expected-error {{some. Pass numbers as parameters: custom_op(forward, vjp, 0.5).}}
// expected-error {{dspp: custom_op needs numbers as parameters, but one is of another type. Pass tensors as}}
// expected-error {{inputs.}}
// expected-error {{dspp: custom_op needs a forward that takes an element of each input and the parameters, and}}
// expected-error {{returns a number, but this one does not.}}
// expected-error {{dspp: custom_op needs a vjp that takes an element of each input, y, dy and the parameters,}}
// expected-error {{and returns the gradient of each input, but this one does not.}}
// expected-error {{dspp: an activation needs a finished value, but this one is Partial over Tp}}
// expected-error {{dspp: a custom_op of two values needs both placed alike, but they are placed differently}}
// expected-error {{over Tp. redistribute one of them first.}}
// expected-error {{dspp: an operator needs values of one element type, but these have two.}}
#include <dspp/autograd.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;
constexpr auto cube =
    custom_op([](auto a) { return a * a * a; }, [](auto a, auto, auto dy) { return 3 * a * a * dy; });
constexpr auto times = custom_op([](auto a, auto b) { return a * b; },
                                 [](auto a, auto b, auto, auto dy) { return std::pair(b * dy, a * dy); });

/// A number that a function captures.
namespace captures {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x, double factor) {
  return custom_op([](auto a, auto by) { return by * a; },
                   [](auto, auto, auto dy, auto by) { return by * dy; }, factor)(x);
}
#else
auto f(const Value<P, 3, Invariant>& x, double factor) {
  return custom_op([factor](auto a) { return factor * a; }, [factor](auto, auto, auto dy) { return factor * dy; })(x);
}
#endif
}  // namespace captures

/// A parameter that is no number.
namespace parameter_that_is_no_number {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a, auto by) { return by * a; }, [](auto, auto, auto dy, auto by) { return by * dy; }, 2)(x);
}
#else
auto f(const Value<P, 3, Invariant>& x) {
  const auto op = custom_op([](auto a, auto) { return a; }, [](auto, auto, auto dy, auto) { return dy; }, "2");
  return x;
}
#endif
}  // namespace parameter_that_is_no_number

/// A forward that returns nothing.
namespace forward_of_no_number {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a) { return a * a; }, [](auto a, auto, auto dy) { return 2 * a * dy; })(x);
}
#else
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto) {}, [](auto a, auto, auto dy) { return 2 * a * dy; })(x);
}
#endif
}  // namespace forward_of_no_number

/// A vjp of x and dy alone.
namespace vjp_without_y {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a) { return a * a; }, [](auto a, auto, auto dy) { return 2 * a * dy; })(x);
}
#else
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a) { return a * a; }, [](auto a, auto dy) { return 2 * a * dy; })(x);
}
#endif
}  // namespace vjp_without_y

/// One gradient for two inputs.
namespace one_gradient_of_two {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a, auto b) { return a * b; },
                   [](auto a, auto b, auto, auto dy) { return std::pair(b * dy, a * dy); })(x, x);
}
#else
auto f(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a, auto b) { return a * b; },
                   [](auto a, auto b, auto, auto dy) { return (a + b) * dy; })(x, x);
}
#endif
}  // namespace one_gradient_of_two

/// A function of a sum that is pending.
namespace custom_of_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x) {
  return cube(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, Partial>& x) {
  return cube(x);
}
#endif
}  // namespace custom_of_partial

/// A function of a whole value and slices.
namespace custom_of_unequal_placements {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return times(redistribute<Shard<1>>(x), y);
}
#else
auto f(const Value<P, 3, Invariant>& x, const Value<P, 3, Shard<1>>& y) {
  return times(x, y);
}
#endif
}  // namespace custom_of_unequal_placements

/// A function of values of two element types.
namespace custom_of_two_element_types {
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const Hidden<Policy<Tp<2>, Bf16>>& y) {
  return times(x, cast<float>(y));
}
#else
auto f(const Hidden<P>& x, const Hidden<Policy<Tp<2>, Bf16>>& y) {
  return times(x, y);
}
#endif
}  // namespace custom_of_two_element_types
