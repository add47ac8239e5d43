// SPDX-License-Identifier: Apache-2.0
/// Memory of objects that end in the reverse order of their beginning: what is freed is there for the next.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp {

/// A stack of pieces in blocks that are kept. A piece that is freed while a later one is not leaves a hole until the
/// next clear().
///
/// Memory   blocks of 4 KiB, or of one larger piece; the destructor gives them back
class StackMemory {
 public:
  /// Of any alignment that operator new gives. Throws std::bad_alloc.
  void* push(std::size_t bytes) {
    bytes = rounded(bytes);
    if (blocks_.empty() || blocks_[last_].size - blocks_[last_].used < bytes) next_block(bytes);
    Block& block = blocks_[last_];
    block.used += bytes;
    return block.data.get() + (block.used - bytes);
  }
  void pop(void* piece, std::size_t bytes) noexcept {
    Block& block = blocks_[last_];
    bytes = rounded(bytes);
    if (static_cast<std::byte*>(piece) + bytes != block.data.get() + block.used) return;
    block.used -= bytes;
    if (block.used == 0 && last_ > 0) --last_;
  }
  /// Frees all pieces at once.
  void clear() noexcept {
    for (Block& block : blocks_) block.used = 0;
    last_ = 0;
  }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t size = 0, used = 0;
  };
  static constexpr std::size_t rounded(std::size_t bytes) {
    constexpr std::size_t unit = alignof(std::max_align_t);
    return (bytes + unit - 1) / unit * unit;
  }
  void next_block(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t last_ = 0;  // the one that is pushed to; those behind it are empty
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void StackMemory::next_block(std::size_t bytes) {
  constexpr std::size_t usual = 4096;
  const std::size_t next = blocks_.empty() ? 0 : last_ + 1;
  if (next == blocks_.size() || blocks_[next].size < bytes) {
    const std::size_t size = bytes > usual ? bytes : usual;
    Block block{std::make_unique_for_overwrite<std::byte[]>(size), size};
    blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(next), std::move(block));
  }
  last_ = next;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
