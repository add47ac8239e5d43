// SPDX-License-Identifier: Apache-2.0
/// Products of tiles by a warp on tensor cores, bf16 or f16 with sums in f32: `nvcuda::wmma`, 16x16x16.
///
/// The order of a fragment's elements belongs to the GPU. Where a kernel needs the row and the column of a sum it reads
/// them (SumPlaces), and all else goes by whole fragments. Tiles lie in shared memory at multiples of 32 bytes, their
/// rows a multiple of 16 bytes apart. All 32 lanes call.
#pragma once

#include <kernels/element.cuh>

#if DSPP_HAS_NVCC()
#include <mma.h>
#else
#include <software_gpu/mma.hpp>
#endif

namespace dspp::gpu {

namespace detail {
/// The type that wmma knows a dspp element by.
#if DSPP_HAS_NVCC()
template <class T>
using MmaElement = std::conditional_t<std::is_same_v<T, bf16>, __nv_bfloat16, __half>;
#else
template <class T>
using MmaElement = T;
#endif
}  // namespace detail

/// The left operand [16, 16], in memory row after row.
template <class T>
using LeftRows =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, detail::MmaElement<T>, nvcuda::wmma::row_major>;
/// The right operand [16, 16], in memory row after row, or column after column: then a matrix product with what lies in
/// rows is one with its transpose.
template <class T>
using RightRows =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, detail::MmaElement<T>, nvcuda::wmma::row_major>;
template <class T>
using RightColumns =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, detail::MmaElement<T>, nvcuda::wmma::col_major>;
/// [16, 16] in f32: `num_elements` of a lane in x.
using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

inline constexpr int lane_sums = 8;  // of a lane
static_assert(static_cast<int>(Sums::num_elements) == lane_sums);

#if DSPP_HAS_NVCC()
namespace detail {
/// nvcc 13 does not see that what wmma loads of bf16 is in shared memory (of f16 it does), and then loads word by word.
#define DSPP_LOAD_BF16(USE, LAYOUT)                                                                          \
  asm volatile("wmma.load." USE ".sync.aligned." LAYOUT ".m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;" \
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])                              \
               : "r"(address), "r"(stride)                                                                   \
               : "memory")
template <class Use, class Layout>
__device__ inline void load_shared(nvcuda::wmma::fragment<Use, 16, 16, 16, __nv_bfloat16, Layout>& to,
                                   const __nv_bfloat16* from, int stride) {
  auto* const words = reinterpret_cast<unsigned*>(to.x);
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(from));
  if constexpr (std::is_same_v<Use, nvcuda::wmma::matrix_a>)
    DSPP_LOAD_BF16("a", "row");
  else if constexpr (std::is_same_v<Layout, nvcuda::wmma::row_major>)
    DSPP_LOAD_BF16("b", "row");
  else
    DSPP_LOAD_BF16("b", "col");
}
#undef DSPP_LOAD_BF16
}  // namespace detail
#endif

template <class Fragment, class T>
__device__ inline void load_fragment(Fragment& to, const T* from, int stride) {
  const auto* const elements = reinterpret_cast<const detail::MmaElement<T>*>(from);
#if DSPP_HAS_NVCC()
  if constexpr (std::is_same_v<T, bf16>) return detail::load_shared(to, elements, stride);
#endif
  nvcuda::wmma::load_matrix_sync(to, elements, static_cast<unsigned>(stride));
}
__device__ inline void store_sums(float* to, const Sums& from, int stride) {
  nvcuda::wmma::store_matrix_sync(to, from, static_cast<unsigned>(stride), nvcuda::wmma::mem_row_major);
}

template <int M, int N>
__device__ inline void zero_sums(Sums (&sums)[M][N]) {
  DSPP_UNROLL
  for (int m = 0; m < M; ++m) {
    DSPP_UNROLL
    for (int n = 0; n < N; ++n) nvcuda::wmma::fill_fragment(sums[m][n], 0.0f);
  }
}

/// sums [16 M, 16 N] += a b: a [16 M, K] lies in rows, b [K, 16 N] as Right<T> says.
///
/// Bytes     a once, b once, from shared memory
template <template <class> class Right, int K, int M, int N, class T>
__device__ inline void multiply_tiles(Sums (&sums)[M][N], const T* a, int a_stride, const T* b, int b_stride) {
  DSPP_UNROLL
  for (int k = 0; k < K; k += 16) {
    LeftRows<T> left[M];
    DSPP_UNROLL
    for (int m = 0; m < M; ++m) load_fragment(left[m], a + 16 * m * a_stride + k, a_stride);
    DSPP_UNROLL
    for (int n = 0; n < N; ++n) {
      Right<T> right;
      if constexpr (std::is_same_v<Right<T>, RightColumns<T>>)
        load_fragment(right, b + 16 * n * b_stride + k, b_stride);
      else
        load_fragment(right, b + k * b_stride + 16 * n, b_stride);
      DSPP_UNROLL
      for (int m = 0; m < M; ++m) nvcuda::wmma::mma_sync(sums[m][n], left[m], right, sums[m][n]);
    }
  }
}

/// Where this lane's elements of Sums lie, found by a load of numbers.
class SumPlaces {
 public:
  /// `scratch`: 256 floats of the warp, which no lane of it reads or writes meanwhile.
  __device__ explicit SumPlaces(float* scratch) {
    for (int i = static_cast<int>(threadIdx.x % warp_size); i < 256; i += warp_size) scratch[i] = static_cast<float>(i);
    __syncwarp();
    Sums numbers;
    nvcuda::wmma::load_matrix_sync(numbers, scratch, 16, nvcuda::wmma::mem_row_major);
    __syncwarp();
    words_[0] = words_[1] = 0;
    DSPP_UNROLL
    for (int i = 0; i < lane_sums; ++i) words_[i / 4] |= static_cast<unsigned>(numbers.x[i]) << (i % 4 * 8);
  }
  __device__ int row(int i) const { return static_cast<int>(words_[i / 4] >> (i % 4 * 8 + 4) & 15u); }
  __device__ int column(int i) const { return static_cast<int>(words_[i / 4] >> (i % 4 * 8) & 15u); }

 private:
  unsigned words_[2];
};

}  // namespace dspp::gpu
