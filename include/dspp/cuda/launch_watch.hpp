// SPDX-License-Identifier: Apache-2.0
/// What hears of a thread's launches, and the digests of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <dspp/base/types.hpp>

namespace dspp {

/// One launch: the operation's name, digests of its arguments with addresses in the device's memory left out, and with
/// all of them.
struct NotedLaunch {
  const char* operation = "";
  std::uint64_t numbers = 0, all = 0;
};

/// Hears of the launches of the thread that it is set for: see gpu::launch_watch() in kernels/device.cuh.
class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;
  virtual void launched(const NotedLaunch& launch) = 0;
  /// Whether it is an address in the device's memory, which a launch then uses.
  virtual bool uses(std::uintptr_t address) = 0;
};

/// The digests of a launch's arguments, bit for bit; padding does not count.
///
/// Where the compiler cannot clear the padding of a class (clang's before 20 cannot), those that may have some are left
/// out: numbers in them are not compared. Nor are those of classes that are not copied as bytes.
class ArgumentDigest {
 public:
  ArgumentDigest(LaunchWatch& watch, const char* operation) : watch_(watch), launch_{operation} {}

  template <class A>
  void add(const A& argument) {
    if constexpr (std::is_empty_v<A>) return;
    if constexpr (std::is_pointer_v<A>) {
      add_word(reinterpret_cast<std::uintptr_t>(argument));
    } else if constexpr (std::is_class_v<A>) {
      if constexpr (std::is_trivially_copyable_v<A>) add_class(argument);
    } else {
      add_bytes(&argument, sizeof argument);
    }
  }
  void note() { watch_.launched(launch_); }

 private:
  template <class A>
  void add_class(A argument) {
    constexpr bool is_dense = std::has_unique_object_representations_v<A> || sizeof(A) == alignof(A);
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
    return add_bytes(&argument, sizeof argument);
#endif
#endif
    if constexpr (is_dense) add_bytes(&argument, sizeof argument);
  }
  /// Words that are addresses are found by their values.
  void add_bytes(const void* data, std::size_t bytes) {
    const auto* const from = static_cast<const std::byte*>(data);
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + at, bytes - at < sizeof word ? bytes - at : sizeof word);
      add_word(word);
    }
  }
  void add_word(std::uint64_t word) {
    launch_.all = mixed(launch_.all, word);
    launch_.numbers = mixed(launch_.numbers, watch_.uses(word) ? ~std::uint64_t{0} : word);
  }
  static std::uint64_t mixed(std::uint64_t digest, std::uint64_t word) {
    digest = (digest ^ word) * 0x9E3779B97F4A7C15u;
    return digest ^ (digest >> 29);
  }

  LaunchWatch& watch_;
  NotedLaunch launch_;
};

}  // namespace dspp
