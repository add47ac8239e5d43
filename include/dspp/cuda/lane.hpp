// SPDX-License-Identifier: Apache-2.0
/// A stream beside that of a rank's operations.
#pragma once

#include <functional>

#include <dspp/cuda/memory.hpp>

namespace dspp {

/// As HostLane: work is issued when it begins, to a stream that waits for what the rank's has at that point, and the
/// rank's stream waits for it in wait(); the host waits for nothing. Work uses no scratch of the CudaMemory.
///
/// Used by the rank's thread only. Members are defined in kernels/cuda_memory.cuh.
class CudaLane {
 public:
  CudaLane() = default;
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;
  ~CudaLane();

  /// Throws   what work(memory) throws
  void start(Pool& memory, std::function<void(Pool& on)> work);
  void wait();

 private:
  CudaMemory* issuer_ = nullptr;  ///< from the first work on
  void *stream_ = nullptr, *event_ = nullptr;
  bool is_under_way_ = false;
};

}  // namespace dspp
