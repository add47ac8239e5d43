// SPDX-License-Identifier: Apache-2.0
/// std::bad_alloc as a sentence, for heap memory outside the Pools; there is no map to print.
#pragma once

#include <new>
#include <utility>

#include <dspp/base/error.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <string>
#endif

namespace dspp {

inline constexpr const char* out_of_memory_words =
    " needs more memory of the system, but there is none. Lower the batch or the model, or run fewer ranks on this "
    "machine.";

[[noreturn]] void fail_without_memory(const char* who);

/// f(), with std::bad_alloc replaced by Error(out_of_memory): "dspp: <who> needs more memory of the system, ...".
template <class F>
decltype(auto) or_out_of_memory(const char* who, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const std::bad_alloc&) {
    fail_without_memory(who);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void fail_without_memory(const char* who) {
  fail(ErrorCode::out_of_memory, "dspp: " + std::string(who) + out_of_memory_words);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
