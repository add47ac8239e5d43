// SPDX-License-Identifier: Apache-2.0
#include <software_gpu/graphs.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace dspp::software_gpu {

using Nodes = std::vector<std::function<void()>>;
struct Graph {
  std::shared_ptr<const Nodes> nodes;
};
struct GraphExec {
  std::shared_ptr<const Nodes> nodes;
};

namespace {

struct Capture {
  Stream* origin = nullptr;
  cudaStreamCaptureMode mode{};
  std::thread::id thread{};
  bool is_valid = true;
  Nodes nodes{};
  /// Of each stream in it, how many nodes of each stream come before its next.
  std::map<Stream*, std::map<Stream*, std::size_t>> knows{};
};
struct CapturedEvent {
  const Capture* capture = nullptr;
  std::map<Stream*, std::size_t> knows{};
};

struct Captures {
  std::map<Stream*, std::unique_ptr<Capture>> all;  // by origin
  std::map<Event*, CapturedEvent> events;           // that were last recorded in a capture
  int graphs = 0;
  GraphCounts counts{};
};
Captures& captures() {
  static Captures only;
  return only;
}

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

std::lock_guard<std::recursive_mutex> turn() {
  return std::lock_guard(turns());
}

Capture* capture_of(Stream* stream) {
  for (auto& [origin, capture] : captures().all)
    if (capture->knows.count(stream) > 0) return capture.get();
  return nullptr;
}

/// The captures whose mode forbids the calling thread what may wait.
std::vector<Capture*> that_forbid() {
  std::vector<Capture*> found;
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return found;
  for (auto& [origin, capture] : captures().all) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    if (is_own ? capture->mode != cudaStreamCaptureModeRelaxed
               : capture->mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal)
      found.push_back(capture.get());
  }
  return found;
}

cudaError_t invalidate(Capture& capture, cudaError_t status) {
  capture.is_valid = false;
  return status;
}

void merge(std::map<Stream*, std::size_t>& into, const std::map<Stream*, std::size_t>& from) {
  for (const auto& [stream, count] : from) into[stream] = std::max(into[stream], count);
}

}  // namespace

bool capture_work(Stream* stream, std::function<void()>& work) {
  const auto mine = turn();
  Capture* const capture = capture_of(stream);
  if (capture == nullptr) return false;
  if (capture->is_valid) {
    capture->nodes.push_back(std::move(work));
    ++capture->knows[stream][stream];
  }
  return true;
}

cudaError_t may_issue(Stream* stream) {
  const auto mine = turn();
  if (stream == nullptr && !captures().all.empty()) {
    for (auto& [origin, capture] : captures().all) capture->is_valid = false;
    return cudaErrorStreamCaptureImplicit;
  }
  const Capture* const capture = capture_of(stream);
  return capture == nullptr || capture->is_valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

cudaError_t may_wait(Stream* stream, bool is_of_stream) {
  const auto mine = turn();
  if (is_of_stream)
    if (Capture* const capture = capture_of(stream)) return invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  const auto found = that_forbid();
  for (Capture* capture : found) capture->is_valid = false;
  return found.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

cudaError_t may_query(Event* event) {
  const auto mine = turn();
  if (captures().events.count(event) > 0) return cudaErrorCapturedEvent;
  return may_wait(nullptr, false);
}

Captured capture_record(Event* event, Stream* stream) {
  const auto mine = turn();
  captures().events.erase(event);
  Capture* const capture = capture_of(stream);
  if (capture == nullptr) return {};
  if (!capture->is_valid) return {true, cudaErrorStreamCaptureInvalidated};
  captures().events[event] = {capture, capture->knows[stream]};
  return {true};
}

Captured capture_wait(Stream* stream, Event* event) {
  const auto mine = turn();
  Capture* const capture = capture_of(stream);
  const auto found = captures().events.find(event);
  if (found == captures().events.end()) {
    if (capture == nullptr) return {};
    return {true, invalidate(*capture, cudaErrorStreamCaptureIsolation)};
  }
  Capture* of_event = nullptr;
  for (auto& [origin, each] : captures().all)
    if (each.get() == found->second.capture) of_event = each.get();
  if (of_event == nullptr) return {true, cudaErrorCapturedEvent};  // its capture has ended
  if (capture != nullptr && capture != of_event) {
    invalidate(*capture, cudaSuccess);
    return {true, invalidate(*of_event, cudaErrorStreamCaptureMerge)};
  }
  merge(of_event->knows[stream], found->second.knows);  // the stream comes into the capture
  return {true};
}

void forget_event(Event* event) {
  const auto mine = turn();
  captures().events.erase(event);
}

int live_graphs() {
  const auto mine = turn();
  return captures().graphs;
}

GraphCounts graph_counts() {
  const auto mine = turn();
  return std::exchange(captures().counts, {});
}

}  // namespace dspp::software_gpu

using namespace dspp::software_gpu;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const auto mine = turn();
  if (call_fails("cudaStreamBeginCapture")) return cudaErrorLaunchFailure;
  if (stream == nullptr || capture_of(stream) != nullptr) return cudaErrorStreamCaptureUnsupported;
  auto capture = std::make_unique<Capture>();
  capture->origin = stream, capture->mode = mode, capture->thread = std::this_thread::get_id();
  capture->knows[stream] = {};
  captures().all[stream] = std::move(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto mine = turn();
  *graph = nullptr;
  const bool fails = call_fails("cudaStreamEndCapture");
  const auto found = captures().all.find(stream);
  if (found == captures().all.end())
    return capture_of(stream) != nullptr ? cudaErrorStreamCaptureUnmatched : cudaErrorInvalidValue;
  if (found->second->mode != cudaStreamCaptureModeRelaxed && found->second->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const auto capture = std::move(found->second);
  captures().all.erase(found);
  if (fails) return cudaErrorLaunchFailure;
  if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  const auto& origin = capture->knows[stream];
  for (const auto& [other, knows] : capture->knows) {
    const auto own = knows.find(other), seen = origin.find(other);
    if (own != knows.end() && (seen == origin.end() || seen->second < own->second))
      return cudaErrorStreamCaptureUnjoined;
  }
  *graph = new Graph{std::make_shared<const Nodes>(std::move(capture->nodes))};
  ++captures().graphs, ++captures().counts.captured;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto mine = turn();
  if (call_fails("cudaStreamIsCapturing")) return cudaErrorLaunchFailure;
  const Capture* const capture = capture_of(stream);
  *status = capture == nullptr  ? cudaStreamCaptureStatusNone
            : capture->is_valid ? cudaStreamCaptureStatusActive
                                : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (call_fails("cudaThreadExchangeStreamCaptureMode")) return cudaErrorLaunchFailure;
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long) {
  const auto mine = turn();
  if (call_fails("cudaGraphInstantiate")) return cudaErrorLaunchFailure;
  *to = new GraphExec{graph->nodes};
  ++captures().graphs;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const auto mine = turn();
  if (call_fails("cudaGraphLaunch")) return cudaErrorLaunchFailure;
  if (const cudaError_t status = may_issue(stream); status != cudaSuccess) return status;
  ++captures().counts.launched;
  for (std::size_t i = 0; i < graph->nodes->size(); ++i) issue(stream, [nodes = graph->nodes, i] { (*nodes)[i](); });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const auto mine = turn();
  if (graph != nullptr) --captures().graphs;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const auto mine = turn();
  if (graph != nullptr) --captures().graphs;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void*, std::size_t* count) {
  *count = graph->nodes->size();
  return cudaSuccess;
}
