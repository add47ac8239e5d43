// SPDX-License-Identifier: Apache-2.0
/// Attention inside a slice of the sequence, or on a sum that is still pending.
// expected-error {{dspp: attend needs the whole sequence, but this value is split along it over Tp: a rank's queries}}
// expected-error {{would not see the other ranks' keys. Project by a ColumnParallel, which gathers the sequence, or}}
// expected-error {{redistribute<Replicate>(x).}}
// expected-error {{dspp: attend needs a finished value, but this one is Partial over Tp: its sum is still pending.}}
// expected-error {{redistribute<Invariant>(x) first.}}
#include <dspp/models/attention.hpp>

using namespace dspp;
using P = Policy<Tp<2>, SequenceParallel>;

/// A dense projection keeps the split of the sequence.
namespace split_sequence {
#ifdef DSPP_TWIN
auto f(const ColumnParallel<Linear, P, InGroups<3>>& project, const Hidden<P>& x) {
  return attend(project(x), 2, AttentionMask::causal);
}
#else
auto f(const Linear<P>& project, const Hidden<P>& x) { return attend(project(x), 2, AttentionMask::causal); }
#endif
}  // namespace split_sequence

namespace pending_sum {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Partial>& qkv) { return attend(redistribute<Invariant>(qkv), 2, AttentionMask::causal); }
#else
auto f(const Value<P, 3, Partial>& qkv) { return attend(qkv, 2, AttentionMask::causal); }
#endif
}  // namespace pending_sum
