// SPDX-License-Identifier: Apache-2.0
/// The choice among several algorithms for one result: the fastest of those with the bits of the first, which is the
/// one that is taken without a measurement. Times are noise; whatever they are, the bits of the result stay the same.
///
/// Nothing here needs a GPU: what runs, compares and times an algorithm is the caller's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp::gpu {

/// Whether products are measured (kernels/blas.cuh), and whether a line on stderr says what was found of each.
enum class MeasuredProducts { no, yes, print };

/// "0" is no, "print" is print; null and all else is yes.
inline MeasuredProducts measured_products_of(const char* text) {
  const std::string said = text == nullptr ? "" : text;
  return said == "0" ? MeasuredProducts::no : said == "print" ? MeasuredProducts::print : MeasuredProducts::yes;
}
/// By DSPP_CUDA_MEASURED_PRODUCTS in the environment.
inline MeasuredProducts measured_products() {
  static const MeasuredProducts said = measured_products_of(std::getenv("DSPP_CUDA_MEASURED_PRODUCTS"));
  return said;
}

/// What was found of an algorithm.
struct MeasuredAlgorithm {
  bool runs = false, has_bits_of_first = false;
  double microseconds = 0;  ///< least of its runs; 0 if there were none

  bool can_be_taken() const { return runs && has_bits_of_first; }
};

/// Times of each algorithm: noise only adds to a time, so the least counts.
inline constexpr int measured_rounds = 3;

/// Measures algorithms 0 to count - 1. bits_of(i) runs one and gives a digest of its result, time_of(i) runs one and
/// gives microseconds; either gives nothing if it fails. Rounds go over all algorithms, so that a clock that changes
/// does so for all. Nothing is timed without a choice; those of other bits are timed only with MeasuredProducts::print,
/// which says their times.
template <class BitsOf, class TimeOf>
std::vector<MeasuredAlgorithm> measure_algorithms(int count, BitsOf bits_of, TimeOf time_of,
                                                  MeasuredProducts how = MeasuredProducts::yes) {
  std::vector<MeasuredAlgorithm> all(static_cast<std::size_t>(count));
  std::optional<std::uint64_t> first;
  for (int i = 0; i < count; ++i) {
    const std::optional<std::uint64_t> bits = bits_of(i);
    if (i == 0) first = bits;
    if (!first) return all;
    all[static_cast<std::size_t>(i)] = {.runs = bits.has_value(), .has_bits_of_first = bits == first};
  }
  const auto is_timed = [how](const MeasuredAlgorithm& m) {
    return m.runs && (m.has_bits_of_first || how == MeasuredProducts::print);
  };
  if (std::count_if(all.begin(), all.end(), is_timed) < 2) return all;
  for (int round = 0; round < measured_rounds; ++round)
    for (int i = 0; i < count; ++i) {
      MeasuredAlgorithm& m = all[static_cast<std::size_t>(i)];
      if (!is_timed(m)) continue;
      const std::optional<double> time = time_of(i);
      m.runs = time.has_value();
      if (time) m.microseconds = round == 0 ? *time : std::min(m.microseconds, *time);
    }
  return all;
}

/// The number of the fastest that can be taken. The first is taken unless another needs 1 % and 0.5 us less, which is
/// how fine the events are, and if it fails.
inline int fastest_of(const std::vector<MeasuredAlgorithm>& all) {
  int fastest = 0;
  if (all.empty() || !all[0].can_be_taken()) return fastest;
  double least = std::min(0.99 * all[0].microseconds, all[0].microseconds - 0.5);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (!all[i].can_be_taken() || all[i].microseconds >= least) continue;
    least = all[i].microseconds;
    fastest = static_cast<int>(i);
  }
  return fastest;
}

/// "172.3 us, 165.0 us (taken), other bits, other bits in 160.0 us, failed"
inline std::string text_of(const std::vector<MeasuredAlgorithm>& all, int taken) {
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const MeasuredAlgorithm& m = all[i];
    const auto tenths = static_cast<long long>(10 * m.microseconds + 0.5);
    const std::string time = std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " us";
    if (i > 0) text += ", ";
    if (!m.runs)
      text += "failed";
    else if (!m.has_bits_of_first)
      text += tenths > 0 ? "other bits in " + time : "other bits";
    else
      text += time;
    if (static_cast<int>(i) == taken) text += " (taken)";
  }
  return text;
}

}  // namespace dspp::gpu
