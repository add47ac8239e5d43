// SPDX-License-Identifier: Apache-2.0
/// Which ranks have a progress thread (comm/progress_thread.hpp).
#pragma once

#include <string>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <dspp/base/error.hpp>
#include <dspp/base/printable.hpp>
#endif

namespace dspp {

/// Whether each rank whose collectives are in host memory has a thread that advances them while it computes.
/// `automatic`: where a rank has more cores than threads that compute (RunOptions::threads_per_rank), and OpenMP binds
/// none of these. Results have the same bits with one and without.
enum class AsyncProgress { automatic, off, on };

/// Of an operation to which a rank gives so many bytes or more its progress thread is woken.
inline constexpr Size worth_a_wake = 64 * 1024;

/// "auto", "off" or "on".
const char* name_of(AsyncProgress choice);
/// The choice of that name.
///
/// Throws   Error(usage) for another, which names `option`
AsyncProgress async_progress_named(const std::string& option, const std::string& name);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE const char* name_of(AsyncProgress choice) {
  return choice == AsyncProgress::automatic ? "auto" : choice == AsyncProgress::on ? "on" : "off";
}

DSPP_INLINE AsyncProgress async_progress_named(const std::string& option, const std::string& name) {
  for (const auto choice : {AsyncProgress::automatic, AsyncProgress::off, AsyncProgress::on})
    if (name == name_of(choice)) return choice;
  fail(ErrorCode::usage,
       "dspp: " + option + " needs auto, on or off, but got '" + printable(name) + "'. Write " + option + " on.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
