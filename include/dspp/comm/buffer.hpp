// SPDX-License-Identifier: Apache-2.0
/// What a collective reads and writes: a pointer, a count of elements and their type, without ownership.
#pragma once

#include <span>

#include <dspp/base/element.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// Elements to write. On paper `data` is null; count and type are valid.
struct Buffer {
  void* data = nullptr;
  Size count = 0;
  ElementType type = ElementType::f32;

  constexpr Size bytes() const { return count * bytes_of(type); }
};

/// Elements to read.
struct ConstBuffer {
  const void* data = nullptr;
  Size count = 0;
  ElementType type = ElementType::f32;

  constexpr ConstBuffer() = default;
  constexpr ConstBuffer(const void* data_, Size count_, ElementType type_) : data(data_), count(count_), type(type_) {}
  constexpr ConstBuffer(const Buffer& b) : data(b.data), count(b.count), type(b.type) {}

  constexpr Size bytes() const { return count * bytes_of(type); }
};

template <class T>
constexpr Buffer buffer(T* data, Size count) {
  return Buffer{data, count, element_type<T>};
}

template <class T>
constexpr ConstBuffer buffer(const T* data, Size count) {
  return ConstBuffer{data, count, element_type<T>};
}

/// One of the pairs of a coalesced reduce-scatter: in.count == size() * out.count.
struct ScatterPair {
  ConstBuffer in;
  Buffer out;
};

/// One of the pairs of a coalesced all-gather: out.count == size() * in.count.
struct GatherPair {
  ConstBuffer in;
  Buffer out;
};

/// The elements of an all-to-all that go to each rank and that come from each rank, in rank order; both empty: equal
/// parts. The lists are read at issue only.
struct PartCounts {
  std::span<const Size> sent, received;

  constexpr bool equal() const { return sent.empty() && received.empty(); }
};

}  // namespace dspp
