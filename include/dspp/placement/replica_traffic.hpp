// SPDX-License-Identifier: Apache-2.0
/// What ZeRO moves between replicas, how near they are, and when: Shards<Within<Node>>, SecondaryShards<Node>,
/// GatherAs<Int8>, ReduceAs<Int4>, Overlap<Off>.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// The ranks of one machine, or of a virtual node of thread ranks (RunOptions::ranks_per_node).
struct Node {};

template <class Group>
struct Within {};

/// A member of a policy: what the ZeRO stage shards is cut over the replicas of a node, and the same on every node.
/// Parameters are gathered inside of nodes alone. Gradients are summed inside of a node at each micro-step, and across
/// nodes once a step: their bits are those of sums by node, shared by stages as they are without it.
///
/// Source   Zhang et al. 2022, arXiv:2205.00119 (MiCS)
template <class Group>
struct Shards {};

/// A member of a policy with Zero<3>: of parameters that a forward gathers, each rank keeps a second shard, so that the
/// replicas of a node have all of them. Until the next step changes the parameters they are gathered inside of nodes
/// alone: in backward, in later micro-steps, in evaluation. Bits are those of the same policy without it.
///
/// Memory   a node's part of the values, from the first forward after a step to the next step
/// Source   Wang et al. 2023, arXiv:2306.10209 (ZeRO++, hpZ)
template <class Group>
struct SecondaryShards {};

/// Whole numbers of 8 or 4 bits, with a scale for each block of 256 elements (ops/quantized_parts.hpp).
struct Int8 {
  static constexpr int bits = 8;
};
struct Int4 {
  static constexpr int bits = 4;
};

/// A member of a policy with Zero<3>: parameters are gathered in that format, and forward and backward compute with
/// what it can hold, the same on every rank. Each rank's shard keeps its precision.
///
/// Error    of an element at most half of its block's scale, the largest magnitude of 256 elements over 127
/// Source   Wang et al. 2023, arXiv:2306.10209 (ZeRO++, qwZ)
template <class Format>
struct GatherAs {};

/// A member of a policy whose gradients are reduced to shards over all replicas: gradients travel in that format,
/// first inside of nodes, then their sums, quantized once more, across nodes. Sums are in f32.
///
/// With LoCo, ReduceAs<Int4, LoCo>, what a rank's quantization loses comes to its next one, as ErrorFeedback says.
///
/// Error    of an element at most half a scale for each summand, that of its own block, and of each node's sum
/// Memory   with LoCo, of each rank, the whole gradient, and beside nodes that of its places on all nodes
/// Source   Wang et al. 2023, arXiv:2306.10209 (ZeRO++, qgZ); Xie et al. 2024, arXiv:2407.04480 (LoCo)
template <class Format, class Feedback = void>
struct ReduceAs {};
struct LoCo {};

/// Of ReduceAs<format, LoCo>: error = decay error + (1 - decay) times what was lost of gradient + error. Errors are 0
/// at first, after so many steps, after one that is skipped or given up or that changes the loss scale, and when a
/// checkpoint is saved or loaded: a training that goes on from it has the bits of the one that saved it.
struct ErrorFeedback {
  double decay = 0.8;       ///< DeepSpeed's err_beta
  Size reset_steps = 1024;  ///< DeepSpeed's reset_T
  friend constexpr bool operator==(const ErrorFeedback&, const ErrorFeedback&) = default;
};

struct Off {};

/// A member of a policy, Overlap<Off>: buckets are gathered when they are used, and reduced before backward goes on.
/// The bits are those of the policy without it, which gathers ahead and reduces meanwhile: time and memory differ.
/// EngineConfig::prefetch_bytes then says nothing.
template <class Choice>
struct Overlap {};

/// The same as run-time values, so that units are not instantiated for each.
struct ReplicaTraffic {
  bool shards_within_node = false;
  bool secondary_shards = false;
  int gather_bits = 0;  ///< of a gathered element; 0: as it is
  int reduce_bits = 0;
  bool feeds_errors_back = false;  ///< of reductions
  bool overlaps = true;            ///< runs beside forward and backward

  constexpr bool quantizes() const { return gather_bits > 0 || reduce_bits > 0; }
  constexpr bool needs_nodes() const { return shards_within_node || secondary_shards || reduce_bits > 0; }
  friend constexpr bool operator==(const ReplicaTraffic&, const ReplicaTraffic&) = default;
};

}  // namespace dspp
