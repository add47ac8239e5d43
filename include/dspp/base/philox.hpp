// SPDX-License-Identifier: Apache-2.0
/// Random numbers without state: element e of a stream is a function of (seed, step, sample, site, e), so that every
/// rank draws exactly its slice and recomputation stores nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <dspp/base/bits.hpp>
#include <dspp/base/config.hpp>
#include <dspp/base/philox_avx2.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// The seed of a run.
struct PhiloxKey {
  std::uint64_t seed = 0;
};

/// One stream of random elements. `step` and `sample` count modulo 2^32; `site` distinguishes the places of a program.
/// Streams are independent for sites below 2^24 and elements below 2^42 (or any site and elements below 2^34).
struct PhiloxStream {
  PhiloxKey key{};
  Size step = 0;
  Size sample = 0;  ///< global: counted over all ranks
  std::uint32_t site = 0;
};

/// The four outputs, or inputs, of one call of the generator.
struct PhiloxBlock {
  std::uint32_t words[4] = {};
  friend constexpr bool operator==(const PhiloxBlock&, const PhiloxBlock&) = default;
};

/// Philox4x32-10 of one counter.
///
/// Source   Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011), section 3.3
DSPP_HOST_DEVICE constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1);

/// The 32 random bits of one element.
DSPP_HOST_DEVICE constexpr std::uint32_t philox_bits(const PhiloxStream& stream, Size element);

/// Uniform in (0, 1): an odd multiple of 2^-24, exact in f32, symmetric about 1/2, never 0 or 1.
DSPP_HOST_DEVICE constexpr float philox_uniform(const PhiloxStream& stream, Size element);

/// Standard normal, |z| <= 6.34; the same bits on every compiler, device, vector width and in constant expressions.
DSPP_HOST_DEVICE constexpr float philox_normal(const PhiloxStream& stream, Size element);

/// Elements [begin, end) into out[0, end - begin): the same values as one by one, about five times faster.
constexpr void philox_fill_bits(const PhiloxStream& stream, Size begin, Size end, std::uint32_t* out);
constexpr void philox_fill_normal(const PhiloxStream& stream, Size begin, Size end, float* out);

/// The uniform in (0, 1) of 32 random bits: the upper 23 of them plus one half.
DSPP_HOST_DEVICE constexpr float uniform_from_bits(std::uint32_t bits) {
  return static_cast<float>((bits >> 9) * 2 + 1) * 0x1p-24f;
}

/// The standard normal of 32 random bits: z = Phi^-1(u), u = (bits + 1/2) / 2^32, within 4e-7 |z|.
///
/// With p = min(u, 1-u), x = 1 - 2p, w = -log(4p(1-p)): z = x R(w), R one rational function of degree (6, 5) fitted
/// to 1e-8. Each step is a product of two floats plus a float in double, then rounded: the product is exact, so a
/// compiler that fuses it with the sum gives the same bits. No libm.
DSPP_HOST_DEVICE constexpr float normal_from_bits(std::uint32_t bits);

namespace detail {

/// a * x + c, rounded alike with and without contraction.
DSPP_HOST_DEVICE constexpr float horner_step(float a, float x, float c) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(x) + static_cast<double>(c));
}

/// first + x (second + x (third + ...)). Without a loop, so that loops over it vectorise.
template <class... Rest>
DSPP_HOST_DEVICE constexpr float exact_horner(float x, float first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return horner_step(exact_horner(x, rest...), x, first);
}

/// log(t) of a normal float t in (0, 1]: with t = (1 + f) 2^e and 1 + f in [0.7, 1.41), e log 2 + f r(f).
DSPP_HOST_DEVICE constexpr float log_for_normal(float t) {
  const std::int32_t shifted = static_cast<std::int32_t>(bits_as<std::uint32_t>(t) - 0x3f3504f3u);
  const std::uint32_t mantissa = (static_cast<std::uint32_t>(shifted) & 0x007fffffu) + 0x3f3504f3u;
  const float f = bits_as<float>(mantissa) - 1.0f;
  const float r = exact_horner(f, 0.9999999741895869f, -0.49999987964200004f, 0.3333418562607015f, -0.2500207406719603f,
                               0.19956833545774816f, -0.1656239312229555f, 0.14952266777786288f, -0.14366842756106882f,
                               0.08722354923592196f);
  return horner_step(static_cast<float>(shifted >> 23), 0.693147182f, r * f);
}

}  // namespace detail

