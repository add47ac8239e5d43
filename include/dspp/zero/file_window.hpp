// SPDX-License-Identifier: Apache-2.0
/// Memory on one block of a file.
#pragma once

#include <cstdint>
#include <string>

#include <dspp/io/block_file.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::detail {

/// The block's bytes behind its header, and its transfer.
///
/// Memory   the block, its header, and what aligns them: at most 12 KiB more
template <Device D>
struct FileWindow {
  Storage<Memory<D>> storage;
  Size begin = 0;  ///< of the header in the storage, which is aligned for the file
  io::Transfer transfer{};

  constexpr void allocate(Memory<D>& memory, Size payload, Category category, const char* label) {
    constexpr Size unit = io::BlockFile::unit;
    storage = Storage<Memory<D>>(memory, io::BlockFile::bytes_of(payload) + unit - block_alignment, category, label);
    std::byte* const data = storage.data();
    begin = data ? (unit - static_cast<Size>(reinterpret_cast<std::uintptr_t>(data) % unit)) % unit : 0;
  }
  /// Of the block's first byte in the storage.
  constexpr Size payload() const { return begin + io::BlockFile::unit; }
  /// The header, before the block; null on paper.
  constexpr std::byte* header() const { return storage.data() ? storage.data() + begin : nullptr; }
  /// The transfer ends before its memory is given back.
  constexpr void free() {
    transfer = {};
    storage.release();
  }
};

/// Throws   Error(usage) if no folder is named, Error(file) if it takes no file
inline void open_offload_file(io::BlockFile& file, const std::string& folder, io::BlockCalls* calls) {
  if (folder.empty())
    fail(ErrorCode::usage,
         "dspp: Offload<what, Disk> needs a folder for a file, but the OffloadConfig of the engine or of its weights "
         "names none. Set EngineConfig{.offload = {.folder = \"...\"}}.");
  file.open(folder, calls);
}

}  // namespace dspp::detail
