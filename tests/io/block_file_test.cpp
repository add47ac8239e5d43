// SPDX-License-Identifier: Apache-2.0
// Blocks in a file come back as they were, in every size, by io_uring and by pread and pwrite, and where a file system
// refuses direct transfers; what is not the block that was asked for, or cannot be transferred, is a sentence.
// labels: thread races
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <dspp/io/block_file.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>

using namespace dspp;
using namespace dspp::laws;
using io::BlockFile;

namespace {

/// A block of memory as a file takes it, whose payload counts from `first`.
struct Block {
  Size payload;
  std::unique_ptr<std::byte, void (*)(void*)> memory;
  explicit Block(Size bytes, unsigned first = 0)
      : payload(bytes),
        memory(static_cast<std::byte*>(std::aligned_alloc(BlockFile::unit, BlockFile::bytes_of(bytes))), std::free) {
    std::memset(memory.get(), 0xA5, static_cast<std::size_t>(BlockFile::bytes_of(bytes)));
    for (Size i = 0; i < bytes; ++i) data()[i] = static_cast<std::byte>((first + static_cast<unsigned>(i) * 31) % 251);
  }
  std::byte* data() { return memory.get() + BlockFile::unit; }
  bool same_payload(Block& other) {
    return payload == other.payload && std::memcmp(data(), other.data(), static_cast<std::size_t>(payload)) == 0;
  }
};

// A name that <linux/fs.h>, which liburing includes, defines as a macro.
constexpr Size BLOCK_SIZE = 16 * BlockFile::unit;

/// The ways to transfer: pread and pwrite, the system's io_uring (where it has one), and a ring whose pieces end in the
/// reverse order and of which every third is cancelled, on every system.
enum class Way { calls, system_ring, reversed_ring };
constexpr Way ways[] = {Way::calls, Way::system_ring, Way::reversed_ring};

/// Transfers when it is waited for, what was started last first.
class ReversedRing : public io::BlockRing {
 public:
  explicit ReversedRing(int descriptor) : descriptor_(descriptor) {}
  ~ReversedRing() override { CHECK(started_.empty()); }
  void start(io::BlockPiece& piece) noexcept override { started_.push_back(&piece); }
  io::BlockPiece& wait() noexcept override {
    io::BlockPiece& piece = *started_.back();
    started_.pop_back();
    if (++waits_ % 3 == 0) {
      piece.error = ECANCELED;  // as a kernel that may start no thread
      return piece;
    }
    const auto bytes = static_cast<std::size_t>(piece.bytes);
    const ssize_t done = piece.writes ? ::pwrite(descriptor_, piece.at, bytes, piece.offset)
                                      : ::pread(descriptor_, piece.at, bytes, piece.offset);
    piece.done = std::max<Size>(done, 0), piece.error = done < 0 ? errno : 0;
    return piece;
  }

