// SPDX-License-Identifier: Apache-2.0
/// Logits with padding in their last slices over Tp, where every element counts.
// expected-error {{dspp: a sum, mean, norm or contraction needs every element to count, but this value ends in}}
// expected-error {{padding over Tp, as the logits of a vocabulary do. redistribute<Invariant>(x) first, which leaves}}
// expected-error {{the padding out.}}
// expected-error {{dspp: this operation needs equal slices over Tp, but the value is padded to make them equal, as}}
// expected-error {{the logits of a vocabulary are. redistribute<Invariant>(x) first, which leaves the padding out.}}
// expected-error {{dspp: redistribute needs an arrow between the two states, but there is none.}}
// expected-error {{another Shard, from PaddedShard to Invariant or Replicate.}}
// expected-error {{dspp: reshape needs the padding of a value kept in its placement, but it names another. Write}}
// expected-error {{PaddedShard<Dim> for a PaddedShard, such as the logits of a vocabulary, and Shard<Dim> for a}}
// expected-error {{dspp: a function along the features needs all of them, but this value is split along its}}
#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/parallel/vocab.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;
using Logits = Value<P, 3, PaddedShard<-1>>;

/// A mean that counts the padding.
namespace mean_of_scores {
#ifdef DSPP_TWIN
auto f(const Logits& logits) { return mean(redistribute<Invariant>(logits)); }
#else
auto f(const Logits& logits) { return mean(logits); }
#endif
}  // namespace mean_of_scores

/// A dropout mask is drawn by the position in the whole tensor.
namespace dropout_of_scores {
#ifdef DSPP_TWIN
auto f(const Dropout<P>& dropout, const Logits& logits) { return dropout(redistribute<Invariant>(logits)); }
#else
auto f(const Dropout<P>& dropout, const Logits& logits) { return dropout(logits); }
#endif
}  // namespace dropout_of_scores

/// A vocabulary that the degree does not divide has no equal slices.
namespace scores_in_equal_slices {
#ifdef DSPP_TWIN
auto f(const Logits& logits) { return redistribute<Shard<-1>>(redistribute<Invariant>(logits)); }
#else
auto f(const Logits& logits) { return redistribute<Shard<-1>>(logits); }
#endif
}  // namespace scores_in_equal_slices

namespace reshape_forgets_padding {
#ifdef DSPP_TWIN
auto f(const Logits& logits) { return reshape<PaddedShard<1>>(logits, shape(logits[0] * logits[1], logits[2])); }
#else
auto f(const Logits& logits) { return reshape<Shard<1>>(logits, shape(logits[0] * logits[1], logits[2])); }
#endif
}  // namespace reshape_forgets_padding

namespace softmax_of_scores {
#ifdef DSPP_TWIN
auto f(const Logits& logits) { return softmax(redistribute<Invariant>(logits)); }
#else
auto f(const Logits& logits) { return softmax(logits); }
#endif
}  // namespace softmax_of_scores

/// Groups of them would have padding inside.
namespace join_of_scores {
#ifdef DSPP_TWIN
auto f(const Logits& logits) {
  const auto whole = redistribute<Invariant>(logits);
  return concat<-1>(whole, whole);
}
#else
auto f(const Logits& logits) { return join<-1>(logits, logits); }
#endif
}  // namespace join_of_scores

/// A bias has a row for every column, padding included.
namespace bias_on_scores {
#ifdef DSPP_TWIN
auto f(const Linear<P>& linear, const Logits& logits) { return linear.shift(redistribute<Invariant>(logits)); }
#else
auto f(const Linear<P>& linear, const Logits& logits) { return linear.shift(logits); }
#endif
}  // namespace bias_on_scores
