// SPDX-License-Identifier: Apache-2.0
/// A file of blocks that threads of its own read and write while the caller works: what rests on a disk during a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/io/block_calls.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include <dspp/base/crc32c.hpp>
#include <dspp/base/file_size_limit.hpp>
#include <dspp/io/block_lane.hpp>
#include <dspp/io/file.hpp>
#endif

namespace dspp::io {

/// What the header of a block says, checked when it is read.
struct BlockLabel {
  std::int64_t number = 0, version = 0;
};

namespace detail {
struct BlockJob;
void wait_for(BlockJob* job);
void end(BlockJob* job) noexcept;
}  // namespace detail

/// A transfer under way. Its file and its block must live until it was waited for or destroyed.
class Transfer {
 public:
  constexpr Transfer() = default;
  constexpr explicit Transfer(detail::BlockJob* job) : job_(job) {}
  constexpr Transfer(Transfer&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
  constexpr Transfer& operator=(Transfer&& other) noexcept {
    if (job_) detail::end(job_);
    job_ = std::exchange(other.job_, nullptr);
    return *this;
  }
  /// Waits, and forgets what failed.
  constexpr ~Transfer() {
    if (job_) detail::end(job_);
  }
  /// Throws   Error(file), a sentence with folder, offset and bytes
  constexpr void wait() {
    if (job_) detail::wait_for(std::exchange(job_, nullptr));
  }

 private:
  detail::BlockJob* job_ = nullptr;
};

/// How a BlockFile transfers.
struct BlockOptions {
  int threads = 2;           ///< blocks at the same time
  int depth = 8;             ///< pieces of a block at the same time, by io_uring
  Size piece_bytes = 1_MiB;  ///< of io_uring, a multiple of block_unit; other transfers are of whole blocks
  bool uses_ring = true;     ///< io_uring where it is to be had, else pread and pwrite
};

/// A file in a folder, without a name: it ends with its owner, also if that is killed. In front of a block's bytes is a
/// header with run, number, version and checksum, so that what a disk or another program changed is not used.
///
/// Cost   a transfer of all bytes, past the system's cache where the file system allows it, and one pass for CRC-32C,
///        both by threads of the file; with io_uring the pass goes on while pieces are under way
class BlockFile {
 public:
  /// The alignment of a block in memory and in the file, and the bytes of its header.
  static constexpr Size unit = block_unit;
  /// The bytes of a block with its header.
  static constexpr Size bytes_of(Size payload) { return unit + (payload + unit - 1) / unit * unit; }

  BlockFile() = default;
  /// `calls` is kept by the caller; null: the system's.
  ///
  /// Throws   Error(file) if the folder takes no file, Error(usage) for options that have no meaning
  void open(const std::string& folder, BlockCalls* calls = nullptr, const BlockOptions& options = {});
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;
  /// Waits for transfers under way.
  ~BlockFile();

  bool is_open() const { return state_ != nullptr; }
  /// True if transfers pass the system's cache.
  bool is_direct() const;
  /// True if transfers are by io_uring.
  bool uses_ring() const;
  /// How blocks are transferred, and why not by io_uring: "pread and pwrite on 2 threads: the build has no liburing".
  const std::string& way() const;
  /// Provides the bytes up to `end`.
  ///
  /// Throws   Error(file) if the disk has no room
  void extend(Size end);
  /// block[0, unit) is the header's place, the payload follows. `block` is aligned to `unit`.
  Transfer start_write(Size offset, BlockLabel label, std::byte* block, Size payload);
  /// The error if the block there has another label or checksum is thrown by the transfer's wait().
  Transfer start_read(Size offset, BlockLabel label, std::byte* block, Size payload);

 private:
  struct State;
  Transfer start(bool writes, Size offset, BlockLabel label, std::byte* block, Size payload);

  State* state_ = nullptr;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

struct BlockHeader {
  std::array<char, 8> magic{'d', 's', 'p', 'p', 'b', 'l', 'k', '1'};
  std::uint64_t run = 0;
  std::int64_t number = 0, version = 0, bytes = 0;
  std::uint32_t checksum = 0, own_checksum = 0;  ///< the second of what is before it
};

/// Of a payload, as far as it is known.
struct BlockChecksum {
  const std::byte* payload = nullptr;
  Size bytes = 0, past = 0;
  std::uint32_t value = 0;
  void go_on(Size up_to) {
    const Size more = std::min(up_to, bytes) - past;
    if (more <= 0) return;
    value = crc32c(payload + past, more, value);
    past += more;
  }
};

struct BlockQueue {
  std::mutex mutex;
  std::condition_variable work, done;
  std::deque<BlockJob*> jobs;
  bool ends = false;
};

struct BlockJob {
  BlockQueue* queue = nullptr;
  bool writes = false, is_done = false;
  Size offset = 0, payload = 0;
  BlockLabel label{};
  std::byte* block = nullptr;
  std::string sentence{};        ///< what failed
  bool has_no_sentence = false;  ///< something failed, and there was no memory to say what
};

DSPP_INLINE void end(BlockJob* job) noexcept {
  {
    std::unique_lock lock(job->queue->mutex);
    job->queue->done.wait(lock, [&] { return job->is_done; });
  }
  delete job;
}

DSPP_INLINE void wait_for(BlockJob* job) {
  {
    std::unique_lock lock(job->queue->mutex);
    job->queue->done.wait(lock, [&] { return job->is_done; });
  }
  const std::string sentence = std::move(job->sentence);
  const bool has_none = job->has_no_sentence;
  delete job;
  if (has_none) throw std::bad_alloc();
  if (!sentence.empty()) fail(ErrorCode::file, sentence);
}

}  // namespace detail

struct BlockFile::State {
  std::string folder, way;
  BlockCalls system;
  detail::BlockPlace place{};
  Size end = 0;
  std::uint64_t run = 0;
  bool uses_ring = false;
  detail::BlockQueue queue{};
  std::vector<detail::BlockLane> lanes{};  ///< of the threads
  std::vector<std::thread> threads{};

