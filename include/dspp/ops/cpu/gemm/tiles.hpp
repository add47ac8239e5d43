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

/// Whether rows `stride` elements of T apart share so few cache sets that the provider's kernels, which walk down
/// columns of an operand as it lies, run at less than half of their rate: 2 KiB, or a multiple. (oneDNN's f32 kernels
/// pack neither operand of products of fewer than about 384 x 640; Eigen packs every one.)
template <class T>
constexpr bool rows_collide([[maybe_unused]] Size stride) {
#if DSPP_HAS_ONEDNN()
  return std::is_same_v<T, float> && stride % 512 == 0;
#else
  return false;
#endif
}

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
/// Cost     2 m n k operations. Operands in f32 are copied tile by tile where the provider walks down their columns:
///          left ones if they are transposed (60 -> 86 of 90 GFLOP/s), right ones if they are not and their rows
///          collide (36 -> 78), beside a transposed left one also at multiples of 1 KiB. Operands in bf16 and f16 are
///          widened to f32.
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

/// Which operands of a product are copied.
struct Copies {
  bool a = false, b = false;
};

template <class T>
constexpr Copies copies_of([[maybe_unused]] const Product& p) {
  if constexpr (!std::is_same_v<T, Compute<T>>) return {true, true};
#if DSPP_HAS_ONEDNN()
  if constexpr (std::is_same_v<T, float>) {
    const bool left = p.ta == Transpose::yes, right = p.tb == Transpose::no;
    const bool large = std::min(p.m, p.n) >= 128 && p.k >= 128, shared = std::min({p.m, p.n, p.k}) >= 32;
    const bool packed = p.m >= 384 && p.n >= 640;  // by the provider
    const bool both = left && large && p.ldb % 256 == 0;
    return {left && (large || (shared && rows_collide<T>(p.lda))),
            right && !packed && shared && (rows_collide<T>(p.ldb) || both)};
  }
#endif
  return {};
}

/// The product by steps along k, for which `copies` are made; what is not copied is read as it lies.
template <class T>
void gemm_repacked(const Product& p, const T* a, const T* b, Compute<T>* values, Write write, Copies copies) {
  using C = Compute<T>;
  const bool ta = p.ta == Transpose::yes, tb = p.tb == Transpose::yes;
  const Size depth = std::min(tile_extents.depth, p.k), width = copies.b ? std::min(tile_extents.columns, p.n) : p.n;
  const Scratch<C> a_tile(copies.a ? tile_count(p.m, depth) : 0), b_tile(copies.b ? tile_count(width, depth) : 0);
  for (Size from = 0; from < p.k; from += depth) {
    const Size k = std::min(depth, p.k - from);
    Product tile = p.sized(p.m, p.n, k);
    const auto a_at = a + p.a_offset(0, from);
    if (copies.a) {
      repack(a_at, p.lda, ta ? k : p.m, ta ? p.m : k, a_tile.data());
      tile.lda = (ta ? p.m : k) + tile_padding;
    }
    for (Size column = 0; column < p.n; column += width) {
      tile.n = std::min(width, p.n - column);
      const auto b_at = b + p.b_offset(column, from);
      if (copies.b) {
        repack(b_at, p.ldb, tb ? tile.n : k, tb ? k : tile.n, b_tile.data());
        tile.ldb = (tb ? k : tile.n) + tile_padding;
      }
      if constexpr (std::is_same_v<T, C>)
        gemm_direct(tile, copies.a ? a_tile.data() : a_at, copies.b ? b_tile.data() : b_at, values + column,
                    from == 0 ? write : Write::accumulate);
      else
        gemm_direct<C>(tile, a_tile.data(), b_tile.data(), values + column, from == 0 ? write : Write::accumulate);
    }
  }
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
  const detail::Copies copies = detail::copies_of<T>(p);
  if constexpr (std::is_same_v<T, Compute<T>>)
    if (!copies.a && !copies.b) return gemm_direct(p, a, b, values, write);
  detail::gemm_repacked(p, a, b, values, write, copies);
}

}  // namespace dspp::cpu
