// SPDX-License-Identifier: Apache-2.0
/// What a BlockFile asks of the system, and the two ways by which pieces of its blocks are transferred: io_uring, and
/// pread and pwrite.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#if DSPP_HAS_LIBURING()
#pragma push_macro("BLOCK_SIZE")  // which <linux/fs.h> defines
#undef BLOCK_SIZE
#include <liburing.h>
#pragma pop_macro("BLOCK_SIZE")
#endif

#include <dspp/base/file_size_limit.hpp>
#include <dspp/io/liburing_choice.hpp>
#endif

namespace dspp::io {

/// The alignment of a direct transfer, in memory and in the file.
inline constexpr Size block_unit = 4096;

/// A part of a block that is transferred, and what came of it.
struct BlockPiece {
  bool writes = false;
  std::byte* at = nullptr;
  Size bytes = 0, offset = 0;
  bool may_block = false;  ///< the system refused it with EAGAIN before
  Size done = 0;           ///< the bytes that were transferred
  int error = 0;           ///< the system's, if none were
};

/// The transfers under way of one thread, on one file.
class BlockRing {
 public:
  virtual ~BlockRing() = default;
  /// The piece and its memory must stay until wait() returns it.
  virtual void start(BlockPiece& piece) noexcept = 0;
  /// Waits for one of the pieces that were started; they end in any order. A piece with the error ECANCELED was not
  /// transferred, and is by pread or pwrite.
  virtual BlockPiece& wait() noexcept = 0;
};

/// The system calls of a BlockFile, so that a test can make any of them fail. Those that return an int return 0 or the
/// system's error. Threads of the file call before() and after().
class BlockCalls {
 public:
  virtual ~BlockCalls() = default;
  /// Opens a new file that has no name, so that nothing remains of it when the process ends; `direct`: past the
  /// system's cache, which EINVAL refuses.
  virtual int open(const std::string& folder, bool direct, int& descriptor);
  /// Provides the bytes [offset, offset + bytes).
  virtual int extend(int descriptor, Size offset, Size bytes);
  /// An io_uring for up to `depth` pieces at a time; null with the system's error if there is none.
  virtual std::unique_ptr<BlockRing> make_ring(int descriptor, int depth, int& error);
  /// Before each transfer of a piece, by either way. A test reduces its bytes, or sets its error: then it ends at once.
  virtual void before(BlockPiece&) noexcept {}
  /// After each transfer of a piece that before() let pass.
  virtual void after(BlockPiece&) noexcept {}
  virtual void close(int descriptor);
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

/// By pread or pwrite.
inline void transfer(int descriptor, BlockPiece& piece) noexcept {
  const auto bytes = static_cast<std::size_t>(piece.bytes);
  const ssize_t done = piece.writes ? ::pwrite(descriptor, piece.at, bytes, piece.offset)
                                    : ::pread(descriptor, piece.at, bytes, piece.offset);
  piece.done = std::max<Size>(done, 0);
  piece.error = done < 0 ? errno : 0;
}

/// One transfer at a time, by pread and pwrite.
class BlockCallsInTurn final : public BlockRing {
 public:
  explicit BlockCallsInTurn(int descriptor) : descriptor_(descriptor) {}
  void start(BlockPiece& piece) noexcept override {
    transfer(descriptor_, piece);
    piece_ = &piece;
  }
  BlockPiece& wait() noexcept override { return *piece_; }

 private:
  int descriptor_;
  BlockPiece* piece_ = nullptr;
};

#if DSPP_HAS_LIBURING()

/// io_uring. Neither buffers nor the file are registered: windows are other memory in each step, the rate is the same,
/// and a ring, which ends some time after its owner, would keep the file's room for that time.
class BlockUring final : public BlockRing {
 public:
  BlockUring() = default;
  ~BlockUring() override {
    if (is_open_) io_uring_queue_exit(&ring_);
  }
  int open(int descriptor, int depth) {
    started_.reserve(static_cast<std::size_t>(depth));
    if (const int error = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0); error < 0) return -error;
    is_open_ = true;
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);  // Linux 5.1 to 5.5 has rings without these two
    const bool transfers = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                           io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    if (probe != nullptr) io_uring_free_probe(probe);
    if (!transfers) return EOPNOTSUPP;
    descriptor_ = descriptor;
    return 0;
  }
  void start(BlockPiece& piece) noexcept override {
    started_.push_back(&piece);
    if (untaken_ >= 0) {
      ++untaken_;
      return;
    }
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // there is one for each piece under way
    const auto bytes = static_cast<unsigned>(piece.bytes);
    const auto offset = static_cast<std::uint64_t>(piece.offset);
    piece.writes ? io_uring_prep_write(entry, descriptor_, piece.at, bytes, offset)
                 : io_uring_prep_read(entry, descriptor_, piece.at, bytes, offset);
    if (piece.may_block) io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
    io_uring_sqe_set_data(entry, &piece);
    io_uring_submit(&ring_);  // wait() submits again what was not taken
  }
  BlockPiece& wait() noexcept override {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) != 0) {
      if (untaken_ > 0) {
        --untaken_;
        BlockPiece& piece = *started_.back();
        started_.pop_back();
        piece.error = ECANCELED;
        return piece;
      }
      submit_and_wait();
    }
    BlockPiece& piece = *static_cast<BlockPiece*>(io_uring_cqe_get_data(entry));
    started_.erase(std::find(started_.begin(), started_.end(), &piece));
    piece.done = std::max(entry->res, 0);
    piece.error = std::max(-entry->res, 0);
    io_uring_cqe_seen(&ring_, entry);
    return piece;
  }

 private:
  void submit_and_wait() noexcept {
    const int result = untaken_ < 0 ? io_uring_submit_and_wait(&ring_, 1) : -EAGAIN;
    if (result >= 0 || result == -EINTR) return;
    // The kernel takes nothing more from a program that lost the ring, or the right to use it: what it has taken ends
    // all the same, and the last pieces it has not.
    if (result != -EAGAIN && result != -EBUSY && result != -ENOMEM)
      untaken_ = static_cast<int>(io_uring_sq_ready(&ring_));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  io_uring ring_{};
  int descriptor_ = -1;
  bool is_open_ = false;
  std::vector<BlockPiece*> started_{};  // in the order in which the kernel takes them
  int untaken_ = -1;                    // of them the last; -1: the kernel takes pieces
};

#endif

}  // namespace detail

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

DSPP_INLINE std::unique_ptr<BlockRing> BlockCalls::make_ring(int descriptor, int depth, int& error) {
#if DSPP_HAS_LIBURING()
  auto ring = std::make_unique<detail::BlockUring>();
  error = ring->open(descriptor, depth);
  if (error != 0) return nullptr;
  return ring;
#else
  static_cast<void>(descriptor), static_cast<void>(depth);
  error = ENOSYS;
  return nullptr;
#endif
}

DSPP_INLINE void BlockCalls::close(int descriptor) {
  ::close(descriptor);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
