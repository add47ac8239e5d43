// SPDX-License-Identifier: Apache-2.0
/// Copies past the caches: a store through them reads the memory that it overwrites, a third more traffic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <dspp/base/intrinsics.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_SSE2() && !DSPP_HAS_AVX()
#include <emmintrin.h>
#endif

namespace dspp::detail {

inline constexpr Size streamed_line = 64;

/// One line, `to` a multiple of streamed_line.
inline void stream_line(std::byte* to, const std::byte* from) {
#if DSPP_HAS_AVX512()
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif DSPP_HAS_AVX()
  for (int i = 0; i < streamed_line; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
#elif DSPP_HAS_SSE2()
  for (int i = 0; i < streamed_line; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
#else
  std::memcpy(to, from, std::size_t{streamed_line});
#endif
}

/// The same bytes, for other threads to see when this one's next release is seen. Pays for what no cache holds.
inline void streamed_copy(void* to, const void* from, Size bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const Size beyond = static_cast<Size>(reinterpret_cast<std::uintptr_t>(to) % streamed_line);
  const Size before = beyond == 0 ? 0 : streamed_line - beyond;
  if (bytes < before + streamed_line) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  std::memcpy(out, in, static_cast<std::size_t>(before));
  Size at = before;
  for (; at + streamed_line <= bytes; at += streamed_line) stream_line(out + at, in + at);
#if DSPP_HAS_SSE2()
  _mm_sfence();
#endif
  std::memcpy(out + at, in + at, static_cast<std::size_t>(bytes - at));
}

}  // namespace dspp::detail
