// SPDX-License-Identifier: Apache-2.0
/// A product of two sums that are still pending.
// expected-error {{dspp: a product needs at least one finished factor, but both are Partial over Tp: a product}}
// expected-error {{of sums is not the sum of products. redistribute<Replicate>(x) one of them first.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& x, const Value<P, 3, Partial>& y) {
  return x * redistribute<Replicate>(y);
}
#else
auto f(const Value<P, 3, Partial>& x, const Value<P, 3, Partial>& y) {
  return x * y;
}
#endif
