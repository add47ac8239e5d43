// SPDX-License-Identifier: Apache-2.0
/// A growing array for planning code: constant expressions count calls, of which std::vector's iterators make many.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include <dspp/base/config.hpp>

namespace dspp {

/// A subset of std::vector with pointers for iterators. T has a default value, and a moved-from T owns nothing.
///
/// Memory   grows by doubling; only free() and the destructor give it back
template <class T>
class List {
 public:
  constexpr List() = default;
  constexpr List(std::initializer_list<T> items) : List() {
    reserve(items.size());
    for (const T& item : items) push_back(item);
  }
  constexpr List(const List& other) : List() {
    reserve(other.size_);
    for (const T& item : other) push_back(item);
  }
  constexpr List(List&& other) noexcept : items_(other.items_), size_(other.size_), capacity_(other.capacity_) {
    other.items_ = nullptr;
    other.size_ = other.capacity_ = 0;
  }
  // Two overloads instead of one that takes a List: nvcc does not destroy such a parameter in constant expressions.
  constexpr List& operator=(const List& other) { return *this = List(other); }
  constexpr List& operator=(List&& other) noexcept {
    if (this == &other) return *this;
    free();
    items_ = other.items_;
    size_ = other.size_;
    capacity_ = other.capacity_;
    other.items_ = nullptr;
    other.size_ = other.capacity_ = 0;
    return *this;
  }
  constexpr ~List() { delete[] items_; }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T& operator[](std::size_t i) { return items_[i]; }
  constexpr const T& operator[](std::size_t i) const { return items_[i]; }
  constexpr T& front() { return items_[0]; }
  constexpr const T& front() const { return items_[0]; }
  constexpr T& back() { return items_[size_ - 1]; }
  constexpr const T& back() const { return items_[size_ - 1]; }
  constexpr T* data() { return items_; }
  constexpr const T* data() const { return items_; }
  constexpr T* begin() { return items_; }
  constexpr T* end() { return items_ + size_; }
  constexpr const T* begin() const { return items_; }
  constexpr const T* end() const { return items_ + size_; }

  constexpr void push_back(T item) {
    if (size_ == capacity_) reserve(2 * size_ + 1);
    items_[size_++] = static_cast<T&&>(item);
  }
  /// Removes and returns the first item.
  constexpr T take_front() {
    T first = static_cast<T&&>(items_[0]);
    for (std::size_t i = 1; i < size_; ++i) items_[i - 1] = static_cast<T&&>(items_[i]);
    --size_;
    if constexpr (std::is_trivially_copyable_v<T>) items_[size_] = T();
    return first;
  }
  constexpr void pop_back() { items_[--size_] = T(); }
  /// Cuts the list, or appends default values.
  constexpr void resize(std::size_t size) {
    if (size > capacity_) reserve(size < 2 * capacity_ ? 2 * capacity_ : size);
    for (T* item = items_ + size; item < items_ + size_; ++item) *item = T();
    size_ = size;
  }
  constexpr void clear() { resize(0); }
  /// Empties the list and frees its memory.
  constexpr void free() {
    delete[] items_;
    items_ = nullptr;
    size_ = capacity_ = 0;
  }
  constexpr void reserve(std::size_t capacity) {
    if (capacity > capacity_) grow(capacity);
  }

 private:
  /// Rare, and too much code to repeat where it is called.
  [[gnu::noinline]] constexpr void grow(std::size_t capacity) {
    static_assert(std::is_nothrow_move_assignable_v<T>);
    T* const larger = new T[capacity]();
    for (std::size_t i = 0; i < size_; ++i) larger[i] = static_cast<T&&>(items_[i]);
    delete[] items_;
    items_ = larger;
    capacity_ = capacity;
  }

  T* items_ = nullptr;  // items beyond the size have the default value
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace dspp
