// SPDX-License-Identifier: Apache-2.0
/// Logits of the wrong placement for a loss or a head.
// expected-error {{dspp: cross_entropy needs logits split along the vocabulary over Tp, or Invariant, but these are}}
// expected-error {{placed otherwise. Compute them by a VocabParallel table, a ColumnParallel head or, of an Invariant}}
// expected-error {{value, a Linear.}}
// expected-error {{dspp: a function along the features needs all of them, but this value is split along its}}
// expected-error {{features over Tp.}}
// expected-error {{dspp: VocabBias needs logits split along the vocabulary over Tp, but these are not.}}
// expected-error {{Compute them by a VocabParallel table.}}
#include <dspp/nn/linear.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/parallel/vocab_bias.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// Logits that a Linear makes of a gathered value: their gradient is a sum over the ranks.
namespace cross_entropy_on_replicated_logits {
#ifdef DSPP_TWIN
auto f(const Linear<P>& head, const Hidden<P>& x, const Tokens<P>& targets) {
  return cross_entropy<P>(head(x), targets, 50);
}
#else
auto f(const Linear<P>& head, const Hidden<P>& x, const Tokens<P>& targets) {
  return cross_entropy<P>(head(redistribute<Replicate>(x)), targets, 50);
}
#endif
}  // namespace cross_entropy_on_replicated_logits

/// The logits of a tied table for features of which a rank has a part only.
namespace scores_of_split_features {
#ifdef DSPP_TWIN
auto f(const VocabParallel<Embedding, P>& table, const Hidden<P>& x) {
  return table.logits(x);
}
#else
auto f(const VocabParallel<Embedding, P>& table, const Hidden<P>& x) {
  return table.logits(redistribute<Shard<-1>>(x));
}
#endif
}  // namespace scores_of_split_features

/// A bias of logits that every rank has whole.
namespace bias_of_whole_logits {
#ifdef DSPP_TWIN
auto f(const VocabBias<P>& bias, const VocabParallel<Embedding, P>& table, const Hidden<P>& x) {
  return bias(table.logits(x));
}
#else
auto f(const VocabBias<P>& bias, const VocabParallel<Embedding, P>& table, const Hidden<P>& x) {
  return bias(redistribute<Invariant>(table.logits(x)));
}
#endif
}  // namespace bias_of_whole_logits
