// SPDX-License-Identifier: Apache-2.0
/// Graphs of the CUDA runtime in software: what is issued to a stream while it is captured, to be issued again.
///
/// As strict as CUDA: whatever may synchronise, an allocation too, is an error of a capture and ends it, as do events
/// of work outside of it, streams that do not come back to it, and work on the null stream. A graph runs in the order
/// of its capture, which its events allow.
#pragma once

#include <cstddef>
#include <functional>

#include <software_gpu/runtime.hpp>

enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};

namespace dspp::software_gpu {
struct Graph;
struct GraphExec;

/// Adds work to the capture that the stream is in; false: it is in none.
bool capture_work(Stream* stream, std::function<void()>& work);
/// What a capture gives to work on a stream: an error, which ends the capture, for the null stream while another is
/// captured, or for a capture that has ended.
cudaError_t may_issue(Stream* stream);
/// What a call that may wait, or allocates, gives to the calling thread; with is_of_stream it waits for `stream`.
cudaError_t may_wait(Stream* stream, bool is_of_stream);
cudaError_t may_query(Event* event);

/// The record, or the wait, of an event where a capture is concerned; `is_done` is false: it is none.
struct Captured {
  bool is_done = false;
  cudaError_t status = cudaSuccess;
};
Captured capture_record(Event* event, Stream* stream);
Captured capture_wait(Stream* stream, Event* event);
void forget_event(Event* event);

/// Graphs, and executable ones, that were made and not yet ended.
int live_graphs();
/// Graphs that were captured, and launches of graphs, since the last time it was asked.
struct GraphCounts {
  int captured = 0, launched = 0;
  bool operator==(const GraphCounts&) const = default;
};
GraphCounts graph_counts();
}  // namespace dspp::software_gpu

using cudaGraph_t = dspp::software_gpu::Graph*;
using cudaGraphExec_t = dspp::software_gpu::GraphExec*;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
/// Of the calling thread: *mode becomes its own, and the one before it is returned there.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
/// Their number; `nodes` is null.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void* nodes, std::size_t* count);