  ~State() {
    {
      const std::lock_guard lock(queue.mutex);
      queue.ends = true;
    }
    queue.work.notify_all();
    for (std::thread& thread : threads)
      if (thread.joinable()) thread.join();
    lanes.clear();
    if (place.descriptor >= 0) place.calls->close(place.descriptor);
  }

  void work(detail::BlockLane& lane) {
    const FileSizeLimitAsError limit;
    std::unique_lock lock(queue.mutex);
    for (;;) {
      queue.work.wait(lock, [&] { return queue.ends || !queue.jobs.empty(); });
      if (queue.jobs.empty()) return;
      detail::BlockJob* const job = queue.jobs.front();
      queue.jobs.pop_front();
      lock.unlock();
      try {
        job->writes ? write(*job, lane) : read(*job, lane);
      } catch (...) {
        job->has_no_sentence = true;
      }
      lock.lock();
      job->is_done = true;
      queue.done.notify_all();
    }
  }

  std::string where(Size offset, Size bytes) const {
    return std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of its file in '" + folder + "'";
  }
  static detail::BlockSpan span_of(const detail::BlockJob& job) {
    return {job.writes, job.block, job.offset, bytes_of(job.payload)};
  }
  detail::BlockHeader header_of(const detail::BlockJob& job, std::uint32_t checksum) const {
    detail::BlockHeader header{.run = run, .number = job.label.number, .version = job.label.version};
    header.bytes = job.payload, header.checksum = checksum;
    header.own_checksum = crc32c(&header, offsetof(detail::BlockHeader, own_checksum));
    return header;
  }

  void write(detail::BlockJob& job, detail::BlockLane& lane) {
    detail::BlockChecksum sum{job.block + unit, job.payload};
    const detail::BlockSpan span = span_of(job);
    const detail::BlockFailure failure = lane.carry(span, [&](Size bytes) {
      sum.go_on(bytes - unit);
      if (bytes < span.bytes) return;
      const detail::BlockHeader header = header_of(job, sum.value);
      std::memset(job.block, 0, static_cast<std::size_t>(unit));
      std::memcpy(job.block, &header, sizeof header);
    });
    if (failure.bytes > 0) refuse(job, failure);
  }

  void read(detail::BlockJob& job, detail::BlockLane& lane) {
    detail::BlockChecksum sum{job.block + unit, job.payload};
    const detail::BlockFailure failure = lane.carry(span_of(job), [&](Size bytes) { sum.go_on(bytes - unit); });
    if (failure.bytes > 0) return refuse(job, failure);
    detail::BlockHeader header;
    std::memcpy(&header, job.block, sizeof header);
    const detail::BlockHeader expected = header_of(job, sum.value);
    if (std::memcmp(&header, &expected, sizeof header) == 0) return;
    const bool intact = header.own_checksum == crc32c(&header, offsetof(detail::BlockHeader, own_checksum));
    job.sentence = "dspp: BlockFile needs block " + std::to_string(job.label.number) + " in its version " +
                   std::to_string(job.label.version) + " at offset " + std::to_string(job.offset) +
                   " of its file in '" + folder + "', but found " +
                   (!intact             ? "no block"
                    : header.run != run ? "a block of another run"
                    : header.number == job.label.number && header.version == job.label.version ? "other bytes"
                                                                                               : "another block") +
                   ". The disk or another program changed it: go on from a checkpoint, on another disk.";
  }

  void refuse(detail::BlockJob& job, const detail::BlockFailure& failure) const {
    const int error = failure.error;
    const Size free = job.writes && error == ENOSPC ? detail::free_bytes_of(folder) : -1;
    job.sentence = "dspp: BlockFile needs " + where(failure.offset, failure.bytes) +
                   (job.writes ? " to be writable" : " to be readable") + ", but " +
                   (error != 0 ? "the system says: " + std::error_code(error, std::generic_category()).message() +
                                     (free < 0 ? "" : ", where " + std::to_string(free) + " bytes are free")
                    : job.writes ? "the system writes fewer"
                                 : "the file ends before") +
                   ". Check the disk.";
  }

