// SPDX-License-Identifier: Apache-2.0
/// Errors are sentences: `dspp: <who> needs <what>, but <what it got>. <What to do.>`, with a code for programs.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

namespace dspp {

enum class ErrorCode {
  usage,          ///< an option, argument or configuration value
  shape,          ///< extents that do not fit together
  placement,      ///< a run-time fact about ranks: degrees, divisibility
  out_of_memory,  ///< a Pool's limit, or the machine's
  mismatch,       ///< ranks that call different collectives
  peer_lost,      ///< another rank failed, left, or did not come in time
  aborted,        ///< this rank was stopped because another one failed first
  file,           ///< a path absent, unreadable, malformed, of another model
  state,          ///< a call out of order, or a training that cannot go on
};

/// What dspp throws. `what()` is one sentence (or a sentence and a table) that begins with "dspp: ".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] inline void fail(ErrorCode code, const std::string& sentence) {
  throw Error(code, sentence);
}

/// Checks a condition in constant expressions and at run time alike. In a constant expression the compiler stops and
/// echoes the line of the call, hence the literal there; at run time it throws Error.
constexpr void require(bool condition, const char* sentence, ErrorCode code = ErrorCode::usage) {
  if (!condition) fail(code, sentence);
}

}  // namespace dspp
