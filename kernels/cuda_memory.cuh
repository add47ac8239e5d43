// SPDX-License-Identifier: Apache-2.0
/// The members of CudaMemory.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <dspp/cuda/device.hpp>
#include <dspp/cuda/graphs.hpp>
#include <kernels/broadcast.cuh>
#include <kernels/cuda_clock.cuh>
#include <kernels/cuda_pinned.cuh>

namespace dspp {

namespace gpu {
inline cudaStream_t stream_of(const CudaMemory& on) {
  return static_cast<cudaStream_t>(on.stream());
}
inline cudaStream_t communication_stream_of(const CudaMemory& on) {
  return static_cast<cudaStream_t>(on.communication_stream());
}
/// "13.0"
inline std::string cuda_version_name(int code) {
  return std::to_string(code / 1000) + "." + std::to_string(code % 1000 / 10);
}

/// Throws   Error(usage) if CUDA opens no GPU, with what is to be done about it
inline void require_gpu(cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else a later call would give it again
  const int rank = rank_of_thread();
  int driver = 0, runtime = 0;
  const bool is_old = status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
                      cudaRuntimeGetVersion(&runtime) == cudaSuccess && driver > 0;  // 0: there is none
  if (is_old)
    fail(ErrorCode::usage, "dspp: Cuda needs a driver for CUDA " + cuda_version_name(runtime) +
                               ", with which this program was made, but that of " +
                               (rank < 0 ? "this machine" : "rank " + std::to_string(rank)) + " is for CUDA " +
                               cuda_version_name(driver) +
                               ". Update the driver, or compile with a toolkit that is not newer than it.");
  fail(ErrorCode::usage, std::string("dspp: Cuda needs an NVIDIA GPU and its driver, but CUDA gives '") +
                             cudaGetErrorString(status) + "'" + (rank < 0 ? "" : " to rank " + std::to_string(rank)) +
                             ". See what nvidia-smi lists, or take Cpu.");
}

/// Does nothing. Whether CUDA can load it says whether the program has kernels for the GPU.
struct Nothing {
  __device__ void operator()() const {}
};

/// Throws   Error(usage) if the program has no kernels that the GPU and its driver take
inline void require_kernels(int gpu) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(once_kernel<Nothing>));
  const bool is_driver = status == cudaErrorUnsupportedPtxVersion;
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction && !is_driver)
    return check({"open"}, status);
  cudaGetLastError();  // else a later call would give it again
  cudaDeviceProp of{};
  check({"open"}, cudaGetDeviceProperties(&of, gpu));
  const std::string architecture = std::to_string(of.major * 10 + of.minor);
  const std::string to_do = of.major < 8 ? "Take a GPU of compute capability 8.0 or later, or Cpu."
                                         : (is_driver ? "Update the driver, or compile" : "Compile") +
                                               std::string(" with ") + "CMAKE_CUDA_ARCHITECTURES=" + architecture +
                                               ", or nvcc -arch=sm_" + architecture + ".";
  fail(ErrorCode::usage, std::string("dspp: Cuda needs kernels for ") + of.name + " of compute capability " +
                             std::to_string(of.major) + "." + std::to_string(of.minor) + " (" + place_of_thread() +
                             "), but this program has none that it takes: CUDA gives '" + cudaGetErrorString(status) +
                             "'. " + to_do);
}
}  // namespace gpu

DSPP_CUDA_INLINE CudaMemory::CudaMemory() : CudaSource(*this) {
  const gpu::Work work{"open"};
  cudaStream_t stream = nullptr, beside = nullptr;
  gpu::require_gpu(cudaStreamCreate(&stream));
  stream_ = stream;
  try {
    gpu::check(work, cudaStreamCreate(&beside));
    communication_stream_ = beside;
    void* memory = nullptr;
    gpu::check(work, cudaMalloc(&memory, static_cast<std::size_t>(scratch_bytes)));
    fault_ = static_cast<CudaFault*>(memory);
    scratch_ = static_cast<double*>(memory) + 16;
    int device = 0;
    gpu::check(work, cudaGetDevice(&device));
    gpu::require_kernels(device);
    gpu::check_issued(work, stream, cudaMemsetAsync(memory, 0, static_cast<std::size_t>(scratch_bytes), stream));
  } catch (...) {
    close();
    throw;
  }
}

