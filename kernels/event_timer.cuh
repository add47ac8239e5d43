// SPDX-License-Identifier: Apache-2.0
/// The time of work on a stream, by CUDA's events, which are as fine as 0.5 us.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>

#include <kernels/device.cuh>

namespace dspp::gpu {

/// Throws   Error(state) if CUDA fails
class EventTimer {
 public:
  explicit EventTimer(const Work& work) : work_(work), begin_(make()), end_(make()) {}

  /// Microseconds of run(), or nothing if it is false. It is called twice: while the first is under way, the host
  /// issues the second, which is timed.
  template <class Run>
  std::optional<double> time_of(cudaStream_t stream, Run run) {
    if (!run()) return std::nullopt;
    check(work_, cudaEventRecord(begin_.get(), stream));
    if (!run()) return std::nullopt;
    check(work_, cudaEventRecord(end_.get(), stream));
    check(work_, cudaEventSynchronize(end_.get()));
    float milliseconds = 0;
    check(work_, cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;

  Event make() const {
    cudaEvent_t event = nullptr;
    check(work_, cudaEventCreate(&event));
    return Event(event);
  }

  Work work_;
  Event begin_, end_;
};

}  // namespace dspp::gpu
