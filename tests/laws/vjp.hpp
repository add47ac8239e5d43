// SPDX-License-Identifier: Apache-2.0
/// The laws of every operation: its vjp is its derivative, rounding is bounded, paper allocates the same, threads and
/// positions change no bit, and a vjp is in place when possible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/base/config.hpp>
#include <dspp/base/philox.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/tensor/tensor.hpp>

#include "difference.hpp"

namespace dspp::laws {

/// Standard normals, rounded to T; another `stream`, other numbers.
template <class T, int Rank>
Tensor<T, Rank, Cpu> random(const Shape<Rank>& shape, Pool& pool, std::uint32_t stream, double factor = 1) {
  auto x = Tensor<T, Rank, Cpu>::uninitialized(shape, pool);
  const PhiloxStream numbers{{2024}, 0, 0, stream};
  for (Size i = 0; i < x.count(); ++i)
    x.data()[i] = static_cast<T>(factor * static_cast<double>(philox_normal(numbers, i)));
  return x;
}

/// The same values in f64, or another type, in a new block.
template <class U = double, class T, int Rank>
Tensor<U, Rank, Cpu> copy(const Tensor<T, Rank, Cpu>& x) {
  auto y = Tensor<U, Rank, Cpu>::uninitialized(x.shape(), x.memory());
  for (Size i = 0; i < x.count(); ++i) y.data()[i] = static_cast<U>(x.data()[i]);
  return y;
}

template <class T, int Rank>
std::span<const T> elements(const Tensor<T, Rank, Cpu>& x) {
  return {x.data(), static_cast<std::size_t>(x.count())};
}

template <class T, int Rank, class U>
double dot(const Tensor<T, Rank, Cpu>& x, const Tensor<U, Rank, Cpu>& y) {
  REQUIRE(x.shape() == y.shape());
  double sum = 0;
  for (Size i = 0; i < x.count(); ++i) sum += static_cast<double>(x.data()[i]) * static_cast<double>(y.data()[i]);
  return sum;
}

/// The largest difference of dx from the gradient of `value`, a function of the elements of x, by central differences,
/// over 1 + |dx|.
template <int Rank, class F>
double gradient_error(const Tensor<double, Rank, Cpu>& x, const Tensor<double, Rank, Cpu>& dx, F value) {
  constexpr double h = 1e-5;
  Worst worst;
  for (Size i = 0; i < x.count(); ++i) {
    double& element = x.data()[i];
    const double before = element;
    element = before + h;
    const double above = value();
    element = before - h;
    const double below = value();
    element = before;
    worst.add(difference((above - below) / (2 * h), dx.data()[i], 1 + std::abs(dx.data()[i])));
  }
  return worst.value();
}

/// dx is the gradient of `value` at x. With h = 1e-5 the formula's own error is h^2 f'''/6 and the rounding error
/// eps |f| / h: both some 1e-11, so 1e-7 leaves room for f''' of 1e3.
template <int Rank, class F>
void check_gradient(const Tensor<double, Rank, Cpu>& x, const Tensor<double, Rank, Cpu>& dx, F value) {
  REQUIRE(x.shape() == dx.shape());
  CHECK(gradient_error(x, dx, value) < 1e-7);
}

/// Half the distance from 1 to the next value of T: the largest relative error of one rounding.
template <class T>
constexpr double rounding = 0;
template <>
inline constexpr double rounding<double> = 0x1p-53;
template <>
inline constexpr double rounding<float> = 0x1p-24;
template <>
inline constexpr double rounding<bf16> = 0x1p-8;
template <>
inline constexpr double rounding<f16> = 0x1p-11;

/// The largest |x - reference| over max(|reference|, floor).
template <class T, int Rank>
double worst_relative(const Tensor<T, Rank, Cpu>& x, const Tensor<double, Rank, Cpu>& reference, double floor) {
  return worst_difference(elements(x), elements(reference), [&](double r) { return std::max(std::abs(r), floor); });
}

/// |x - reference| <= bound * max(|reference|, floor) everywhere, with `bound` derived at the call.
template <class T, int Rank>
void check_close(const Tensor<T, Rank, Cpu>& x, const Tensor<double, Rank, Cpu>& reference, double bound,
                 double floor = 1) {
  REQUIRE(x.shape() == reference.shape());
  CHECK(worst_relative(x, reference, floor) <= bound);
}

/// The same finite numbers, bit for bit: two NaN are not equal.
template <class T, int Rank>
bool same_bits(const Tensor<T, Rank, Cpu>& x, const Tensor<T, Rank, Cpu>& y) {
  const bool finite = largest_of(elements(x)) < infinitely_far;
  return finite && x.shape() == y.shape() && std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.bytes())) == 0;
}

/// `calls`, a generic lambda over the device, makes the same allocations on the Cpu and on paper and leaves none.
template <class Calls>
void check_paper(Calls calls) {
  Pool pool;
  Ledger ledger;
  calls.template operator()<Cpu>(pool);
  calls.template operator()<Meta>(ledger);
  CHECK(pool.peak() == ledger.peak());
  CHECK(pool.peak_by_category() == ledger.peak_by_category());
  CHECK(pool.live() == 0);
  CHECK(ledger.live() == 0);
}

/// `op(dy)` writes into dy's block if it is moved in as the only handle, and otherwise keeps dy and gives the same
/// bits.
template <class T, int Rank, class Op>
void check_in_place(const Tensor<T, Rank, Cpu>& dy, Op op) {
  Tensor<T, Rank, Cpu> alone = copy<T>(dy);
  const Tensor<T, Rank, Cpu> shared = copy<T>(dy);
  const T* block = alone.data();
  const Tensor<T, Rank, Cpu> in_place = op(std::move(alone));
  const Tensor<T, Rank, Cpu> apart = op(shared);
  CHECK(in_place.data() == block);
  CHECK(apart.data() != shared.data());
  CHECK(same_bits(shared, dy));
  CHECK(same_bits(in_place, apart));
}

/// `op(dy, earlier)`, which adds to `earlier`, writes into that one's block if it is moved in as the only handle, else
/// into dy's if dy is, else into a new one, with the same bits, and otherwise keeps both. They may share a block.
template <class T, int Rank, class Op>
void check_in_place_of_two(const Tensor<T, Rank, Cpu>& dy, const Tensor<T, Rank, Cpu>& earlier, Op op) {
  const auto kept_dy = copy<T>(dy), kept = copy<T>(earlier);
  check_in_place(earlier, [&](Tensor<T, Rank, Cpu> e) { return op(dy, std::move(e)); });
  check_in_place(dy, [&](Tensor<T, Rank, Cpu> d) { return op(std::move(d), earlier); });
  const auto apart = op(dy, earlier);
  auto both_dy = copy<T>(dy), both = copy<T>(earlier);
  const T* const block = both.data();
  const auto in_place = op(std::move(both_dy), std::move(both));
  CHECK(in_place.data() == block);
  CHECK(same_bits(in_place, apart));
  CHECK(same_bits(dy, kept_dy));
  CHECK(same_bits(earlier, kept));
  auto one = copy<T>(dy), other = one;
  CHECK(same_bits(op(std::move(one), std::move(other)), op(dy, copy<T>(dy))));
}

/// `result()` has the same bits on 1, 2 and 3 threads.
template <class F>
void check_threads(F result) {
#if DSPP_HAS_OPENMP()
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto expected = result();
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    CHECK(same_bits(result(), expected));
  }
  omp_set_num_threads(before);
#else
  CHECK(same_bits(result(), result()));
#endif
}

}  // namespace dspp::laws
