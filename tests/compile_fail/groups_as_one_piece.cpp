// SPDX-License-Identifier: Apache-2.0
/// A cut in groups where one piece is needed, and the other way round.
// expected-error {{dspp: RowParallel needs an input split along its features in one piece, but this one is split in}}
// expected-error {{groups over Tp: a rank holds other rows. split<-1, Groups>(x) gives the groups, or take}}
// expected-error {{ColumnParallel without InGroups.}}
// expected-error {{dspp: swiglu needs gates and values side by side on every rank, but its features are split over}}
// expected-error {{Tp in one piece: a rank has gates or values. Project by ColumnParallel<Linear, P, InGroups<2>>,}}
// expected-error {{or redistribute<Invariant>(x) first.}}
// expected-error {{dspp: slice and split need the dimension they cut whole, but it is split in groups over Tp: a}}
// expected-error {{rank has a part of each. Take the groups by split<Dim, Groups>(x), or redistribute<Invariant>(x)}}
// expected-error {{dspp: join needs values split along its dimension over Tp, which become groups, but one of these}}
// expected-error {{is not. Use concat<Dim>(...) where the dimension is whole, or redistribute<Shard<Dim>>(x) first.}}
// expected-error {{dspp: redistribute needs the groups of a cut kept, but this value is cut in other groups along}}
// expected-error {{the same dimension over Tp: a rank holds other elements. Take the groups by split<Dim,}}
// expected-error {{Groups>(x), or redistribute<Invariant>(x) first.}}
// expected-error {{dspp: contract needs the contracted dimension split alike over Tp on both sides, but it is split}}
// expected-error {{in other groups on one: a rank holds other elements. redistribute one of them first.}}
// expected-error {{dspp: attend needs queries, keys and values side by side on every rank, but these features are}}
// expected-error {{not split over Tp in three groups. Project by ColumnParallel<Linear, P, InGroups<3>>, or}}
// expected-error {{dspp: attend needs keys and values side by side on every rank, but these features are not split}}
// expected-error {{over Tp in two groups. Project by ColumnParallel<Linear, P, InGroups<2>>, or}}
// expected-error {{dspp: Dropout needs groups among the features only, but this value is split in groups along its}}
// expected-error {{batch or sequence over Tp. redistribute<Invariant>(x) first.}}
// expected-error {{dspp: ColumnParallel needs the groups of its type, but its configuration names others.}}
// expected-error {{Write ColumnParallel<Linear, P, InGroups<n>>.}}
#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/nn/dropout.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// The rows of the second product have another order: the loss was off by 11 % when this compiled.
namespace rows_after_groups {
auto f(const ColumnParallel<Linear, P, InGroups<2>>& up, const RowParallel<Linear, P>& down, const Hidden<P>& x) {
#ifdef DSPP_TWIN
  auto [a, b] = split<-1, 2>(gelu(up(x)));
  return down(a * b);
#else
  return down(gelu(up(x)));
#endif
}
}  // namespace rows_after_groups

/// One rank would multiply gates by gates, the other values by values.
namespace gates_in_one_piece {
#ifdef DSPP_TWIN
auto f(const ColumnParallel<Linear, P, InGroups<2>>& gate_up, const Hidden<P>& x) { return swiglu(gate_up(x)); }
#else
auto f(const ColumnParallel<Linear, P>& gate_up, const Hidden<P>& x) { return swiglu(gate_up(x)); }
#endif
}  // namespace gates_in_one_piece

/// Three groups cut into two parts, and a slice that is not a group.
namespace other_parts_than_groups {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1, 3>>& x) { return split<-1, 3>(x); }
#else
auto f(const Value<P, 3, Shard<-1, 3>>& x) { return split<-1, 2>(x); }
#endif
}  // namespace other_parts_than_groups

namespace join_of_wholes {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& x, const Value<P, 3, Shard<-1>>& y) { return join<-1>(x, y); }
#else
auto f(const Value<P, 3, Shard<1>>& x, const Value<P, 3, Shard<1>>& y) { return join<-1>(x, y); }
#endif
}  // namespace join_of_wholes

namespace redistribute_to_one_piece {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1, 2>>& x) { return redistribute<Shard<-1>>(redistribute<Replicate>(x)); }
#else
auto f(const Value<P, 3, Shard<-1, 2>>& x) { return redistribute<Shard<-1>>(x); }
#endif
}  // namespace redistribute_to_one_piece

namespace contraction_of_other_groups {
#ifdef DSPP_TWIN
auto f(const Value<P, 2, Shard<1, 2>>& a, const Value<P, 2, Shard<0, 2>>& b) { return contract(a, b); }
#else
auto f(const Value<P, 2, Shard<1, 2>>& a, const Value<P, 2, Shard<0>>& b) { return contract(a, b); }
#endif
}  // namespace contraction_of_other_groups

namespace attention_of_one_piece {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1, 3>>& qkv) { return attend(qkv, 2, AttentionMask::causal); }
#else
auto f(const Value<P, 3, Shard<-1>>& qkv) { return attend(qkv, 2, AttentionMask::causal); }
#endif
}  // namespace attention_of_one_piece

namespace keys_and_values_in_one_piece {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& q, const Value<P, 3, Shard<-1, 2>>& kv) {
#else
auto f(const Value<P, 3, Shard<-1>>& q, const Value<P, 3, Shard<-1>>& kv) {
#endif
  return attend(q, kv, {.heads = 4, .kv_heads = 2}, {});
}
}  // namespace keys_and_values_in_one_piece

namespace dropout_of_groups_of_positions {
#ifdef DSPP_TWIN
auto f(const Dropout<P>& dropout, const Value<P, 3, Shard<2, 2>>& x) { return dropout(x); }
#else
auto f(const Dropout<P>& dropout, const Value<P, 3, Shard<1, 2>>& x) { return dropout(x); }
#endif
}  // namespace dropout_of_groups_of_positions

/// The type lacks the groups.
namespace groups_of_the_configuration {
#ifdef DSPP_TWIN
using L = ColumnParallel<Linear, P, InGroups<2>>;
#else
using L = ColumnParallel<Linear, P>;
#endif
constexpr Size rows = L({.in = 4, .out = 8, .groups = 2}).weight.shape()[1];
}  // namespace groups_of_the_configuration