 private:
  int descriptor_, waits_ = 0;
  std::vector<io::BlockPiece*> started_;
};

struct CallsBy : io::BlockCalls {
  Way way = Way::system_ring;
  explicit CallsBy(Way of) : way(of) {}
  std::unique_ptr<io::BlockRing> make_ring(int descriptor, int depth, int& error) override {
    if (way == Way::system_ring) return BlockCalls::make_ring(descriptor, depth, error);
    if (way == Way::reversed_ring) return std::make_unique<ReversedRing>(descriptor);
    error = ENOSYS;
    return nullptr;
  }
};

/// Refuses what it is told to refuse.
struct Refusing : CallsBy {
  using CallsBy::CallsBy;
  bool direct_open = false, direct_transfers = false, interrupted = false, in_pieces = false;
  int extend_error = 0;
  std::atomic<int> calls{0}, within_units{0};  ///< the second: that begin there
  std::atomic<bool> refused{false};
  int open(const std::string& folder, bool direct, int& descriptor) override {
    return direct_open && direct ? EINVAL : BlockCalls::open(folder, direct, descriptor);
  }
  int extend(int descriptor, Size offset, Size bytes) override {
    return extend_error ? extend_error : BlockCalls::extend(descriptor, offset, bytes);
  }
  void before(io::BlockPiece& piece) noexcept override {
    const int call = ++calls;
    if (piece.offset % BlockFile::unit != 0) ++within_units;
    if (direct_transfers && !refused.exchange(true))
      piece.error = EINVAL;
    else if (interrupted && call % 2 == 1)
      piece.error = call % 3 == 0 && !piece.may_block ? EAGAIN : EINTR;
    else if (in_pieces)
      piece.bytes = std::min<Size>(piece.bytes, 4608);  // which a disk may take, of sectors of 512
  }
};

constexpr Size sizes[] = {1,     2,     63,    64,    65,    511,    512,    513,    1000,   4095,
                          4096,  4097,  5000,  8191,  8192,  8193,   9999,   12288,  16384,  16385,
                          20001, 32768, 40000, 65536, 65537, 100000, 131072, 131073, 262144, 300001};
static_assert(std::size(sizes) == 30);

void check_sizes(Refusing& calls) {
  const Folder folder;
  BlockFile file;
  file.open(folder.path.string(), &calls, {.depth = 3, .piece_bytes = BLOCK_SIZE});
  CHECK(fs::is_empty(folder.path));
  if (calls.direct_open) CHECK(!file.is_direct());
  std::vector<Size> offsets;
  std::vector<Block> blocks;
  Size end = 0;
  for (const Size bytes : sizes) {
    offsets.push_back(end);
    end += BlockFile::bytes_of(bytes);
    blocks.emplace_back(bytes, static_cast<unsigned>(bytes));
  }
  file.extend(end);
  std::vector<io::Transfer> writes;
  for (std::size_t i = 0; i < std::size(sizes); ++i)
    writes.push_back(file.start_write(offsets[i], {static_cast<Size>(i), 7}, blocks[i].memory.get(), sizes[i]));
  for (io::Transfer& write : writes) write.wait();
  if (calls.direct_transfers) CHECK(!file.is_direct());
  for (std::size_t i = std::size(sizes); i-- > 0;) {
    CAPTURE(sizes[i]);
    Block back(sizes[i]);
    file.start_read(offsets[i], {static_cast<Size>(i), 7}, back.memory.get(), sizes[i]).wait();
    CHECK(back.same_payload(blocks[i]));
  }
  CHECK(calls.within_units == 0);
}

}  // namespace

TEST_CASE("blocks of 30 sizes come back by every way, direct or not, in pieces and interrupted") {
  for (const Way way : ways)
    for (int i = 0; i < 16; ++i) {
      CAPTURE(static_cast<int>(way));
      CAPTURE(i);
      Refusing calls(way);
      calls.direct_open = i & 1, calls.direct_transfers = (i & 3) == 2, calls.interrupted = i & 4,
      calls.in_pieces = i & 8;
      check_sizes(calls);
    }
}

TEST_CASE("a file says how it transfers, and why not by io_uring") {
  const Folder folder;
  const std::string path = folder.path.string();
  CallsBy none(Way::calls), turned(Way::reversed_ring);
  BlockFile by_calls, as_asked, by_ring, by_system;
  by_calls.open(path, &none, {.threads = 1}), as_asked.open(path, &turned, {.uses_ring = false});
  by_ring.open(path, &turned, {.threads = 3, .depth = 4, .piece_bytes = 64_KiB}), by_system.open(path);
  CHECK((!by_calls.uses_ring() && !as_asked.uses_ring() && by_ring.uses_ring()));
  CHECK(by_calls.way() == (DSPP_HAS_LIBURING()
                               ? "pread and pwrite on 1 thread: the system refuses io_uring (Function not implemented)"
                               : "pread and pwrite on 1 thread: the build has no liburing"));
  CHECK(as_asked.way() == "pread and pwrite on 2 threads");
  CHECK(by_ring.way() == "io_uring, 4 pieces of 64 KiB at a time on each of 3 threads");
  if (!by_system.uses_ring()) MESSAGE("the cases of the system's ring ran by " << by_system.way());
  for (const io::BlockOptions& options :
       {io::BlockOptions{.threads = 0}, io::BlockOptions{.depth = 0}, io::BlockOptions{.piece_bytes = 5000}})
    CHECK(sentence_of([&] { BlockFile().open(path, nullptr, options); }).starts_with("dspp: BlockFile needs a thread"));
}

