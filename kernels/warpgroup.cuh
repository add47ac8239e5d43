// SPDX-License-Identifier: Apache-2.0
/// Products of tiles by a warpgroup, four warps, on the tensor cores of GPUs of compute capability 9.0: `wgmma`, bf16
/// or f16 with sums in f32. Other GPUs do not have it, and code for them is compiled without.
///
/// The tensor cores read the right operand themselves, from shared memory, and the left one from there or from
/// registers. They work beside the threads, one group of products after another:
///
///   fence_shared(); __syncthreads();           what was written to shared memory is there for the tensor cores
///   begin_products(s);                         and what the threads wrote to their registers: sums, operands
///   multiply_rows<Sum::anew>(s, q, row, k);    s = q k^T: s and the tiles are the tensor cores' now
///   end_products();                            a group
///   wait_for_products<0>(s);                   all groups have ended but the last 0
///
/// All threads of the warpgroup call each of these. A thread holds of sums [64, N] the N / 2 of two rows, 8 apart: see
/// `row_of_sum` and `column_of_sum`; of a left operand in registers the same elements, so that sums become operands in
/// their places.
///
/// Source    PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate instructions"
#pragma once

#include <kernels/element.cuh>

#if !DSPP_HAS_NVCC()
#include <software_gpu/warpgroup.hpp>
#define DSPP_HAS_WARPGROUPS() 1
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DSPP_HAS_WARPGROUPS() 1
#else
#define DSPP_HAS_WARPGROUPS() 0
#endif

namespace dspp::gpu {

/// Whether the code that is being compiled is for a GPU that has warpgroups.
inline constexpr bool has_warpgroups = DSPP_HAS_WARPGROUPS();

inline constexpr int warps_of_group = 4, group_threads = warps_of_group * warp_size, group_rows = 64;

/// A tile [Rows, D] in shared memory at a multiple of 1024 bytes: blocks of 64 columns, where D allows it, or of 32. In
/// a block rows follow one another, and the packs of 16 bytes of a row lie in another order in each of 8 rows, so that
/// neither rows nor columns of packs meet in the same banks ("128-byte swizzle", and "64-byte").
template <class T, int D, int Rows>
struct SwizzledTile {
  static_assert(sizeof(T) == 2 && D % 32 == 0 && Rows % 8 == 0);
  static constexpr int columns = D % 64 == 0 ? 64 : 32, row_bytes = 2 * columns, block_bytes = Rows * row_bytes;
  static constexpr Size bytes = Size{Rows} * D * 2;
  T* begin;

