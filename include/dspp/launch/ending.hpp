// SPDX-License-Identifier: Apache-2.0
/// How a program ends by an exception: one sentence and an exit status.
#pragma once

#include <exception>
#include <string>

#include <dspp/base/error.hpp>
#include <dspp/launch/launch.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <dspp/base/printable.hpp>
#endif

namespace dspp::detail {

/// 2 for wrong usage or input, else 1.
int exit_status(const Error& error);

/// The launch, or that of a single process if its variables disagree, which is then the error.
Launch launch_for_errors();

/// The rank that an error is blamed on.
struct Blame {
  int rank = -1;                  ///< -1: unknown
  bool reported = false;          ///< its sentence is on standard error already
  std::string last_operations{};  ///< after a timeout, the list printed after the sentence
};

/// The sentence about an error, and the exit status.
struct Ending {
  std::string sentence;
  int status = 1;
};

/// `rank` threw it; below 0: an unknown rank.
Ending ending_of(const std::exception_ptr& thrown, int rank);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE int exit_status(const Error& error) {
  switch (error.code()) {
    case ErrorCode::usage:
    case ErrorCode::placement:
    case ErrorCode::shape:
    case ErrorCode::file: return 2;
    default: return 1;
  }
}

DSPP_INLINE Launch launch_for_errors() {
  try {
    return this_launch();
  } catch (const Error&) {
    return {};
  }
}

DSPP_INLINE Ending ending_of(const std::exception_ptr& thrown, int rank) {
  const std::string who = rank < 0 ? "a rank" : "rank " + std::to_string(rank);
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return {error.what(), exit_status(error)};
  } catch (const std::exception& error) {
    return {"dspp: " + who + " stopped with an error of its own: " + printable(error.what(), LineEnds::kept), 1};
  } catch (...) {
    return {"dspp: " + who + " stopped with an exception that is not a std::exception.", 1};
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
