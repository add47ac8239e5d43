// SPDX-License-Identifier: Apache-2.0
/// What the flash-attention kernels share: their tiles in shared memory, and which operands they take.
#pragma once

#include <kernels/attention.cuh>
#include <kernels/mma.cuh>

namespace dspp::gpu {

// ---- tiles in shared memory -----------------------------------------------------------------------------------------

/// Elements from one row of a tile of `columns` to the next: 16 bytes more, so that the rows that a fragment reads lie
/// in different banks.
DSPP_HOST_DEVICE constexpr int tile_stride(int columns) {
  return columns + 8;
}
template <class T>
constexpr Size tile_bytes(int rows, int columns) {
  return static_cast<Size>(rows) * tile_stride(columns) * Size{sizeof(T)};
}

/// The part of the shared memory that begins at `bytes`, a multiple of 32.
template <class T>
__device__ inline T* shared_part(Size bytes) {
  return reinterpret_cast<T*>(static_cast<char*>(shared_memory()) + bytes);
}

/// Rows [first, first + Rows) of a head into a tile of D columns, by all threads of a block, asynchronously. Rows that
/// the sample does not have, and columns beyond head_dim, are 0.
template <int D, int Rows, int Threads, class T>
__device__ inline void copy_rows(T* to, const HeadsOf<const T>& from, const kernels::AttentionExtents& at, Size sample,
                                 Size head, Size first) {
  constexpr int packs = D / 8;
  const T* const begin = from.row(sample, at.sequence, first, head, at.head_dim);
  const Size rows = at.sequence - first;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * packs; i += Threads) {
    const int row = i / packs, column = i % packs * 8;
    auto* const place = reinterpret_cast<Pack<T, 8>*>(to + row * tile_stride(D) + column);
    if (row < rows && column < at.head_dim)
      copy_pack_async(place, begin + row * from.stride + column);
    else
      *place = Pack<T, 8>{};
  }
}

/// Rows of a warp's sums, times factor(row), into `count` rows of a head from row `first` on, by way of the warp's rows
/// of a tile.
template <int D, int M, class T, class F>
__device__ inline void store_rows(const HeadsOf<T>& to, const kernels::AttentionExtents& at, Size sample, Size head,
                                  Size first, T* tile, const Sums (&sums)[M][D / 16], const SumPlaces& places,
                                  F factor) {
  DSPP_UNROLL
  for (int m = 0; m < M; ++m) {
    DSPP_UNROLL
    for (int i = 0; i < lane_sums; ++i) {
      const int row = 16 * m + places.row(i);
      const float by = factor(row);
      DSPP_UNROLL
      for (int n = 0; n < D / 16; ++n)
        tile[row * tile_stride(D) + 16 * n + places.column(i)] = from_float<T>(sums[m][n].x[i] * by);
    }
  }
  __syncwarp();
  const Size rows = at.sequence - first;
  const int packs = static_cast<int>(at.head_dim) / 8;
  if (rows <= 0) return;
  T* const begin = to.row(sample, at.sequence, first, head, at.head_dim);
  for (int i = static_cast<int>(threadIdx.x % warp_size); i < 16 * M * packs; i += warp_size) {
    const int row = i / packs, column = i % packs * 8;
    if (row < rows) store_pack(begin + row * to.stride + column, load_pack<8>(tile + row * tile_stride(D) + column));
  }
}

// ---- which queries see which keys -----------------------------------------------------------------------------------

/// Keys [from, by): of some queries those that one of them may see.
struct FlashSpan {
  int from = 0, by = 0;
  __device__ bool meets(int key, int keys) const { return by > key && from < key + keys; }
};

/// Of the queries [query, query + count), as far as there are such.
__device__ inline FlashSpan span_of(const SeenKeys& seen, Size query, Size count) {
  if (query >= seen.queries) return {};
  const Size last = query + count < seen.queries ? query + count - 1 : seen.queries - 1;
  return {static_cast<int>(seen.from(query)), static_cast<int>(seen.by(last))};
}

// ---- what a block does ----------------------------------------------------------------------------------------------

/// Block b of blocks over (sample, head, tile).
struct FlashBlock {
  Size sample, head, tile;
  __device__ FlashBlock(Size tiles, Size heads) {
    const Size block = static_cast<Size>(blockIdx.x);
    tile = block % tiles, head = block / tiles % heads, sample = block / tiles / heads;
  }
};

inline constexpr float log2_e = 1.44269504f;

/// A score after the cap, if there is one, and the derivative of the cap.
struct Cap {
  float scale, cap;  // cap 0: none
  template <class T>
  __device__ explicit Cap(const AttentionOperands<T>& of)
      : scale(of.scale), cap(static_cast<float>(of.at.rule.softcap)) {}
  __device__ float operator()(float product, float& slope) const {
    float s = product * scale;
    slope = 1;
    if (cap > 0) {
      const float t = 1 - 2 / (exp2_approximate(s / cap * (2 * log2_e)) + 1);  // tanh, to 2^-23
      s = cap * t;
      slope = 1 - t * t;
    }
    return s;
  }
};

// ---- launches -------------------------------------------------------------------------------------------------------

/// What the backward pass takes of shared memory, in its tiles of 64, 96 or 128 columns, at most.
constexpr Size flash_shared(Size head_dim) {
  return (head_dim <= 64 ? 112 : head_dim <= 96 ? 144 : 176) * Size{1024};
}
inline constexpr Size most_flash_columns = 128, most_flash_sequence = Size{1} << 30;  // keys are counted in 32 bits

/// Whether the flash kernels take these operands: elements of 16 bits, heads of a multiple of 8 columns, at most 128,
/// whose rows are at multiples of 16 bytes, and no bias of the scores, on a GPU with the shared memory that their
/// backward pass needs: 9.0 and 10.0 have it, 8.0 up to 96 columns, 8.6, 8.9 and 12.0 have not. `others` are further
/// rows of heads.
template <class T, class... H>
bool flash_takes(const AttentionOperands<T>& of, const H&... others) {
  const Size n = of.at.head_dim;
  const auto lies = [](const auto& heads) { return heads.stride % 8 == 0 && is_aligned(heads.base); };
  return sizeof(T) == 2 && n > 0 && n % 8 == 0 && n <= most_flash_columns && of.at.sequence <= most_flash_sequence &&
         of.at.keys() == of.at.sequence && of.extras.bias == nullptr && lies(of.q) && lies(of.k) && lies(of.v) &&
         (lies(others) && ...) && shared_bytes(Work{"attention"}, flash_shared(n)) == flash_shared(n);
}

/// f(std::integral_constant<int, D>) of the columns that a tile has for a head: 64, 96 or 128.
template <class F>
void with_tile_columns(Size head_dim, F f) {
  if (head_dim <= 64)
    f(std::integral_constant<int, 64>{});
  else if (head_dim <= 96)
    f(std::integral_constant<int, 96>{});
  else
    f(std::integral_constant<int, 128>{});
}

}  // namespace dspp::gpu
