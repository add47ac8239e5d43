// SPDX-License-Identifier: Apache-2.0
/// The paper device's memory: counts what a real device would hold, byte for byte.
#pragma once

#include <cstdint>

#include <dspp/tensor/block.hpp>
#include <dspp/tensor/memory_timeline.hpp>

namespace dspp {

/// Counts live and peak bytes by category and the floating-point operations of the step. Hands out blocks without data.
/// In few statements: constant expressions count them.
class Ledger {
 public:
  constexpr Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  constexpr MemoryBlock<Ledger>* take(Size bytes, Category category, const char* label) {
    auto* block = new MemoryBlock<Ledger>{
        .bytes = round_up(bytes, block_alignment), .category = category, .memory = this, .label = label};
    Size& live = live_.bytes[static_cast<int>(category)];
    Size& most = peaks_.bytes[static_cast<int>(category)];
    live += block->bytes, total_ += block->bytes;
    if (live > most) most = live;
    if (total_ > peak_) {
      peak_ = total_;
      at_peak_ = live_;
    }
    return recorder_ ? recorder_->taken(*block, total_) : void(), block;
  }

  constexpr void give(MemoryBlock<Ledger>* block) {
    live_.bytes[static_cast<int>(block->category)] -= block->bytes, total_ -= block->bytes,
        recorder_ ? recorder_->given(block, total_) : void();
    delete block;
  }

  /// Hears of each block that is taken or given back, at run time; null: none does.
  constexpr void set_recorder(MemoryRecorder* recorder) { recorder_ = recorder; }
  /// As of a Pool: the recorder hears of it.
  constexpr void begin_step() { recorder_ ? recorder_->begin_step() : void(); }
  constexpr void end_step() { recorder_ ? recorder_->end_step() : void(); }
  constexpr void lend_region(bool) {}
  constexpr void abandon_step() { recorder_ ? recorder_->abandon_step() : void(); }

  constexpr Size live() const { return total_; }
  constexpr Size peak() const { return peak_; }
  constexpr const CategoryBytes& live_by_category() const { return live_; }
  /// The peak live bytes of each category; the peaks may be at different times.
  constexpr const CategoryBytes& peak_by_category() const { return peaks_; }
  /// The live bytes of each category at the peak.
  constexpr const CategoryBytes& at_peak() const { return at_peak_; }

  /// Adds the operations of one kernel: multiply and add count two. The phase is forward or backward.
  constexpr void count_flops(double operations) {
    (backward_depth_ > 0 ? flops_backward_ : flops_forward_) += operations;
  }
  constexpr void set_backward(bool backward) { backward_depth_ += backward ? 1 : -1; }  // nests: recompute
  /// Paper has no profiler.
  constexpr void use_parameter(const void*) {}
  constexpr void end_operation() {}
  constexpr double flops_forward() const { return flops_forward_; }
  constexpr double flops_backward() const { return flops_backward_; }

  /// Paper has no limit.
  constexpr void ask_remedies(const void*, const auto&) {}

  /// A unique number from 1 on: a tape identifies its passes by it.
  constexpr std::uint64_t new_number() { return ++numbers_; }

 private:
  CategoryBytes live_{}, peaks_{}, at_peak_{};
  Size total_ = 0, peak_ = 0;
  double flops_forward_ = 0, flops_backward_ = 0;
  int backward_depth_ = 0;
  std::uint64_t numbers_ = 0;
  MemoryRecorder* recorder_ = nullptr;
};

}  // namespace dspp
