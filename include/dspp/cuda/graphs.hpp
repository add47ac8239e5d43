// SPDX-License-Identifier: Apache-2.0
/// CUDA graphs of a training step: launches that are captured once and repeated, and the numbers that change.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <dspp/cuda/launch_watch.hpp>
#include <dspp/cuda/memory.hpp>
#include <dspp/ops/flat_range.hpp>

namespace dspp {

/// The graphs of one engine's steps, on the stream of a rank's memory. A step has parts: a graph for each micro-step,
/// one for all that are launched alike, and one for what updates. The engine (engine/step_graphs.hpp) says how a step
/// is issued:
///
///   eager      launches are noted
///   captured   they must be those of the last eager step, but for addresses; each part is captured, and its graph
///              launched. Whatever the host would read or write meanwhile is refused
///   repeated   the graphs are launched
///
/// Numbers that change are read from a table in the device's memory, in every one of these, so that all launches of a
/// step are the same: StepNumbers, and what place() gives, which the host computes anew for each step. So a repeated
/// step has the bits of an eager one.
///
/// Cost     a repeated part is a copy to the device and a launch
/// Memory   table_bytes of the device beside the Pool; 24 bytes of the host a launch; of CUDA, what graphs take. The
///          blocks that a step takes stay the Pool's (tensor/block_trace.hpp)
///
/// Used by the rank's thread only. Members are defined in kernels/cuda_graphs.cuh, and in dspp::cuda.
class CudaGraphs final : LaunchWatch {
 public:
  static constexpr Size table_bytes = 16 * 1024, first_rule = 64;

  explicit CudaGraphs(Pool& pool);
  ~CudaGraphs() override;
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  /// In the device's memory.
  const StepNumbers* numbers() const { return reinterpret_cast<const StepNumbers*>(table_); }

  /// Where work is waited for as it is issued (DSPP_CUDA_SYNCHRONOUS=1) nothing can be captured.
  static bool may_capture();
  /// True after two steps: the first may launch what is computed once.
  bool has_notes() const { return noted_steps_ > 1; }
  bool has_graphs() const { return !parts_.empty(); }
  /// True if the graphs' blocks are as they were.
  bool may_repeat() const { return has_graphs() && pool_.may_repeat(trace_); }

  /// Of graphs that may not be repeated: true if the program uses blocks of theirs that it did not use before.
  bool gives_way() { return pool_.mark_others(trace_); }

  /// is_noted: false for an eager step that is not as the others, such as one of other extents.
  void begin(StepWay way, bool is_noted = true);
  /// Writes the numbers, and what place() gave for the update if it is one. True: the part was repeated, and nothing is
  /// to be issued.
  bool begin_part(const StepNumbers& numbers, const UpdateScalars* update = nullptr);
  /// Throws   Error(usage) if launches of a captured step have other arguments than those of the last eager one
  void end_part();
  /// The eager step under way is not as the others.
  void leave_out_step() { is_noted_ = false; }
  void end();
  /// After an exception: ends a capture, and forgets.
  void abandon() noexcept;
  /// Forgets graphs and notes, since what is not in the table has changed.
  void forget() noexcept;

  /// The number, counted from 1, of a check in such a step: the same in micro-steps that came to it by the same
  /// launches.
  std::int32_t add_check(std::function<void(const CudaFault&)> sentence);

  /// While a part is captured.
  bool is_capturing() const { return is_capturing_; }
  /// While a step is captured, nothing is given back to CUDA.
  bool keeps_memory() const { return way_ == StepWay::captured && is_begun_; }
  /// The operation launched last in the part, for sentences.
  const char* last_operation() const;

  /// The place in the table of what make(scalars of the range) gives in each step; `now` becomes what it gave first.
  template <class Make, class R>
  const R* place(const RangeSettings& range, const MatrixShape& shape, const Make& make, R& now) {
    static_assert(std::is_trivially_copyable_v<R> && alignof(R) <= first_rule);
    static constexpr char tag = 0;
    return reinterpret_cast<const R*>(
        place_bytes({&tag, range.decays, range.lr_factor, range.weight_decay, shape.rows, shape.columns}, sizeof now,
                    &now, [make, range](const UpdateScalars& of_step, void* to) {
                      const R of_range = make(scalars_of(of_step, range));
                      std::memcpy(to, &of_range, sizeof of_range);
                    }));
  }

 private:
  using Launches = std::vector<NotedLaunch>;
  using Checks = std::vector<std::function<void(const CudaFault&)>>;
  using Write = std::function<void(const UpdateScalars&, void*)>;
  struct RuleKey {
    const char* tag = nullptr;
    bool decays = true;
    double lr_factor = 1, weight_decay = -1;
    Size rows = 0, columns = 0;
    bool operator==(const RuleKey&) const = default;
  };
  struct Rule {
    RuleKey key{};
    Size offset = 0;
    std::vector<std::byte> first{};
    Write write{};
  };
  /// A graph, and the launches of the part that it was captured from.
  struct Captured {
    void* graph = nullptr;  ///< cudaGraphExec_t
    Launches launches{};
  };

  void launched(const NotedLaunch& launch) override;
  bool uses(std::uintptr_t address) override;
  const std::byte* place_bytes(const RuleKey& key, Size bytes, void* now, Write write);
  void write_table(const StepNumbers& numbers, const UpdateScalars* update);
  void require_expected() const;
  void keep_graph(void* graph);
  void launch(std::size_t part);
  void watch(bool on) noexcept;
  void end_trace() noexcept;
  void destroy_graphs() noexcept;

  Pool& pool_;
  CudaMemory& on_;
  std::byte* table_ = nullptr;
  std::vector<Rule> rules_;
  Size end_of_rules_ = first_rule;

  StepWay way_ = StepWay::eager;
  bool is_begun_ = false, is_noted_ = true, is_capturing_ = false, traces_ = false;
  Size noted_steps_ = 0;
  std::vector<Launches> notes_, expected_;  ///< of each part: of this step, of the last eager one
  std::set<const std::byte*> used_;         ///< blocks whose addresses launches had
  std::vector<Captured> graphs_;
  std::vector<std::size_t> parts_;  ///< of each part its graph; empty: none can be repeated
  std::size_t part_ = 0;
  BlockTrace trace_;
  std::shared_ptr<Checks> checks_;  ///< of the graphs' launches
  std::vector<std::uint64_t> ways_to_checks_;
  std::uint64_t way_here_ = 0;  ///< a digest of the part's launches and checks so far
};

}  // namespace dspp
