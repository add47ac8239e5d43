// SPDX-License-Identifier: Apache-2.0
/// The members of CudaGraphs.
#pragma once

#include <string>
#include <utility>

#include <dspp/cuda/device.hpp>
#include <dspp/cuda/graphs.hpp>
#include <kernels/cuda_memory.cuh>

namespace dspp {

namespace gpu {
/// "micro-step 2", or "the update".
inline std::string name_of_part(std::size_t part, std::size_t parts) {
  return part + 1 == parts ? "the update" : "micro-step " + std::to_string(part + 1);
}
}  // namespace gpu

DSPP_CUDA_INLINE CudaGraphs::CudaGraphs(Pool& pool) : pool_(pool), on_(Cuda::memory_of(pool)) {
  static_assert(sizeof(StepNumbers) <= first_rule);
  pool.lay_out_steps(false);  // a graph keeps the blocks of its step as they are
  void* memory = nullptr;
  gpu::check({"open graphs", 1, table_bytes}, cudaMalloc(&memory, static_cast<std::size_t>(table_bytes)));
  table_ = static_cast<std::byte*>(memory);
}

DSPP_CUDA_INLINE CudaGraphs::~CudaGraphs() {
  abandon();
  cudaFree(table_);  // waits for what was issued before
}

DSPP_CUDA_INLINE bool CudaGraphs::may_capture() {
  return !gpu::waits_for_work();
}

DSPP_CUDA_INLINE const char* CudaGraphs::last_operation() const {
  return notes_.empty() || notes_.back().empty() ? "" : notes_.back().back().operation;
}

DSPP_CUDA_INLINE void CudaGraphs::begin(StepWay way, bool is_noted) {
  way_ = way, is_begun_ = true, is_noted_ = is_noted, part_ = 0;
  notes_.clear(), used_.clear();
  if (way != StepWay::repeated) checks_ = std::make_shared<Checks>(), ways_to_checks_.clear();
  on_.set_checks_of_step(checks_);
  if (way == StepWay::repeated) return pool_.begin_repeat(trace_);
  if (way == StepWay::captured) {
    destroy_graphs();
    pool_.begin_trace();
    traces_ = true;
  }
  on_.set_graphs(this);
}

DSPP_CUDA_INLINE void CudaGraphs::write_table(const StepNumbers& numbers, const UpdateScalars* update) {
  const Size bytes = update != nullptr ? end_of_rules_ : Size{sizeof numbers};
  Storage<Pool> pinned = on_.new_pinned(bytes);
  std::memset(pinned.data(), 0, static_cast<std::size_t>(bytes));
  std::memcpy(pinned.data(), &numbers, sizeof numbers);
  if (update != nullptr)
    for (const Rule& rule : rules_) rule.write(*update, pinned.data() + rule.offset);
  on_.from_pinned(table_, std::move(pinned), bytes);
}

DSPP_CUDA_INLINE bool CudaGraphs::begin_part(const StepNumbers& numbers, const UpdateScalars* update) {
  write_table(numbers, update);
  if (way_ == StepWay::repeated) return launch(part_++), true;
  notes_.emplace_back();
  way_here_ = update != nullptr ? 1 : 0;
  if (way_ == StepWay::captured) {
    gpu::check({"begin a graph"}, cudaStreamBeginCapture(gpu::stream_of(on_), cudaStreamCaptureModeThreadLocal));
    is_capturing_ = true;
  }
  if (traces_) pool_.trace(true);
  watch(is_noted_);
  return false;
}

DSPP_CUDA_INLINE void CudaGraphs::end_part() {
  if (way_ == StepWay::repeated) return;
  watch(false);
  if (traces_) pool_.trace(false);
  if (way_ == StepWay::captured) {
    is_capturing_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(gpu::stream_of(on_), &graph);
    const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, cudaError_t (*)(cudaGraph_t)> owned(graph,
                                                                                                  &cudaGraphDestroy);
    gpu::check({"end a graph"}, status);
    require_expected();
    keep_graph(graph);
    launch(part_);
  }
  ++part_;
}

/// Takes the graph of an earlier part that was launched alike, with the same addresses, or makes one of this.
DSPP_CUDA_INLINE void CudaGraphs::keep_graph(void* graph) {
  const Launches& own = notes_.back();
  const auto is_alike = [&](const Captured& other) {
    return std::equal(own.begin(), own.end(), other.launches.begin(), other.launches.end(),
                      [](const NotedLaunch& a, const NotedLaunch& b) { return a.all == b.all; });
  };
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), is_alike);
  parts_.push_back(static_cast<std::size_t>(found - graphs_.begin()));
  if (found != graphs_.end()) return;
  graphs_.push_back({nullptr, own});
  cudaGraphExec_t made = nullptr;
  gpu::check({"make a graph", 1, static_cast<Size>(own.size())},
             cudaGraphInstantiate(&made, static_cast<cudaGraph_t>(graph), 0));
  graphs_.back().graph = made;
}

DSPP_CUDA_INLINE void CudaGraphs::launch(std::size_t part) {
  const Captured& captured = graphs_[parts_[part]];
  const cudaStream_t stream = gpu::stream_of(on_);
  gpu::check_issued({"launch a graph", 1, static_cast<Size>(captured.launches.size())}, stream,
                    cudaGraphLaunch(static_cast<cudaGraphExec_t>(captured.graph), stream));
}

