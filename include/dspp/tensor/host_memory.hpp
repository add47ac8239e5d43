// SPDX-License-Identifier: Apache-2.0
/// The host's memory, of which the blocks of a Pool are made.
#pragma once

#include <cstddef>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

namespace dspp::detail {

/// From 4 MiB on the system is asked for huge pages of what lies in whole ones, where it gives them on request: a pass
/// over a large array then looks up few pages, and a transfer from a disk pins few.
///
/// `bytes`   a multiple of block_alignment, to which what is returned is aligned; null if there is none
std::byte* take_host_memory(Size bytes) noexcept;
void give_host_memory(std::byte* data) noexcept;

}  // namespace dspp::detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include <dspp/tensor/category.hpp>

namespace dspp::detail {

DSPP_INLINE std::byte* take_host_memory(Size bytes) noexcept {
  constexpr std::uintptr_t huge_page = 2 << 20;
  void* const data = std::aligned_alloc(static_cast<std::size_t>(block_alignment), static_cast<std::size_t>(bytes));
#if defined(MADV_HUGEPAGE)
  if (data && bytes >= 4_MiB) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::uintptr_t begin = (address + huge_page - 1) / huge_page * huge_page;
    const std::uintptr_t end = (address + static_cast<std::uintptr_t>(bytes)) / huge_page * huge_page;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // refused: pages as they are
  }
#endif
  return static_cast<std::byte*>(data);
}

DSPP_INLINE void give_host_memory(std::byte* data) noexcept {
  std::free(data);
}

}  // namespace dspp::detail

#endif  // DSPP_HAS_DEFINITIONS()
