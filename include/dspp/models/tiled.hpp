// SPDX-License-Identifier: Apache-2.0
/// A linear layer in tiles: only the tile in use is gathered.
#pragma once

#include <dspp/models/tiled_linear.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

namespace dspp {

namespace detail {

/// TiledLinear as a layer template for the parallel wrappers.
template <int In, int Out>
struct Tiling {
  template <class P>
  struct Of : TiledLinear<P, In, Out> {
    using TiledLinear<P, In, Out>::TiledLinear;
  };
};

/// Stands for a layer without a weight to tile, after its error, so that no further ones follow.
template <class P>
struct Untileable : Layer<P> {
  constexpr explicit Untileable(const auto&...) {}
  constexpr void visit(auto&&) {}
  constexpr auto operator()(const Tracked auto& x) const { return x; }
};

template <class L>
struct Tileable {
  static constexpr bool is = false;
  template <int In, int Out>
  using tiled = Untileable<typename L::policy>;
};
template <class P>
struct Tileable<Linear<P>> {
  static constexpr bool is = true;
  template <int In, int Out>
  using tiled = typename Tiling<In, Out>::template Of<P>;
};
template <class P>
struct Tileable<ColumnParallel<Linear, P>> {
  static constexpr bool is = true;
  template <int In, int Out>
  using tiled = ColumnParallel<Tiling<In, Out>::template Of, P>;
};
template <class P, int Groups>
struct Tileable<ColumnParallel<Linear, P, InGroups<Groups>>> {
  static constexpr bool is = true;
  template <int In, int Out>
  using tiled = ColumnParallel<Tiling<In, Out>::template Of, P, InGroups<Groups>>;
};
template <class P>
struct Tileable<RowParallel<Linear, P>> {
  static constexpr bool is = true;
  template <int In, int Out>
  using tiled = RowParallel<Tiling<In, Out>::template Of, P>;
};

}  // namespace detail

/// L, a linear layer, with this rank's part of the weight in In x Out tiles: Tiled<ColumnParallel<Linear, P>, 4>.
///
///   y[o] = sum over i of x[i] W[o, i]^T, plus b       x [..., in] in In parts   y [..., out] in Out parts
///
/// Placement   L's. Name, global shape and initial values of the weight are L's, too: files do not show the tiles.
/// Cost        L's operations and collectives over Tp, once; under Zero<3> a gather per tile and direction in place of
///             one, of the same bytes in total (inside Recompute one more per tile). A plan walks through every tile.
/// Memory      L's, but of the weight under Zero<3> only the tile in use and one ahead, and of its gradient under
///             Zero<2> and Zero<3> one tile and those being reduced (at most two)
/// Throws      Error(usage) unless In and Out are at most this rank's inputs and outputs
///
/// Sums over In, and those of dx over Out, are in the element type: in bf16 and f16 each tile rounds once.
/// Source      Rajbhandari et al. 2021, arXiv:2104.07857, section 5.1.3 (memory-centric tiling)
template <class L, int In, int Out = 1>
struct Tiled : detail::Tileable<L>::template tiled<(In < 1 ? 1 : In), (Out < 1 ? 1 : Out)> {
  static_assert(
      detail::Tileable<L>::is,
      "dspp: Tiled needs Linear, ColumnParallel<Linear> or RowParallel<Linear>, but this layer is another. Tile the "
      "linear layers inside it.");
  static_assert(In >= 1 && Out >= 1, "dspp: Tiled needs at least one tile each way, but In or Out is less. Raise it.");

  template <class Q>
  using on = Tiled<rebind<L, typename Q::DeviceType>, In, Out>;
  using Base = typename detail::Tileable<L>::template tiled<(In < 1 ? 1 : In), (Out < 1 ? 1 : Out)>;
  using Base::Base;
};

}  // namespace dspp
