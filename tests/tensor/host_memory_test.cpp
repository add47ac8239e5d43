// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <dspp/tensor/category.hpp>
#include <dspp/tensor/host_memory.hpp>

using namespace dspp;

namespace {

/// The flags that the kernel states of the mapping that has this byte.
std::string mapping_flags(const std::byte* byte) {
  const auto address = reinterpret_cast<std::uintptr_t>(byte);
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const std::uintptr_t begin = std::strtoull(line.c_str(), &rest, 16);
    if (*rest == '-') is_inside = begin <= address && address < std::strtoull(rest + 1, nullptr, 16);
    if (is_inside && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

}  // namespace

TEST_CASE("memory of every size is aligned, and from 4 MiB on the system is asked for huge pages of it") {
  const bool has_huge_pages = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled");
  for (const Size bytes : {block_alignment, 4_KiB, 4_MiB - block_alignment, 4_MiB, 4_MiB + block_alignment, 40_MiB}) {
    CAPTURE(bytes);
    std::byte* const data = detail::take_host_memory(bytes);
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(block_alignment) == 0);
    for (Size i = 0; i < bytes; i += 4_KiB) data[i] = std::byte{1};
    data[bytes - 1] = std::byte{1};
    const std::string flags = mapping_flags(data + bytes / 2);
    if (has_huge_pages && !flags.empty() && bytes >= 4_MiB && !detail::guards_single_blocks)
      CHECK(flags.find(" hg ") != std::string::npos);
    detail::give_host_memory(data, bytes);
  }
}

TEST_CASE("blocks of mapped memory take few of the mappings that a process may have") {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  const auto before = mappings();
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 500; ++i) {
    blocks.push_back(detail::take_host_memory(4_MiB + block_alignment));
    REQUIRE(blocks.back() != nullptr);
    *blocks.back() = std::byte{1};
  }
  if (before > 0) CHECK(mappings() - before < 50);
  for (std::byte* block : blocks) detail::give_host_memory(block, 4_MiB + block_alignment);
}
