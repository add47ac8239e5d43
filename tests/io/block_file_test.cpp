// SPDX-License-Identifier: Apache-2.0
// Blocks in a file come back as they were, in every size and where a file system refuses direct transfers; what is not
// the block that was asked for, or cannot be transferred, is a sentence.
// labels: thread races
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
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

/// Refuses what it is told to refuse.
struct Refusing : io::BlockCalls {
  bool direct_open = false, direct_transfers = false, interrupted = false, in_pieces = false;
  int extend_error = 0;
  std::atomic<int> calls{0};
  std::atomic<bool> refused{false};
  int open(const std::string& folder, bool direct, int& descriptor) override {
    return direct_open && direct ? EINVAL : BlockCalls::open(folder, direct, descriptor);
  }
  int extend(int descriptor, Size offset, Size bytes) override {
    return extend_error ? extend_error : BlockCalls::extend(descriptor, offset, bytes);
  }
  int read(int descriptor, void* to, Size bytes, Size offset, Size& done) override {
    return act(bytes, done, [&](Size part) { return BlockCalls::read(descriptor, to, part, offset, done); });
  }
  int write(int descriptor, const void* from, Size bytes, Size offset, Size& done) override {
    return act(bytes, done, [&](Size part) { return BlockCalls::write(descriptor, from, part, offset, done); });
  }

 private:
  int act(Size bytes, Size& done, const std::function<int(Size)>& transfer) {
    done = 0;
    if (direct_transfers && !refused.exchange(true)) return EINVAL;
    if (interrupted && ++calls % 2 == 1) return EINTR;
    return transfer(in_pieces ? std::min<Size>(bytes, 5000) : bytes);
  }
};

constexpr Size sizes[] = {1,     2,     63,    64,    65,    511,    512,    513,    1000,   4095,
                          4096,  4097,  5000,  8191,  8192,  8193,   9999,   12288,  16384,  16385,
                          20001, 32768, 40000, 65536, 65537, 100000, 131072, 131073, 262144, 300001};
static_assert(std::size(sizes) == 30);

void check_sizes(Refusing& calls) {
  const Folder folder;
  BlockFile file;
  file.open(folder.path.string(), &calls);
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
}

}  // namespace

TEST_CASE("blocks of 30 sizes come back, direct or not, in pieces and interrupted") {
  for (int i = 0; i < 16; ++i) {
    CAPTURE(i);
    Refusing calls;
    calls.direct_open = i & 1, calls.direct_transfers = (i & 3) == 2, calls.interrupted = i & 4,
    calls.in_pieces = i & 8;
    check_sizes(calls);
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
/// Hands out the bytes of the first file that wrote, whichever file reads.
struct Crossed : io::BlockCalls {
  std::atomic<int> first{-1};
  int write(int descriptor, const void* from, Size bytes, Size offset, Size& done) override {
    int none = -1;
    first.compare_exchange_strong(none, descriptor);
    return BlockCalls::write(descriptor, from, bytes, offset, done);
  }
  int read(int, void* to, Size bytes, Size offset, Size& done) override {
    return BlockCalls::read(first, to, bytes, offset, done);
  }
};
}  // namespace

TEST_CASE("a block of another run's file is not taken, though its label is the one asked for") {
  const Folder folder;
  Crossed calls;
  BlockFile file, other;
  file.open(folder.path.string(), &calls), other.open(folder.path.string(), &calls);
  Block block(100, 3), back(100);
  for (BlockFile* each : {&file, &other}) {
    each->extend(BlockFile::bytes_of(100));
    each->start_write(0, {1, 4}, block.memory.get(), 100).wait();
  }
  CHECK(sentence_of([&] { file.start_read(0, {1, 4}, back.memory.get(), 100).wait(); }) == "no error");
  CHECK(sentence_of([&] {
          other.start_read(0, {1, 4}, back.memory.get(), 100).wait();
        }).find("but found a block of another run.") != std::string::npos);
}

TEST_CASE("a folder that takes no file, and a disk without room, are sentences") {
  const Folder folder;
  Refusing full;
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
  const Folder folder;
  BlockFile file;
  file.open(folder.path.string());
  file.extend(100 * BlockFile::bytes_of(4096));
  for (Size i = 0; i < 100; ++i) {
    Block block(4096, static_cast<unsigned>(i));
    const io::Transfer dropped = file.start_write(i * BlockFile::bytes_of(4096), {i, 1}, block.memory.get(), 4096);
  }
  for (Size i = 0; i < 100; ++i) {
    Block block(4096, static_cast<unsigned>(i)), back(4096);
    file.start_read(i * BlockFile::bytes_of(4096), {i, 1}, back.memory.get(), 4096).wait();
    CHECK(back.same_payload(block));
  }
}
