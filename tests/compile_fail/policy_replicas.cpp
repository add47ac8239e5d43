// SPDX-License-Identifier: Apache-2.0
/// Members of a policy that say over which replicas what is cut, and how it travels.
// expected-error {{dspp: Policy needs one Shards<...>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one SecondaryShards<...>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one GatherAs<...>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one ReduceAs<...>, but names several. Keep one.}}
// expected-error {{dspp: Policy needs one Overlap<Off>, but names several. Keep one.}}
// expected-error {{dspp: Overlap<Off> is the only Overlap, since to overlap is the default, but got another. Name}}
// expected-error {{Off, or drop it.}}
// expected-error {{dspp: a policy takes Shards<Within<Node>> and SecondaryShards<Node>, but got one of another group}}
// expected-error {{of ranks. Name Node.}}
// expected-error {{dspp: GatherAs<format> and ReduceAs<format> take Int8 and Int4, but got another. Name one of them.}}
// expected-error {{dspp: Shards<Within<Node>> needs a ZeRO stage that shards something, but the policy has Zero<0>.}}
// expected-error {{Add Zero<1>, Zero<2> or Zero<3>, or drop it.}}
// expected-error {{dspp: SecondaryShards<Node> needs parameters that are gathered, but the policy has no Zero<3>. Add}}
// expected-error {{it, or drop SecondaryShards.}}
// expected-error {{dspp: SecondaryShards<Node> needs shards over all nodes, but Shards<Within<Node>> gathers inside}}
// expected-error {{of nodes as it is. Drop one of them.}}
// expected-error {{dspp: GatherAs<...> needs parameters that are gathered to be used, but the policy has no Zero<3>.}}
// expected-error {{Add it, or drop GatherAs.}}
// expected-error {{dspp: ReduceAs<...> needs gradients that are reduced to shards, but the policy has Zero<0>. Add}}
// expected-error {{Zero<1>, Zero<2> or Zero<3>, or drop ReduceAs.}}
// expected-error {{dspp: ReduceAs<...> needs shards over all nodes, but the policy has Shards<Within<Node>>, which}}
// expected-error {{adds slices across nodes in full precision. Drop one of them.}}
// expected-error {{dspp: ReduceAs<format, feedback> takes LoCo, or no feedback, but got another. Name}}
// expected-error {{LoCo, or drop it.}}
#include <dspp/placement/policy.hpp>

using namespace dspp;

/// The same member twice.
namespace policy_with_doubled_replica_member {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<3>, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int4>>::tp +
                       Policy<Zero<1>, Shards<Within<Node>>, Overlap<Off>>::tp;
#else
constexpr int degree = Policy<Zero<3>, Shards<Within<Node>>, Shards<Within<Node>>>::tp +
                       Policy<Zero<3>, SecondaryShards<Node>, SecondaryShards<Node>>::tp +
                       Policy<Zero<3>, GatherAs<Int8>, GatherAs<Int4>>::tp +
                       Policy<Zero<3>, ReduceAs<Int4>, ReduceAs<Int4>>::tp + Policy<Overlap<Off>, Overlap<Off>>::tp;
#endif
}  // namespace policy_with_doubled_replica_member

/// Groups of ranks and formats that there are not.
namespace policy_with_unknown_replica_member {
#ifdef DSPP_TWIN
constexpr int degree =
    Policy<Zero<3>, Shards<Within<Node>>, GatherAs<Int4>>::tp + Policy<Zero<1>, ReduceAs<Int4, LoCo>>::tp;
#else
constexpr int degree = Policy<Zero<3>, Shards<Node>>::tp + Policy<Zero<3>, SecondaryShards<Within<Node>>>::tp +
                       Policy<Zero<3>, GatherAs<Bf16>>::tp + Policy<Zero<3>, ReduceAs<F32>>::tp +
                       Policy<Overlap<Node>>::tp + Policy<Zero<1>, ReduceAs<Int4, Node>>::tp;
#endif
}  // namespace policy_with_unknown_replica_member

/// What needs another stage.
namespace policy_with_replica_member_of_another_stage {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<1>, ReduceAs<Int4>>::tp + Policy<Zero<2>, Shards<Within<Node>>>::tp;
#else
constexpr int degree = Policy<Shards<Within<Node>>>::tp + Policy<Zero<2>, SecondaryShards<Node>>::tp +
                       Policy<Zero<2>, GatherAs<Int8>>::tp + Policy<ReduceAs<Int8>>::tp;
#endif
}  // namespace policy_with_replica_member_of_another_stage

/// What shards within nodes have no use for.
namespace policy_with_shards_within_nodes_and_across {
#ifdef DSPP_TWIN
constexpr int degree = Policy<Zero<3>, Shards<Within<Node>>, GatherAs<Int8>>::tp;
#else
constexpr int degree = Policy<Zero<3>, Shards<Within<Node>>, SecondaryShards<Node>>::tp +
                       Policy<Zero<3>, Shards<Within<Node>>, ReduceAs<Int4>>::tp;
#endif
}  // namespace policy_with_shards_within_nodes_and_across
