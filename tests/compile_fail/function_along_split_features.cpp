// SPDX-License-Identifier: Apache-2.0
/// Functions along the features where a rank has a part of them only.
// expected-error {{dspp: a function along the features needs all of them, but this value is split along its}}
// expected-error {{features over Tp. Put a RowParallel before it, or redistribute<Invariant>(x) first.}}
// expected-error {{dspp: a function along the features needs a finished value, but this one is Partial over}}
// expected-error {{Tp: its sum is still pending. redistribute<Invariant>(x) first.}}
// expected-error {{features over Tp.}}
#include <dspp/autograd/activations.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/nn/layer_norm.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A normalisation over features of which a rank has a part only.
namespace norm_over_split_features {
#ifdef DSPP_TWIN
auto f(const LayerNorm<P>& norm, const Value<P, 3, Shard<-1>>& x) {
  return norm(redistribute<Invariant>(x));
}
#else
auto f(const LayerNorm<P>& norm, const Value<P, 3, Shard<-1>>& x) {
  return norm(x);
}
#endif
}  // namespace norm_over_split_features

/// A normalisation of a sum that is still pending.
namespace norm_of_partial {
#ifdef DSPP_TWIN
auto f(const LayerNorm<P>& norm, const Value<P, 3, Partial>& x) {
  return norm(redistribute<Invariant>(x));
}
#else
auto f(const LayerNorm<P>& norm, const Value<P, 3, Partial>& x) {
  return norm(x);
}
#endif
}  // namespace norm_of_partial

/// A softmax over logits of which a rank has a part only.
namespace softmax_over_split_features {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Shard<0>>& x) {
  return softmax(x);
}
#else
auto f(const Value<P, 2, Shard<1>>& x) {
  return softmax(x);
}
#endif
}  // namespace softmax_over_split_features
