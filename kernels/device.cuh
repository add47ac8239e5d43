// SPDX-License-Identifier: Apache-2.0
/// What kernels are written in: CUDA under nvcc, and the GPU in software of tests/software_gpu elsewhere. How they are
/// launched, and the sentence when that fails.
#pragma once

#include <cstdlib>
#include <string>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/cuda/extents.hpp>
#include <dspp/cuda/launch_watch.hpp>

#if DSPP_HAS_NVCC()
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#define DSPP_WITHOUT_NVTX
#endif
/// Before a loop over registers, which have no addresses.
#define DSPP_UNROLL _Pragma("unroll")
#elif __has_include(<software_gpu/device.hpp>)
#include <software_gpu/device.hpp>
#define DSPP_UNROLL
#else
#error "dspp: kernels/ needs nvcc, but another compiler reads it. Compile this file with nvcc."
#endif

namespace dspp::gpu {

/// What a launch computes, for the sentence of an error.
struct Work {
  const char* operation;
  Size rows = 0, columns = 0;
};

/// The rank that the calling thread is, for the sentence of an error; -1: none. CudaThread sets it.
inline int& rank_of_thread() {
  static thread_local int rank = -1;
  return rank;
}

/// "rank 2 on GPU 0", or what of it there is.
inline std::string place_of_thread() {
  const int rank = rank_of_thread();
  std::string place = rank < 0 ? "" : "rank " + std::to_string(rank);
  int gpu = 0;
  if (cudaGetDevice(&gpu) == cudaSuccess)
    place += (place.empty() ? "GPU " : " on GPU ") + std::to_string(gpu);
  else
    cudaGetLastError();  // else a later call would give it again
  return place;
}

/// "layer_norm [rows 3, columns 5; rank 2 on GPU 0]"
inline std::string name_of(const Work& work, const std::string& place = place_of_thread()) {
  return std::string(work.operation) + " [rows " + std::to_string(work.rows) + ", columns " +
         std::to_string(work.columns) + (place.empty() ? "" : "; ") + place + "]";
}

/// A range of the calling thread in the timelines of NVTX; without its header there are none.
inline void push_range([[maybe_unused]] const char* text) {
#ifndef DSPP_WITHOUT_NVTX
  nvtxRangePushA(text);
#endif
}
inline void pop_range() {
#ifndef DSPP_WITHOUT_NVTX
  nvtxRangePop();
#endif
}

inline constexpr Size most_blocks = 2147483647;  // of a grid's x

/// Throws   Error(state): "dspp: layer_norm [rows 3, columns 5; rank 2 on GPU 0] needs a GPU that runs it, but CUDA
///          gives 'unspecified launch failure'. ..."
inline void check(const Work& work, cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else a later call would give it again
  fail(ErrorCode::state, "dspp: " + name_of(work) + " needs a GPU that runs it, but CUDA gives '" +
                             cudaGetErrorString(status) +
                             "'. If it is the first failure, look at these extents; else at what ran before, which "
                             "DSPP_CUDA_SYNCHRONOUS=1 names.");
}

/// For kernels that count with 32 bits.
///
/// Throws   Error(usage): "dspp: rotary [rows 1, columns 4294967296] needs extents below 2^31. ..."
inline void require_32_bits(const Work& work) {
  constexpr Size most = 2147483647;
  if (work.rows <= most && work.columns <= most) return;
  fail(ErrorCode::usage,
       "dspp: " + name_of(work, "") + " needs extents below 2^31. Split the rows, or the columns over tensor ranks.");
}

/// Whether all work is waited for where it is issued, so that an error of it is named there: DSPP_CUDA_SYNCHRONOUS=1 in
/// the environment.
inline bool& waits_for_work() {
  static bool waits = [] {
    const char* const value = std::getenv("DSPP_CUDA_SYNCHRONOUS");
    return value != nullptr && std::string(value) == "1";
  }();
  return waits;
}

/// For the status of a call that has issued work to the stream.
///
/// Throws   Error(state) as check(), where work is waited for also if it fails when it runs
inline void check_issued(const Work& work, cudaStream_t stream, cudaError_t status) {
  check(work, status);
  if (waits_for_work()) check(work, cudaStreamSynchronize(stream));
}

/// What hears of the launches of the calling thread, while CudaGraphs (cuda/graphs.hpp) notes a step; else null.
inline LaunchWatch*& launch_watch() {
  static thread_local LaunchWatch* watch = nullptr;
  return watch;
}
/// Tells it of a launch that does not go through launch() below.
template <class... A>
void note_launch(const char* operation, const A&... arguments) {
  if (launch_watch() == nullptr) return;
  ArgumentDigest digest(*launch_watch(), operation);
  (digest.add(arguments), ...);
  digest.note();
}

/// Launches `blocks` blocks on `stream`; none is a launch that does nothing.
///
/// Throws   Error(state) with the operation and its extents if CUDA refuses, or if an earlier launch had failed
template <class... P, class... A>
void launch(const Work& work, void (*kernel)(P...), Size blocks, Block block, cudaStream_t stream,
            const A&... arguments) {
  if (blocks == 0) return;
  if (blocks > most_blocks) check(work, cudaErrorInvalidValue);
  if (block.shared_bytes > 32 * 1024)  // with a kernel's own arrays, more than 48 KiB need to be asked for
    check(work, cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(block.shared_bytes)));
  cudaLaunchConfig_t c{};
  c.gridDim = dim3(static_cast<unsigned>(blocks));
  c.blockDim = dim3(static_cast<unsigned>(block.x), static_cast<unsigned>(block.y));
  c.dynamicSmemBytes = static_cast<std::size_t>(block.shared_bytes);
  c.stream = stream;
  note_launch(work.operation, reinterpret_cast<const void*>(kernel), blocks, block, static_cast<P>(arguments)...);
  check_issued(work, stream, cudaLaunchKernelEx(&c, kernel, static_cast<P>(arguments)...));
}

/// What Block::shared_bytes asked for, at a multiple of 32 bytes.
__device__ inline void* shared_memory() {
#if DSPP_HAS_NVCC()
  extern __shared__ __align__(32) uint4 dspp_shared_memory[];
  return dspp_shared_memory;
#else
  return software_gpu::shared_memory();
#endif
}

/// Bytes that a block can have, at most `wanted`.
inline Size shared_bytes(const Work& work, Size wanted) {
  int device = 0, most = 0;
  check(work, cudaGetDevice(&device));
  check(work, cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return wanted < most - 1024 ? wanted : most - 1024;  // a kernel's own arrays take some
}

/// How many multiprocessors the device has: for how many blocks there are, never for an order of sums.
inline Size multiprocessors(const Work& work) {
  int device = 0, count = 0;
  check(work, cudaGetDevice(&device));
  check(work, cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace dspp::gpu
