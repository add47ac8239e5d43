// SPDX-License-Identifier: Apache-2.0
/// Square roots of a block, correctly rounded.
#pragma once

#include <cmath>

#include <dspp/base/config.hpp>
#include <dspp/base/intrinsics.hpp>
#include <dspp/ops/cpu/blocks.hpp>

#if !DSPP_HAS_AVX() && DSPP_HAS_SSE2()
#include <emmintrin.h>
#endif

namespace dspp::cpu {

/// x[k] = sqrt(x[k]): std::sqrt's bits, and vectorised without -fno-math-errno, which compilers ask for since std::sqrt
/// may set errno.
[[gnu::always_inline]] inline void sqrt_block(Lanes<float>& x) {
#if DSPP_HAS_AVX()
  for (int k = 0; k < block_length; k += 8) _mm256_storeu_ps(x + k, _mm256_sqrt_ps(_mm256_loadu_ps(x + k)));
#elif DSPP_HAS_SSE2()
  for (int k = 0; k < block_length; k += 4) _mm_storeu_ps(x + k, _mm_sqrt_ps(_mm_loadu_ps(x + k)));
#else
  for (int k = 0; k < block_length; ++k) x[k] = std::sqrt(x[k]);
#endif
}

[[gnu::always_inline]] inline void sqrt_block(Lanes<double>& x) {
#if DSPP_HAS_AVX()
  for (int k = 0; k < block_length; k += 4) _mm256_storeu_pd(x + k, _mm256_sqrt_pd(_mm256_loadu_pd(x + k)));
#elif DSPP_HAS_SSE2()
  for (int k = 0; k < block_length; k += 2) _mm_storeu_pd(x + k, _mm_sqrt_pd(_mm_loadu_pd(x + k)));
#else
  for (int k = 0; k < block_length; ++k) x[k] = std::sqrt(x[k]);
#endif
}

}  // namespace dspp::cpu
