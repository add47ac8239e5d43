// SPDX-License-Identifier: Apache-2.0
/// Non-linear functions of a sum that is still pending.
// expected-error {{dspp: an activation needs a finished value, but this one is Partial over Tp: its sum is}}
// expected-error {{still pending. redistribute<Invariant>(x) first, or put the activation before the}}
// expected-error {{RowParallel.}}
// expected-error {{dspp: squared_norm needs a finished value, but this one is Partial over Tp: the square of a}}
// expected-error {{sum is not the sum of squares. redistribute<Invariant>(x) first.}}
#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A non-linear function of a sum that is still pending.
namespace activation_on_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x) {
  return gelu(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, Partial>& x) {
  return gelu(x);
}
#endif
}  // namespace activation_on_partial

/// The squares of summands do not add up to the square of the sum.
namespace squared_norm_of_partial {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x) {
  return squared_norm(redistribute<Invariant>(x));
}
#else
auto f(const Value<P, 3, Partial>& x) {
  return squared_norm(x);
}
#endif
}  // namespace squared_norm_of_partial