  /// Where 8 elements lie from `column` on, a multiple of 8.
  __device__ T* pack(int row, int column) const {
    const int turn = columns == 64 ? row % 8 : row / 2 % 4, place = column % columns / 8;
    return begin + column / columns * (Rows * columns) + row * columns + (place ^ turn) * 8;
  }
  __device__ T* element(int row, int column) const { return pack(row, column) + column % 8; }
};

/// Sums [64, N] of a warpgroup.
template <int N>
struct GroupSums {
  static constexpr int count = N / 2;
  float x[count];
};
/// A left operand [64, K] in registers.
template <int K>
struct GroupOperand {
  std::uint32_t words[K / 16][4];
};

/// The row of sum i of this thread, of 64, is row_of_thread() + 8 half_of_sum(i).
__device__ inline int row_of_thread() {
  return static_cast<int>(threadIdx.x % group_threads / warp_size * 16 + threadIdx.x % warp_size / 4);
}
DSPP_HOST_DEVICE constexpr int half_of_sum(int i) {
  return i / 2 % 2;
}
/// Its column, of N.
__device__ inline int column_of_sum(int i) {
  return i / 4 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
}

/// The sums, rounded to T, as a left operand.
template <class T, int N>
__device__ inline GroupOperand<N> operand_of(const GroupSums<N>& sums) {
  GroupOperand<N> operand;
  DSPP_UNROLL
  for (int i = 0; i < GroupSums<N>::count; i += 2)
    operand.words[i / 8][i % 8 / 2] = detail::join<T>(sums.x[i], sums.x[i + 1]);
  return operand;
}

/// Whether products are added to the sums that are there.
enum class Sum { anew, on };

#if DSPP_HAS_NVCC()

namespace detail {

/// How the tensor cores find a tile, but for its address: bytes from one block of columns to the next, and from 8 rows
/// to the next.
template <class Tile>
constexpr std::uint64_t layout_of =
    std::uint64_t{Tile::columns == 64 ? 1 : 2} << 62 | std::uint64_t{8 * Tile::row_bytes / 16} << 32 |
    std::uint64_t{Tile::block_bytes / 16} << 16;
template <class Tile>
__device__ inline std::uint64_t descriptor_of(const Tile& tile, int row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(tile.begin));
  return layout_of<Tile> | (address + static_cast<std::uint32_t>(row * Tile::row_bytes)) >> 4;
}

/// What was written to these registers is there before what follows, and what follows is not read or written before.
template <int N>
__device__ inline void hold(GroupSums<N>& sums) {
  DSPP_UNROLL
  for (int i = 0; i < GroupSums<N>::count; ++i) asm volatile("" : "+f"(sums.x[i])::"memory");
}
template <int K>
__device__ inline void hold(GroupOperand<K>& operand) {
  DSPP_UNROLL
  for (int i = 0; i < K / 4; ++i) asm volatile("" : "+r"(operand.words[i / 4][i % 4])::"memory");
}

#define DSPP_8(x, i)                                                                                          \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), \
      "+f"(x[i + 7])
#define DSPP_32(x, i) DSPP_8(x, i), DSPP_8(x, i + 8), DSPP_8(x, i + 16), DSPP_8(x, i + 24)
#define DSPP_NAMES_32                                                                                          \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31"
#define DSPP_NAMES_48 DSPP_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define DSPP_NAMES_64 DSPP_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
/// `adds` is a number; the last operands: scales of 1, and which operands in shared memory are read by columns.
#define DSPP_PRODUCT(N, TYPE, SUMS, LEFT, RIGHT, ADDS, READ)                                                           \
  "{\n.reg .pred adds;\nsetp.ne.b32 adds, " ADDS ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
  " {" SUMS "}, " LEFT ", " RIGHT ", adds, 1, 1, " READ ";\n}\n"
/// Specialisations for sums of N columns, Count of a thread, whose other operands are named by the numbers after them.
#define DSPP_PRODUCTS(N, SUMS, REGISTERS, P0, P1, P2, P3, P4, P5)                                                    \
  template <class T, Sum S>                                                                                          \
  __device__ inline void product(GroupSums<N>& sums, std::uint64_t left, std::uint64_t right) {                      \
    if constexpr (std::is_same_v<T, bf16>)                                                                           \
      asm volatile(DSPP_PRODUCT(N, "bf16", SUMS, P0, P1, P2, "0, 0")                                                 \
                   : REGISTERS                                                                                       \
                   : "l"(left), "l"(right), "n"(S == Sum::on ? 1 : 0));                                              \
    else                                                                                                             \
      asm volatile(DSPP_PRODUCT(N, "f16", SUMS, P0, P1, P2, "0, 0")                                                  \
                   : REGISTERS                                                                                       \
                   : "l"(left), "l"(right), "n"(S == Sum::on ? 1 : 0));                                              \
  }                                                                                                                  \
  template <class T, Sum S>                                                                                          \
  __device__ inline void product(GroupSums<N>& sums, const std::uint32_t(&left)[4], std::uint64_t right) {           \
    if constexpr (std::is_same_v<T, bf16>)                                                                           \
      asm volatile(DSPP_PRODUCT(N, "bf16", SUMS, "{" P0 "," P1 "," P2 "," P3 "}", P4, P5, "1")                       \
                   : REGISTERS                                                                                       \
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(S == Sum::on ? 1 : 0)); \
    else                                                                                                             \
      asm volatile(DSPP_PRODUCT(N, "f16", SUMS, "{" P0 "," P1 "," P2 "," P3 "}", P4, P5, "1")                        \
                   : REGISTERS                                                                                       \
                   : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "n"(S == Sum::on ? 1 : 0)); \
  }
#define DSPP_REGISTERS_64 DSPP_32(sums.x, 0)
#define DSPP_REGISTERS_96 DSPP_32(sums.x, 0), DSPP_8(sums.x, 32), DSPP_8(sums.x, 40)
#define DSPP_REGISTERS_128 DSPP_32(sums.x, 0), DSPP_32(sums.x, 32)
DSPP_PRODUCTS(64, DSPP_NAMES_32, DSPP_REGISTERS_64, "%32", "%33", "%34", "%35", "%36", "%37")
DSPP_PRODUCTS(96, DSPP_NAMES_48, DSPP_REGISTERS_96, "%48", "%49", "%50", "%51", "%52", "%53")
DSPP_PRODUCTS(128, DSPP_NAMES_64, DSPP_REGISTERS_128, "%64", "%65", "%66", "%67", "%68", "%69")
#undef DSPP_8
#undef DSPP_32
#undef DSPP_NAMES_32
#undef DSPP_NAMES_48
#undef DSPP_NAMES_64
#undef DSPP_PRODUCT
#undef DSPP_PRODUCTS
#undef DSPP_REGISTERS_64
#undef DSPP_REGISTERS_96
#undef DSPP_REGISTERS_128

}  // namespace detail

