// SPDX-License-Identifier: Apache-2.0
/// The times of a rank's work on a GPU.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include <dspp/base/stream_clock.hpp>

namespace dspp {

class CudaMemory;

/// By CUDA's events, one for each moment: those of mark() are recorded on the stream to which the rank issues, others
/// on streams of transfers. While it lives, the CudaMemory has it, unless it had one, and communicators tell it of what
/// they move.
///
/// Cost     an event for each moment, which CUDA times to half a microsecond
///
/// Members are defined in kernels/cuda_clock.cuh, and in dspp::cuda.
class CudaClock final : public StreamClock {
 public:
  /// The CudaMemory outlives it.
  explicit CudaClock(CudaMemory& memory);
  ~CudaClock() override;
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;

  std::uint64_t mark() override;
  std::optional<Moment> read() noexcept override;
  std::int64_t known_until() const noexcept override;
  void wait() override;
  bool tells_transfers() const override;
  std::vector<Transfer> take_transfers() override;

  /// A transfer of that name is what is issued to the cudaStream_t until end_transfer.
  void begin_transfer(const char* name, const char* purpose, void* stream);
  void end_transfer(void* stream);

 private:
  struct Mark {
    void *event = nullptr, *stream = nullptr;  // cudaEvent_t, cudaStream_t
  };
  std::uint64_t mark_on(void* stream);
  std::int64_t time_of(void* event);

  CudaMemory& memory_;
  bool hears_transfers_;
  std::vector<void*> free_;  // events
  std::deque<Mark> marks_;   // not read
  std::uint64_t marked_ = 0;
  void* anchor_ = nullptr;  // an event from which others are counted, and its time
  std::int64_t anchor_time_ = 0, last_time_ = 0;
  std::map<void*, std::int64_t> read_until_;  // of streams
  std::vector<Transfer> transfers_;
  std::map<void*, Transfer> open_;  // by stream
};

}  // namespace dspp
