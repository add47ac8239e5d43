// SPDX-License-Identifier: Apache-2.0
/// The members of PinnedMemory, PinnedCopies and CudaHostSource.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <dspp/cuda/host_memory.hpp>
#include <dspp/cuda/memory.hpp>
#include <kernels/device.cuh>

namespace dspp {

DSPP_CUDA_INLINE std::byte* PinnedMemory::take(Size bytes) noexcept {
  if (const auto kept = kept_.find(bytes); kept != kept_.end() && !kept->second.empty()) {
    std::byte* const data = kept->second.back();
    kept->second.pop_back();
    return data;
  }
  free_kept(most_ - bytes);
  void* memory = nullptr;
  for (const bool again : {false, true}) {
    if (cudaMallocHost(&memory, static_cast<std::size_t>(bytes)) == cudaSuccess) {
      held_ += bytes;
      return static_cast<std::byte*>(memory);
    }
    cudaGetLastError();  // else a later call would give it again
    if (!again) free_kept(0);
  }
  return nullptr;
}

DSPP_CUDA_INLINE PinnedMemory::~PinnedMemory() {
  watcher_ = nullptr;
  free_kept(0);
}

DSPP_CUDA_INLINE void PinnedMemory::give(std::byte* data, Size bytes) noexcept {
  try {
    return kept_[bytes].push_back(data);
  } catch (...) {
    if (watcher_ != nullptr) watcher_->become_idle();
  }
  cudaFreeHost(data);
  held_ -= bytes;
}

DSPP_CUDA_INLINE void PinnedMemory::free_kept(Size down_to) noexcept {
  if (held_ <= down_to || (watcher_ != nullptr && !watcher_->is_idle())) return;
  for (auto largest = kept_.rbegin(); largest != kept_.rend(); ++largest)
    for (; held_ > down_to && !largest->second.empty(); largest->second.pop_back()) {
      cudaFreeHost(largest->second.back());
      held_ -= largest->first;
    }
}

DSPP_CUDA_INLINE void PinnedMemory::fill(std::byte* data, Size bytes, unsigned char value) noexcept {
  std::memset(data, value, static_cast<std::size_t>(bytes));
}

DSPP_CUDA_INLINE PinnedCopies::~PinnedCopies() {
  all_done();
  for (void* event : events_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

DSPP_CUDA_INLINE Storage<Pool> PinnedCopies::take(Size bytes, const char* who) {
  constexpr Size least = 4096;
  const auto wanted = static_cast<std::uint64_t>(std::max(bytes, least));
  const auto whole = static_cast<Size>(std::bit_ceil(wanted));  // few sizes: what is freed serves again
  if (pool_.live() + whole > pool_.limit() / 2) take_back_done();
  if (!under_way_.empty() && pool_.live() + whole > pool_.limit()) return {};
  return {pool_, whole, Category::data, who};
}

DSPP_CUDA_INLINE void PinnedCopies::issued(void* stream, Size bytes) {
  const gpu::Work work{"copy of the host's", 1, bytes};
  if (events_.empty()) {
    cudaEvent_t event = nullptr;
    gpu::check(work, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    try {
      events_.push_back(event);
    } catch (...) {
      cudaEventDestroy(event);
      throw;
    }
  }
  gpu::check(work, cudaEventRecord(static_cast<cudaEvent_t>(events_.back()), static_cast<cudaStream_t>(stream)));
  under_way_.back().event = events_.back();
  events_.pop_back();
}

DSPP_CUDA_INLINE void PinnedCopies::take_back_done() noexcept {
  while (!under_way_.empty() && under_way_.front().event != nullptr) {
    if (cudaEventQuery(static_cast<cudaEvent_t>(under_way_.front().event)) != cudaSuccess) {
      cudaGetLastError();  // else a later call would give it again
      return;
    }
    events_.push_back(under_way_.front().event);
    under_way_.pop_front();
  }
}

DSPP_CUDA_INLINE void PinnedCopies::all_done() noexcept {
  for (const UnderWay& one : under_way_)
    if (one.event != nullptr) events_.push_back(one.event);
  under_way_.clear();
}

DSPP_CUDA_INLINE CudaHostSource::~CudaHostSource() {
  if (!later_.empty()) issuer().become_idle();
  for (std::byte* data : later_) issuer().remove_mapped(data), cudaFreeHost(data);
}

DSPP_CUDA_INLINE std::byte* CudaHostSource::take(Size bytes) noexcept {
  free_later();
  void* memory = nullptr;
  constexpr unsigned of_all_gpus = cudaHostAllocPortable | cudaHostAllocMapped;
  if (cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), of_all_gpus) != cudaSuccess) {
    cudaGetLastError();  // else a later call would give it again
    return nullptr;
  }
  try {
    issuer().add_mapped(static_cast<std::byte*>(memory), bytes);
    return static_cast<std::byte*>(memory);
  } catch (...) {
    cudaFreeHost(memory);
    return nullptr;
  }
}

DSPP_CUDA_INLINE void CudaHostSource::give(std::byte* data, Size) noexcept {
  try {
    later_.push_back(data);
  } catch (...) {  // it stays until the process ends: to free it may wait for other ranks
  }
  free_later();
}

DSPP_CUDA_INLINE void CudaHostSource::free_later() noexcept {
  if (later_.empty() || !issuer().frees_now()) return;
  issuer().become_idle();  // cudaFreeHost need not wait for what was issued before
  for (std::byte* data : later_) issuer().remove_mapped(data), cudaFreeHost(data);
  later_.clear();
}

DSPP_CUDA_INLINE void CudaHostSource::fill(std::byte* data, Size bytes, unsigned char value) noexcept {
  issuer().fill(data, bytes, value);
}

}  // namespace dspp
