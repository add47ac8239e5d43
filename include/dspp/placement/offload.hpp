// SPDX-License-Identifier: Apache-2.0
/// What a policy keeps outside of the device's memory, and where: Offload<Optimizer, Disk>, Offload<Parameters, Host>.
#pragma once

#include <string_view>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

namespace io {
class BlockCalls;
}

/// Where bytes rest between their uses.
enum class Tier {
  device,  ///< the device's memory, a Pool with its limit
  host,    ///< the host's memory beside it
  disk,    ///< a file
};
constexpr const char* name_of(Tier tier) {
  constexpr const char* names[] = {"the device's memory", "the host's memory", "a file"};
  return names[static_cast<int>(tier)];
}

/// An engine's optimizer state: masters and moments.
struct Optimizer {};
/// This rank's slices of the values, under Zero<3>, and of the reduced gradients until the step, which of values on a
/// disk are in the host's memory. A unit's whole values are in the device's memory while it is used, and so are a
/// bucket's gradients until they are reduced.
struct Parameters {};
/// What is kept for backward where blocks run again (recompute_segments, Recompute): the input of each.
struct Activations {};

/// The host's memory beside the device's Pool, used in place; of Cuda, pinned and mapped into the GPU's addresses.
struct Host {
  static constexpr Tier tier = Tier::host;
};
/// A file of the rank's own in EngineConfig::offload.folder. A step reads the state of one bucket while it updates the
/// one before and writes the one before that; a pass reads the values of a unit while it computes with the one before;
/// an input is written while the forward goes on, and read while backward runs what follows it again.
struct Disk {
  static constexpr Tier tier = Tier::disk;
};

/// A member of a policy, one for each What: Optimizer, Parameters and Activations in Host or Disk. It rests there. Bits
/// are those of the same policy without it. Parameters on a disk need the optimizer's state there.
///
/// Source   Ren et al. 2021, arXiv:2101.06840 (ZeRO-Offload); Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity)
template <class What, class Where>
struct Offload {};

/// A member of a policy with Tp: each of its ranks keeps a part of what is kept for backward where blocks run again, if
/// all have the same, and gathers it there. Bits are those of the same policy without it.
///
/// Source   Rajbhandari et al. 2020, arXiv:1910.02054, section 6.1 (Pa)
struct PartitionActivations {};

/// How much of what a policy offloads to Host rests there, in whole buckets, or inputs: the rest stays in the device's
/// memory.
///
/// Source   ZeRO-Offload++'s Twin-Flow: the ratio of offload_optimizer in DeepSpeed
struct OffloadPart {
  double share = 1;             ///< of the bytes, from 0 to 1
  Size most_bytes = unlimited;  ///< of the host's memory
  static constexpr Size unlimited = -1;
  constexpr bool is_all() const { return share == 1 && most_bytes == unlimited; }
};

/// Where an engine keeps what its policy offloads, and how much of it.
struct OffloadConfig {
  std::string_view folder{};        ///< of a rank's files, which have no name and end with the engine: for Disk
  io::BlockCalls* calls = nullptr;  ///< null: the system's; kept by the caller
  OffloadPart optimizer{};          ///< of Offload<Optimizer, Host>
  OffloadPart parameters{};  ///< of Offload<Parameters, Host>: of the values; a bucket's gradient rests with them
  OffloadPart
      activations{};  ///< of Offload<Activations, Host>: of what a micro-step keeps, in the order of its forward
};

/// Divides buckets, or inputs, one after the other, so that at every point the share that is moved is within half of
/// one of what was asked for, unless most_bytes is less.
class OffloadDivision {
 public:
  constexpr explicit OffloadDivision(const OffloadPart& part) : part_(part) {}
  /// From the first again.
  constexpr void restart() { all_ = moved_ = 0; }
  /// Whether the next one's bytes are moved.
  constexpr bool moves(Size bytes) {
    all_ += bytes;
    const Size moved = moved_ + bytes;
    if (static_cast<double>(moved_) + static_cast<double>(bytes) / 2 > part_.share * static_cast<double>(all_))
      return false;
    if (part_.most_bytes != OffloadPart::unlimited && moved > part_.most_bytes) return false;
    moved_ = moved;
    return true;
  }

 private:
  OffloadPart part_;
  Size all_ = 0, moved_ = 0;
};

}  // namespace dspp
