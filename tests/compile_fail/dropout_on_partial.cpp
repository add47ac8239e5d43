// SPDX-License-Identifier: Apache-2.0
/// Dropout of summands: every rank would scale and drop its own.
// expected-error {{dspp: an activation needs a finished value, but this one is Partial over Tp: its sum is}}
// expected-error {{still pending.}}
#include <dspp/nn/dropout.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
auto f(const Dropout<P>& dropout, const Value<P, 3, Partial>& x) {
  return dropout(redistribute<Invariant>(x));
}
#else
auto f(const Dropout<P>& dropout, const Value<P, 3, Partial>& x) {
  return dropout(x);
}
#endif
