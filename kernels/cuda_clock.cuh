// SPDX-License-Identifier: Apache-2.0
/// The members of CudaClock.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <dspp/cuda/clock.hpp>
#include <dspp/cuda/memory.hpp>
#include <kernels/device.cuh>

namespace dspp {

DSPP_CUDA_INLINE CudaClock::CudaClock(CudaMemory& memory)
    : memory_(memory), hears_transfers_(memory.clock() == nullptr) {
  if (hears_transfers_) memory_.set_clock(this);
}

DSPP_CUDA_INLINE CudaClock::~CudaClock() {
  if (hears_transfers_) memory_.set_clock(nullptr);
  const auto destroy = [](void* event) {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  };
  for (const Mark& mark : marks_) destroy(mark.event);
  for (void* const event : free_) destroy(event);
  destroy(anchor_);
}

DSPP_CUDA_INLINE std::uint64_t CudaClock::mark() {
  return mark_on(memory_.stream());
}

/// A moment that CUDA gives no event has the time of the one before: a profile ends no training.
DSPP_CUDA_INLINE std::uint64_t CudaClock::mark_on(void* stream) {
  cudaEvent_t event = nullptr;
  if (!free_.empty())
    event = static_cast<cudaEvent_t>(free_.back()), free_.pop_back();
  else if (cudaEventCreate(&event) != cudaSuccess)
    event = nullptr, cudaGetLastError();
  marks_.push_back({event, stream});
  if (event != nullptr && cudaEventRecord(event, static_cast<cudaStream_t>(stream)) != cudaSuccess) {
    cudaGetLastError();
    free_.push_back(event);
    marks_.back().event = nullptr;
  }
  return marked_++;
}

DSPP_CUDA_INLINE std::optional<StreamClock::Moment> CudaClock::read() noexcept {
  if (marks_.empty()) return std::nullopt;
  const auto [event, stream] = marks_.front();
  if (event != nullptr && cudaEventQuery(static_cast<cudaEvent_t>(event)) == cudaErrorNotReady) {
    cudaGetLastError();  // not ready is no error of a later call
    return std::nullopt;
  }
  marks_.pop_front();
  const std::int64_t time = event != nullptr ? time_of(event) : last_time_;
  std::int64_t& until = read_until_[stream];
  until = std::max(until, time);
  last_time_ = std::max(last_time_, until);
  return Moment{marked_ - marks_.size() - 1, until};
}

/// CUDA gives milliseconds in f32: they are counted from an event of the last second. The event is then free, or the
/// next anchor.
DSPP_CUDA_INLINE std::int64_t CudaClock::time_of(void* event) {
  if (anchor_ == nullptr) {
    anchor_ = event;
    return 0;
  }
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(anchor_), static_cast<cudaEvent_t>(event)) !=
      cudaSuccess)
    milliseconds = 0, cudaGetLastError();
  const std::int64_t time = anchor_time_ + std::llround(1e6 * static_cast<double>(milliseconds));
  if (milliseconds > 1000) {
    anchor_time_ = time;
    event = std::exchange(anchor_, event);
  }
  free_.push_back(event);
  return time;
}

DSPP_CUDA_INLINE std::int64_t CudaClock::known_until() const noexcept {
  std::int64_t until = last_time_;
  for (const Mark& mark : marks_) {
    const auto read = read_until_.find(mark.stream);
    until = std::min(until, read == read_until_.end() ? 0 : read->second);
  }
  return until;
}

/// The rank's stream waits for the last moment of each other: of transfers and lanes that nobody has waited for.
DSPP_CUDA_INLINE void CudaClock::wait() {
  std::vector<void*> streams{memory_.stream()};
  for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark) {
    if (mark->event == nullptr || std::find(streams.begin(), streams.end(), mark->stream) != streams.end()) continue;
    streams.push_back(mark->stream);
    gpu::check({"time"}, cudaStreamWaitEvent(static_cast<cudaStream_t>(memory_.stream()),
                                             static_cast<cudaEvent_t>(mark->event), 0));
  }
  memory_.synchronize();
}

DSPP_CUDA_INLINE bool CudaClock::tells_transfers() const {
  return memory_.tells_transfers();
}

DSPP_CUDA_INLINE std::vector<StreamClock::Transfer> CudaClock::take_transfers() {
  return std::exchange(transfers_, {});
}

DSPP_CUDA_INLINE void CudaClock::begin_transfer(const char* name, const char* purpose, void* stream) {
  open_[stream] = {name, purpose, mark_on(stream), 0};
}

DSPP_CUDA_INLINE void CudaClock::end_transfer(void* stream) {
  const auto open = open_.find(stream);
  if (open == open_.end()) return;  // it began before the clock
  open->second.end = mark_on(stream);
  transfers_.push_back(open->second);
  open_.erase(open);
}

}  // namespace dspp
