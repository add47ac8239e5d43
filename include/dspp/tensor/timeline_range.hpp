// SPDX-License-Identifier: Apache-2.0
/// Named ranges in the timeline of a device's profiler, and the clock of a device.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <dspp/base/stream_clock.hpp>
#include <dspp/tensor/device.hpp>

namespace dspp {

/// A device whose profiler shows by name what the host issues: NVTX on Cuda, in Nsight Systems. begin_range gives a
/// number that is not 0, and end_range takes it; ranges that began later and did not end, end with it.
template <class D>
concept HasTimeline = Device<D> && requires(Memory<D>& memory, std::string_view text, std::uint64_t range) {
  { D::begin_range(memory, text, text) } -> std::convertible_to<std::uint64_t>;
  D::end_range(memory, range);
};

/// A device whose work goes on after the calls that issue it, and whose clock says when it was done: Cuda. Of the rank
/// whose memory it is.
template <class D>
concept HasClock = Device<D> && requires(Memory<D>& memory) {
  { D::clock(memory) } -> std::same_as<std::unique_ptr<StreamClock>>;
};

/// "forward blocks.3" in that timeline, from its beginning to its end; nothing on other devices.
template <Device D>
class TimelineRange {
 public:
  constexpr TimelineRange() = default;
  constexpr TimelineRange(Memory<D>& memory, std::string_view what) { begin(memory, what); }
  TimelineRange(const TimelineRange&) = delete;
  TimelineRange& operator=(const TimelineRange&) = delete;
  constexpr ~TimelineRange() { end(); }

  /// Ends, if it had begun, and begins anew; `what` may be followed by the name of what it is done to.
  constexpr void begin([[maybe_unused]] Memory<D>& memory, [[maybe_unused]] std::string_view what,
                       [[maybe_unused]] std::string_view name = {}) {
    end();
    if constexpr (HasTimeline<D>) memory_ = &memory, range_ = D::begin_range(memory, what, name);
  }
  constexpr void end() {
    if constexpr (HasTimeline<D>)
      if (range_ != 0) D::end_range(*memory_, std::exchange(range_, 0));
  }

 private:
  Memory<D>* memory_ = nullptr;
  std::uint64_t range_ = 0;
};

}  // namespace dspp
