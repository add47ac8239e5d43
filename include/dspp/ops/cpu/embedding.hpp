// SPDX-License-Identifier: Apache-2.0
/// Rows of a table by number, and the sum of gradients per row.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// y[i, :] = table[ids[i] - first_row, :], or zeros where the table has no such row. y: [count, n].
template <class T>
struct Kernel<kernels::Embedding<T>, Cpu> {
  static void run(Size count, Size rows, Size n, T* y, const T* table, const std::int32_t* ids, Size first_row);
};

/// Positions in order of their row, then sums by row; threads share the rows.
template <class T, class G>
struct Kernel<kernels::EmbeddingVjp<T, G>, Cpu> {
  static void run(Size count, Size rows, Size n, G* into, Write write, const T* dy, const std::int32_t* ids,
                  Size first_row, std::int32_t* starts, std::int32_t* order);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::cpu {

/// The positions of `ids` in order of their row, those of one row in order of position: positions of row r are
/// order[starts[r], starts[r + 1]). `starts` has rows + 1 elements, `order` count. Ids of other tables are skipped.
inline void sort_by_row(Size count, Size rows, const std::int32_t* ids, Size first_row, std::int32_t* starts,
                        std::int32_t* order) {
  std::fill_n(starts, rows + 1, 0);
  for (Size i = 0; i < count; ++i) {
    const Size row = ids[i] - first_row;
    if (row >= 0 && row < rows) ++starts[row + 1];
  }
  for (Size row = 0; row < rows; ++row) starts[row + 1] += starts[row];
  for (Size i = 0; i < count; ++i) {
    const Size row = ids[i] - first_row;
    if (row >= 0 && row < rows) order[starts[row]++] = static_cast<std::int32_t>(i);
  }
  for (Size row = rows; row > 0; --row) starts[row] = starts[row - 1];
  starts[0] = 0;
}

}  // namespace dspp::cpu

namespace dspp {

template <class T>
void Kernel<kernels::Embedding<T>, Cpu>::run(Size count, Size rows, Size n, T* y, const T* table,
                                             const std::int32_t* ids, Size first_row) {
  using namespace cpu;
  parallel_for(count, 64, [=](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const Size row = ids[i] - first_row;
      if (row >= 0 && row < rows)
        std::copy_n(table + row * n, n, y + i * n);
      else
        std::fill_n(y + i * n, n, T{});
    }
  });
}

template <class T, class G>
void Kernel<kernels::EmbeddingVjp<T, G>, Cpu>::run(Size count, Size rows, Size n, G* into, Write write, const T* dy,
                                                   const std::int32_t* ids, Size first_row, std::int32_t* starts,
                                                   std::int32_t* order) {
  using namespace cpu;
  sort_by_row(count, rows, ids, first_row, starts, order);
  using C = Compute<T>;
  parallel_for(rows, 4, [=](Size begin, Size end) {
    for (Size row = begin; row < end; ++row)
      for (Size j = 0; j < n; j += block_length) {
        Lanes<C> sum = {}, buffer;
        for (std::int32_t p = starts[row]; p < starts[row + 1]; ++p) {
          const C* a = read_block(buffer, dy + order[p] * n + j, n - j);
          for (int k = 0; k < block_length; ++k) sum[k] += a[k];
        }
        const int length = static_cast<int>(std::min<Size>(block_length, n - j));
        for (int k = 0; k < length; ++k) {
          G& target = into[row * n + j + k];
          target = static_cast<G>(write == Write::accumulate ? static_cast<C>(target) + sum[k] : sum[k]);
        }
      }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