DSPP_CUDA_INLINE void CudaGraphs::require_expected() const {
  static const Launches none;
  const Launches& own = notes_.back();
  const Launches& before = part_ < expected_.size() ? expected_[part_] : none;
  const auto refuse = [&](std::size_t at, const std::string& what) {
    fail(ErrorCode::usage,
         "dspp: EngineConfig::graphs needs steps whose launches differ only in the numbers of "
         "StepNumbers and in addresses, but " +
             what + " (launch " + std::to_string(at + 1) + " of " + gpu::name_of_part(part_, expected_.size()) +
             "). An operation with a number of its own that changes by the step cannot be repeated: "
             "keep the number in the device's memory, or set graphs = false.");
  };
  const auto name = [](const Launches& of, std::size_t at) {
    return at < of.size() ? "'" + std::string(of[at].operation) + "'" : std::string("nothing");
  };
  for (std::size_t i = 0; i < std::max(own.size(), before.size()); ++i) {
    if (i >= own.size() || i >= before.size() || std::strcmp(own[i].operation, before[i].operation) != 0)
      refuse(i, "one launched " + name(before, i) + " and the next " + name(own, i));
    if (own[i].numbers != before[i].numbers) refuse(i, "the arguments of " + name(own, i) + " changed");
  }
}

DSPP_CUDA_INLINE void CudaGraphs::end() {
  is_begun_ = false;
  on_.set_graphs(nullptr);
  if (way_ == StepWay::repeated) return pool_.end_repeat(trace_);
  end_trace();
  if (is_noted_) expected_ = std::move(notes_), ++noted_steps_;
  notes_.clear();
}

DSPP_CUDA_INLINE void CudaGraphs::end_trace() noexcept {
  if (!std::exchange(traces_, false)) return;
  trace_ = pool_.end_trace({used_.begin(), used_.end()});
  on_.free_later();
}

DSPP_CUDA_INLINE void CudaGraphs::abandon() noexcept {
  watch(false);
  if (std::exchange(is_capturing_, false)) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(gpu::stream_of(on_), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // else a later call would give it again
  }
  if (std::exchange(is_begun_, false) && way_ == StepWay::repeated) pool_.end_repeat(trace_);
  if (on_.graphs() == this) on_.set_graphs(nullptr);
  end_trace();
  forget();
}

DSPP_CUDA_INLINE void CudaGraphs::forget() noexcept {
  destroy_graphs();
  notes_.clear(), expected_.clear(), rules_.clear();
  noted_steps_ = 0;
  end_of_rules_ = first_rule;
}

DSPP_CUDA_INLINE void CudaGraphs::destroy_graphs() noexcept {
  for (const Captured& captured : graphs_)
    if (captured.graph != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(captured.graph));
  graphs_.clear(), parts_.clear();
}

DSPP_CUDA_INLINE void CudaGraphs::watch(bool on) noexcept {
  if (on)
    gpu::launch_watch() = this;
  else if (gpu::launch_watch() == this)
    gpu::launch_watch() = nullptr;
}

DSPP_CUDA_INLINE void CudaGraphs::launched(const NotedLaunch& launch) {
  notes_.back().push_back(launch);
  way_here_ = (way_here_ ^ launch.numbers) * 0x9E3779B97F4A7C15u;
}

DSPP_CUDA_INLINE std::int32_t CudaGraphs::add_check(std::function<void(const CudaFault&)> sentence) {
  const auto found = std::find(ways_to_checks_.begin(), ways_to_checks_.end(), way_here_);
  const auto number = static_cast<std::int32_t>(found - ways_to_checks_.begin()) + 1;
  if (found == ways_to_checks_.end() || !is_noted_) {
    ways_to_checks_.push_back(way_here_);
    checks_->push_back(std::move(sentence));
  }
  way_here_ = way_here_ * 0x9E3779B97F4A7C15u + 1;
  return is_noted_ ? number : static_cast<std::int32_t>(checks_->size());
}

DSPP_CUDA_INLINE bool CudaGraphs::uses(std::uintptr_t address) {
  if (const std::byte* const block = on_.block_of(address)) {
    if (is_capturing_) used_.insert(block);
    return true;
  }
  const auto table = reinterpret_cast<std::uintptr_t>(table_);
  return on_.is_scratch(address) || (address >= table && address < table + static_cast<std::uintptr_t>(table_bytes));
}

DSPP_CUDA_INLINE const std::byte* CudaGraphs::place_bytes(const RuleKey& key, Size bytes, void* now, Write write) {
  for (const Rule& rule : rules_)
    if (rule.key == key) {
      std::memcpy(now, rule.first.data(), static_cast<std::size_t>(bytes));
      return table_ + rule.offset;
    }
  if (end_of_rules_ + bytes > table_bytes)
    fail(ErrorCode::usage,
         "dspp: EngineConfig::graphs needs an optimizer's rules for all kinds of parameters in 16 KiB, but these take "
         "more: each group's, and of whole matrices each shape's, is one. Use fewer groups, or set graphs = false.");
  const auto* const from = static_cast<const std::byte*>(now);
  Rule rule{key, end_of_rules_, {from, from + bytes}, std::move(write)};
  on_.from_host(table_ + rule.offset, now, bytes);
  end_of_rules_ = round_up(end_of_rules_ + bytes, first_rule);
  rules_.push_back(std::move(rule));
  return table_ + rules_.back().offset;
}

}  // namespace dspp