DSPP_CUDA_INLINE CudaMemory::~CudaMemory() {
  close();
}

DSPP_CUDA_INLINE void CudaMemory::close() noexcept {
  if (communication_stream_ != nullptr) {
    cudaStreamSynchronize(gpu::communication_stream_of(*this));
    cudaStreamDestroy(gpu::communication_stream_of(*this));
  }
  cudaStreamSynchronize(gpu::stream_of(*this));
  library_.reset();
  cudaFree(fault_);
  cudaStreamDestroy(gpu::stream_of(*this));
}

namespace gpu {
/// While it lives, the thread may allocate though it captures a stream: what is allocated is no part of the graph.
class AllocatesInCapture {
 public:
  AllocatesInCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AllocatesInCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllocatesInCapture(const AllocatesInCapture&) = delete;
  AllocatesInCapture& operator=(const AllocatesInCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};
}  // namespace gpu

DSPP_CUDA_INLINE std::byte* CudaMemory::take(Size bytes) noexcept {
  std::optional<gpu::AllocatesInCapture> allocates;
  if (graphs_ && graphs_->is_capturing()) allocates.emplace();
  free_later();
  for (const bool again : {!later_.empty() && watcher_ != nullptr, false}) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<std::size_t>(bytes)) == cudaSuccess) {
      auto* const data = static_cast<std::byte*>(memory);
      try {
        blocks_[data] = bytes;
      } catch (...) {
        cudaFree(memory);
        return nullptr;
      }
      if (watcher_) watcher_->taken(data, bytes);
      return data;
    }
    cudaGetLastError();  // else a later call would give it again
    if (!again) break;
    watcher_->become_idle();
    free_later();
  }
  return nullptr;
}

DSPP_CUDA_INLINE bool CudaMemory::frees_now() const noexcept {
  return (watcher_ == nullptr || watcher_->is_idle()) && (graphs_ == nullptr || !graphs_->keeps_memory());
}

DSPP_CUDA_INLINE void CudaMemory::give(std::byte* data, Size) noexcept {
  if (!frees_now()) {
    try {
      return later_.push_back(data);
    } catch (...) {
      if (watcher_) watcher_->become_idle();
    }
  }
  if (watcher_) watcher_->giving(data);
  blocks_.erase(data);
  cudaFree(data);  // waits for what was issued before
}

DSPP_CUDA_INLINE void CudaMemory::become_idle() noexcept {
  if (watcher_ != nullptr) watcher_->become_idle();
  cudaStreamSynchronize(gpu::communication_stream_of(*this));
  cudaStreamSynchronize(gpu::stream_of(*this));
}

DSPP_CUDA_INLINE const std::byte* CudaMemory::block_of(std::uintptr_t address) const {
  const auto after = blocks_.upper_bound(reinterpret_cast<const std::byte*>(address));
  if (after == blocks_.begin()) return nullptr;
  const auto& [data, bytes] = *std::prev(after);
  return address - reinterpret_cast<std::uintptr_t>(data) < static_cast<std::uintptr_t>(bytes) ? data : nullptr;
}

DSPP_CUDA_INLINE bool CudaMemory::is_mapped(const std::byte* data) const {
  const auto after = mapped_.upper_bound(data);
  return after != mapped_.begin() && data < std::prev(after)->first + std::prev(after)->second;
}

DSPP_CUDA_INLINE bool CudaMemory::is_scratch(std::uintptr_t address) const {
  return address - reinterpret_cast<std::uintptr_t>(fault_) < static_cast<std::uintptr_t>(scratch_bytes);
}

DSPP_CUDA_INLINE void CudaMemory::require_not_captured(const char* who) const {
  if (graphs_ == nullptr || !graphs_->is_capturing()) return;
  const std::string last = graphs_->last_operation();
  fail(ErrorCode::usage, "dspp: " + std::string(who) + (last.empty() ? "" : " after '" + last + "'") +
                             " needs the host in every step, but this step is captured into a graph, which runs "
                             "without it. Compute it on the device, or set EngineConfig::graphs = false.");
}

