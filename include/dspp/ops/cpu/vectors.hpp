// SPDX-License-Identifier: Apache-2.0
/// Vectors of the processor's width, for loops whose sums must stay in registers: g++ and clang have them for every
/// processor, narrower ones in pieces.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <dspp/base/intrinsics.hpp>
#include <dspp/base/math.hpp>
#include <dspp/base/types.hpp>

namespace dspp::cpu {

inline constexpr int vector_bytes = DSPP_HAS_AVX512() ? 64 : DSPP_HAS_AVX() ? 32 : 16;

/// Elements of a vector.
template <class C>
inline constexpr int vector_length = vector_bytes / static_cast<int>(sizeof(C));

template <class C>
struct VectorOf {
  typedef std::uint32_t Words __attribute__((vector_size(vector_bytes)));
  typedef C Type __attribute__((vector_size(vector_bytes)));
};
template <class C>
using Vector = typename VectorOf<C>::Type;

template <class C>
[[gnu::always_inline]] inline Vector<C> load_vector(const C* from) {
  Vector<C> x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
template <class C>
[[gnu::always_inline]] inline void store_vector(C* to, Vector<C> x) {
  std::memcpy(to, &x, sizeof(x));
}

#if DSPP_HAS_AVX512()
/// The first `count` elements of a vector.
[[gnu::always_inline]] inline unsigned part_mask(Size count) {
  return (1u << count) - 1;
}
#elif DSPP_HAS_AVX2()
[[gnu::always_inline]] inline __m256i part_mask(Size count, float) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
[[gnu::always_inline]] inline __m256i part_mask(Size count, double) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
#endif

/// The first `count` elements, fewer than a vector has; the others are 0.
template <class C>
[[gnu::always_inline]] inline Vector<C> load_part(const C* from, Size count) {
#if DSPP_HAS_AVX512()
  if constexpr (std::is_same_v<C, float>)
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(part_mask(count)), from);
  else
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>(part_mask(count)), from);
#elif DSPP_HAS_AVX2()
  if constexpr (std::is_same_v<C, float>)
    return _mm256_maskload_ps(from, part_mask(count, C()));
  else
    return _mm256_maskload_pd(from, part_mask(count, C()));
#else
  Vector<C> x{};
  std::memcpy(&x, from, static_cast<std::size_t>(count) * sizeof(C));
  return x;
#endif
}
template <class C>
[[gnu::always_inline]] inline void store_part(C* to, Vector<C> x, Size count) {
#if DSPP_HAS_AVX512()
  if constexpr (std::is_same_v<C, float>)
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(part_mask(count)), x);
  else
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(part_mask(count)), x);
#elif DSPP_HAS_AVX2()
  if constexpr (std::is_same_v<C, float>)
    _mm256_maskstore_ps(to, part_mask(count, C()), x);
  else
    _mm256_maskstore_pd(to, part_mask(count, C()), x);
#else
  std::memcpy(to, &x, static_cast<std::size_t>(count) * sizeof(C));
#endif
}

/// The same bytes as another vector.
template <class To, class From>
[[gnu::always_inline]] inline To words_as(const From& x) {
  return __builtin_bit_cast(To, x);
}

/// The larger elements; those of b where a is NaN.
template <class C>
[[gnu::always_inline]] inline Vector<C> larger(Vector<C> a, Vector<C> b) {
  return a > b ? a : b;
}

/// exp of each element, with the bits of math::exp; that of infinity, which no softmax takes, may be NaN.
template <class C>
[[gnu::always_inline]] inline Vector<C> exp_of(Vector<C> x) {
  if constexpr (std::is_same_v<C, float>) {
    using namespace math::detail;
    [[maybe_unused]] typedef typename VectorOf<C>::Words Words;
    const Vector<C> shifted = x * inverse_log2 + half_mantissa;
    const Vector<C> n = shifted - half_mantissa;
    const Vector<C> r = (x - n * log2_upper) - n * log2_lower;
    const Vector<C> q = exp_2 + r * (exp_3 + r * (exp_4 + r * (exp_5 + r * exp_6)));
    const Vector<C> mantissa = 1.0f + (r + r * r * q);
#if DSPP_HAS_AVX512()
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(exp_least), _CMP_NLT_UQ), mantissa, n);
#else
    const auto value = words_as<Vector<C>>(words_as<Words>(mantissa) + (words_as<Words>(shifted) << 23));
    const Vector<C> normal = x >= exp_least ? value : Vector<C>{};
    return x <= exp_most ? normal : x + infinity;  // NaN for NaN
#endif
  } else {
    for (int i = 0; i < vector_length<C>; ++i) x[i] = math::exp(x[i]);
    return x;
  }
}

}  // namespace dspp::cpu
