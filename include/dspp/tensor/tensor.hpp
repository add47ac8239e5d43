// SPDX-License-Identifier: Apache-2.0
/// The local tensor: a typed, contiguous, row-major view of a shared block. It has no notion of other ranks.
#pragma once

#include <utility>

#include <dspp/base/element.hpp>
#include <dspp/tensor/device.hpp>
#include <dspp/tensor/shape.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <functional>
#include <numeric>
#include <string>
#endif

namespace dspp {

namespace detail {
[[noreturn]] void fail_of_reshape(Extents from, Extents to);
}

/// A handle: copies share the elements, the last one frees them. T is the element type, Rank is static, extents are
/// not.
///
/// Memory   count() * sizeof(T), rounded up to 64 bytes, of the given category
/// Throws   Error(out_of_memory) when allocating; Error(shape) for extents below 0 or bytes that 63 bits do not count
template <class T, int Rank, Device D = Cpu>
class Tensor {
 public:
  using Element = T;
  using DeviceType = D;
  static constexpr int rank = Rank;

  constexpr Tensor() = default;

  /// Elements are uninitialised: the caller writes all of them. Not inlined: programs allocate in many places.
  [[gnu::noinline]] static constexpr Tensor uninitialized(const Shape<Rank>& shape, Memory<D>& memory,
                                                          Category category = Category::activations,
                                                          const char* label = "tensor") {
    return Tensor(Storage<Memory<D>>(memory, bytes_of(shape, static_cast<Size>(sizeof(T))), category, label), 0, shape);
  }
  static constexpr Tensor zeros(const Shape<Rank>& shape, Memory<D>& memory, Category category = Category::activations,
                                const char* label = "tensor") {
    Tensor result = uninitialized(shape, memory, category, label);
    result.fill(T{});
    return result;
  }
  /// A view of `storage` from element `offset` on.
  static constexpr Tensor view(const Storage<Memory<D>>& storage, Size offset, const Shape<Rank>& shape) {
    return Tensor(storage, offset, shape);
  }
  static constexpr Tensor view(Storage<Memory<D>>&& storage, Size offset, const Shape<Rank>& shape) {
    return Tensor(static_cast<Storage<Memory<D>>&&>(storage), offset, shape);
  }

  constexpr explicit operator bool() const { return static_cast<bool>(storage_); }
  constexpr const Shape<Rank>& shape() const { return shape_; }
  constexpr Size operator[](int dimension) const {  // not shape_[dimension]: constant expressions count the call
    return shape_.extents[dimension < 0 ? dimension + Rank : dimension];
  }
  constexpr Size count() const { return shape_.count(); }
  constexpr Size bytes() const { return count() * static_cast<Size>(sizeof(T)); }
  constexpr Memory<D>& memory() const { return storage_.memory(); }
  constexpr const Storage<Memory<D>>& storage() const { return storage_; }
  constexpr Size offset() const { return offset_; }

  /// True if no other handle shares the block: it may be written in place.
  constexpr bool unique() const { return storage_.unique(); }

  /// The first element. Null on paper.
  constexpr T* data() const {
    if constexpr (D::real)
      return reinterpret_cast<T*>(storage_.data()) + offset_;
    else
      return nullptr;
  }

  /// Element `i`. Null on paper.
  constexpr T* data_from(Size i) const {
    if constexpr (D::real)
      return data() + i;
    else
      return nullptr;
  }

  /// The same elements in another shape of the same count.
  template <int NewRank>
  constexpr Tensor<T, NewRank, D> reshape(const Shape<NewRank>& shape) const {
    if (shape.count() != shape_.count()) detail::fail_of_reshape(shape_, shape);
    return Tensor<T, NewRank, D>(storage_, offset_, shape);
  }

  /// Releases the block now, not at the end of the scope.
  constexpr void release() { storage_.release(); }
  /// Moves the block out of the tensor.
  constexpr Storage<Memory<D>> take_storage() && { return std::move(storage_); }

  /// The value of a tensor of one element: waits for it. T{} on paper.
  constexpr T item() const {
    static_assert(
        Rank == 0,
        "dspp: item needs a tensor of rank 0, which has one element, but this one has more. read(f) has all.");
    T value{};
    D::to_host(memory(), &value, data(), 1);
    return value;
  }

  /// Calls f(host) with the elements on the host, in order; waits for them. On paper it does not call f.
  template <class F>
  constexpr void read([[maybe_unused]] F f) const {
    if constexpr (D::real) D::read(memory(), static_cast<const T*>(data()), count(), f);
  }
  /// Calls f(host) with host memory for all elements, which f writes, in order. On paper it does not call f.
  template <class F>
  constexpr void write([[maybe_unused]] F f) const {
    if constexpr (D::real) D::write(memory(), data(), count(), f);
  }

  constexpr void fill(T value) const { D::fill(memory(), data(), count(), value); }

 private:
  template <class, int, Device>
  friend class Tensor;  // reshape, which would call view
  // Casts rather than std::move: constant expressions count its statements.
  constexpr Tensor(Storage<Memory<D>>&& storage, Size offset, const Shape<Rank>& shape)
      : storage_(static_cast<Storage<Memory<D>>&&>(storage)), offset_(offset), shape_(shape) {}
  constexpr Tensor(const Storage<Memory<D>>& storage, Size offset, const Shape<Rank>& shape)
      : storage_(storage), offset_(offset), shape_(shape) {}

  Storage<Memory<D>> storage_;
  Size offset_ = 0;  // in elements
  Shape<Rank> shape_{};
};

template <class T, class D = Cpu>
using Scalar = Tensor<T, 0, D>;

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::fail_of_reshape(Extents from, Extents to) {
  const auto count = [](Extents extents) {
    return std::to_string(std::accumulate(extents.begin(), extents.end(), Size{1}, std::multiplies<>()));
  };
  fail(ErrorCode::shape, "dspp: reshape needs a shape of the same number of elements, but " + to_string(from) +
                             " has " + count(from) + " and " + to_string(to) + " has " + count(to) +
                             ". Give extents whose product is equal.");
}

#endif  // DSPP_HAS_DEFINITIONS()

/// The tensor in another memory, or itself if it is there.
template <class T, Device D>
constexpr Tensor<T, 1, D> moved_to(Memory<D>& memory, const Tensor<T, 1, D>& tensor, Category category,
                                   const char* label) {
  if (&tensor.memory() == &memory) return tensor;
  const auto moved = Tensor<T, 1, D>::uninitialized(tensor.shape(), memory, category, label);
  copy_bytes<D>(moved.storage(), 0, tensor.storage(), tensor.offset() * static_cast<Size>(sizeof(T)), tensor.bytes());
  return moved;
}

}  // namespace dspp
