// SPDX-License-Identifier: Apache-2.0
/// Under which sanitizer a test is compiled. g++ says it by macros, clang++ by features.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DSPP_TEST_UNDER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define DSPP_TEST_UNDER_TSAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define DSPP_TEST_UNDER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define DSPP_TEST_UNDER_TSAN 1
#endif

namespace dspp {

enum class Sanitizer { none, address, thread };

#if defined(DSPP_TEST_UNDER_ASAN)
inline constexpr Sanitizer sanitizer = Sanitizer::address;
#elif defined(DSPP_TEST_UNDER_TSAN)
inline constexpr Sanitizer sanitizer = Sanitizer::thread;
#else
inline constexpr Sanitizer sanitizer = Sanitizer::none;
#endif

}  // namespace dspp
