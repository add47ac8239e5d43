// SPDX-License-Identifier: Apache-2.0
/// One piece of a product on one thread: its provider, and the repacking of its operands.
#pragma once

#include <cstring>
#include <type_traits>

#include <dspp/base/config.hpp>
#include <dspp/base/element.hpp>
#include <dspp/ops/cpu/gemm/eigen.hpp>
#include <dspp/ops/cpu/gemm/rows.hpp>
#include <dspp/ops/cpu/scratch.hpp>

#if DSPP_HAS_ONEDNN()
#include <dspp/ops/cpu/gemm/onednn.hpp>
#endif

namespace dspp::cpu {

/// Extents of the tiles that are repacked; a piece has at most `rows` rows.
struct TileExtents {
  Size rows = 512, columns = 384, depth = 256;
};
inline constexpr TileExtents tile_extents{};

/// Repacked rows are this many elements longer than needed, since rows 2^n bytes apart share one cache set.
inline constexpr Size tile_padding = 16;

/// Elements of a repacked operand of `rows` x `depth`, transposed or not.
constexpr Size tile_count(Size rows, Size depth) {
  return std::max((rows + tile_padding) * depth, rows * (depth + tile_padding));
}

/// The largest scratch of a product per thread: both operands' tiles, and the values before they are rounded.
inline constexpr Size gemm_scratch_bytes =
    4 * (tile_count(tile_extents.rows, tile_extents.depth) + tile_count(tile_extents.columns, tile_extents.depth) +
         tile_extents.rows * tile_extents.columns);
static_assert(gemm_scratch_bytes < 2_MiB);

/// values (+)= op(a) op(b) by one call of the provider, for the types that it supports: f64 and f32.
template <class T>
void gemm_direct(const Product& p, const T* a, const T* b, T* values, Write write);

/// The same for every T, of at most tile_extents.rows rows, and for bf16 and f16 as many columns.
///
/// Cost     2 m n k operations. Transposed left operands in f32 are copied tile by tile (provider kernels walk their
///          columns: 60 -> 86 of 90 GFLOP/s), bf16 and f16 operands widened to f32.
/// Memory   scratch of at most gemm_scratch_bytes; the provider's own packing
template <class T>
void gemm_piece(const Product& p, const T* a, const T* b, Compute<T>* values, Write write);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Copies op's rows x columns (as they lie in memory) to rows of `columns + tile_padding`, in the computing type.
template <class T>
void repack(const T* from, Size stride, Size rows, Size columns, Compute<T>* to) {
  for (Size i = 0; i < rows; ++i) convert_row(from + i * stride, columns, to + i * (columns + tile_padding));
}

/// The tiles of one step along k, and the product of them.
template <class T>
struct Tiles {
  using C = Compute<T>;
  static constexpr bool b_too = !std::is_same_v<T, C>;  // an operand needs no copy without conversion or transposition

  explicit Tiles(const Product& product)
      : p(product),
        depth(std::min(tile_extents.depth, p.k)),
        a_tile(tile_count(p.m, depth)),
        b_tile(b_too ? tile_count(p.n, depth) : 0) {}

  void multiply(const T* a, const T* b, Size from, C* values, Write write) {
    const bool ta = p.ta == Transpose::yes, tb = p.tb == Transpose::yes;
    const Size k = std::min(depth, p.k - from);
    Product tile = p.sized(p.m, p.n, k);
    repack(a + p.a_offset(0, from), p.lda, ta ? k : p.m, ta ? p.m : k, a_tile.data());
    tile.lda = (ta ? p.m : k) + tile_padding;
    if constexpr (b_too) {
      repack(b + p.b_offset(0, from), p.ldb, tb ? p.n : k, tb ? k : p.n, b_tile.data());
      tile.ldb = (tb ? k : p.n) + tile_padding;
      gemm_direct(tile, a_tile.data(), b_tile.data(), values, write);
    } else {
      gemm_direct(tile, a_tile.data(), b + p.b_offset(0, from), values, write);
    }
  }

  Product p;
  Size depth;
  Scratch<C> a_tile, b_tile;
};

template <class T>
void gemm_repacked(const Product& p, const T* a, const T* b, Compute<T>* values, Write write) {
  Tiles<T> tiles(p);
  for (Size from = 0; from < p.k; from += tiles.depth)
    tiles.multiply(a, b, from, values, from == 0 ? write : Write::accumulate);
}

}  // namespace detail

template <class T>
void gemm_direct(const Product& p, const T* a, const T* b, T* values, Write write) {
#if DSPP_HAS_ONEDNN()
  if constexpr (std::is_same_v<T, float>)
    gemm_onednn(p, a, b, values, write);
  else
#endif
    gemm_eigen(p, a, b, values, write);
}

template <class T>
void gemm_piece(const Product& p, const T* a, const T* b, Compute<T>* values, Write write) {
  if (p.k == 0) {
    if (write == Write::overwrite)
      for (Size i = 0; i < p.m; ++i) std::fill_n(values + i * p.ldc, p.n, Compute<T>{});
    return;
  }
#if DSPP_HAS_ONEDNN()
  const bool copy_helps = std::is_same_v<T, float> && p.ta == Transpose::yes && std::min(p.m, p.n) >= 128 && p.k >= 128;
#else
  constexpr bool copy_helps = false;
#endif
  if constexpr (std::is_same_v<T, Compute<T>>)
    if (!copy_helps) return gemm_direct(p, a, b, values, write);
  detail::gemm_repacked(p, a, b, values, write);
}

}  // namespace dspp::cpu
