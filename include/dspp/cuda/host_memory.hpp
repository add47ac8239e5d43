// SPDX-License-Identifier: Apache-2.0
/// Memory of the host that a GPU reads and writes: where a policy's Offload keeps what rests.
#pragma once

#include <vector>

#include <dspp/cuda/memory.hpp>
#include <dspp/tensor/pool.hpp>

namespace dspp {

/// Pinned memory that is mapped into the addresses of all GPUs. Kernels, copies and collectives take its addresses as
/// those of the GPU's memory, at the pace of the link to the host, in the order of the rank's stream: an update reads
/// and writes state where it rests, and needs no memory of the GPU.
///
/// Used by the rank's thread only. Members are defined in kernels/cuda_pinned.cuh.
class CudaHostSource : public CudaSource {
 public:
  using CudaSource::CudaSource;
  ~CudaHostSource() override;
  std::byte* take(Size bytes) noexcept override;
  void give(std::byte* data, Size bytes) noexcept override;
  void fill(std::byte* data, Size bytes, unsigned char value) noexcept override;

 private:
  void free_later() noexcept;

  std::vector<std::byte*> later_;  // given back while that could wait for other ranks
};

/// A Pool of it, beside that of the rank's GPU.
class CudaHostMemory final : private CudaHostSource, public Pool {
 public:
  /// `device`: the Pool of the rank's GPU, which outlives it.
  explicit CudaHostMemory(Pool& device)
      : CudaHostSource(static_cast<CudaSource&>(*device.source()).issuer()),
        Pool(0, static_cast<CudaHostSource*>(this)) {}
};

}  // namespace dspp