DSPP_HOST_DEVICE constexpr float normal_from_bits(std::uint32_t bits) {
  const std::uint32_t upper = 0u - (bits >> 31);                   // all ones if u > 1/2
  const auto folded = static_cast<std::int32_t>(bits ^ upper);     // p = (folded + 1/2) / 2^32 <= 1/2
  const double p = (static_cast<double>(folded) + 0.5) * 0x1p-32;  // exact
  const double product = p * (1.0 - p);
  const float w = -detail::log_for_normal(static_cast<float>(product * 4.0));
  const float numerator =
      detail::exact_horner(w, 1.2533141252681341f, 0.4474257119488313f, 0.0909918780972447f, 0.012520260508507387f,
                           0.0011375742782381453f, 5.9271750948045726e-05f, 1.9088950848430723e-07f);
  const float denominator = detail::exact_horner(w, 1.0f, 0.09519440067005402f, 0.03464842306539935f,
                                                 0.002310888184254256f, 0.000248300149529957f, 3.7341672563827056e-06f);
  const float z = static_cast<float>(1.0 - 2.0 * p) * (numerator / denominator);  // z >= 0
  return bits_as<float>(bits_as<std::uint32_t>(z) ^ (~upper & 0x80000000u));
}

namespace detail {

/// Counter words: element / 4 (its upper bits above the site's 24), site, sample, step.
DSPP_HOST_DEVICE constexpr PhiloxBlock philox_counter(const PhiloxStream& stream, Size block) {
  return {{static_cast<std::uint32_t>(block), stream.site ^ (static_cast<std::uint32_t>(block >> 32) << 24),
           static_cast<std::uint32_t>(stream.sample), static_cast<std::uint32_t>(stream.step)}};
}

/// The generator on Count consecutive counters at once, for loops of constant length that vectorise.
template <std::size_t Count>
DSPP_HOST_DEVICE constexpr void philox_rounds(std::uint32_t (&x)[4][Count], std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    for (std::size_t j = 0; j < Count; ++j) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * x[0][j];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * x[2][j];
      x[0][j] = static_cast<std::uint32_t>(product1 >> 32) ^ x[1][j] ^ key0;
      x[1][j] = static_cast<std::uint32_t>(product1);
      x[2][j] = static_cast<std::uint32_t>(product0 >> 32) ^ x[3][j] ^ key1;
      x[3][j] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

inline constexpr int philox_group = 64;  // elements that the fills draw at once

/// The bits of elements [4 * block, 4 * block + 64).
constexpr void philox_group_bits(const PhiloxStream& stream, Size block, std::uint32_t (&bits)[philox_group]) {
  std::uint32_t x[4][philox_group / 4] = {};
  for (int j = 0; j < philox_group / 4; ++j) {
    const PhiloxBlock counter = philox_counter(stream, block + j);
    for (int word = 0; word < 4; ++word) x[word][j] = counter.words[word];
  }
  const auto key0 = static_cast<std::uint32_t>(stream.key.seed);
  const auto key1 = static_cast<std::uint32_t>(stream.key.seed >> 32);
#if DSPP_HAS_AVX2()
  if (!std::is_constant_evaluated()) return philox_words_avx2(x, key0, key1, bits);
#endif
  philox_rounds(x, key0, key1);
  for (int j = 0; j < philox_group / 4; ++j)
    for (int word = 0; word < 4; ++word) bits[4 * j + word] = x[word][j];
}

/// Calls f(bits) for every element of [begin, end), in groups of 64.
template <class T, class F>
constexpr void philox_fill(const PhiloxStream& stream, Size begin, Size end, T* out, F f) {
  for (Size start = begin / 4 * 4; start < end; start += philox_group) {
    std::uint32_t bits[philox_group] = {};
    T values[philox_group] = {};
    philox_group_bits(stream, start / 4, bits);
    for (int i = 0; i < philox_group; ++i) values[i] = f(bits[i]);
    const Size first = start < begin ? begin - start : 0;
    const Size last = end - start < philox_group ? end - start : philox_group;
    for (Size i = first; i < last; ++i) out[start + i - begin] = values[i];
  }
}

}  // namespace detail

DSPP_HOST_DEVICE constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t x[4][1] = {{counter.words[0]}, {counter.words[1]}, {counter.words[2]}, {counter.words[3]}};
  detail::philox_rounds(x, key0, key1);
  return {{x[0][0], x[1][0], x[2][0], x[3][0]}};
}

DSPP_HOST_DEVICE constexpr std::uint32_t philox_bits(const PhiloxStream& stream, Size element) {
  const PhiloxBlock counter = detail::philox_counter(stream, element / 4);
  return philox4x32_10(counter, static_cast<std::uint32_t>(stream.key.seed),
                       static_cast<std::uint32_t>(stream.key.seed >> 32))
      .words[element % 4];
}

DSPP_HOST_DEVICE constexpr float philox_uniform(const PhiloxStream& stream, Size element) {
  return uniform_from_bits(philox_bits(stream, element));
}

DSPP_HOST_DEVICE constexpr float philox_normal(const PhiloxStream& stream, Size element) {
  return normal_from_bits(philox_bits(stream, element));
}

constexpr void philox_fill_bits(const PhiloxStream& stream, Size begin, Size end, std::uint32_t* out) {
  detail::philox_fill(stream, begin, end, out, [](std::uint32_t bits) { return bits; });
}

constexpr void philox_fill_normal(const PhiloxStream& stream, Size begin, Size end, float* out) {
  detail::philox_fill(stream, begin, end, out, [](std::uint32_t bits) { return normal_from_bits(bits); });
}

}  // namespace dspp
