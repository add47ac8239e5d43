// SPDX-License-Identifier: Apache-2.0
/// A GPU as the device of tensors: Policy<..., Cuda>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include <dspp/cuda/clock.hpp>
#include <dspp/cuda/graphs.hpp>
#include <dspp/cuda/host_memory.hpp>
#include <dspp/cuda/kernels.hpp>
#include <dspp/cuda/lane.hpp>
#include <dspp/cuda/library.hpp>
#include <dspp/cuda/memory.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

/// One NVIDIA GPU. Operations are issued to the rank's stream; see Cpu for what the members do.
///
/// Elements are f32, bf16 or f16; sums are in f32, those of norms and losses in f64.
struct Cuda {
  static constexpr bool real = true;
  static constexpr bool synchronous = false;
  using Memory = Pool;
  using Imitated = Cuda;
  using HostMemory = CudaHostMemory;  ///< of what rests beside the GPU's memory
  using Lane = CudaLane;              ///< of work beside its operations
  using Graphs = CudaGraphs;          ///< that repeat an engine's steps: see HasGraphs

  template <class T>
  static void fill(Pool& pool, T* y, Size count, T value);
  static void zero(Pool& pool, std::byte* to, Size bytes) {
    const ProfiledKernel profiled(pool.profiler(), "zero", bytes);
    memory_of(pool).zero(to, bytes);
  }
  static void copy(Pool& pool, std::byte* to, const std::byte* from, Size bytes) {
    const ProfiledKernel profiled(pool.profiler(), "copy", 2 * bytes);
    memory_of(pool).copy(to, from, bytes);
  }
  template <class T>
  static void to_host(Pool& pool, T* host, const T* x, Size count) {
    const ProfiledKernel profiled(pool.profiler(), "to_host", count * Size{sizeof(T)});
    memory_of(pool).to_host(host, reinterpret_cast<const std::byte*>(x), count * Size{sizeof(T)});
  }
  template <class T>
  static void from_host(Pool& pool, T* x, const T* host, Size count) {
    const ProfiledKernel profiled(pool.profiler(), "from_host", count * Size{sizeof(T)});
    memory_of(pool).from_host(reinterpret_cast<std::byte*>(x), host, count * Size{sizeof(T)});
  }
  template <class T, class F>
  static void read(Pool& pool, const T* x, Size count, F f) {
    const Size bytes = count * Size{sizeof(T)};
    if (bytes <= PinnedCopies::piece_bytes) {
      const Storage<Pool> pinned = [&] {
        const ProfiledKernel profiled(pool.profiler(), "to_host", bytes);
        return memory_of(pool).to_pinned(reinterpret_cast<const std::byte*>(x), bytes);
      }();
      f(static_cast<const T*>(pinned.template element<T>(0)));
      return;
    }
    const auto room = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(count));
    to_host(pool, room.get(), x, count);
    f(static_cast<const T*>(room.get()));
  }
  template <class T, class F>
  static void write(Pool& pool, T* x, Size count, F f) {
    const Size bytes = count * Size{sizeof(T)};
    if (bytes <= PinnedCopies::piece_bytes) {
      Storage<Pool> pinned = memory_of(pool).new_pinned(bytes);
      f(pinned.template element<T>(0));
      const ProfiledKernel profiled(pool.profiler(), "from_host", bytes);
      return memory_of(pool).from_pinned(reinterpret_cast<std::byte*>(x), std::move(pinned), bytes);
    }
    const auto room = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(count));
    f(room.get());
    from_host(pool, x, static_cast<const T*>(room.get()), count);
  }
  template <class Name, class... Arguments>
  static void launch(Pool& pool, const Arguments&... arguments) {
    detail::check_cuda_kernel<Name>();
    const ProfiledKernel profiled(pool.profiler(), detail::signature_of<Name>());
    Kernel<Name, Cuda>::run(memory_of(pool), arguments...);
  }
  template <class Name, class... Arguments>
  static auto ask(Pool& pool, const Arguments&... arguments) {
    detail::check_cuda_kernel<Name>();
    const ProfiledKernel profiled(pool.profiler(), detail::signature_of<Name>());
    return Kernel<Name, Cuda>::run(memory_of(pool), arguments...);
  }

  /// In NVTX, and in a profile: "forward blocks.3".
  static std::uint64_t begin_range(Pool& pool, std::string_view what, std::string_view name) {
    return memory_of(pool).begin_range(what, name, pool.profiler());
  }
  static void end_range(Pool& pool, std::uint64_t range) { memory_of(pool).end_range(range, pool.profiler()); }
  /// Of the work of the Pool's rank.
  static std::unique_ptr<StreamClock> clock(Pool& pool) { return std::make_unique<CudaClock>(memory_of(pool)); }

  static CudaMemory& memory_of(Pool& pool) { return static_cast<CudaSource&>(*pool.source()).issuer(); }
};

}  // namespace dspp