/// What the thread wrote to shared memory, or copied there and waited for, is there for the tensor cores, after a
/// barrier.
__device__ inline void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <class... R>
__device__ inline void begin_products(R&... registers) {
  (detail::hold(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// `registers`: the sums and operands of products that have ended.
template <int Later, class... R>
__device__ inline void wait_for_products(R&... registers) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Later) : "memory");
  (detail::hold(registers), ...);
}

/// sums [64, N] = or += left[row .. row + 64) right^T, over all D columns.
template <Sum S, class T, int D, int LeftRows, int N>
__device__ inline void multiply_rows(GroupSums<N>& sums, const SwizzledTile<T, D, LeftRows>& left, int row,
                                     const SwizzledTile<T, D, N>& right) {
  using Left = SwizzledTile<T, D, LeftRows>;
  using Right = SwizzledTile<T, D, N>;
  const std::uint64_t from_left = detail::descriptor_of(left, row), from_right = detail::descriptor_of(right, 0);
  detail::product<T, S>(sums, from_left, from_right);
  DSPP_UNROLL
  for (int k = 16; k < D; k += 16) {
    const int within = k % Left::columns * 2, block = k / Left::columns;
    detail::product<T, Sum::on>(sums, from_left + static_cast<std::uint64_t>((block * Left::block_bytes + within) / 16),
                                from_right + static_cast<std::uint64_t>((block * Right::block_bytes + within) / 16));
  }
}

/// sums [64, D] = or += left [64, K] right [K, D].
template <Sum S, class T, int D, int K>
__device__ inline void multiply_operand(GroupSums<D>& sums, const GroupOperand<K>& left,
                                        const SwizzledTile<T, D, K>& right) {
  using Right = SwizzledTile<T, D, K>;
  const std::uint64_t from = detail::descriptor_of(right, 0);
  detail::product<T, S>(sums, left.words[0], from);
  DSPP_UNROLL
  for (int k = 16; k < K; k += 16)
    detail::product<T, Sum::on>(sums, left.words[k / 16], from + static_cast<std::uint64_t>(k * Right::row_bytes / 16));
}

#else

namespace detail {
template <int N>
const void* place_of(const GroupSums<N>& sums) {
  return sums.x;
}
template <int K>
const void* place_of(const GroupOperand<K>& operand) {
  return operand.words;
}
}  // namespace detail

__device__ inline void fence_shared() {
  software_gpu::fence_copies();
}
template <class... R>
__device__ inline void begin_products(R&... registers) {
  software_gpu::begin_products({detail::place_of(registers)...});
}
__device__ inline void end_products() {
  software_gpu::end_group_of_products();
}
template <int Later, class... R>
__device__ inline void wait_for_products(R&... registers) {
  software_gpu::wait_for_products(Later, {detail::place_of(registers)...});
}
template <Sum S, class T, int D, int LeftRows, int N>
__device__ inline void multiply_rows(GroupSums<N>& sums, const SwizzledTile<T, D, LeftRows>& left, int row,
                                     const SwizzledTile<T, D, N>& right) {
  software_gpu::multiply_rows(sums.x, S == Sum::on, row, D, N, left, right);
}
template <Sum S, class T, int D, int K>
__device__ inline void multiply_operand(GroupSums<D>& sums, const GroupOperand<K>& left,
                                        const SwizzledTile<T, D, K>& right) {
  software_gpu::multiply_operand<T>(sums.x, S == Sum::on, left.words, D, right);
}

#endif

}  // namespace dspp::gpu
