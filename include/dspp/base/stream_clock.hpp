// SPDX-License-Identifier: Apache-2.0
/// The clock of a device whose work goes on after the calls that issue it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp {

/// It marks moments in the order of the device's work, and says when they were, once they have come. The device makes
/// it: see Profiler. Used by the rank's thread only.
class StreamClock {
 public:
  struct Moment {
    std::uint64_t number = 0;
    std::int64_t nanoseconds = 0;  ///< since moment 0
  };
  /// Data that go from rank to rank beside the rank's own work.
  struct Transfer {
    const char *name = "", *purpose = "";
    std::uint64_t begin = 0, end = 0;  ///< moments
  };

  virtual ~StreamClock() = default;
  /// The moment when all that the rank has issued so far is done. They are numbered from 0.
  virtual std::uint64_t mark() = 0;
  /// The oldest moment that was not read before, if it has come.
  virtual std::optional<Moment> read() noexcept = 0;
  /// Nanoseconds: no moment before these is still to be read.
  virtual std::int64_t known_until() const noexcept = 0;
  /// Waits for all work of the rank. Throws what failed.
  virtual void wait() = 0;
  /// Whether the device's communicators tell it of their transfers.
  virtual bool tells_transfers() const = 0;
  /// Those that were issued since it was last asked.
  virtual std::vector<Transfer> take_transfers() = 0;
};

}  // namespace dspp
