// SPDX-License-Identifier: Apache-2.0
/// The host's memory, of which the blocks of a Pool are made.
#pragma once

#include <cstddef>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

namespace dspp::detail {

/// From 4 MiB on a mapping of its own, of which the system is asked for huge pages, where it gives them on request: a
/// pass over a large array then looks up few pages, and a transfer from a disk pins few. Mappings beside each other are
/// one to the system, which limits their number.
///
/// `bytes`   a multiple of block_alignment, to which what is returned is aligned; null if there is none
std::byte* take_host_memory(Size bytes) noexcept;
/// `bytes`   as they were taken
void give_host_memory(std::byte* data, Size bytes) noexcept;

/// The address sanitizer guards blocks of malloc alone.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool guards_single_blocks = true;
#elif defined(__has_feature)
inline constexpr bool guards_single_blocks = __has_feature(address_sanitizer);
#else
inline constexpr bool guards_single_blocks = false;
#endif

}  // namespace dspp::detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

#include <sys/mman.h>

#include <cstdlib>

#include <dspp/tensor/category.hpp>

namespace dspp::detail {

inline constexpr Size least_mapped = guards_single_blocks ? Size{1} << 62 : 4_MiB;

DSPP_INLINE std::byte* take_host_memory(Size bytes) noexcept {
  const auto size = static_cast<std::size_t>(bytes);
  if (bytes < least_mapped)
    return static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(block_alignment), size));
  void* const data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  ::madvise(data, size, MADV_HUGEPAGE);  // refused: pages as they are
#endif
  return static_cast<std::byte*>(data);
}

DSPP_INLINE void give_host_memory(std::byte* data, Size bytes) noexcept {
  if (bytes < least_mapped)
    std::free(data);
  else
    ::munmap(data, static_cast<std::size_t>(bytes));
}

}  // namespace dspp::detail

#endif  // DSPP_HAS_DEFINITIONS()
