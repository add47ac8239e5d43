// SPDX-License-Identifier: Apache-2.0
/// Devices: where a tensor's elements are, and what replaces memory there.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>

#include <dspp/tensor/ledger.hpp>
#include <dspp/tensor/pool.hpp>

namespace dspp {

/// The numeric code of one operation on device D: a static function `run` of pointers into D's memory, extents and
/// numbers, which are copied. `Name` is a type of namespace kernels, declared with its arguments beside the operation
/// that launches it (ops/). A device specialises Kernel for each name: the Cpu's are in ops/cpu/.
///
/// Kernels are not constexpr, and their definitions need not be visible at the launch: see DSPP_COMPILED in
/// base/config.hpp.
template <class Name, class D>
struct Kernel;

class HostLane;

/// The host: elements are in a Pool, and a launch runs at once.
///
/// A device is a type with these members. Operations run in the order of issue, asynchronously to the host; only
/// `to_host`, `read` and `ask` wait. An operation's exception is thrown by the next of these, at the latest.
struct Cpu {
  static constexpr bool real = true;
  static constexpr bool synchronous = true;  ///< operations are done when their call returns
  using Memory = Pool;
  using Imitated = Cpu;
  using Lane = HostLane;

  /// y[i] = value for i < count.
  template <class T>
  static void fill(Pool& pool, T* y, Size count, T value) {
    const ProfiledKernel profiled(pool.profiler(), "fill", count * static_cast<Size>(sizeof(T)));
    std::fill_n(y, count, value);
  }
  static void zero(Pool& pool, std::byte* to, Size bytes) {
    const ProfiledKernel profiled(pool.profiler(), "zero", bytes);
    std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
  static void copy(Pool& pool, std::byte* to, const std::byte* from, Size bytes) {
    const ProfiledKernel profiled(pool.profiler(), "copy", 2 * bytes);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  /// Copies elements of the device to the host, after all operations issued before.
  template <class T>
  static void to_host(Pool&, T* host, const T* x, Size count) {
    std::copy_n(x, count, host);
  }
  /// Copies elements of the host to the device; the host's may change as soon as it returns.
  template <class T>
  static void from_host(Pool&, T* x, const T* host, Size count) {
    std::copy_n(host, count, x);
  }
  /// Calls f(host) with a host copy of x[0, count), as to_host makes; it is valid until f returns.
  template <class T, class F>
  static void read(Pool&, const T* x, Size, F f) {
    f(x);
  }
  /// Calls f(host) with host memory for `count` elements, which are then copied to x[0, count); f writes all of them.
  template <class T, class F>
  static void write(Pool&, T* x, Size, F f) {
    f(x);
  }
  /// Issues the kernel of that name.
  template <class Name, class... Arguments>
  static void launch(Pool& pool, const Arguments&... arguments) {
    const ProfiledKernel profiled(pool.profiler(), detail::signature_of<Name>());
    Kernel<Name, Cpu>::run(arguments...);
  }
  /// Issues a kernel that returns a value, and waits for it.
  template <class Name, class... Arguments>
  static auto ask(Pool& pool, const Arguments&... arguments) {
    const ProfiledKernel profiled(pool.profiler(), detail::signature_of<Name>());
    return Kernel<Name, Cpu>::run(arguments...);
  }
  /// The ranges of a profile: see HasTimeline.
  static std::uint64_t begin_range(Pool& pool, std::string_view what, std::string_view name) {
    return pool.profiler() ? pool.profiler()->begin_range(what, name) : 0;
  }
  static void end_range(Pool& pool, std::uint64_t range) noexcept {
    if (pool.profiler()) pool.profiler()->end_range(range);
  }
};

/// Paper: tensors have a shape, a type and a place, and no data; a Ledger counts them. Works in constant expressions.
/// D is the device that it imitates: the workspaces of D's kernels are counted.
template <class D>
struct MetaOf {
  static constexpr bool real = false;
  static constexpr bool synchronous = true;
  using Memory = Ledger;
  using Imitated = D;

  template <class T>
  static constexpr void fill(Ledger&, T*, Size, T) {}
  static constexpr void zero(Ledger&, std::byte*, Size) {}
  static constexpr void copy(Ledger&, std::byte*, const std::byte*, Size) {}
  /// Leaves the host's elements as they are.
  template <class T>
  static constexpr void to_host(Ledger&, T*, const T*, Size) {}
  template <class T>
  static constexpr void from_host(Ledger&, T*, const T*, Size) {}
  /// There are no elements: does not call f.
  template <class T, class F>
  static constexpr void read(Ledger&, const T*, Size, const F&) {}
  template <class T, class F>
  static constexpr void write(Ledger&, T*, Size, const F&) {}
};

using Meta = MetaOf<Cpu>;

template <class D>
concept Device = requires {
  { D::real } -> std::convertible_to<bool>;
  { D::synchronous } -> std::convertible_to<bool>;
  typename D::Memory;
  typename D::Imitated;
};

template <class D>
using Memory = typename D::Memory;

/// Whether operations of D, or of the device that paper imitates, are done when their call returns.
template <Device D>
inline constexpr bool imitates_synchronous = D::synchronous && D::Imitated::synchronous;

/// Whether a device's memory, or that of the device which paper imitates, is the host's.
template <Device D>
inline constexpr bool imitates_host = std::is_same_v<typename D::Imitated, Cpu>;

/// Whether what rests in the host's memory or on a disk can be used on a device, or on the one that paper imitates: its
/// HostMemory is a Memory<D>, made of the rank's, whose elements its operations take in place.
template <Device D>
inline constexpr bool has_host_memory = imitates_host<D> || requires { typename D::Imitated::HostMemory; };

/// The paper on which a program for D is planned.
template <Device D>
using PaperOf = MetaOf<typename D::Imitated>;

namespace detail {
/// Byte `offset` of a storage. Null on paper.
template <Device D>
constexpr std::byte* byte_of(const Storage<Memory<D>>& storage, Size offset) {
  if constexpr (D::real)
    return storage.data() + offset;
  else
    return nullptr;
}
}  // namespace detail

/// Zeros `bytes` bytes of a storage from `offset` on.
template <Device D>
constexpr void zero_bytes(const Storage<Memory<D>>& storage, Size offset, Size bytes) {
  D::zero(storage.memory(), detail::byte_of<D>(storage, offset), bytes);
}

/// Returns when all operations issued before have been done.
///
/// Throws   what a check of theirs found
template <Device D>
constexpr void wait_for_operations([[maybe_unused]] Memory<D>& memory) {
  if constexpr (!D::synchronous) D::to_host(memory, static_cast<char*>(nullptr), static_cast<const char*>(nullptr), 0);
}

/// Copies `bytes` bytes between storages that do not overlap.
template <Device D>
constexpr void copy_bytes(const Storage<Memory<D>>& to, Size to_offset, const Storage<Memory<D>>& from,
                          Size from_offset, Size bytes) {
  D::copy(to.memory(), detail::byte_of<D>(to, to_offset), detail::byte_of<D>(from, from_offset), bytes);
}

}  // namespace dspp