namespace {
/// Refuses the transfer of one piece, each time or once.
struct Faulty : CallsBy {
  using CallsBy::CallsBy;
  std::atomic<Size> offset{-1};      ///< of the piece
  std::atomic<Size> last_write{-1};  ///< where it began
  int error = EIO;
  bool once = false;
  void before(io::BlockPiece& piece) noexcept override {
    if (piece.writes) last_write = piece.offset;
    if (piece.offset != offset) return;
    piece.error = error;
    if (error == 0) piece.bytes = 0;
    if (once) offset = -1;
  }
};
}  // namespace

TEST_CASE("a piece that fails ends its block with a sentence when no piece is under way, and the block is not taken") {
  constexpr Size bytes = 10 * BLOCK_SIZE - BlockFile::unit - 77, pieces = 10;
  for (const Way way : ways)
    for (const int error : {EIO, ENOSPC, EAGAIN, 0})
      for (Size piece = 0; piece < (way == Way::calls ? 1 : pieces); ++piece) {
        CAPTURE(static_cast<int>(way));
        CAPTURE(error);
        CAPTURE(piece);
        const Folder folder;
        Faulty calls(way);
        BlockFile file;
        file.open(folder.path.string(), &calls, {.depth = 3, .piece_bytes = BLOCK_SIZE});
        if (way == Way::system_ring && !file.uses_ring() && piece > 0) continue;
        file.extend(2 * pieces * BLOCK_SIZE);
        const auto write = [&](Block& block, std::int64_t version) {
          return sentence_of([&] { file.start_write(0, {3, version}, block.memory.get(), bytes).wait(); });
        };
        const auto read = [&](Block& block, std::int64_t version) {
          return sentence_of([&] { file.start_read(0, {3, version}, block.memory.get(), bytes).wait(); });
        };
        const std::string where = std::to_string(file.uses_ring() ? BLOCK_SIZE : BlockFile::bytes_of(bytes)) +
                                  " bytes at offset " + std::to_string(piece * BLOCK_SIZE) + " of its file in '" +
                                  folder.path.string() + "' to be ";
        Block first(bytes, 1), second(bytes, 2), back(bytes, 9);
        CHECK(write(first, 1) == "no error");
        CHECK(calls.last_write == 0);  // the header, which says what the others are
        calls.error = error, calls.offset = piece * BLOCK_SIZE;
        const std::string unwritten = write(second, 2), unread = read(back, 1);
        CHECK(calls.last_write == piece * BLOCK_SIZE);
        CHECK(unwritten.starts_with("dspp: BlockFile needs " + where + "writable, but "));
        CHECK(unread.starts_with("dspp: BlockFile needs " + where + "readable, but "));
        CHECK((unwritten.find("bytes are free") != std::string::npos) == (error == ENOSPC));
        if (error == 0) CHECK(unwritten.find("the system writes fewer. Check the disk.") != std::string::npos);
        if (error == 0) CHECK(unread.find("the file ends before. Check the disk.") != std::string::npos);
        calls.offset = -1;
        CHECK(read(back, 2) != "no error");
        CHECK(write(second, 2) == "no error");
        calls.once = true, calls.error = 0, calls.offset = piece * BLOCK_SIZE;
        CHECK(read(back, 2).find("the file ends before") != std::string::npos);
        calls.error = EAGAIN, calls.offset = piece * BLOCK_SIZE;
        CHECK(read(back, 2) == "no error");
        CHECK(back.same_payload(second));
      }
}

