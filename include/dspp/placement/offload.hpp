// SPDX-License-Identifier: Apache-2.0
/// What a policy keeps outside of the device's memory, and where: Offload<Optimizer, Disk>.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// Where bytes rest between their uses.
enum class Tier {
  device,  ///< the device's memory, a Pool with its limit
  host,    ///< the host's memory beside it
  disk,    ///< a file
};

/// An engine's optimizer state: masters and moments.
struct Optimizer {};

/// The host's memory beside the device's Pool, used in place.
struct Host {
  static constexpr Tier tier = Tier::host;
};
/// A file of the rank's own in EngineConfig::offload.folder. A step reads the state of one bucket while it updates the
/// one before and writes the one before that.
struct Disk {
  static constexpr Tier tier = Tier::disk;
};

/// A member of a policy: `What` rests in `Where`. Bits are those of the same policy without it.
///
/// Source   Ren et al. 2021, arXiv:2101.06840 (ZeRO-Offload); Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity)
template <class What, class Where>
struct Offload {};

}  // namespace dspp
