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

#if DSPP_HAS_DEFINITIONS()
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
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
#include <dspp/io/file.hpp>
#endif

namespace dspp::io {

/// The system calls of a BlockFile, one function each, so that a test can make any of them fail. Each returns 0 or the
/// system's error. Reads and writes come from several threads.
class BlockCalls {
 public:
  virtual ~BlockCalls() = default;
  /// Opens a new file that has no name, so that nothing remains of it when the process ends; `direct`: past the
  /// system's cache, which EINVAL refuses.
  virtual int open(const std::string& folder, bool direct, int& descriptor);
  /// Provides the bytes [offset, offset + bytes).
  virtual int extend(int descriptor, Size offset, Size bytes);
  /// Transfers up to `bytes` and says how many.
  virtual int read(int descriptor, void* to, Size bytes, Size offset, Size& done);
  virtual int write(int descriptor, const void* from, Size bytes, Size offset, Size& done);
  virtual void close(int descriptor);
};

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

/// A file in a folder, without a name: it ends with its owner, also if that is killed. In front of a block's bytes is a
/// header with run, number, version and checksum, so that what a disk or another program changed is not used.
///
/// Cost   a transfer of all bytes, past the system's cache where the file system allows it, and one pass for CRC-32C,
///        both by threads of the file
class BlockFile {
 public:
  /// The alignment of a block in memory and in the file, and the bytes of its header.
  static constexpr Size unit = 4096;
  /// The bytes of a block with its header.
  static constexpr Size bytes_of(Size payload) { return unit + (payload + unit - 1) / unit * unit; }

  BlockFile() = default;
  /// `calls` is kept by the caller; null: the system's. `threads`: transfers at the same time.
  ///
  /// Throws   Error(file) if the folder takes no file
  void open(const std::string& folder, BlockCalls* calls = nullptr, int threads = 2);
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;
  /// Waits for transfers under way.
  ~BlockFile();

  bool is_open() const { return state_ != nullptr; }
  /// True if transfers pass the system's cache.
  bool is_direct() const;
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
  std::string folder;
  BlockCalls system;
  BlockCalls* calls = nullptr;
  int descriptor = -1;
  std::atomic<bool> direct{true};
  Size end = 0;
  std::uint64_t run = 0;
  detail::BlockQueue queue{};
  std::vector<std::thread> threads{};

  ~State() {
    {
      const std::lock_guard lock(queue.mutex);
      queue.ends = true;
    }
    queue.work.notify_all();
    for (std::thread& thread : threads)
      if (thread.joinable()) thread.join();
    if (descriptor >= 0) calls->close(descriptor);
  }

