// SPDX-License-Identifier: Apache-2.0
/// A bias added to a sum that is still pending would be added once per rank.
// expected-error {{dspp: a bias needs a finished value, but this one is Partial over Tp: the bias would be}}
// expected-error {{added once per rank. redistribute<Invariant>(x) first, then add the bias.}}
#include <dspp/nn/linear.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
auto f(const Linear<P>& layer, const Value<P, 3, Partial>& y) {
  return layer.shift(redistribute<Invariant>(y));
}
#else
auto f(const Linear<P>& layer, const Value<P, 3, Partial>& y) {
  return layer.shift(y);
}
#endif
