// SPDX-License-Identifier: Apache-2.0
/// A product of a sum that is still pending is one, too, and gelu of a sum is not the sum of gelus.
// expected-error {{dspp: gelu needs a finished value, but this product is Partial over Tp: its sum is still pending.}}
// expected-error {{redistribute<Invariant>(x) first.}}
#include <dspp/nn/linear.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
auto f(const Linear<P>& layer, const Value<P, 3, Partial>& x) {
  return layer.gelu(redistribute<Invariant>(x));
}
#else
auto f(const Linear<P>& layer, const Value<P, 3, Partial>& x) {
  return layer.gelu(x);
}
#endif
