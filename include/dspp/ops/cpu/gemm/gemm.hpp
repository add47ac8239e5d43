// SPDX-License-Identifier: Apache-2.0
/// Matrix products on the Cpu: split into pieces for the threads, multiplied, and finished while in cache.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

template <class T, class R>
struct Kernel<kernels::Matmul<T, R>, Cpu> {
  static void run(const kernels::Product& p, const T* a, const T* b, const kernels::Finish<R>& finish);
};

template <class T>
struct Kernel<kernels::BatchedMatmul<T>, Cpu> {
  static void run(Size batch, const kernels::Product& p, const T* a, const T* b, T* c);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/base/config.hpp>
#include <dspp/ops/cpu/gemm/tiles.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

using kernels::Finish;

/// Multiplies and finishes on the calling rank's threads; T is double, float, bf16 or f16 (the last two summed in
/// f32, rounded once).
///
/// Cost     2 m n k operations. Where c is cut depends on the extents alone, and one thread computes a piece: the
///          bits do not depend on the number of threads.
/// Memory   scratch of at most gemm_scratch_bytes per thread
template <class T, class R>
void gemm(const Product& p, const T* a, const T* b, const Finish<R>& finish);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Pieces of a product: one if it is small; else four, to balance two threads; for large ones two per GFLOP. Few and
/// large, since the provider packs b again for each row of pieces and a for each column; rows first, which costs less
/// (4 x 1: 3 % of one piece's speed, 1 x 4: 8 %).
constexpr Cut cut_of(const Product& p) {
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const Size pieces = flops < 1.6e7 ? 1 : std::max<Size>(4, static_cast<Size>(2e-9 * flops));
  Size rows = p.m, columns = p.n, count = 1;
  while (2 * count <= pieces) {
    if (rows >= 1024)
      rows = (rows + 1) / 2;
    else if (columns >= 1024)
      columns = (columns + 1) / 2;
    else if (rows >= 256)
      rows = (rows + 1) / 2;
    else if (columns >= 384)
      columns = (columns + 1) / 2;
    else if (rows >= 128)
      rows = (rows + 1) / 2;
    else
      break;
    count *= 2;
  }
  rows = std::min(round_up(rows, 16), tile_extents.rows);
  return {p.m, p.n, std::max<Size>(rows, 1), std::max<Size>(round_up(columns, 32), 1)};
}

/// Writes c and activated from the values of a rectangle of c, in the computing type (and perhaps in c itself).
template <class C, class R>
void finish_values(const Product& p, const Piece& piece, const C* values, Size stride, const Finish<R>& finish) {
  for (Size i = 0; i < piece.rows; ++i) {
    const Size at = p.c_offset(piece.row + i, piece.column);
    const C* row = values + i * stride;
    R* c = finish.c + at;
    if (finish.bias)
      add_bias_row(row, finish.bias + piece.column, piece.columns, c);
    else if (finish.write == Write::accumulate)
      add_row(row, piece.columns, c);
    else if (static_cast<const void*>(row) != c)
      convert_row(row, piece.columns, c);
    if (finish.activated) gelu_row(c, piece.columns, finish.form, finish.activated + at);
    if (finish.before) gelu_vjp_row(finish.before + at, c, piece.columns, finish.form, c);
  }
}

/// For types whose sums fit in c.
template <class T>
void piece_in_place(const Product& p, const Piece& piece, const T* a, const T* b, const Finish<Compute<T>>& finish) {
  Compute<T>* c = finish.c + p.c_offset(piece.row, piece.column);
  gemm_piece(p.sized(piece.rows, piece.columns, p.k), a + p.a_offset(piece.row), b + p.b_offset(piece.column), c,
             finish.write);
  if (finish.bias || finish.activated || finish.before) finish_values(p, piece, c, p.ldc, finish);
}

/// For types whose sums are rounded: tile by tile through scratch.
template <class T>
void piece_rounded(const Product& p, const Piece& piece, const T* a, const T* b, const Finish<T>& finish) {
  Scratch<Compute<T>> values(piece.rows * std::min(piece.columns, tile_extents.columns));
  Product part = p.sized(piece.rows, piece.columns, p.k);
  part.ldc = piece.columns;
  gemm_piece(part, a + p.a_offset(piece.row), b + p.b_offset(piece.column), values.data(), Write::overwrite);
  finish_values(p, piece, values.data(), piece.columns, finish);
}

#if DSPP_HAS_ONEDNN()
/// True if an operand is one row or one column with a distance between its elements. oneDNN 3.7's bf16 products read
/// and write such a vector as if it had none; 2.6 does not.
inline bool has_spaced_vector(const Product& p) {
  const bool a = (p.ta == Transpose::yes ? p.m : p.k) == 1 && p.lda > 1;
  const bool b = (p.tb == Transpose::yes ? p.k : p.n) == 1 && p.ldb > 1;
  return a || b || (p.n == 1 && p.ldc > 1);
}

/// For processors that multiply T (bf16) faster than f32: oneDNN adds the bias, sums and rounds.
template <class T, class R>
void piece_by_primitive(const Product& p, const Piece& piece, const T* a, const T* b, const Finish<R>& finish) {
  const Size at = p.c_offset(piece.row, piece.column);
  gemm_onednn_primitive(p.sized(piece.rows, piece.columns, p.k), a + p.a_offset(piece.row),
                        b + p.b_offset(piece.column), finish.c + at, finish.write,
                        finish.bias ? finish.bias + piece.column : nullptr);
  for (Size i = 0; i < piece.rows; ++i) {
    R* const c = finish.c + at + i * p.ldc;
    if (finish.activated) gelu_row(c, piece.columns, finish.form, finish.activated + at + i * p.ldc);
    if (finish.before) gelu_vjp_row(finish.before + at + i * p.ldc, c, piece.columns, finish.form, c);
  }
}
#endif

template <class T, class R>
void one_piece(const Product& p, const Piece& piece, const T* a, const T* b, const Finish<R>& finish) {
#if DSPP_HAS_ONEDNN()
  if constexpr (std::is_same_v<T, bf16>)
    if (p.k > 0 && onednn_prefers_bf16() && !has_spaced_vector(p.sized(piece.rows, piece.columns, p.k)))
      return piece_by_primitive(p, piece, a, b, finish);
#endif
  const Size columns = std::is_same_v<T, Compute<T>> ? piece.columns : tile_extents.columns;
  const Size end = piece.column + piece.columns;
  for (Size column = piece.column; column < end; column += columns) {
    const Piece tile{piece.row, piece.rows, column, std::min(columns, end - column)};
    if constexpr (std::is_same_v<R, Compute<T>>)
      piece_in_place(p, tile, a, b, finish);
    else
      piece_rounded(p, tile, a, b, finish);
  }
}

}  // namespace detail

template <class T, class R>
void gemm(const Product& p, const T* a, const T* b, const Finish<R>& finish) {
  static_assert(std::is_same_v<R, T> || std::is_same_v<R, Compute<T>>,
                "dspp: a product needs a result of its operands' type, or of the type they are computed in.");
  const Cut cut = detail::cut_of(p);
  parallel_for(cut.pieces(), 1, [&](Size i, Size) {
    const OneThread inside_providers;
    detail::one_piece(p, cut[i], a, b, finish);
  });
}

}  // namespace dspp::cpu

namespace dspp {

template <class T, class R>
void Kernel<kernels::Matmul<T, R>, Cpu>::run(const kernels::Product& p, const T* a, const T* b,
                                             const kernels::Finish<R>& finish) {
  cpu::gemm(p, a, b, finish);
}

template <class T>
void Kernel<kernels::BatchedMatmul<T>, Cpu>::run(Size batch, const kernels::Product& p, const T* a, const T* b, T* c) {
  cpu::parallel_for(batch, 1, [&](Size i, Size) {
    cpu::gemm(p, a + i * p.m * p.k, b + i * p.k * p.n, kernels::Finish<T>{.c = c + i * p.m * p.n});
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
