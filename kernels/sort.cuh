// SPDX-License-Identifier: Apache-2.0
/// Pairs of keys and values in order of their keys, equal keys in the order in which they came: CUB's radix sort, and
/// std::stable_sort on the GPU in software.
#pragma once

#include <cstdint>

#include <kernels/device.cuh>

#if DSPP_HAS_NVCC()
#include <cub/device/device_radix_sort.cuh>
#else
#include <software_gpu/sort.hpp>
#endif

namespace dspp::gpu {

namespace detail {
inline cudaError_t sort(void* workspace, std::size_t& bytes, Size count, int key_bits, const std::uint32_t* keys,
                        std::uint32_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                        cudaStream_t stream) {
#if DSPP_HAS_NVCC()
  return cub::DeviceRadixSort::SortPairs(workspace, bytes, keys, sorted_keys, values, sorted_values, count, 0, key_bits,
                                         stream);
#else
  return software_gpu::sort_pairs(workspace, bytes, keys, sorted_keys, values, sorted_values, count, key_bits, stream);
#endif
}
}  // namespace detail

/// Bytes of the workspace.
inline Size sort_workspace(Size count, int key_bits) {
  std::size_t bytes = 0;
  check({"sort_pairs", 1, count},
        detail::sort(nullptr, bytes, count, key_bits, nullptr, nullptr, nullptr, nullptr, {}));
  return static_cast<Size>(bytes);
}

/// Only the lowest `key_bits` of a key count.
inline void sort_pairs(cudaStream_t stream, Size count, int key_bits, const std::uint32_t* keys,
                       std::uint32_t* sorted_keys, const std::int32_t* values, std::int32_t* sorted_values,
                       void* workspace, Size workspace_bytes) {
  auto bytes = static_cast<std::size_t>(workspace_bytes);
  note_launch("sort_pairs", count, key_bits, keys, sorted_keys, values, sorted_values, workspace, workspace_bytes);
  check_issued({"sort_pairs", 1, count}, stream,
               detail::sort(workspace, bytes, count, key_bits, keys, sorted_keys, values, sorted_values, stream));
}

}  // namespace dspp::gpu
