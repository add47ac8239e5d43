// SPDX-License-Identifier: Apache-2.0
/// The calls of the CUDA runtime that launchers and tests use, in software.
///
/// Streams run as late as they may, one item at a time in a random order that their events allow: what only works by
/// the luck of an early or a late stream becomes wrong. The host cannot touch device memory: its pages are closed but
/// while device work runs. Memory is poisoned when allocated and when freed, and has guard bytes around it that
/// cudaFree checks. The first error of a kernel is thrown, as a sentence, by the call that waits for it.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <dspp/observe/overlap.hpp>

#include <software_gpu/block.hpp>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
};

namespace dspp::software_gpu {
struct Stream;
struct Event;

/// Device work, in the order of its stream; the null stream is one of its own.
void issue(Stream* stream, std::function<void()> work);
/// Work that begins when may() is true, which is asked whenever the work is its stream's next: for what waits for other
/// GPUs, whose host threads have yet to call something.
void issue_when(Stream* stream, std::function<bool()> may, std::function<void()> work);

/// Streams keep time from now on, in seconds: products take it at one rate, messages of NCCL at the other, other work
/// and graphs none. A stream goes on when the events that it waits for were recorded, a host when what it waits for is
/// done; a message begins when all its ranks have come. Call it when nothing is under way.
void begin_times(double flops_per_second, double bytes_per_second);
/// What the calling thread issues next is a product of so many operations, or a message of so many bytes.
void issues_product(double flops);
void issues_message(double bytes);
/// Of one GPU: when its last stream is done, what its products and messages took, and when.
struct Times {
  double end = 0, computing = 0, moving = 0;
  std::vector<Interval> products{}, messages{};
};
Times times_of(int gpu);
/// The calling thread's own time.
double time_now();
/// When what the stream has run is done; it goes on no earlier than at `seconds`.
double time_of(Stream* stream);
void wait_until(Stream* stream, double seconds);

bool is_device_memory(const void* data);
/// The same, or memory of the host that cudaHostAlloc maps into a GPU's addresses.
bool is_reached_by_device(const void* data);
/// Threads of the host take turns, under this mutex: a call of one may run what another has issued.
std::recursive_mutex& turns();

/// GPUs from now on, one until it is called. A host thread's current one is the first until it sets another.
void set_gpus(int count);

/// What a GPU says of itself from now on.
struct GpuKind {
  const char* name = "GPU in software";
  int major = 9, minor = 0;
};
void set_gpu_kind(int gpu, GpuKind kind);
/// Every call of that name gives `status` from now on; "": none.
void refuse(const char* call, cudaError_t status);
/// The CUDA version of the driver, 12040; 0: there is none.
void set_driver(int version);

/// The n-th next launch fails with cudaErrorInvalidConfiguration; 0: none.
void fail_launch(int number);
/// The n-th next call that can fail does, an allocation with cudaErrorMemoryAllocation and others with
/// cudaErrorLaunchFailure; 0: none. Returns the calls since the last time it was asked.
int fail_call(int number);
/// The same, but it is the work that the call issues which fails: it does nothing, nor does what its stream has after
/// it, and the next wait gives cudaErrorLaunchFailure. A call that issues nothing does not fail.
int fail_work_of_call(int number);
/// The name of the call that failed, or whose work did, since a failure was last asked for, or "".
const char* failed_call();
/// Of this thread, the n-th next wait of a stream for an event does nothing; 0: all wait. Returns the thread's waits
/// since the last time it was asked.
int leave_out_wait(int number);
/// Bytes that can be allocated from now on.
void limit_memory(std::size_t bytes);
bool launch_fails();
bool call_fails(const char* name);
/// As in graphs.hpp.
cudaError_t may_issue(Stream* stream);
/// What was made and not yet ended.
struct Live {
  int allocations = 0, streams = 0, events = 0, graphs = 0;
  bool operator==(const Live&) const = default;
};
Live live();
/// Notes the ranges of the calling thread in NVTX's timelines from now on: "forward blocks.0" begins, "" ends.
void note_ranges();
/// What was noted, and stops.
std::vector<std::string> noted_ranges();
/// Ranges of the calling thread that have begun and not ended.
int open_ranges();
/// Whether a kernel may have so much shared memory: what cudaFuncSetAttribute gave it, else 32 KiB. A GPU gives 48 KiB
/// less the kernel's own arrays, whose size is not known here.
bool may_share(const void* kernel, std::size_t bytes);
/// Names the fault of a host that touches device memory, and ends the program with 3: from now on, also where a test
/// framework has a handler of its own.
void name_touches_of_host();
}  // namespace dspp::software_gpu

