// SPDX-License-Identifier: Apache-2.0
// Graphs of the GPU in software: what is captured runs at each launch and not before, and captures are as strict as
// CUDA's.
// labels: cuda
#include <vector>

#include <doctest/doctest.h>

#include <software_gpu/device.hpp>

#include <kernels/broadcast.cuh>

using namespace dspp;

namespace {

/// Two streams, an event, 16 floats, and a capture of the first stream.
struct Machine {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  float* x = nullptr;
  cudaGraph_t graph = nullptr;

  Machine() {
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    REQUIRE(cudaStreamCreate(&other) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, 16 * sizeof(float)) == cudaSuccess);
    x = static_cast<float*>(memory);
    fill(stream, 0);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  ~Machine() {
    cudaGraphDestroy(graph);
    cudaFree(x);
    cudaEventDestroy(event);
    cudaStreamDestroy(other);
    cudaStreamDestroy(stream);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void fill(cudaStream_t on, float value) { gpu::fill(on, Size{16}, x, value); }
  void add(cudaStream_t on, float value) {
    gpu::launch_each(gpu::Work{"add"}, on, Size{16}, [x = x, value](Size i) { x[i] += value; });
  }
  float first() {
    float value = 0;
    CHECK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    return value;
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    REQUIRE(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
  }
  cudaError_t end() { return cudaStreamEndCapture(stream, &graph); }
  cudaStreamCaptureStatus status() {
    cudaStreamCaptureStatus now{};
    CHECK(cudaStreamIsCapturing(stream, &now) == cudaSuccess);
    return now;
  }
};

/// What `call` gives while a stream is captured, and then the end of the capture.
template <class Call>
std::pair<cudaError_t, cudaError_t> within(cudaStreamCaptureMode mode, Call call) {
  Machine machine;
  machine.begin(mode);
  const cudaError_t status = call(machine);
  const cudaError_t end = machine.end();
  CHECK((machine.graph == nullptr) == (end != cudaSuccess));
  CHECK(machine.status() == cudaStreamCaptureStatusNone);
  CHECK(machine.first() == 0);
  return {status, end};
}
constexpr auto global = cudaStreamCaptureModeGlobal, own = cudaStreamCaptureModeThreadLocal,
               relaxed = cudaStreamCaptureModeRelaxed;

}  // namespace

TEST_CASE("captured work runs at each launch of its graph, and not before") {
  const auto before = software_gpu::live();
  {
    Machine machine;
    machine.begin();
    CHECK(machine.status() == cudaStreamCaptureStatusActive);
    machine.add(machine.stream, 1);
    machine.add(machine.stream, 2);
    CHECK(machine.end() == cudaSuccess);
    CHECK(machine.first() == 0);
    std::size_t nodes = 0;
    CHECK(cudaGraphGetNodes(machine.graph, nullptr, &nodes) == cudaSuccess);
    CHECK(nodes == 2);
    cudaGraphExec_t made = nullptr;
    CHECK(cudaGraphInstantiate(&made, machine.graph) == cudaSuccess);
    for (int i = 1; i <= 3; ++i) {
      CHECK(cudaGraphLaunch(made, machine.stream) == cudaSuccess);
      CHECK(machine.first() == 3 * i);
    }
    CHECK(cudaGraphExecDestroy(made) == cudaSuccess);
  }
  CHECK(software_gpu::live() == before);
}

TEST_CASE("what waits, or allocates, ends a capture, as the mode says") {
  using Statuses = std::pair<cudaError_t, cudaError_t>;
  const Statuses refused{cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated};
  const Statuses taken{cudaSuccess, cudaSuccess};
  const auto wait = [](Machine& m) { return cudaStreamSynchronize(m.stream); };
  const auto query = [](Machine& m) { return cudaStreamQuery(m.stream); };
  const auto wait_for_other = [](Machine& m) { return cudaStreamSynchronize(m.other); };
  const auto wait_for_all = [](Machine&) { return cudaDeviceSynchronize(); };
  const auto query_event = [](Machine& m) { return cudaEventQuery(m.event); };
  const auto allocate = [](Machine&) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, 64);
    cudaStreamCaptureMode mode = relaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaFree(memory);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return status;
  };
  const auto pin = [](Machine&) {
    void* memory = nullptr;
    return cudaMallocHost(&memory, 64);
  };
  for (const auto mode : {global, own}) {
    CHECK(within(mode, wait) == refused);
    CHECK(within(mode, query) == refused);
    CHECK(within(mode, wait_for_other) == refused);
    CHECK(within(mode, wait_for_all) == refused);
    CHECK(within(mode, query_event) == refused);
    CHECK(within(mode, allocate) == refused);
    CHECK(within(mode, pin) == refused);
  }
  CHECK(within(relaxed, wait) == refused);
  CHECK(within(relaxed, allocate) == taken);
  CHECK(within(own, [&](Machine& m) {
          cudaStreamCaptureMode mode = relaxed;
          cudaThreadExchangeStreamCaptureMode(&mode);
          const cudaError_t status = allocate(m);
          cudaThreadExchangeStreamCaptureMode(&mode);
          CHECK(mode == relaxed);
          return status;
        }) == taken);
}

TEST_CASE("streams come into a capture by its events, and must come back to it") {
  const auto fork = [](Machine& m, bool joins) {
    CHECK(cudaEventRecord(m.event, m.stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(m.other, m.event) == cudaSuccess);
    m.add(m.other, 1);
    CHECK(cudaEventRecord(m.event, m.other) == cudaSuccess);
    if (joins) CHECK(cudaStreamWaitEvent(m.stream, m.event) == cudaSuccess);
    CHECK(cudaEventQuery(m.event) == cudaErrorCapturedEvent);
    return cudaSuccess;
  };
  CHECK(within(own, [&](Machine& m) { return fork(m, true); }).second == cudaSuccess);
  CHECK(within(own, [&](Machine& m) { return fork(m, false); }).second == cudaErrorStreamCaptureUnjoined);
  // Work that was issued before is no part of a graph.
  Machine machine;
  CHECK(cudaEventRecord(machine.event, machine.other) == cudaSuccess);
  machine.begin();
  CHECK(cudaStreamWaitEvent(machine.stream, machine.event) == cudaErrorStreamCaptureIsolation);
  CHECK(machine.status() == cudaStreamCaptureStatusInvalidated);
  CHECK(machine.end() == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("the null stream, a second capture and an end without a begin are errors of a capture") {
  CHECK(within(own, [](Machine& m) { return cudaMemsetAsync(m.x, 0, 4, nullptr); }) ==
        std::pair(cudaErrorStreamCaptureImplicit, cudaErrorStreamCaptureInvalidated));
  CHECK(within(own, [](Machine& m) { return cudaStreamBeginCapture(m.stream, own); }).first ==
        cudaErrorStreamCaptureUnsupported);
  Machine machine;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(machine.stream, &graph) == cudaErrorInvalidValue);
  CHECK(cudaStreamBeginCapture(nullptr, own) == cudaErrorStreamCaptureUnsupported);
  // What follows an error in a capture is refused, and leaves nothing behind.
  machine.begin();
  CHECK(cudaStreamSynchronize(machine.stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaMemsetAsync(machine.x, 1, 4, machine.stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(machine.end() == cudaErrorStreamCaptureInvalidated);
  CHECK(machine.first() == 0);
}
