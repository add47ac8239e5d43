// SPDX-License-Identifier: Apache-2.0
/// Philox on 16 counters with AVX2: for its 32 x 32 -> 64 bit products compilers need three times the instructions.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_AVX2()

#include <cstdint>

#include <dspp/base/intrinsics.hpp>

namespace dspp::detail {

/// Words of four counters, each in the lower half of 64 bits; the products ignore the upper halves.
struct PhiloxLanes {
  __m256i words[4];

  void round(__m256i key0, __m256i key1) {
    const __m256i product0 = _mm256_mul_epu32(words[0], _mm256_set1_epi64x(0xD2511F53));
    const __m256i product1 = _mm256_mul_epu32(words[2], _mm256_set1_epi64x(0xCD9E8D57));
    words[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), words[1]), key0);
    words[1] = product1;
    words[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), words[3]), key1);
    words[3] = product0;
  }

  /// The four words of each counter in turn: 16 numbers of 32 bits.
  void store(std::uint32_t* out) const {
    const __m256i first = _mm256_blend_epi32(words[0], _mm256_slli_epi64(words[1], 32), 0xAA);
    const __m256i second = _mm256_blend_epi32(words[2], _mm256_slli_epi64(words[3], 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8), _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

/// Philox4x32-10 of 16 counters, given as x[word][counter]; 64 numbers, counter by counter.
inline void philox_words_avx2(const std::uint32_t (&x)[4][16], std::uint32_t key0, std::uint32_t key1,
                              std::uint32_t* out) {
  for (int half = 0; half < 2; ++half) {  // two chains at a time hide the products' latency
    PhiloxLanes lanes[2];
    for (int i = 0; i < 2; ++i)
      for (int word = 0; word < 4; ++word)
        lanes[i].words[word] =
            _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&x[word][8 * half + 4 * i])));
    std::uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < 10; ++round) {
      const __m256i all0 = _mm256_set1_epi64x(k0), all1 = _mm256_set1_epi64x(k1);
      lanes[0].round(all0, all1);
      lanes[1].round(all0, all1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    lanes[0].store(out + 32 * half);
    lanes[1].store(out + 32 * half + 16);
  }
}

}  // namespace dspp::detail

#endif
