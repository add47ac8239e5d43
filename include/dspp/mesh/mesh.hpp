// SPDX-License-Identifier: Apache-2.0
/// Ranks as points of a mesh: coordinates, and the group of each axis through a rank.
#pragma once

#include <string>

#include <dspp/base/error.hpp>
#include <dspp/mesh/axis.hpp>

namespace dspp {

/// The ranks that differ from one another along one axis only: first, first + stride, ...
struct AxisGroup {
  int first = 0;
  int stride = 1;
  int size = 1;

  /// The world rank of member i.
  constexpr int operator[](int i) const { return first + i * stride; }
  /// The member with this world rank; -1 if it is none.
  constexpr int position(int world_rank) const {
    const int steps = (world_rank - first) / stride;
    return world_rank >= first && steps < size && first + steps * stride == world_rank ? steps : -1;
  }
  friend constexpr bool operator==(const AxisGroup&, const AxisGroup&) = default;
};

/// Of a group of ranks that nodes divide into blocks of `on_node` consecutive members: those on a member's node, and
/// those with its place on every node.
struct NodeGroups {
  AxisGroup within;
  AxisGroup across;

  constexpr NodeGroups(const AxisGroup& all, int position, int on_node)
      : within{all[position / on_node * on_node], all.stride, on_node},
        across{all[position % on_node], all.stride * on_node, all.size / on_node} {}
};

/// How many consecutive members of a group are on each node; 0 unless it is as many on every one. `node_of(rank)` is
/// the node of a world rank.
template <class NodeOf>
constexpr int members_on_node(const AxisGroup& group, NodeOf node_of) {
  int on_node = 1;
  while (on_node < group.size && node_of(group[on_node]) == node_of(group[0])) ++on_node;
  if (group.size % on_node != 0) return 0;
  for (int i = 0; i < group.size; ++i)
    if (node_of(group[i]) != node_of(group[i / on_node * on_node])) return 0;
  for (int i = 0; i < group.size; i += on_node)
    for (int j = i + on_node; j < group.size; j += on_node)
      if (node_of(group[i]) == node_of(group[j])) return 0;
  return on_node;
}

namespace detail {
[[noreturn]] void fail_of_ranks(int ranks, int cp, int tp, int model);
}

/// The ranks of a world arranged by degrees. Throws: Error(placement) for a degree below 1 or a rank outside the world.
class Mesh {
 public:
  constexpr Mesh() = default;
  constexpr explicit Mesh(Degrees degrees) : degrees_(degrees) {
    for (Axis axis : all_axes) {
      if (degrees[axis] < 1) fail_degree(axis, degrees[axis]);
      world_size_ *= degrees[axis];
    }
  }

  constexpr const Degrees& degrees() const { return degrees_; }
  constexpr int world_size() const { return world_size_; }

  constexpr Coordinates coordinates(int rank) const {
    check(rank);
    Coordinates at;
    for (Axis axis : all_axes) at[axis] = coordinate(axis, rank);
    return at;
  }

  constexpr int rank(const Coordinates& at) const {
    int rank = 0;
    for (Axis axis : all_axes) rank = rank * degrees_[axis] + at[axis];
    return rank;
  }

  /// The group along `axis` that `rank` belongs to.
  constexpr AxisGroup members(Axis axis, int rank) const {
    check(rank);
    const int position = coordinate(axis, rank);
    return {rank - position * stride(axis), stride(axis), degrees_[axis]};
  }

  /// The ranks that hold the same parameters as `rank`: those along Data and Cp, Data outermost.
  constexpr AxisGroup replicas(int rank) const {
    static_assert(static_cast<int>(Axis::Cp) == static_cast<int>(Axis::Data) + 1);
    Coordinates first = coordinates(rank);
    first.data = first.cp = 0;
    return {this->rank(first), stride(Axis::Cp), degrees_.data * degrees_.cp};
  }

  /// The difference in rank of two neighbours along `axis`.
  constexpr int stride(Axis axis) const {
    int ranks = 1;
    for (int inner = axis_count - 1; inner > static_cast<int>(axis); --inner) ranks *= degrees_[all_axes[inner]];
    return ranks;
  }

 private:
  constexpr int coordinate(Axis axis, int rank) const { return rank / stride(axis) % degrees_[axis]; }

  constexpr void check(int rank) const {
    if (rank < 0 || rank >= world_size()) fail_rank(rank, world_size());
  }

  [[noreturn]] static void fail_degree(Axis axis, int degree);
  [[noreturn]] static void fail_rank(int rank, int size);

  Degrees degrees_;
  int world_size_ = 1;
};

/// How many replicas of a rank are on each node, one after the other; 0 if it is not as many on every node, for every
/// rank. `node_of(rank)` is the node of a rank.
template <class NodeOf>
constexpr int replicas_on_node(const Mesh& mesh, NodeOf node_of) {
  int common = 0;
  for (int r = 0; r < mesh.world_size(); ++r) {
    const AxisGroup replicas = mesh.replicas(r);
    if (replicas.first != r) continue;
    const int on_node = members_on_node(replicas, node_of);
    if (on_node == 0 || (r > 0 && on_node != common)) return 0;
    common = on_node;
  }
  return common;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void Mesh::fail_degree(Axis axis, int degree) {
  fail(ErrorCode::placement, std::string("dspp: a mesh needs at least 1 rank along each axis, but ") + name_of(axis) +
                                 " has degree " + std::to_string(degree) + ". Give it 1 to leave it out.");
}

DSPP_INLINE void Mesh::fail_rank(int rank, int size) {
  fail(ErrorCode::placement, "dspp: a mesh of " + std::to_string(size) + " ranks needs a rank from 0 to " +
                                 std::to_string(size - 1) + ", but got " + std::to_string(rank) +
                                 ". Check the world's size against the degrees.");
}

DSPP_INLINE void detail::fail_of_ranks(int ranks, int cp, int tp, int model) {
  fail(ErrorCode::placement, "dspp: a world needs ranks that Cp times Tp divides, but there are " +
                                 std::to_string(ranks) + " ranks, Cp is " + std::to_string(cp) + " and Tp is " +
                                 std::to_string(tp) + ". Use a multiple of " + std::to_string(model) +
                                 " ranks, or another policy.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
