// SPDX-License-Identifier: Apache-2.0
/// The twin of cub::DeviceRadixSort::SortPairs: the same arguments and checks, and its work in the order of the stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <software_gpu/runtime.hpp>

namespace dspp::software_gpu {

inline cudaError_t sort_pairs(void* workspace, std::size_t& bytes, const std::uint32_t* keys,
                              std::uint32_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                              std::int64_t count, int key_bits, Stream* stream) {
  const std::size_t needed = static_cast<std::size_t>(count) * 8 + 256;
  if (workspace == nullptr) {
    bytes = needed;
    return cudaSuccess;
  }
  if (call_fails("SortPairs")) return cudaErrorLaunchFailure;
  if (bytes < needed || key_bits < 1 || key_bits > 32) return cudaErrorInvalidValue;
  issue(stream, [=] {
    std::memset(workspace, 0x5a, needed);
    const std::uint32_t mask = key_bits == 32 ? ~0u : (1u << key_bits) - 1;
    std::vector<std::int64_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return (keys[a] & mask) < (keys[b] & mask); });
    for (std::int64_t i = 0; i < count; ++i) {
      sorted_keys[i] = keys[order[static_cast<std::size_t>(i)]];
      sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
    }
  });
  return cudaSuccess;
}

}  // namespace dspp::software_gpu
