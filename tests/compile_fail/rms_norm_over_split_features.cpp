// SPDX-License-Identifier: Apache-2.0
/// A root-mean-square norm over features of which a rank has a part only: its mean would be another on every rank.
// expected-error {{dspp: a function along the features needs all of them, but this value is split along its}}
// expected-error {{features over Tp. Put a RowParallel before it, or redistribute<Invariant>(x) first.}}
// expected-error {{dspp: a function along the features needs a finished value, but this one is Partial over}}
#include <dspp/nn/rms_norm.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// After a column-parallel projection.
namespace of_split_features {
#ifdef DSPP_TWIN
auto f(const RmsNorm<P>& norm, const Value<P, 3, Shard<-1>>& x) {
  return norm(redistribute<Invariant>(x));
}
#else
auto f(const RmsNorm<P>& norm, const Value<P, 3, Shard<-1>>& x) {
  return norm(x);
}
#endif
}  // namespace of_split_features

/// Of a sum that is still pending.
namespace of_partial {
#ifdef DSPP_TWIN
auto f(const RmsNorm<P>& norm, const Value<P, 3, Partial>& x) {
  return norm(redistribute<Invariant>(x));
}
#else
auto f(const RmsNorm<P>& norm, const Value<P, 3, Partial>& x) {
  return norm(x);
}
#endif
}  // namespace of_partial