  void work() {
    std::unique_lock lock(queue.mutex);
    for (;;) {
      queue.work.wait(lock, [&] { return queue.ends || !queue.jobs.empty(); });
      if (queue.jobs.empty()) return;
      detail::BlockJob* const job = queue.jobs.front();
      queue.jobs.pop_front();
      lock.unlock();
      try {
        job->writes ? write(*job) : read(*job);
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

  void write(detail::BlockJob& job) {
    detail::BlockHeader header{.run = run, .number = job.label.number, .version = job.label.version};
    header.bytes = job.payload;
    header.checksum = crc32c(job.block + unit, job.payload);
    header.own_checksum = crc32c(&header, offsetof(detail::BlockHeader, own_checksum));
    std::memset(job.block, 0, static_cast<std::size_t>(unit));
    std::memcpy(job.block, &header, sizeof header);
    transfer(job, [&](std::byte* at, Size bytes, Size offset, Size& done) {
      return calls->write(descriptor, at, bytes, offset, done);
    });
  }

  void read(detail::BlockJob& job) {
    transfer(job, [&](std::byte* at, Size bytes, Size offset, Size& done) {
      return calls->read(descriptor, at, bytes, offset, done);
    });
    if (!job.sentence.empty()) return;
    detail::BlockHeader header, expected{.run = run, .number = job.label.number, .version = job.label.version};
    std::memcpy(&header, job.block, sizeof header);
    expected.bytes = job.payload;
    expected.checksum = crc32c(job.block + unit, job.payload);
    expected.own_checksum = crc32c(&expected, offsetof(detail::BlockHeader, own_checksum));
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

  template <class Call>
  void transfer(detail::BlockJob& job, Call call) {
    const Size bytes = bytes_of(job.payload);
    for (Size at = 0, idle = 0; at < bytes;) {
      Size done = 0;
      const bool was_direct = direct;
      const int error = call(job.block + at, bytes - at, job.offset + at, done);
      if (error == EINTR) continue;
      if (error == EINVAL && was_direct) {  // the file system opens for direct transfers and refuses them
        ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_DIRECT);
        direct = false;  // after it: the other thread then transfers otherwise
        continue;
      }
      if (error == 0 && done > 0) {
        const Size whole = at + done == bytes ? done : done / unit * unit;  // direct transfers begin at units
        idle = whole > 0 ? 0 : idle + 1;
        at += whole;
      }
      if (error != 0 || done <= 0 || idle > 3) return refuse(job, at, bytes - at, error);
    }
  }

  void refuse(detail::BlockJob& job, Size at, Size bytes, int error) const {
    const Size free = job.writes && error == ENOSPC ? detail::free_bytes_of(folder) : -1;
    job.sentence = "dspp: BlockFile needs " + where(job.offset + at, bytes) +
                   (job.writes ? " to be writable" : " to be readable") + ", but " +
                   (error != 0 ? "the system says: " + std::error_code(error, std::generic_category()).message() +
                                     (free < 0 ? "" : ", where " + std::to_string(free) + " bytes are free")
                    : job.writes ? "the system writes fewer"
                                 : "the file ends before") +
                   ". Check the disk.";
  }
};

DSPP_INLINE int BlockCalls::open(const std::string& folder, bool direct, int& descriptor) {
  const int flags = O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
  descriptor = ::open(folder.c_str(), flags | O_TMPFILE, 0600);
  if (descriptor >= 0) return 0;
  if (errno != EOPNOTSUPP && errno != EISDIR) return errno;
  std::string path = folder + "/dspp." + std::string(6, 'X');  // the file system makes no files without a name
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) return errno;
  descriptor = ::open(path.c_str(), flags);
  const int error = descriptor < 0 ? errno : 0;
  ::unlink(path.c_str());
  ::close(named);
  return error;
}

DSPP_INLINE int BlockCalls::extend(int descriptor, Size offset, Size bytes) {
  const FileSizeLimitAsError limit;
  const int error = ::fallocate(descriptor, 0, offset, bytes) == 0 ? 0 : errno;
  if (error != EOPNOTSUPP && error != ENOSYS) return error;
  return ::ftruncate(descriptor, offset + bytes) == 0 ? 0 : errno;
}

DSPP_INLINE int BlockCalls::read(int descriptor, void* to, Size bytes, Size offset, Size& done) {
  const ssize_t got = ::pread(descriptor, to, static_cast<std::size_t>(bytes), offset);
  done = got < 0 ? 0 : got;
  return got < 0 ? errno : 0;
}

DSPP_INLINE int BlockCalls::write(int descriptor, const void* from, Size bytes, Size offset, Size& done) {
  const FileSizeLimitAsError limit;
  const ssize_t put = ::pwrite(descriptor, from, static_cast<std::size_t>(bytes), offset);
  done = put < 0 ? 0 : put;
  return put < 0 ? errno : 0;
}

DSPP_INLINE void BlockCalls::close(int descriptor) {
  ::close(descriptor);
}

DSPP_INLINE void BlockFile::open(const std::string& folder, BlockCalls* calls, int threads) {
  auto state = std::make_unique<State>();
  state->folder = folder;
  state->calls = calls ? calls : &state->system;
  int error = state->calls->open(folder, true, state->descriptor);
  if (error == EINVAL) {
    state->direct = false;
    error = state->calls->open(folder, false, state->descriptor);
  }
  if (error != 0)
    fail(ErrorCode::file, "dspp: BlockFile needs '" + folder + "' to take a file, but the system says: " +
                              std::error_code(error, std::generic_category()).message() +
                              ". Name a folder that exists and may be written.");
  state->run = std::random_device{}() * 0x9E3779B97F4A7C15u ^ static_cast<std::uint64_t>(::getpid());
  state->threads.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) state->threads.emplace_back([own = state.get()] { own->work(); });
  state_ = state.release();
}

DSPP_INLINE BlockFile::~BlockFile() {
  delete state_;
}

DSPP_INLINE bool BlockFile::is_direct() const {
  return state_->direct;
}

DSPP_INLINE void BlockFile::extend(Size end) {
  if (end <= state_->end) return;
  const Size bytes = end - state_->end;
  int error = EINTR;
  while (error == EINTR) error = state_->calls->extend(state_->descriptor, state_->end, bytes);
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
