// SPDX-License-Identifier: Apache-2.0
/// A block of memory with a reference count, and the handle that shares it.
#pragma once

#include <cstddef>
#include <utility>

#include <dspp/tensor/category.hpp>

namespace dspp {

/// One allocation of a Memory (Pool on the Cpu, Ledger on paper). `bytes` is rounded up to block_alignment.
template <class Memory>
struct MemoryBlock {
  std::byte* data = nullptr;  ///< null on paper
  Size bytes = 0;
  Category category = Category::activations;
  int references = 0;
  Memory* memory = nullptr;
  const char* label = "";  ///< the requester, for the out-of-memory map
  MemoryBlock* previous = nullptr;
  MemoryBlock* next = nullptr;  ///< neighbours in the Memory's list of live blocks
};

/// A shared handle on a MemoryBlock; the last one frees it. Not thread-safe: a rank's blocks belong to its thread.
template <class Memory>
class Storage {
 public:
  constexpr Storage() = default;
  constexpr Storage(Memory& memory, Size bytes, Category category, const char* label)
      : block_(memory.take(bytes, category, label)) {
    block_->references = 1;
  }
  constexpr Storage(const Storage& other) : block_(other.block_) {
    if (block_) ++block_->references;
  }
  constexpr Storage(Storage&& other) noexcept : block_(other.block_) { other.block_ = nullptr; }
  constexpr Storage& operator=(const Storage& other) { return *this = Storage(other); }
  constexpr Storage& operator=(Storage&& other) noexcept {
    if (this == &other) return *this;
    release();
    block_ = other.block_;
    other.block_ = nullptr;
    return *this;
  }
  constexpr ~Storage() {
    if (block_ && --block_->references == 0) block_->memory->give(block_);
  }

  constexpr void release() {
    if (block_ && --block_->references == 0) block_->memory->give(block_);
    block_ = nullptr;
  }

  constexpr explicit operator bool() const { return block_ != nullptr; }
  constexpr bool unique() const { return block_ && block_->references == 1; }
  constexpr std::byte* data() const { return block_->data; }
  constexpr Size bytes() const { return block_->bytes; }
  /// Element `i` of the block as elements of type T. Null on paper.
  template <class T>
  constexpr T* element(Size i) const {
    return data() ? reinterpret_cast<T*>(data()) + i : nullptr;
  }
  constexpr Memory& memory() const { return *block_->memory; }

 private:
  MemoryBlock<Memory>* block_ = nullptr;
};

}  // namespace dspp
