// SPDX-License-Identifier: Apache-2.0
/// Queries cut by heads beside keys and values that every rank has whole, and grouped attention of a split sequence.
// expected-error {{dspp: attend needs queries, keys and values placed alike, but they are placed differently}}
// expected-error {{over Tp. Project both by a ColumnParallel, or redistribute one of them.}}
// expected-error {{dspp: attend needs the whole sequence, but this value is split along it over Tp: a}}
#include <dspp/models/grouped_attention.hpp>

using namespace dspp;
using P = Policy<Tp<2>, SequenceParallel>;

namespace whole_keys {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& q, const Value<P, 3, Shard<-1, 2>>& kv) {
  return attend(q, kv, {.heads = 4, .kv_heads = 2}, {});
}
#else
auto f(const Value<P, 3, Shard<-1>>& q, const Value<P, 3, Replicate>& kv) {
  return attend(q, kv, {.heads = 4, .kv_heads = 2}, {});
}
#endif
}  // namespace whole_keys

namespace split_sequence {
#ifdef DSPP_TWIN
auto f(const Hidden<P>& q, const Hidden<P>& kv) {
  return attend(redistribute<Replicate>(q), redistribute<Replicate>(kv), {.heads = 4, .kv_heads = 2}, {});
}
#else
auto f(const Hidden<P>& q, const Hidden<P>& kv) {
  return attend(q, kv, {.heads = 4, .kv_heads = 2}, {});
}
#endif
}  // namespace split_sequence