DSPP_CUDA_INLINE void CudaMemory::fill(std::byte* data, Size bytes, unsigned char value) noexcept {
  cudaMemsetAsync(data, value, static_cast<std::size_t>(bytes), gpu::stream_of(*this));
}

DSPP_CUDA_INLINE void CudaMemory::zero(std::byte* to, Size bytes) {
  if (bytes == 0) return;
  const cudaStream_t stream = gpu::stream_of(*this);
  gpu::note_launch("zero", to, bytes);
  gpu::check_issued({"zero", 1, bytes}, stream, cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), stream));
}

DSPP_CUDA_INLINE void CudaMemory::copy(std::byte* to, const std::byte* from, Size bytes) {
  if (bytes == 0) return;
  const cudaStream_t stream = gpu::stream_of(*this);
  if (is_mapped(to) && is_mapped(from)) {
    synchronize();
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  gpu::note_launch("copy", to, from, bytes);
  gpu::check_issued({"copy", 1, bytes}, stream,
                    cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream));
}

DSPP_CUDA_INLINE void CudaMemory::from_host(std::byte* to, const void* host, Size bytes) {
  require_not_captured("from_host");
  const auto* const from = static_cast<const std::byte*>(host);
  for (Size at = 0; at < bytes; at += PinnedCopies::piece_bytes) {
    const Size piece = std::min(bytes - at, PinnedCopies::piece_bytes);
    Storage<Pool> pinned = new_pinned(piece);
    std::memcpy(pinned.data(), from + at, static_cast<std::size_t>(piece));
    from_pinned(to + at, std::move(pinned), piece);
  }
}

DSPP_CUDA_INLINE Storage<Pool> CudaMemory::new_pinned(Size bytes) {
  require_not_captured("from_host");
  return pinned_buffer(bytes, "from_host");
}

DSPP_CUDA_INLINE Storage<Pool> CudaMemory::pinned_buffer(Size bytes, const char* who) {
  try {
    if (Storage<Pool> buffer = pinned_.take(bytes, who)) return buffer;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  }
  synchronize();  // after it the buffers of copies are free; and if an earlier call failed, it says so
  return pinned_.take(bytes, who);
}

DSPP_CUDA_INLINE void CudaMemory::from_pinned(std::byte* to, Storage<Pool> from, Size bytes) {
  if (bytes == 0) return;
  const gpu::Work work{"from_host", 1, bytes};
  const cudaStream_t stream = gpu::stream_of(*this);
  const std::byte* const data = from.data();
  if (is_mapped(to)) {
    synchronize();
    std::memcpy(to, data, static_cast<std::size_t>(bytes));
    return;
  }
  pinned_.keep(std::move(from));
  gpu::check_issued(work, stream,
                    cudaMemcpyAsync(to, data, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream));
  pinned_.issued(stream, bytes);
}

DSPP_CUDA_INLINE Storage<Pool> CudaMemory::to_pinned(const std::byte* from, Size bytes) {
  require_not_captured("to_host");
  const gpu::Work work{"to_host", 1, bytes};
  const cudaStream_t stream = gpu::stream_of(*this);
  const Size fault_at = round_up(bytes, block_alignment);
  Storage<Pool> buffer = pinned_buffer(fault_at + Size{sizeof(CudaFault)}, "to_host");
  try {
    if (bytes > 0 && !is_mapped(from))
      gpu::check_issued(
          work, stream,
          cudaMemcpyAsync(buffer.data(), from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream));
    gpu::check_issued(
        work, stream,
        cudaMemcpyAsync(buffer.data() + fault_at, fault_, sizeof(CudaFault), cudaMemcpyDeviceToHost, stream));
    synchronize();
    if (is_mapped(from)) std::memcpy(buffer.data(), from, static_cast<std::size_t>(bytes));
  } catch (...) {
    if (watcher_) watcher_->become_idle();  // else the next may wait for other ranks
    cudaStreamSynchronize(stream);          // a copy under way writes into the buffer
    throw;
  }
  CudaFault found;
  std::memcpy(&found, buffer.data() + fault_at, sizeof found);
  throw_found(found);
  return buffer;
}