namespace {
/// The descriptors of this process that are rings of io_uring.
std::vector<int> rings() {
  std::vector<int> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd", ignored))
    if (fs::read_symlink(entry.path(), ignored).string().find("io_uring") != std::string::npos)
      found.push_back(std::stoi(entry.path().filename().string()));
  return found;
}
}  // namespace

TEST_CASE("a program that loses its rings goes on by pread and pwrite") {
  const Folder folder;
  const std::vector<int> others = rings();
  BlockFile file;
  constexpr Size bytes = 10 * BLOCK_SIZE - BlockFile::unit - 77;
  file.open(folder.path.string(), nullptr, {.depth = 3, .piece_bytes = BLOCK_SIZE});
  file.extend(10 * BLOCK_SIZE);
  Block first(bytes, 1), second(bytes, 2), back(bytes, 9);
  file.start_write(0, {3, 1}, first.memory.get(), bytes).wait();
  for (const int ring : rings())
    if (std::find(others.begin(), others.end(), ring) == others.end()) ::close(ring);
  file.start_read(0, {3, 1}, back.memory.get(), bytes).wait();
  CHECK(back.same_payload(first));
  for (int again = 0; again < 3; ++again) {  // by both threads
    file.start_write(0, {3, 2}, second.memory.get(), bytes).wait();
    file.start_read(0, {3, 2}, back.memory.get(), bytes).wait();
    CHECK(back.same_payload(second));
  }
}

TEST_CASE("a system that has no descriptor for a ring is named, and blocks come back without one") {
  const Folder folder;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(0);
  ::close(next);
  int refused = 0;
  for (int more = 1; more <= 4; ++more) {
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(next + more);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    BlockFile file;
    const std::string sentence = sentence_of([&] { file.open(folder.path.string()); });
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (sentence != "no error") continue;
    if (file.way().find("the system refuses io_uring (Too many open files)") != std::string::npos) ++refused;
    Block block(5000, 3), back(5000);
    file.extend(BlockFile::bytes_of(5000));
    file.start_write(0, {1, 4}, block.memory.get(), 5000).wait();
    file.start_read(0, {1, 4}, back.memory.get(), 5000).wait();
    CHECK(back.same_payload(block));
  }
  BlockFile file;
  file.open(folder.path.string());
  if (file.uses_ring()) CHECK(refused > 0);
}

TEST_CASE("what the system itself refuses is the same sentence by every way") {
  const Folder folder;
  constexpr Size bytes = 4 * BLOCK_SIZE - BlockFile::unit;
  for (const Way way : ways) {
    CAPTURE(static_cast<int>(way));
    CallsBy calls(way);
    BlockFile file;
    file.open(folder.path.string(), &calls, {.depth = 2, .piece_bytes = BLOCK_SIZE});
    file.extend(8 * BLOCK_SIZE);
    Block block(bytes);
    const std::string unread = sentence_of([&] {
      file.start_read(6 * BLOCK_SIZE, {1, 1}, block.memory.get(), bytes).wait();
    });
    CHECK(unread.find("to be readable, but the file ends before. Check the disk.") != std::string::npos);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = static_cast<rlim_t>(BLOCK_SIZE);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &few) == 0);
    const std::string unwritten = sentence_of([&] {
      file.start_write(2 * BLOCK_SIZE, {1, 1}, block.memory.get(), bytes).wait();
    });
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(unwritten.find("to be writable, but the system says: File too large. Check the disk.") != std::string::npos);
  }
}

