// SPDX-License-Identifier: Apache-2.0
/// A block of memory with a reference count, and the handle that shares it.
#pragma once

#include <cstddef>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/tensor/category.hpp>

namespace dspp {

namespace detail {
[[noreturn]] void refuse_without_block();
}  // namespace detail

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
///
/// Throws   Error(state) where a handle without a block, such as one that was moved away, is asked for what it holds
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
    if (this != &other) {  // not release(): constant expressions count its statements, 2 % of a plan's in f32
      if (block_ && --block_->references == 0) block_->memory->give(block_);
      block_ = other.block_, other.block_ = nullptr;
    }
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
  constexpr std::byte* data() const { return block().data; }
  constexpr Size bytes() const { return block().bytes; }
  /// Element `i` of the block as elements of type T. Null on paper.
  template <class T>
  constexpr T* element(Size i) const {
    return data() ? reinterpret_cast<T*>(data()) + i : nullptr;
  }
  constexpr Memory& memory() const {
    // one statement: constant expressions count them
    return block_ ? *block_->memory : (detail::refuse_without_block(), *block_->memory);
  }

 private:
  friend Memory;  // takes a block again

  constexpr const MemoryBlock<Memory>& block() const {
    if (block_ == nullptr) detail::refuse_without_block();
    return *block_;
  }

  MemoryBlock<Memory>* block_ = nullptr;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_without_block() {
  fail(ErrorCode::state,
       "dspp: a tensor needs elements to be read or written, but this one has none: it was never set, was released, or "
       "was moved to where it is used. Read it before that, or pass it without std::move.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
