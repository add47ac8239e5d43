// SPDX-License-Identifier: Apache-2.0
/// Bounded working memory of one kernel on one thread, outside the Pool.
#pragma once

#include <cstdlib>
#include <new>

#include <dspp/tensor/category.hpp>

namespace dspp::cpu {

/// `count` uninitialised elements, 64-byte aligned, for one piece of work.
///
/// Memory   not planned, like a provider's packing buffers; each kernel states its bound per thread. malloc caches such
///          blocks, so that a loop over pieces reuses one.
/// Throws   std::bad_alloc
template <class T>
class Scratch {
 public:
  explicit Scratch(Size count) {
    const Size bytes = round_up(count * static_cast<Size>(sizeof(T)) + 1, block_alignment);
    data_ = std::aligned_alloc(static_cast<std::size_t>(block_alignment), static_cast<std::size_t>(bytes));
    if (!data_) throw std::bad_alloc();
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  T* data() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace dspp::cpu
