// SPDX-License-Identifier: Apache-2.0
/// The contributions of ranks to the collectives under test, and the expected results, computed by plain loops.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <dspp/comm/buffer.hpp>
#include <dspp/comm/sum_order.hpp>

namespace dspp::laws {

/// Element i of the contribution of rank `rank`: a function of both, of mixed signs and magnitudes.
template <class T>
T contribution(int rank, Size i, int salt = 0) {
  std::uint64_t h = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ull +
                    static_cast<std::uint64_t>(rank + 1) * 0xd1b54a32d192ed03ull +
                    static_cast<std::uint64_t>(salt) * 0x2545f4914f6cdd1dull;
  h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9ull;
  h ^= h >> 32;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(h);
  } else {
    const double magnitude = static_cast<double>(1 << (h % 12));
    return T((static_cast<double>(h >> 12) / static_cast<double>(1ull << 51) - 1.0) * magnitude);
  }
}

template <class T>
std::vector<T> contributions(int rank, Size count, int salt = 0, Size first = 0) {
  std::vector<T> x;
  for (Size i = 0; i < count; ++i) x.push_back(contribution<T>(rank, first + i, salt));
  return x;
}

/// The sum that the laws require: in rank order, in Compute<T>, rounded once.
template <class T>
T sum_in_rank_order(int ranks, Size i, int salt = 0) {
  if constexpr (std::is_integral_v<T>) {
    std::make_unsigned_t<T> sum = 0;
    for (int r = 0; r < ranks; ++r) sum += static_cast<std::make_unsigned_t<T>>(contribution<T>(r, i, salt));
    return static_cast<T>(sum);
  } else {
    Compute<T> sum = static_cast<Compute<T>>(contribution<T>(0, i, salt));
    for (int r = 1; r < ranks; ++r) sum += static_cast<Compute<T>>(contribution<T>(r, i, salt));
    return T(sum);
  }
}

template <class T>
std::vector<T> sums(int ranks, Size count, int salt = 0, Size first = 0) {
  std::vector<T> x;
  for (Size i = 0; i < count; ++i) x.push_back(sum_in_rank_order<T>(ranks, first + i, salt));
  return x;
}

/// The exact sum, rounded once: contributions are multiples of 2^-51 that are smaller than 2^12.
template <class T>
T exact_sum(int ranks, Size i, int salt = 0) {
  if constexpr (std::is_integral_v<T>) {
    return sum_in_rank_order<T>(ranks, i, salt);
  } else {
    __extension__ using Wide = __int128;
    Wide sum = 0;
    for (int r = 0; r < ranks; ++r)
      sum += static_cast<Wide>(std::ldexp(static_cast<double>(contribution<T>(r, i, salt)), 51));
    return T(std::ldexp(static_cast<Compute<T>>(sum), -51));
  }
}

/// True if x is a sum in any order: within its rounding errors.
template <class T>
bool is_rounded_sum(T x, int ranks, Size i, int salt = 0) {
  if constexpr (std::is_integral_v<T>) {
    return x == sum_in_rank_order<T>(ranks, i, salt);
  } else {
    double sum = 0, magnitude = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto term = static_cast<double>(contribution<T>(r, i, salt));
      sum += term, magnitude += std::abs(term);
    }
    const double each = ranks * static_cast<double>(std::numeric_limits<Compute<T>>::epsilon()) * magnitude;
    const double once = std::is_same_v<T, bf16>  ? 0x1p-8 * std::abs(sum)
                        : std::is_same_v<T, f16> ? 0x1p-11 * std::abs(sum) + 0x1p-25
                                                 : 0;
    return std::abs(static_cast<double>(x) - sum) <= each + once;
  }
}

/// True if x holds the sums that the tier of `order` guarantees, from element `first`.
template <class T>
bool are_sums(SumOrder order, const std::vector<T>& x, int ranks, int salt = 0, Size first = 0) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    const Size i = first + static_cast<Size>(k);
    if (order == SumOrder::transport) {
      if (!is_rounded_sum(x[k], ranks, i, salt)) return false;
      continue;
    }
    const T sum = order == SumOrder::exact ? exact_sum<T>(ranks, i, salt) : sum_in_rank_order<T>(ranks, i, salt);
    if (std::memcmp(&x[k], &sum, sizeof(T)) != 0) return false;
  }
  return true;
}

template <class T>
std::vector<T> concatenation(int ranks, Size count, int salt = 0) {
  std::vector<T> x;
  for (int r = 0; r < ranks; ++r) {
    for (Size i = 0; i < count; ++i) x.push_back(contribution<T>(r, i, salt));
  }
  return x;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Size count_of(const std::vector<T>& x) {
  return static_cast<Size>(x.size());
}

template <class T>
Buffer all_of(std::vector<T>& x) {
  return buffer(x.data(), count_of(x));
}

template <class T>
ConstBuffer all_of(const std::vector<T>& x) {
  return buffer(x.data(), count_of(x));
}

}  // namespace dspp::laws
