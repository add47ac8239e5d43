// SPDX-License-Identifier: Apache-2.0
/// The memory of a rank on a GPU: where a Pool takes its blocks, the stream of its operations, and the errors that
/// kernels find.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/cuda/pinned.hpp>
#include <dspp/tensor/pool.hpp>

namespace dspp {

/// What a kernel found wrong, in the device's memory: the first one since the host last synchronised, also of work
/// whose results were discarded since.
struct CudaFault {
  std::int32_t check = 0;     ///< the number of its check, counted from 1; 0: none
  std::int64_t position = 0;  ///< where
  double a = 0, b = 0;        ///< values
};

class CudaClock;
class CudaGraphs;

/// Takes part in the waits of a CudaMemory: a transport that must be polled while the host waits, since its operations
/// end only if other ranks come.
class CudaWatcher {
 public:
  virtual ~CudaWatcher() = default;
  /// Waits for all operations of the stream. Throws what failed.
  virtual void wait() = 0;
  /// True if no operation is under way. cudaFree waits for the whole GPU: it would wait for other ranks.
  virtual bool is_idle() noexcept = 0;
  /// Returns when none is, or when what failed was stopped.
  virtual void become_idle() noexcept = 0;
  /// A block was taken from CUDA, or is about to be given back.
  virtual void taken(std::byte* data, Size bytes) noexcept = 0;
  virtual void giving(std::byte* data) noexcept = 0;
};

class CudaMemory;

/// The source of a Pool of a rank on a GPU: of the GPU's memory, or of the host's that it reads and writes.
class CudaSource : public MemorySource {
 public:
  /// `issuer`: to whose stream operations on the Pool's blocks are issued.
  explicit CudaSource(CudaMemory& issuer) : issuer_(issuer) {}
  CudaMemory& issuer() const { return issuer_; }

 private:
  CudaMemory& issuer_;
};

/// Two streams of a GPU: that of a rank's operations, which run in the order of issue, and one for the collectives of
/// ranks that share it.
///
/// Beside what the Pool takes, it holds scratch_bytes of the device: a CudaFault, and sums of blocks. What cuBLASLt
/// (kernels/blas.cuh) and CUDA's context take, and what measures a product for a moment, is not counted. Copies from
/// the host go through pinned memory (pinned.hpp), and so do those to it of at most PinnedCopies::piece_bytes: the host
/// waits for what it reads, and for nothing that it writes, unless 32 MiB of copies are under way, or those before had
/// other sizes and no room is left for this one, or CUDA pins no more memory.
///
/// Throws   Error(usage) where CUDA opens no GPU, or one for which the program has no kernels; Error(state) with CUDA's
///          word if a later call fails
///
/// Used by the rank's thread only. Members are defined in kernels/cuda_memory.cuh, and in dspp::cuda.
class CudaMemory final : public CudaSource {
 public:
  static constexpr Size scratch_bytes = 16 * 1024, scratch_doubles = scratch_bytes / 8 - 16;

  /// On the calling thread's GPU.
  CudaMemory();
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* take(Size bytes) noexcept override;
  void give(std::byte* data, Size bytes) noexcept override;
  void fill(std::byte* data, Size bytes, unsigned char value) noexcept override;

  void zero(std::byte* to, Size bytes);
  void copy(std::byte* to, const std::byte* from, Size bytes);
  void from_host(std::byte* to, const void* host, Size bytes);
  /// Waits for all operations issued before.
  ///
  /// Throws   what a check of theirs found
  void to_host(void* host, const std::byte* from, Size bytes);

  /// A buffer of pinned memory for at most PinnedCopies::piece_bytes, which the host writes and from_pinned() takes.
  Storage<Pool> new_pinned(Size bytes);
  /// Issues the copy of its first bytes, and keeps it until that has run.
  void from_pinned(std::byte* to, Storage<Pool> from, Size bytes);
  /// As to_host, of at most PinnedCopies::piece_bytes: a buffer that begins with them.
  Storage<Pool> to_pinned(const std::byte* from, Size bytes);
  PinnedCopies& pinned() { return pinned_; }

  /// Waits for the same, without looking for faults.
  void synchronize();

  /// A range of the host's calls in the timelines of NVTX, "forward blocks.3" of the two. Returns its number, which is
  /// not 0. Ranges nest: the end of one ends those that began later on this memory. A profiler, if there is one, has
  /// the range, too.
  std::uint64_t begin_range(std::string_view what, std::string_view name = {}, Profiler* profiler = nullptr);
  /// Ends a range, unless it ended with another.
  void end_range(std::uint64_t range, Profiler* profiler = nullptr) noexcept;

  /// Registers a check, whose kernel writes a CudaFault of that number if it finds one; `sentence` then throws.
  std::int32_t add_check(std::function<void(const CudaFault&)> sentence);

