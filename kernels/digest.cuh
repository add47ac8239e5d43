// SPDX-License-Identifier: Apache-2.0
/// Digests of bytes. The sum over words of 8 bytes of a bijection of the word and its place is a PlacedDigest, the
/// Cpu's bits; integers are added in any order.
///
/// Bytes     one a byte
#pragma once

#include <dspp/base/digest.hpp>
#include <kernels/each.cuh>
#include <kernels/reduce.cuh>

namespace dspp::gpu {

inline constexpr int digest_threads = 256;
inline constexpr Size most_digest_pieces = 1024;

constexpr Size digest_pieces(Size bytes) {
  const Size needed = blocks_for(bytes, 8 * digest_threads * 8);
  return needed < 1 ? 1 : needed < most_digest_pieces ? needed : most_digest_pieces;
}

template <int Threads>
__global__ void __launch_bounds__(Threads) digest_kernel(Size bytes, const std::uint8_t* x, std::uint64_t* pieces) {
  const Size words = (bytes + 7) / 8, step = static_cast<Size>(gridDim.x) * Threads;
  std::uint64_t sum = 0;
  for (Size w = static_cast<Size>(blockIdx.x) * Threads + threadIdx.x; w < words; w += step) {
    std::uint64_t word = 0;
    const Size left = bytes - 8 * w;
    for (int b = 0; b < 8; ++b)
      if (b < left) word |= static_cast<std::uint64_t>(x[8 * w + b]) << (8 * b);
    sum += PlacedDigest::term(word, static_cast<std::uint64_t>(w));
  }
  sum = reduce_block(sum, Plus{}, std::uint64_t{0});
  if (threadIdx.x == 0) pieces[blockIdx.x] = sum;
}

struct SumDigest {
  Size count;
  const std::uint64_t* pieces;
  __device__ std::uint64_t operator()() const {
    std::uint64_t sum = 0;
    for (Size i = 0; i < count; ++i) sum += pieces[i];
    return sum;
  }
};

struct StoreDigest {
  SumDigest sum;
  std::uint64_t* digest;
  __device__ void operator()() const { *digest = sum(); }
};
struct ContinueDigest {
  SumDigest sum;
  std::uint64_t* digest;
  __device__ void operator()() const { *digest = PlacedDigest::term(sum(), *digest); }
};
struct CompareDigest {
  SumDigest sum;
  const std::uint64_t* digest;
  std::uint64_t* changed;
  __device__ void operator()() const {
    if (sum() != *digest) *changed = 1;
  }
};

/// pieces: [digest_pieces(bytes)].
inline SumDigest digest_pieces_of(cudaStream_t stream, Size bytes, const std::uint8_t* x, std::uint64_t* pieces) {
  const Size count = digest_pieces(bytes);
  launch(Work{"digest", 1, bytes}, digest_kernel<digest_threads>, count, {digest_threads}, stream, bytes, x, pieces);
  return {count, pieces};
}

}  // namespace dspp::gpu