TEST_CASE("a block that is not the one asked for is a sentence that says what was found") {
  const Folder folder;
  BlockFile file;
  file.open(folder.path.string());
  const Size bytes = 5000, place = BlockFile::bytes_of(bytes);
  file.extend(3 * place);
  Block block(bytes, 3), back(bytes);
  file.start_write(0, {1, 4}, block.memory.get(), bytes).wait();
  const auto read = [&](Size offset, io::BlockLabel label, Size length) {
    return sentence_of([&] { file.start_read(offset, label, back.memory.get(), length).wait(); });
  };
  const std::string where = " of its file in '" + folder.path.string() + "', but found ";
  CHECK(read(0, {1, 4}, bytes) == "no error");
  CHECK(read(0, {2, 4}, bytes).find("needs block 2 in its version 4 at offset 0" + where + "another block.") !=
        std::string::npos);
  CHECK(read(0, {1, 5}, bytes).find(where + "another block.") != std::string::npos);
  CHECK(read(0, {1, 4}, bytes - 1).find(where + "other bytes.") != std::string::npos);
  CHECK(read(place, {1, 4}, bytes).find(where + "no block.") != std::string::npos);
}

namespace {
/// All its files are the first.
struct Shared : io::BlockCalls {
  int first = -1;
  int open(const std::string& folder, bool direct, int& descriptor) override {
    const int error = first < 0 ? BlockCalls::open(folder, direct, first) : 0;
    descriptor = error == 0 ? ::dup(first) : -1;
    return error;
  }
  ~Shared() override { ::close(first); }
};
}  // namespace

TEST_CASE("a block of another run's file is not taken, though its label is the one asked for") {
  const Folder folder;
  Shared calls;
  BlockFile file, other;
  file.open(folder.path.string(), &calls), other.open(folder.path.string(), &calls);
  Block block(100, 3), back(100);
  file.extend(BlockFile::bytes_of(100));
  file.start_write(0, {1, 4}, block.memory.get(), 100).wait();
  CHECK(sentence_of([&] { file.start_read(0, {1, 4}, back.memory.get(), 100).wait(); }) == "no error");
  CHECK(sentence_of([&] {
          other.start_read(0, {1, 4}, back.memory.get(), 100).wait();
        }).find("but found a block of another run.") != std::string::npos);
}

TEST_CASE("a folder that takes no file, and a disk without room, are sentences") {
  const Folder folder;
  Refusing full(Way::system_ring);
  full.extend_error = ENOSPC;
  BlockFile file;
  CHECK(sentence_of([&] { file.open(folder.file("absent")); })
            .starts_with("dspp: BlockFile needs '" + folder.file("absent") +
                         "' to take a file, but the system says: No such file or directory. Name a folder"));
  CHECK(!file.is_open());
  file.open(folder.path.string(), &full);
  const std::string sentence = sentence_of([&] { file.extend(12345); });
  CHECK(sentence.starts_with("dspp: BlockFile needs 12345 bytes at offset 0 of its file in '"));
  CHECK(sentence.find("No space left on device, where ") != std::string::npos);
  CHECK(sentence.find("Name a folder on a disk with more room.") != std::string::npos);
}

TEST_CASE("a transfer that nobody waits for ends before its memory is given back") {
  for (const Way way : ways) {
    const Folder folder;
    CallsBy calls(way);
    BlockFile file;
    file.open(folder.path.string(), &calls, {.depth = 2, .piece_bytes = 2 * BlockFile::unit});
    constexpr Size bytes = 5 * BlockFile::unit, place = BlockFile::bytes_of(bytes);
    file.extend(100 * place);
    for (Size i = 0; i < 100; ++i) {
      Block block(bytes, static_cast<unsigned>(i));
      const io::Transfer dropped = file.start_write(i * place, {i, 1}, block.memory.get(), bytes);
    }
    for (Size i = 0; i < 100; ++i) {
      Block block(bytes, static_cast<unsigned>(i)), back(bytes);
      file.start_read(i * place, {i, 1}, back.memory.get(), bytes).wait();
      CHECK(back.same_payload(block));
    }
  }
}