DSPP_CUDA_INLINE void CudaMemory::to_host(void* host, const std::byte* from, Size bytes) {
  require_not_captured("to_host");
  if (bytes <= PinnedCopies::piece_bytes) {
    const Storage<Pool> pinned = to_pinned(from, bytes);
    if (bytes > 0) std::memcpy(host, pinned.data(), static_cast<std::size_t>(bytes));
    return;
  }
  const gpu::Work work{"to_host", 1, bytes};
  const cudaStream_t stream = gpu::stream_of(*this);
  CudaFault found;
  try {
    if (watcher_) watcher_->wait();  // a copy to pageable memory may wait for the stream, and so for other ranks
    if (!is_mapped(from))
      gpu::check_issued(work, stream,
                        cudaMemcpyAsync(host, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream));
    gpu::check_issued(work, stream, cudaMemcpyAsync(&found, fault_, sizeof found, cudaMemcpyDeviceToHost, stream));
    synchronize();
    if (is_mapped(from)) std::memcpy(host, from, static_cast<std::size_t>(bytes));
  } catch (...) {
    if (watcher_) watcher_->become_idle();  // else the next may wait for other ranks
    cudaStreamSynchronize(stream);          // a copy under way writes into the caller's memory
    throw;
  }
  throw_found(found);
}

DSPP_CUDA_INLINE void CudaMemory::throw_found(const CudaFault& found) {
  const auto checks = std::move(checks_);
  checks_.clear();
  if (found.check == 0) return;
  const cudaStream_t stream = gpu::stream_of(*this);
  gpu::check_issued({"to_host"}, stream, cudaMemsetAsync(fault_, 0, sizeof found, stream));
  if (found.check > first_check_of_step) {
    const auto of_step = static_cast<std::size_t>(found.check - first_check_of_step - 1);
    if (checks_of_step_ && of_step < checks_of_step_->size()) return (*checks_of_step_)[of_step](found);
    fail(ErrorCode::state,
         "dspp: a repeated step needs indexes and counts in their ranges, but a check on the GPU found another, of an "
         "engine whose report was read after another engine's step. Read each report before the next step.");
  }
  checks[static_cast<std::size_t>(found.check - 1)](found);
}

DSPP_CUDA_INLINE void CudaMemory::synchronize() {
  require_not_captured("wait");
  if (!watcher_) {
    gpu::check({"wait"}, cudaStreamSynchronize(gpu::stream_of(*this)));
    return pinned_.all_done();
  }
  watcher_->wait();
  pinned_.all_done();
  pinned_.source().trim();
  free_later();
}

DSPP_CUDA_INLINE void CudaMemory::watch(CudaWatcher* watcher) {
  if (watcher_ && !watcher) watcher_->become_idle();
  free_later();
  pinned_.source().trim();
  watcher_ = watcher;
  pinned_.source().watch(watcher);
}

DSPP_CUDA_INLINE void CudaMemory::free_later() noexcept {
  if (later_.empty() || !frees_now()) return;
  for (std::byte* data : later_) {
    if (watcher_) watcher_->giving(data);
    blocks_.erase(data);
    cudaFree(data);
  }
  later_.clear();
}

DSPP_CUDA_INLINE std::uint64_t CudaMemory::begin_range(std::string_view what, std::string_view name,
                                                       Profiler* profiler) {
  std::string text(what);
  if (!name.empty()) text.append(" ").append(name);
  ranges_.push_back({++last_range_, profiler ? profiler->begin_range(what, name) : 0, profiler});
  gpu::push_range(text.c_str());
  return last_range_;
}

DSPP_CUDA_INLINE void CudaMemory::end_range(std::uint64_t range, Profiler* profiler) noexcept {
  const auto is_before = [](const Range& one, std::uint64_t number) { return one.number < number; };
  const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), range, is_before);
  if (at == ranges_.end() || at->number != range) return;
  const auto has_it = [&](const Range& one) { return one.by == profiler; };
  if (const auto own = std::find_if(at, ranges_.end(), has_it); profiler && own != ranges_.end())
    profiler->end_range(own->profiled);
  for (auto ending = ranges_.end(); ending != at; --ending) gpu::pop_range();
  ranges_.erase(at, ranges_.end());
}