  /// While the launches of a step are noted or captured: see CudaGraphs. Null: they are not.
  CudaGraphs* graphs() const { return graphs_; }
  void set_graphs(CudaGraphs* graphs) { graphs_ = graphs; }
  /// Where the checks of such a step are registered, which its graphs keep: they have numbers of their own.
  void set_checks_of_step(std::shared_ptr<std::vector<std::function<void(const CudaFault&)>>> checks) {
    checks_of_step_ = std::move(checks);
  }
  /// The block that was taken from CUDA and has this address in it, or null.
  const std::byte* block_of(std::uintptr_t address) const;
  /// True for an address of fault() or scratch().
  bool is_scratch(std::uintptr_t address) const;
  /// Frees what was given back while that was not possible.
  void free_later() noexcept;
  /// Memory of the host that the GPU reaches: between it and other memory of the host, the host copies itself, once the
  /// stream is done, since CUDA would wait for the stream without the watcher.
  void add_mapped(std::byte* data, Size bytes) { mapped_[data] = bytes; }
  void remove_mapped(std::byte* data) noexcept { mapped_.erase(data); }
  bool is_mapped(const std::byte* data) const;
  /// Whether memory may be given back to CUDA now, which may wait for the whole GPU.
  bool frees_now() const noexcept;
  /// Waits for all operations issued before, or until what failed was stopped.
  void become_idle() noexcept;

  /// The GPUs that this process sees.
  static int gpus();
  /// "NVIDIA H100 80GB HBM3 of compute capability 9.0 with 132 multiprocessors"
  static std::string kind_of(int gpu);
  /// Bytes that can be allocated on one of them now. Leaves the calling thread's GPU as it is.
  ///
  /// Memory   CUDA's context of that GPU, which this process then keeps
  static Size free_bytes(int gpu);

  /// Null: nobody watches.
  void watch(CudaWatcher* watcher);
  /// Of a profile under way; null: none is.
  CudaClock* clock() const { return clock_; }
  void set_clock(CudaClock* clock) { clock_ = clock; }
  /// Whether its communicators move data on streams of their own, of which they tell the clock.
  bool tells_transfers() const { return tells_transfers_; }
  void tell_transfers() { tells_transfers_ = true; }

  /// cudaStream_t
  void* stream() const { return stream_; }
  /// Operations are issued to another cudaStream_t from now on; the one before. For CudaLane.
  void* exchange_stream(void* stream) { return std::exchange(stream_, stream); }
  /// cudaStream_t; what uses it orders it against stream() by events.
  void* communication_stream() const { return communication_stream_; }
  CudaFault* fault() const { return fault_; }
  /// scratch_doubles of the device, for kernels that follow one another on the stream.
  double* scratch() const { return scratch_; }
  /// What kernels/ keeps of a library between calls, such as cuBLASLt's handle; set by it.
  std::shared_ptr<void>& library() { return library_; }

 private:
  struct Range {
    std::uint64_t number = 0, profiled = 0;  // the second that of `by`
    const Profiler* by = nullptr;
  };
  static constexpr std::int32_t first_check_of_step = 1 << 24;

  void close() noexcept;
  /// Throws   Error(usage) for what the host reads or writes while a graph is captured
  void require_not_captured(const char* who) const;
  /// A pinned buffer, once the copies under way are done if it is not there before.
  Storage<Pool> pinned_buffer(Size bytes, const char* who);
  void throw_found(const CudaFault& found);

  void *stream_ = nullptr, *communication_stream_ = nullptr;
  CudaFault* fault_ = nullptr;
  double* scratch_ = nullptr;
  std::vector<std::function<void(const CudaFault&)>> checks_;
  std::shared_ptr<void> library_;
  CudaWatcher* watcher_ = nullptr;
  CudaGraphs* graphs_ = nullptr;
  CudaClock* clock_ = nullptr;
  bool tells_transfers_ = false;
  std::shared_ptr<std::vector<std::function<void(const CudaFault&)>>> checks_of_step_;
  std::map<const std::byte*, Size> blocks_;  // taken, and not freed
  std::map<const std::byte*, Size> mapped_;
  std::vector<std::byte*> later_;  // given back while the watcher was not idle, or a step was captured
  std::vector<Range> ranges_;      // under way, from the outermost
  std::uint64_t last_range_ = 0;
  PinnedCopies pinned_;
};

/// Makes a GPU the calling thread's, and names the thread's rank in the sentences of errors of CUDA while it lives.
class CudaThread {
 public:
  /// The GPU `local_rank`, or what remains of it modulo those that this process sees.
  CudaThread(int rank, int local_rank);
  ~CudaThread();
  CudaThread(const CudaThread&) = delete;
  CudaThread& operator=(const CudaThread&) = delete;

  int gpu() const { return gpu_; }

 private:
  int gpu_ = 0;
};

}  // namespace dspp