using cudaStream_t = dspp::software_gpu::Stream*;
using cudaEvent_t = dspp::software_gpu::Event*;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount;
};
struct cudaFuncAttributes {
  int numRegs;
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* of, int device);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* of, const void* kernel);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
/// An H100's: 227 KiB.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaMalloc(void** to, std::size_t bytes);
/// Throws   Error(state) if the memory beside the allocation was written
cudaError_t cudaFree(void* memory);
/// Pinned memory of the host, poisoned.
cudaError_t cudaMallocHost(void** to, std::size_t bytes);
inline constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
/// Memory of the host, poisoned, that kernels and copies take as a GPU's, in the order of streams: the flags must be
/// both, as without them not every GPU need reach it.
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned flags);
/// Of either. What is mapped is poisoned, and what streams write there later goes nowhere.
///
/// Throws   Error(state) if a copy that was issued, and has not run, reads or writes it, unless it is mapped
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
/// As CUDA may, it allocates at once.
inline cudaError_t cudaMallocAsync(void** to, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(to, bytes);
}
/// It waits for all streams; CUDA's does not.
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  return cudaFree(memory);
}
/// From pageable memory the bytes are taken at the call, from pinned memory when the stream gets there. Pinned memory
/// to which bytes go is poisoned until they come. If the host changes either, the wait throws Error(state). Mapped
/// memory takes cudaMemcpyDefault, which finds the direction by the addresses, and refuses copies between memory of the
/// host, for which CUDA's host waits.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
/// cudaErrorNotReady until the stream has done its work, of which it may do some.
cudaError_t cudaStreamQuery(cudaStream_t stream);
/// Waits for the streams that were made on the current GPU.
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreate(cudaEvent_t* event);
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t event);
/// It waits for all streams; CUDA's does not.
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaDeviceSynchronize();
}
/// By the times that streams keep; 1 ms if they keep none.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

/// The number of ranges around it, as NVTX gives it; the end of none gives less than 0.
int nvtxRangePushA(const char* text);
int nvtxRangePop();

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

/// Arguments are copied at the launch, as CUDA does.
template <class... P>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(P...), P... arguments) {
  const unsigned threads = c->blockDim.x * c->blockDim.y * c->blockDim.z;
  if (dspp::software_gpu::call_fails("cudaLaunchKernelEx")) return cudaErrorLaunchFailure;
  if (dspp::software_gpu::launch_fails() || c->gridDim.x == 0 || threads == 0 || threads > 1024 ||
      !dspp::software_gpu::may_share(reinterpret_cast<const void*>(kernel), c->dynamicSmemBytes))
    return cudaErrorInvalidConfiguration;
  if (const cudaError_t status = dspp::software_gpu::may_issue(c->stream); status != cudaSuccess) return status;
  std::function<void()> call = [=] { kernel(arguments...); };
  dspp::software_gpu::issue(c->stream, [grid = c->gridDim, block = c->blockDim, bytes = c->dynamicSmemBytes, call] {
    dspp::software_gpu::run_grid(
        grid, block, bytes, [](void* f) { (*static_cast<std::function<void()>*>(f))(); },
        const_cast<std::function<void()>*>(&call));
  });
  return cudaSuccess;
}
