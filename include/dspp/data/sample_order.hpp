// SPDX-License-Identifier: Apache-2.0
/// The order of all samples in each epoch, computed on demand and not stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include <dspp/base/error.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/base/types.hpp>

namespace dspp::data {

/// The sample at a position of an endless stream of epochs: position p is number p % samples of epoch p / samples. Each
/// epoch is a permutation of [0, samples), another one for each (seed, epoch). It is a function of the arguments alone,
/// so the stream does not depend on the number of ranks, and a run can resume at any position.
///
/// The permutation is a Feistel network of eight rounds over the next 2^(2h) >= samples, with Philox as the round
/// function; results outside [0, samples) are permuted again until they are inside.
///
/// Cost     at most 32 calls of Philox on average for 16 samples or more, under a microsecond
/// Source   Luby, Rackoff, How to construct pseudorandom permutations from pseudorandom functions (1988), section 3;
///          Black, Rogaway, Ciphers with arbitrary finite domains (2002), section 3
constexpr Size sample_at(std::uint64_t seed, Size place, Size samples);

/// The seed of one of several streams that a seed begins; that of stream 0 is the seed itself.
constexpr std::uint64_t seed_of_stream(std::uint64_t seed, std::size_t stream) {
  return seed + stream * 0x9E3779B97F4A7C15u;
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::uint32_t order_site = 0x00DA7A01u;  // neither a layer's nor that of random positions
inline constexpr Size most_samples = Size{1} << 60;

/// A permutation of [0, 4^half_bits).
constexpr std::uint64_t feistel(std::uint64_t seed, Size epoch, std::uint64_t number, int half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = number >> half_bits, right = number & mask;
  for (int round = 0; round < 8; ++round) {
    // the bits of the epoch above 2^32 go into the sample word, above the round's eight values
    const PhiloxStream stream{.key = {seed}, .step = epoch, .sample = (epoch >> 32) * 8 + round, .site = order_site};
    const std::uint64_t mixed = left ^ (philox_bits(stream, static_cast<Size>(right)) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace detail

constexpr Size sample_at(std::uint64_t seed, Size place, Size samples) {
  require(samples >= 1 && samples <= detail::most_samples,
          "dspp: sample_at needs from 1 to 2^60 samples, but got none or more. Pass their number.");
  require(place >= 0, "dspp: sample_at needs a place that is not negative, but it is. Count from 0.");
  int half_bits = 2;
  while (Size{1} << (2 * half_bits) < samples) ++half_bits;
  auto number = static_cast<std::uint64_t>(place % samples);
  do number = detail::feistel(seed, place / samples, number, half_bits);
  while (number >= static_cast<std::uint64_t>(samples));
  return static_cast<Size>(number);
}

}  // namespace dspp::data
