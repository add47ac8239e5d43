// SPDX-License-Identifier: Apache-2.0
/// Square roots of a few numbers at once, correctly rounded.
#pragma once

#include <cmath>
#include <cstddef>

#include <dspp/base/config.hpp>
#include <dspp/base/intrinsics.hpp>

#if !DSPP_HAS_AVX() && DSPP_HAS_SSE2()
#include <emmintrin.h>
#endif

namespace dspp {

/// x[k] = sqrt(x[k]): the bits of std::sqrt, and vectorised without -fno-math-errno, which std::sqrt needs since it may
/// set errno.
template <std::size_t N>
DSPP_HOST_DEVICE [[gnu::always_inline]] inline void square_roots(float (&x)[N]) {
  std::size_t k = 0;
#if DSPP_ON_GPU()  // below are the host's instructions
#elif DSPP_HAS_AVX()
  for (; k + 8 <= N; k += 8) _mm256_storeu_ps(x + k, _mm256_sqrt_ps(_mm256_loadu_ps(x + k)));
#elif DSPP_HAS_SSE2()
  for (; k + 4 <= N; k += 4) _mm_storeu_ps(x + k, _mm_sqrt_ps(_mm_loadu_ps(x + k)));
#endif
  for (; k < N; ++k) x[k] = std::sqrt(x[k]);
}

template <std::size_t N>
DSPP_HOST_DEVICE [[gnu::always_inline]] inline void square_roots(double (&x)[N]) {
  std::size_t k = 0;
#if DSPP_ON_GPU()
#elif DSPP_HAS_AVX()
  for (; k + 4 <= N; k += 4) _mm256_storeu_pd(x + k, _mm256_sqrt_pd(_mm256_loadu_pd(x + k)));
#elif DSPP_HAS_SSE2()
  for (; k + 2 <= N; k += 2) _mm_storeu_pd(x + k, _mm_sqrt_pd(_mm_loadu_pd(x + k)));
#endif
  for (; k < N; ++k) x[k] = std::sqrt(x[k]);
}

}  // namespace dspp
