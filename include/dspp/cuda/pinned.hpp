// SPDX-License-Identifier: Apache-2.0
/// Pinned memory of the host: buffers of copies that a GPU reads and writes itself, while the host goes on.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <dspp/tensor/pool.hpp>

namespace dspp {

class CudaWatcher;

/// Takes its blocks by cudaMallocHost, and keeps those that are given back for requests of their size: cudaFreeHost may
/// wait for the whole GPU. A request of another size frees the largest of them where all would be more than `most`, and
/// all of them where CUDA has no more.
/// Members are defined in kernels/cuda_pinned.cuh, as those below.
class PinnedMemory final : public MemorySource {
 public:
  explicit PinnedMemory(Size most) : most_(most) {}
  ~PinnedMemory() override;
  std::byte* take(Size bytes) noexcept override;
  void give(std::byte* data, Size bytes) noexcept override;
  void fill(std::byte* data, Size bytes, unsigned char value) noexcept override;

  /// While it is not idle nothing is freed, and all may be more. Null: nobody watches.
  void watch(CudaWatcher* watcher) { watcher_ = watcher; }
  /// Frees the largest kept blocks until all are at most `most`, unless a watcher is not idle.
  void trim() noexcept { free_kept(most_); }
  /// Bytes taken from CUDA, kept ones too: what is pinned. (The Pool's reserved() is what it has of them.)
  Size held() const { return held_; }

 private:
  void free_kept(Size down_to) noexcept;

  Size most_, held_ = 0;
  CudaWatcher* watcher_ = nullptr;
  std::map<Size, std::vector<std::byte*>> kept_;
};

/// The pinned buffers of a rank's stream, from a Pool of their own. A buffer of a copy that is under way is kept until
/// the host waited for the stream, or, where half of the limit is in use, an event says that the copy ran.
///
/// Memory   at most `most_bytes` of the host, in blocks of powers of two from 4 KiB on, more only while a watcher is
///          not idle; and an event for each copy that is under way
///
/// Used by the rank's thread only.
class PinnedCopies {
 public:
  /// Of one copy, and of all buffers.
  static constexpr Size piece_bytes = 4_MiB, most_bytes = 32_MiB;

  PinnedCopies() = default;
  ~PinnedCopies();  ///< the stream has done its work
  PinnedCopies(const PinnedCopies&) = delete;
  PinnedCopies& operator=(const PinnedCopies&) = delete;

  /// A buffer of at least that many bytes, or an unset one if copies under way have too much: wait for the stream,
  /// call all_done(), and it will be there.
  ///
  /// Throws   Error(out_of_memory) with the Pool's map
  Storage<Pool> take(Size bytes, const char* who);
  /// Keeps the buffer of a copy that is issued next.
  void keep(Storage<Pool> buffer) { under_way_.push_back({std::move(buffer)}); }
  /// The copy of the last buffer was issued to `stream`, a cudaStream_t: records its event. Throws what CUDA says.
  void issued(void* stream, Size bytes);
  /// The host has waited for the stream since the last copy.
  void all_done() noexcept;

  Pool& pool() { return pool_; }
  PinnedMemory& source() { return source_; }

 private:
  struct UnderWay {
    Storage<Pool> buffer;
    void* event = nullptr;  ///< cudaEvent_t; null: not known when it ran, but by all_done()
  };
  void take_back_done() noexcept;

  PinnedMemory source_{most_bytes};
  Pool pool_{most_bytes, &source_};
  std::deque<UnderWay> under_way_;
  std::vector<void*> events_;  // for the next ones
};

}  // namespace dspp
