// SPDX-License-Identifier: Apache-2.0
/// An array whose items are constructed in place, one after the other, and never move.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <dspp/base/error.hpp>

namespace dspp {

/// Up to `capacity` items. std::vector has some forty functions for each T where this has six, and asks for a T that
/// moves.
template <class T>
class FixedArray {
 public:
  constexpr FixedArray() = default;
  constexpr explicit FixedArray(std::size_t capacity)
      : items_(capacity > 0 ? std::allocator<T>().allocate(capacity) : nullptr), capacity_(capacity) {}
  constexpr FixedArray(FixedArray&& other) noexcept
      : items_(std::exchange(other.items_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  constexpr FixedArray& operator=(FixedArray&& other) noexcept {
    std::swap(items_, other.items_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  constexpr ~FixedArray() {
    for (T& item : *this) std::destroy_at(&item);
    if (items_) std::allocator<T>().deallocate(items_, capacity_);
  }

  /// Throws   Error(usage) if there are `capacity` items
  template <class... Arguments>
  constexpr void emplace_back(Arguments&&... arguments) {
    require(size_ < capacity_, "dspp: a FixedArray needs room for one more item, but is full. Give it the capacity.");
    std::construct_at(items_ + size_, std::forward<Arguments>(arguments)...);
    ++size_;
  }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](std::size_t i) { return items_[i]; }
  constexpr const T& operator[](std::size_t i) const { return items_[i]; }
  constexpr T& front() { return items_[0]; }
  constexpr const T& front() const { return items_[0]; }
  constexpr T& back() { return items_[size_ - 1]; }
  constexpr const T& back() const { return items_[size_ - 1]; }
  constexpr T* begin() { return items_; }
  constexpr T* end() { return items_ + size_; }
  constexpr const T* begin() const { return items_; }
  constexpr const T* end() const { return items_ + size_; }

 private:
  T* items_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace dspp
