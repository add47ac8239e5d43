// SPDX-License-Identifier: Apache-2.0
/// Ranks need GPUs of one kind: others have other algorithms of products, hence other bits and other workspaces.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/communicator.hpp>
#include <dspp/cuda/memory.hpp>

namespace dspp::detail {

/// What CudaMemory::kind_of says, as ranks send it.
using GpuKind = std::array<char, 128>;

inline GpuKind kind_of_gpu(int gpu) {
  GpuKind kind{};
  CudaMemory::kind_of(gpu).copy(kind.data(), kind.size() - 1);
  return kind;
}

/// Throws   Error(placement), on every rank alike, if the GPU of one is of another kind than rank 0's
inline void require_like_gpus(const std::vector<GpuKind>& of_ranks) {
  const auto odd = std::find_if(of_ranks.begin(), of_ranks.end(), [&](const GpuKind& k) { return k != of_ranks[0]; });
  if (odd == of_ranks.end()) return;
  fail(ErrorCode::placement, std::string("dspp: Cuda needs GPUs of one kind on all ranks, but rank 0 has ") +
                                 of_ranks[0].data() + " and rank " + std::to_string(odd - of_ranks.begin()) + " " +
                                 odd->data() +
                                 ". Choose them by CUDA_VISIBLE_DEVICES, or start the ranks on machines alike.");
}

/// The same, of the ranks of a communicator of host memory. Collective.
inline void require_like_gpus(AnyCommunicator world, int gpu) {
  const GpuKind own = kind_of_gpu(gpu);
  std::vector<GpuKind> all(static_cast<std::size_t>(world.size()));
  constexpr Size bytes = sizeof(GpuKind);
  all_gather(world, ConstBuffer(own.data(), bytes, ElementType::u8),
             Buffer{all.data(), bytes * world.size(), ElementType::u8}, Purpose::check);
  require_like_gpus(all);
}

}  // namespace dspp::detail
