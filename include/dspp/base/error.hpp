// SPDX-License-Identifier: Apache-2.0
/// Errors are sentences: `dspp: <who> needs <what>, but <what it got>. <What to do.>`, with a code for programs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include <dspp/base/config.hpp>
#include <dspp/base/printable.hpp>

namespace dspp {

enum class ErrorCode {
  usage,          ///< an option, argument or configuration value
  shape,          ///< extents that do not match
  placement,      ///< a run-time fact about ranks: degrees, divisibility
  out_of_memory,  ///< a Pool's limit, or the machine's
  mismatch,       ///< ranks that call different collectives
  peer_lost,      ///< another rank failed, left, or did not come in time
  aborted,        ///< this rank was stopped because another one failed first
  file,           ///< a path absent, unreadable, malformed, of another model
  state,          ///< a call out of order, or a training that cannot go on
};

/// What dspp throws. `what()` is one sentence (or a sentence and a table) that begins with "dspp: ". All echoed names
/// are escaped by printable(); line ends stay, for tables.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& sentence)
      : std::runtime_error(printable(sentence, LineEnds::kept)), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Throws a sentence of one line, so that no echoed name begins another; only out_of_memory has a table below.
[[noreturn]] void fail(ErrorCode code, std::string_view sentence);

/// Checks a condition in constant expressions and at run time alike. In a constant expression the compiler stops and
/// prints the line of the call, hence the literal there; at run time it throws Error.
constexpr void require(bool condition, const char* sentence, ErrorCode code = ErrorCode::usage) {
  if (!condition) fail(code, sentence);
}

/// A number of a sentence.
struct Given {
  const char* name;
  std::int64_t value;
};

/// The same with numbers, which a constant expression cannot format. At run time they are inserted at the end of the
/// sentence's first half: "dspp: plan needs ..., but it does not (sequence 10, Cp 4). Change ...".
constexpr void require(bool condition, const char* sentence, ErrorCode code, std::initializer_list<Given> numbers);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
[[noreturn]] void fail_with(ErrorCode code, const char* sentence, std::initializer_list<Given> numbers);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void fail_with(ErrorCode code, const char* sentence, std::initializer_list<Given> numbers) {
  std::string whole = sentence, text;
  for (const Given& one : numbers)
    text.append(text.empty() ? " (" : ", ").append(one.name).append(" ").append(std::to_string(one.value));
  const std::size_t end = whole.find(". ");  // or the last stop, if there is no advice
  fail(code, whole.insert(end == std::string::npos ? whole.size() - 1 : end, text + ")"));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

constexpr void require(bool condition, const char* sentence, ErrorCode code, std::initializer_list<Given> numbers) {
  if (!condition) detail::fail_with(code, sentence, numbers);
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void fail(ErrorCode code, std::string_view sentence) {
  throw Error(code, code == ErrorCode::out_of_memory ? std::string(sentence) : printable(sentence));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
