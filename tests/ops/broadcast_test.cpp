// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>

#include <dspp/ops/broadcast.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

/// The element of x that stands at i of z, whose dimensions of extent 1 are repeated.
template <int Rank, int RankZ>
Size place_of(const Shape<Rank>& x, const Shape<RankZ>& z, Size i) {
  Size place = 0, stride = 1;
  for (int d = 0; d < Rank; ++d) {
    const Size n = z[RankZ - 1 - d];
    if (x[Rank - 1 - d] != 1) place += i % n * stride;
    stride *= x[Rank - 1 - d], i /= n;
  }
  return place;
}

/// Of two shapes drawn at random, each dimension of which either may repeat: combine, sum_to and broadcast_to against
/// loops over all elements.
template <class T, int RankX, int RankY>
void check_drawn(std::uint32_t seed) {
  constexpr int Rank = std::max(RankX, RankY);
  Pool pool;
  std::mt19937 dice(seed);
  Shape<RankX> xs{};
  Shape<RankY> ys{};
  for (int d = 0; d < Rank; ++d) {
    const Size n = std::array<Size, 7>{0, 1, 2, 3, 5, 33, 70}[dice() % (seed % 5 == 0 ? 7 : 6)];
    const auto repeats = dice() % 4;
    if (d < RankX) xs[RankX - 1 - d] = repeats == 1 ? 1 : n;
    if (d < RankY) ys[RankY - 1 - d] = repeats == 2 ? 1 : n;
  }
  CAPTURE(to_string(xs));
  CAPTURE(to_string(ys));
  const auto x = laws::random<T>(xs, pool, seed);
  const auto y = laws::random<T>(ys, pool, seed + 1);
  const auto z = ops::combine(pointwise::Subtract{}, x, y, "subtract");
  bool same = true;
  std::vector<double> sums(static_cast<std::size_t>(x.count())), sizes(sums.size());
  for (Size i = 0; i < z.count(); ++i) {
    const auto a = static_cast<Compute<T>>(x.data()[place_of(xs, z.shape(), i)]);
    const auto b = static_cast<Compute<T>>(y.data()[place_of(ys, z.shape(), i)]);
    same = same && z.data()[i] == static_cast<T>(a - b);
    const auto at = static_cast<std::size_t>(place_of(xs, z.shape(), i));
    sums.at(at) += static_cast<double>(z.data()[i]);
    sizes.at(at) += std::abs(static_cast<double>(z.data()[i]));
  }
  CHECK(same);
  const auto summed = ops::sum_to(z, xs);
  REQUIRE(summed.shape() == xs);
  const double terms = static_cast<double>(z.count()) / static_cast<double>(std::max<Size>(x.count(), 1));
  laws::Worst worst;  // of runs of 64 terms in the computing type, rounded once
  for (std::size_t i = 0; i < sums.size(); ++i)
    worst.add(laws::difference(
        static_cast<double>(summed.data()[i]), sums[i],
        (64 + terms / 32) * laws::rounding<Compute<T>> * sizes[i] + 2 * laws::rounding<T> * std::abs(sums[i]) + 1e-30));
  CHECK(worst.value() <= 1);
  if constexpr (RankX <= RankY) {
    const auto repeated = ops::broadcast_to(x, z.shape());
    for (Size i = 0; i < z.count(); ++i) same = same && repeated.data()[i] == x.data()[place_of(xs, z.shape(), i)];
    CHECK(same);
  }
}

template <class T>
void check_type() {
  for (std::uint32_t seed = 1; seed < 60; ++seed) {
    check_drawn<T, 3, 3>(seed);
    check_drawn<T, 1, 3>(seed);
    check_drawn<T, 4, 2>(seed);
    check_drawn<T, 0, 2>(seed);
  }
}

}  // namespace

TEST_CASE("arithmetic of repeated tensors, and the sums of its gradients, are those of loops over all elements") {
  check_type<double>();
  check_type<float>();
  check_type<bf16>();
  check_type<f16>();
}

TEST_CASE("sums over repeated dimensions have the same bits on any number of threads, and err as 64 + terms / 64") {
  Pool pool;
  const auto x = laws::random<float>(shape(7, 500, 65), pool, 1);
  laws::check_threads([&] { return ops::sum_to(x, shape(65)); });
  laws::check_threads([&] { return ops::sum_to(x, shape(7, 500, 1)); });
  laws::check_threads([&] { return ops::sum_to(x, shape(500, 1)); });
  laws::check_threads([&] { return ops::combine(pointwise::Add{}, x, ops::sum_to(x, shape(500, 1)), "add"); });
  auto tenths = Tensor<float, 2>::uninitialized(shape(100000, 2), pool);
  tenths.fill(0.1f);
  const double one_by_one = 100000 * 0.1;  // in turn they would err by 1e-3 and more
  CHECK(std::abs(static_cast<double>(ops::sum_to(tenths, shape(2)).data()[1]) - one_by_one) < 0.1);
  CHECK(std::abs(static_cast<double>(ops::sum_along(tenths.reshape(shape(2, 100000)), 1).data()[0]) - one_by_one) <
        0.1);
}
