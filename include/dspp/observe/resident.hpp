// SPDX-License-Identifier: Apache-2.0
/// The memory of this process as the system sees it.
#pragma once

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <fstream>
#include <string>
#endif

namespace dspp {

/// The most bytes that were in memory at a time, code, libraries and all threads' stacks included; 0 where the system
/// does not say.
///
/// Source   VmHWM of /proc/self/status (Linux)
Size peak_resident_bytes();

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      Size kib = 0;
      status >> kib;
      return kib * 1024;
    }
  return 0;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