DSPP_CUDA_INLINE int CudaMemory::gpus() {
  int count = 0;
  gpu::require_gpu(cudaGetDeviceCount(&count));
  return count;
}

DSPP_CUDA_INLINE std::string CudaMemory::kind_of(int gpu) {
  cudaDeviceProp of{};
  gpu::check({"open"}, cudaGetDeviceProperties(&of, gpu));
  return std::string(of.name) + " of compute capability " + std::to_string(of.major) + "." + std::to_string(of.minor) +
         " with " + std::to_string(of.multiProcessorCount) + " multiprocessors";
}

DSPP_CUDA_INLINE CudaThread::CudaThread(int rank, int local_rank) {
  gpu::rank_of_thread() = rank;
  try {
    gpu_ = local_rank % CudaMemory::gpus();
    gpu::check({"choose a GPU"}, cudaSetDevice(gpu_));
  } catch (...) {
    gpu::rank_of_thread() = -1;
    throw;
  }
}

DSPP_CUDA_INLINE CudaThread::~CudaThread() {
  gpu::rank_of_thread() = -1;
}

DSPP_CUDA_INLINE Size CudaMemory::free_bytes(int gpu) {
  cudaError_t status = cudaSuccess;
  std::size_t free = 0, total = 0;
  const auto ask = [&] {
    status = cudaSetDevice(gpu);
    if (status == cudaSuccess) status = cudaMemGetInfo(&free, &total);
    cudaGetLastError();  // else a later call would give it again
  };
  std::thread(ask).join();  // a thread has a GPU of its own
  gpu::require_gpu(status);
  return static_cast<Size>(free);
}

DSPP_CUDA_INLINE std::int32_t CudaMemory::add_check(std::function<void(const CudaFault&)> sentence) {
  if (graphs_ != nullptr) return first_check_of_step + graphs_->add_check(std::move(sentence));
  checks_.push_back(std::move(sentence));
  return static_cast<std::int32_t>(checks_.size());
}

DSPP_CUDA_INLINE CudaLane::~CudaLane() {
  if (is_under_way_) cudaStreamWaitEvent(gpu::stream_of(*issuer_), static_cast<cudaEvent_t>(event_));
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
  if (stream_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
}

DSPP_CUDA_INLINE void CudaLane::start(Pool& memory, std::function<void(Pool&)> work) {
  const gpu::Work what{"work beside"};
  issuer_ = &static_cast<CudaSource&>(*memory.source()).issuer();
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  if (stream_ == nullptr) gpu::check(what, cudaStreamCreate(&stream)), stream_ = stream;
  if (event_ == nullptr) gpu::check(what, cudaEventCreateWithFlags(&event, cudaEventDisableTiming)), event_ = event;
  stream = static_cast<cudaStream_t>(stream_), event = static_cast<cudaEvent_t>(event_);
  gpu::check(what, cudaEventRecord(event, gpu::stream_of(*issuer_)));
  gpu::check(what, cudaStreamWaitEvent(stream, event));
  is_under_way_ = true;
  const struct Back {
    CudaMemory& issuer;
    void* stream;
    cudaEvent_t event;
    ~Back() {
      cudaEventRecord(event, gpu::stream_of(issuer));
      issuer.exchange_stream(stream);
    }
  } back{*issuer_, issuer_->exchange_stream(stream_), event};
  work(memory);
}

DSPP_CUDA_INLINE void CudaLane::wait() {
  if (!std::exchange(is_under_way_, false)) return;
  gpu::check({"work beside"}, cudaStreamWaitEvent(gpu::stream_of(*issuer_), static_cast<cudaEvent_t>(event_)));
}

template <class T>
void Cuda::fill(Pool& pool, T* y, Size count, T value) {
  const ProfiledKernel profiled(pool.profiler(), "fill", count * Size{sizeof(T)});
  gpu::fill(gpu::stream_of(memory_of(pool)), count, y, value);
}

}  // namespace dspp
