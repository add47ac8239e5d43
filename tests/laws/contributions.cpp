// SPDX-License-Identifier: Apache-2.0
#include <laws/contributions.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace dspp::laws {

template <class T>
T contribution(int rank, Size i, int salt) {
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

namespace {

template <class T>
T sum_in_rank_order(int ranks, Size i, int salt) {
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

/// The exact sum, rounded once: contributions are multiples of 2^-51 that are smaller than 2^12.
template <class T>
T exact_sum(int ranks, Size i, int salt) {
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

/// True if x is a sum in any order: within its rounding errors. `at_each`: those of T at every addition.
template <class T>
bool is_rounded_sum(T x, int ranks, Size i, int salt, bool at_each) {
  if constexpr (std::is_integral_v<T>) {
    return x == sum_in_rank_order<T>(ranks, i, salt);
  } else {
    double sum = 0, magnitude = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto term = static_cast<double>(contribution<T>(r, i, salt));
      sum += term, magnitude += std::abs(term);
    }
    const double each = ranks * static_cast<double>(std::numeric_limits<Compute<T>>::epsilon()) * magnitude;
    const double rounded = at_each ? (ranks - 1) * magnitude : std::abs(sum);
    const double once = std::is_same_v<T, bf16>  ? 0x1p-8 * rounded
                        : std::is_same_v<T, f16> ? 0x1p-11 * rounded + 0x1p-25
                                                 : 0;
    return std::abs(static_cast<double>(x) - sum) <= each + once;
  }
}

}  // namespace

template <class T>
std::vector<T> contributions(int rank, Size count, int salt, Size first) {
  std::vector<T> x(static_cast<std::size_t>(count));
  for (T& element : x) element = contribution<T>(rank, first++, salt);
  return x;
}

template <class T>
std::vector<T> sums(int ranks, Size count, int salt, Size first) {
  std::vector<T> x(static_cast<std::size_t>(count));
  for (T& element : x) element = sum_in_rank_order<T>(ranks, first++, salt);
  return x;
}

template <class T>
bool are_sums(SumOrder order, const std::vector<T>& x, int ranks, int salt, Size first) {
  for (std::size_t k = 0; k < x.size(); ++k) {
    const Size i = first + static_cast<Size>(k);
    if (order <= SumOrder::transport) {
      if (!is_rounded_sum(x[k], ranks, i, salt, order == SumOrder::rounding)) return false;
      continue;
    }
    const T sum = order == SumOrder::exact ? exact_sum<T>(ranks, i, salt) : sum_in_rank_order<T>(ranks, i, salt);
    if (std::memcmp(&x[k], &sum, sizeof(T)) != 0) return false;
  }
  return true;
}

template <class T>
std::vector<T> concatenation(int ranks, Size count, int salt) {
  std::vector<T> x;
  x.reserve(static_cast<std::size_t>(ranks * count));
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> part = contributions<T>(r, count, salt);
    x.insert(x.end(), part.begin(), part.end());
  }
  return x;
}

#define DSPP_CONTRIBUTIONS_OF(T)                                              \
  template T contribution<T>(int, Size, int);                                 \
  template std::vector<T> contributions<T>(int, Size, int, Size);             \
  template std::vector<T> sums<T>(int, Size, int, Size);                      \
  template bool are_sums<T>(SumOrder, const std::vector<T>&, int, int, Size); \
  template std::vector<T> concatenation<T>(int, Size, int);

DSPP_CONTRIBUTIONS_OF(double)
DSPP_CONTRIBUTIONS_OF(float)
DSPP_CONTRIBUTIONS_OF(bf16)
DSPP_CONTRIBUTIONS_OF(f16)
DSPP_CONTRIBUTIONS_OF(std::int32_t)
DSPP_CONTRIBUTIONS_OF(std::int64_t)
DSPP_CONTRIBUTIONS_OF(std::uint8_t)

}  // namespace dspp::laws