  /// A lane for each thread: all of them with io_uring, or none.
  void make_lanes(const BlockOptions& options) {
    int error = 0;
    std::vector<std::unique_ptr<BlockRing>> rings;
    const auto threads_asked = static_cast<std::size_t>(options.threads);
    while (options.uses_ring && rings.size() < threads_asked) {
      auto ring = place.calls->make_ring(place.descriptor, options.depth, error);
      if (!ring) break;
      rings.push_back(std::move(ring));
    }
    uses_ring = rings.size() == threads_asked;
    const std::string threads_of_it = std::to_string(options.threads) + (options.threads == 1 ? " thread" : " threads");
    const std::string message = std::error_code(error, std::generic_category()).message();
    way = uses_ring ? "io_uring, " + std::to_string(options.depth) + " pieces of " +
                          std::to_string(options.piece_bytes / 1_KiB) + " KiB at a time on each of " + threads_of_it
                    : "pread and pwrite on " + threads_of_it +
                          (!options.uses_ring     ? ""
                           : !DSPP_HAS_LIBURING() ? ": the build has no liburing"
                                                  : ": the system refuses io_uring (" + message + ")");
    for (std::size_t i = 0; i < threads_asked; ++i)
      if (uses_ring)
        lanes.emplace_back(place, std::move(rings[i]), options.depth, options.piece_bytes);
      else
        lanes.emplace_back(place, std::make_unique<detail::BlockCallsInTurn>(place.descriptor), 1, detail::whole_block);
  }
};

DSPP_INLINE void BlockFile::open(const std::string& folder, BlockCalls* calls, const BlockOptions& options) {
  require(options.threads >= 1 && options.depth >= 1 && options.piece_bytes >= unit && options.piece_bytes <= 1_GiB &&
              options.piece_bytes % unit == 0,
          "dspp: BlockFile needs a thread, a depth of 1 and pieces of a multiple of 4 KiB up to 1 GiB, but its options "
          "have others. Leave them out.");
  auto state = std::make_unique<State>();
  state->folder = folder;
  detail::BlockPlace& place = state->place;
  place.calls = calls ? calls : &state->system;
  int error = place.calls->open(folder, true, place.descriptor);
  if (error == EINVAL) {
    place.direct = false;
    error = place.calls->open(folder, false, place.descriptor);
  }
  if (error != 0)
    fail(ErrorCode::file, "dspp: BlockFile needs '" + folder + "' to take a file, but the system says: " +
                              std::error_code(error, std::generic_category()).message() +
                              ". Name a folder that exists and may be written.");
  state->run = std::random_device{}() * 0x9E3779B97F4A7C15u ^ static_cast<std::uint64_t>(::getpid());
  state->make_lanes(options);
  state->threads.reserve(state->lanes.size());
  for (detail::BlockLane& lane : state->lanes)
    state->threads.emplace_back([own = state.get(), &lane] { own->work(lane); });
  state_ = state.release();
}

DSPP_INLINE BlockFile::~BlockFile() {
  delete state_;
}

DSPP_INLINE bool BlockFile::is_direct() const {
  return state_->place.direct;
}

DSPP_INLINE bool BlockFile::uses_ring() const {
  return state_->uses_ring;
}

DSPP_INLINE const std::string& BlockFile::way() const {
  return state_->way;
}

DSPP_INLINE void BlockFile::extend(Size end) {
  if (end <= state_->end) return;
  const Size bytes = end - state_->end;
  int error = EINTR;
  while (error == EINTR) error = state_->place.calls->extend(state_->place.descriptor, state_->end, bytes);
  if (error != 0) {
    const Size free = detail::free_bytes_of(state_->folder);
    fail(ErrorCode::file, "dspp: BlockFile needs " + state_->where(state_->end, bytes) +
                              ", but the system says: " + std::error_code(error, std::generic_category()).message() +
                              (free < 0 ? "" : ", where " + std::to_string(free) + " bytes are free") +
                              ". Name a folder on a disk with more room.");
  }
  state_->end = end;
}

DSPP_INLINE Transfer BlockFile::start_write(Size offset, BlockLabel label, std::byte* block, Size payload) {
  return start(true, offset, label, block, payload);
}

DSPP_INLINE Transfer BlockFile::start_read(Size offset, BlockLabel label, std::byte* block, Size payload) {
  return start(false, offset, label, block, payload);
}

DSPP_INLINE Transfer BlockFile::start(bool writes, Size offset, BlockLabel label, std::byte* block, Size payload) {
  auto job = std::make_unique<detail::BlockJob>();
  job->queue = &state_->queue;
  job->writes = writes, job->offset = offset, job->payload = payload, job->label = label, job->block = block;
  {
    const std::lock_guard lock(state_->queue.mutex);
    state_->queue.jobs.push_back(job.get());
  }
  state_->queue.work.notify_one();
  return Transfer(job.release());
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
