// SPDX-License-Identifier: Apache-2.0
// labels: ops
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/ops/quantize.hpp>
#include <laws/difference.hpp>

using namespace dspp;

namespace {

template <class T>
using Limits = std::numeric_limits<Compute<T>>;

/// Parts whose magnitudes spread over 2^40 between blocks.
template <class T>
std::vector<T> elements(Size count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> x;
  for (Size i = 0; i < count; ++i)
    x.push_back(static_cast<T>(static_cast<Compute<T>>(normal(random) * std::ldexp(1, i / 256 % 5 * 6 - 12))));
  return x;
}

template <class T>
std::vector<std::byte> quantized(const QuantizedParts& parts, Size rows, Size columns, const std::vector<T>& x) {
  std::vector<std::byte> to(static_cast<std::size_t>(rows * columns * parts.bytes()));
  Kernel<kernels::Quantize<T>, Cpu>::run(parts, rows, columns, x.data(), to.data());
  return to;
}
template <class T>
std::vector<T> summed(const QuantizedParts& parts, Size senders, Size rows, const std::vector<std::byte>& from) {
  std::vector<T> y(static_cast<std::size_t>(rows * parts.count));
  Kernel<kernels::SumQuantized<T>, Cpu>::run(parts, senders, rows, from.data(), y.data());
  return y;
}

template <class T>
QuantizedParts parts_of(Size count, int bits) {
  return {count, bits, static_cast<int>(sizeof(Compute<T>))};
}

/// Half of the block's scale, rounded up by what T and the scale round.
template <class T>
double bound_of(const std::vector<T>& x, Size part, Size begin, const QuantizedParts& parts) {
  double largest = 0;
  const Size end = std::min(parts.count, begin + QuantizedParts::block);
  for (Size i = begin; i < end; ++i)
    largest = std::max(
        largest,
        std::abs(static_cast<double>(static_cast<Compute<T>>(x[static_cast<std::size_t>(part * parts.count + i)]))));
  const double rounding = std::is_same_v<T, bf16> ? 0x1p-8 : std::is_same_v<T, f16> ? 0x1p-11 : 1e-6;
  return largest * (0.5 / parts.levels() + rounding) + parts.levels() * static_cast<double>(Limits<T>::min()) +
         (std::is_same_v<T, f16> ? 0x1p-25 : 0);
}

template <class T>
void check_error(int bits) {
  CAPTURE(bits);
  for (const Size count : {1, 2, 7, 64, 255, 256, 257, 1000, 1537}) {
    CAPTURE(count);
    const Size rows = 2, columns = 3;
    const QuantizedParts parts = parts_of<T>(count, bits);
    CHECK(parts.bytes() % 64 == 0);
    CHECK(parts.bytes() < count * bits / 8 + parts.blocks() * parts.scale_bytes + 65);
    const auto x = elements<T>(rows * columns * count, 3);
    const auto y = summed<T>(parts, 1, rows * columns, quantized<T>(parts, rows, columns, x));
    for (Size row = 0; row < rows; ++row)
      for (Size column = 0; column < columns; ++column) {
        const Size from = row * columns + column, to = column * rows + row;
        for (Size i = 0; i < count; ++i) {
          const auto a = static_cast<Compute<T>>(x[static_cast<std::size_t>(from * count + i)]);
          const auto b = static_cast<Compute<T>>(y[static_cast<std::size_t>(to * count + i)]);
          const double bound = bound_of(x, from, i / QuantizedParts::block * QuantizedParts::block, parts);
          REQUIRE(std::abs(static_cast<double>(a) - static_cast<double>(b)) <= bound);
        }
      }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("elements are within half a scale of what is moved, part by part, also where rows become columns", T,
                   double, float, bf16, f16) {
  check_error<T>(8);
  check_error<T>(4);
}

TEST_CASE_TEMPLATE("the largest element of a block, and zeros, are exact", T, double, float) {
  for (const int bits : {8, 4}) {
    const QuantizedParts parts = parts_of<T>(300, bits);
    std::vector<T> x(300, T(0));
    x[7] = -3, x[8] = 3, x[280] = T(1e-3);
    const auto y = summed<T>(parts, 1, 1, quantized<T>(parts, 1, 1, x));
    for (std::size_t i = 0; i < x.size(); ++i)
      CHECK(std::abs(y[i] - x[i]) <= 4 * std::numeric_limits<T>::epsilon() * std::abs(x[i]));
  }
}

TEST_CASE_TEMPLATE("a block with an element that is not finite is NaN, and no other", T, double, float, bf16, f16) {
  using C = Compute<T>;
  for (const int bits : {8, 4})
    for (const C odd : {Limits<T>::quiet_NaN(), -Limits<T>::quiet_NaN(), Limits<T>::infinity(), -Limits<T>::infinity()})
      for (const std::size_t at : {0u, 255u, 256u, 400u}) {
        const QuantizedParts parts = parts_of<T>(600, bits);
        auto x = elements<T>(600, 4);
        x[at] = static_cast<T>(odd);
        const auto y = summed<T>(parts, 1, 1, quantized<T>(parts, 1, 1, x));
        for (std::size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(static_cast<C>(y[i])) == (i / 256 == at / 256));
      }
}

TEST_CASE_TEMPLATE("magnitudes at the ends of the type stay finite, and those below its normal numbers become 0", T,
                   double, float, bf16) {
  using C = Compute<T>;
  for (const int bits : {8, 4}) {
    const QuantizedParts parts = parts_of<T>(2, bits);
    const C most = std::is_same_v<T, bf16> ? C(0x1.fep127) : Limits<T>::max() * C(0.999);
    const auto large = summed<C>(parts, 1, 1, quantized<T>(parts, 1, 1, {static_cast<T>(most), static_cast<T>(-most)}));
    CHECK(std::abs(large[0] / most - 1) < 1e-6);
    CHECK(large[1] == -large[0]);
    const T least = static_cast<T>(Limits<T>::min());
    CHECK(summed<C>(parts, 1, 1, quantized<T>(parts, 1, 1, {least, least})) == std::vector<C>{0, 0});
  }
}

TEST_CASE_TEMPLATE("senders are added in their order, and rounded once", T, double, float, bf16, f16) {
  using C = Compute<T>;
  for (const int bits : {8, 4}) {
    const Size senders = 3, rows = 2, count = 500;
    const QuantizedParts parts = parts_of<T>(count, bits);
    std::vector<std::byte> all;
    std::vector<C> expected(static_cast<std::size_t>(rows * count), C(0));
    for (Size s = 0; s < senders; ++s) {
      const auto one = quantized<T>(parts, rows, 1, elements<T>(rows * count, 10 + static_cast<unsigned>(s)));
      const auto values = summed<C>(parts, 1, rows, one);
      for (std::size_t i = 0; i < values.size(); ++i) expected[i] += values[i];
      all.insert(all.end(), one.begin(), one.end());
    }
    const auto y = summed<T>(parts, senders, rows, all);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const C rounded = static_cast<C>(static_cast<T>(expected[i]));
      CHECK(std::abs(static_cast<C>(y[i]) - rounded) <= std::abs(rounded) * C(std::is_same_v<T, C> ? 1e-5 : 1e-2));
    }
  }
}

TEST_CASE_TEMPLATE("what is lost comes to the next parts: all that was moved is all that there was, but the last error",
                   T, double, float) {
  for (const int bits : {8, 4}) {
    const Size rows = 2, columns = 2, count = 700, all = rows * columns * count;
    const QuantizedParts parts = parts_of<T>(count, bits);
    std::vector<T> error(static_cast<std::size_t>(all), T(0)), sum = error, moved = error;
    for (unsigned step = 0; step < 20; ++step) {
      const auto x = elements<T>(all, 40 + step);
      std::vector<std::byte> to(static_cast<std::size_t>(rows * columns * parts.bytes()));
      Kernel<kernels::Quantize<T>, Cpu>::run(parts, rows, columns, x.data(), to.data(), error.data(), 0);
      const auto y = summed<T>(parts, 1, rows * columns, to);
      for (Size i = 0; i < all; ++i) {
        const Size row = i / count / columns, column = i / count % columns;
        const auto at = static_cast<std::size_t>(i);
        sum[at] += x[at], moved[at] += y[static_cast<std::size_t>((column * rows + row) * count + i % count)];
      }
    }
    double largest = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      largest = std::max(largest, static_cast<double>(std::abs(error[i])));
      REQUIRE(std::abs(sum[i] - moved[i] - error[i]) <= T(1e-3) * std::abs(sum[i]) + T(1e-3));
    }
    CHECK(largest > 0.01);
  }
}

TEST_CASE_TEMPLATE("of an error a part is kept, and none in a block of NaN", T, double, float, bf16, f16) {
  using C = Compute<T>;
  const QuantizedParts parts = parts_of<T>(600, 4);
  auto x = elements<T>(600, 9);
  const auto before = elements<T>(600, 10);
  x[300] = static_cast<T>(Limits<T>::quiet_NaN());
  auto error = before;
  std::vector<std::byte> to(static_cast<std::size_t>(parts.bytes()));
  Kernel<kernels::Quantize<T>, Cpu>::run(parts, 1, 1, x.data(), to.data(), error.data(), 0.75);
  const auto y = summed<C>(parts, 1, 1, to);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i / 256 == 1) {
      CHECK(static_cast<C>(error[i]) == 0);
      continue;
    }
    const C expected =
        C(0.75) * static_cast<C>(before[i]) + C(0.25) * (static_cast<C>(x[i]) + static_cast<C>(before[i]) - y[i]);
    CHECK(std::abs(static_cast<C>(error[i]) - expected) <=
          C(std::is_same_v<T, C> ? 1e-5 : 1e-2) * (1 + std::abs(expected)));
  }
}
