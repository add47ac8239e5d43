// SPDX-License-Identifier: Apache-2.0
/// Matrix products on the Cpu: cut into pieces, multiplied by the best provider, finished while in cache.
#pragma once

#include <type_traits>

#include <dspp/base/element.hpp>
#include <dspp/ops/cpu/gemm_eigen.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/ops/cpu/rows.hpp>
#include <dspp/ops/cpu/scratch.hpp>

#ifdef DSPP_WITH_ONEDNN
#include <dspp/ops/cpu/gemm_onednn.hpp>
#endif

namespace dspp::cpu {

/// What becomes of a product's values: c = values (+ bias on every row) or c += values, and optionally
/// activated = gelu(c). R is the type of c: T, or float for operands of type bf16.
template <class R>
struct Finish {
  R* c = nullptr;
  Write write = Write::overwrite;
  const R* bias = nullptr;  ///< [n], with overwrite
  R* activated = nullptr;   ///< [m, n] with c's row distance, with overwrite
  GeluForm form = GeluForm::exact;
};

/// Multiplies and finishes on the calling rank's threads; T is double, float or bf16 (accumulated in f32, rounded
/// once).
///
/// Cost     2 m n k operations. Each element of c is computed by one thread; where c is cut depends on the
///          extents alone, so the bits do not depend on the number of threads.
/// Memory   none for f64 and f32; for bf16 at most scratch_bytes_bf16 per thread (+ the provider's own)
template <class T, class R>
void gemm(const Product& p, const T* a, const T* b, const Finish<R>& finish);

/// One piece on the calling thread, without finish: values[m, n] (+)= op(a) op(b) in f32 or f64. Call under OneThread.
template <class T>
void gemm_piece(const Product& p, const T* a, const T* b, Compute<T>* values, Write write);

/// Scratch of a bf16 product per thread: the converted operands of a tile and its values.
inline constexpr Size scratch_bytes_bf16 = 1536_KiB;

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The pieces of a product. Tall enough that packing b again for each piece costs little.
inline Cut cut_of(const Product& p, bool in_scratch) {
  const Size rows = in_scratch ? 256 : 512, columns = in_scratch ? 256 : 1536;
  return {p.m, p.n, rows, columns};
}

template <class T>
void widen_block(const T* from, Size stride, Size rows, Size columns, float* to) {
  for (Size i = 0; i < rows; ++i) widen_row(from + i * stride, columns, to + i * columns);
}

template <class T>
void gemm_plain(const Product& p, const T* a, const T* b, T* values, Write write) {
#ifdef DSPP_WITH_ONEDNN
  if constexpr (std::is_same_v<T, float>)
    gemm_onednn(p, a, b, values, write);
  else
#endif
    gemm_eigen(p, a, b, values, write);
}

/// bf16 without bf16 instructions: tiles of both operands are converted and multiplied in f32.
inline void gemm_widened(const Product& p, const bf16* a, const bf16* b, float* values, Write write) {
  constexpr Size depth = 512;
  const Size most = std::min(depth, p.k);
  Scratch<float> a_tile(p.m * most), b_tile(most * p.n);
  for (Size from = 0; from < p.k; from += depth) {
    const Size k = std::min(depth, p.k - from);
    const bool ta = p.ta == Transpose::yes, tb = p.tb == Transpose::yes;
    widen_block(a + p.a_offset(0, from), p.lda, ta ? k : p.m, ta ? p.m : k, a_tile.data());
    widen_block(b + p.b_offset(0, from), p.ldb, tb ? p.n : k, tb ? k : p.n, b_tile.data());
    Product tile = p.sized(p.m, p.n, k);
    tile.lda = ta ? p.m : k;
    tile.ldb = tb ? k : p.n;
    gemm_plain(tile, a_tile.data(), b_tile.data(), values, from == 0 ? write : Write::accumulate);
  }
}

inline void gemm_bf16(const Product& p, const bf16* a, const bf16* b, float* values, Write write) {
#ifdef DSPP_WITH_ONEDNN
  if (onednn_has_bf16()) return gemm_onednn_primitive(p, a, b, values, write);
#endif
  gemm_widened(p, a, b, values, write);
}

/// Rows of a piece, from values in f32 or f64 (which may be c itself) to c and activated.
template <class C, class R>
void finish_piece(const Product& p, const Piece& piece, const C* values, Size stride, const Finish<R>& finish) {
  for (Size i = 0; i < piece.rows; ++i) {
    const Size at = p.c_offset(piece.row + i, piece.column);
    const C* row = values + i * stride;
    R* c = finish.c + at;
    if (finish.write == Write::accumulate)
      add_row(row, piece.columns, c);
    else if (finish.bias)
      add_bias_row(row, finish.bias + piece.column, piece.columns, c);
    else
      narrow_row(row, piece.columns, c);
    if (finish.activated) gelu_row(c, piece.columns, finish.form, finish.activated + at);
  }
}

template <class T, class R>
void one_piece(const Product& p, const Piece& piece, const T* a, const T* b, const Finish<R>& finish) {
  Product part = p.sized(piece.rows, piece.columns, p.k);
  const T* a_part = a + p.a_offset(piece.row);
  const T* b_part = b + p.b_offset(piece.column);
  if constexpr (std::is_same_v<R, Compute<T>>) {
    R* c = finish.c + p.c_offset(piece.row, piece.column);
    gemm_piece(part, a_part, b_part, c, finish.write);
    if (finish.bias || finish.activated) {
      Finish<R> rest = finish;
      rest.write = Write::overwrite;
      finish_piece(p, piece, c, p.ldc, rest);
    }
  } else {
    Scratch<Compute<T>> values(piece.rows * piece.columns);
    part.ldc = piece.columns;
    gemm_piece(part, a_part, b_part, values.data(), Write::overwrite);
    finish_piece(p, piece, values.data(), piece.columns, finish);
  }
}

}  // namespace detail

template <class T>
void gemm_piece(const Product& p, const T* a, const T* b, Compute<T>* values, Write write) {
  if (p.k == 0) {
    if (write == Write::overwrite)
      for (Size i = 0; i < p.m; ++i) std::fill_n(values + i * p.ldc, p.n, Compute<T>{});
    return;
  }
  if constexpr (std::is_same_v<T, bf16>)
    detail::gemm_bf16(p, a, b, values, write);
  else
    detail::gemm_plain(p, a, b, values, write);
}

template <class T, class R>
void gemm(const Product& p, const T* a, const T* b, const Finish<R>& finish) {
  static_assert(std::is_same_v<R, T> || std::is_same_v<R, Compute<T>>,
                "dspp: a product needs a result of its operands' type, or of the type they are computed in.");
  const Cut cut = detail::cut_of(p, std::is_same_v<T, bf16>);
  parallel_for(cut.pieces(), 1, [&](Size i, Size) {
    const OneThread inside_providers;
    detail::one_piece(p, cut[i], a, b, finish);
  });
}

}  // namespace dspp::cpu
