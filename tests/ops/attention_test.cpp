// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <doctest/doctest.h>

#include <dspp/ops/attention.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

constexpr AttentionRule masks[] = {{AttentionMask::causal}, {AttentionMask::full}};

template <class T>
Tensor<T, 4> random_qkv(Size batch, Size sequence, Size heads, Size head_dim, Pool& pool, double factor = 1) {
  return laws::random<T>(shape(batch, sequence, 3, heads * head_dim), pool, 1, factor);
}

/// Attention by its definition, in f64.
Tensor<double, 3> defined(const Tensor<double, 4>& qkv, Size heads, AttentionRule mask,
                          Tensor<double, 3>* log_sum_exp = nullptr) {
  const Size sequence = qkv[1], width = qkv[3], d = width / heads;
  auto y = Tensor<double, 3>::zeros(shape(qkv[0], sequence, width), qkv.memory());
  const auto at = [&](Size b, Size i, Size part, Size h) {
    return qkv.data() + ((b * sequence + i) * 3 + part) * width + h * d;
  };
  std::vector<double> p(static_cast<std::size_t>(sequence));
  for (Size b = 0; b < qkv[0]; ++b)
    for (Size h = 0; h < heads; ++h)
      for (Size i = 0; i < sequence; ++i) {
        const Size seen = mask.mask == AttentionMask::causal ? i + 1 : sequence;
        double largest = -1e300, sum = 0;
        for (Size j = 0; j < seen; ++j) {
          double& score = p[static_cast<std::size_t>(j)] = 0;
          for (Size c = 0; c < d; ++c) score += at(b, i, 0, h)[c] * at(b, j, 1, h)[c];
          score /= std::sqrt(static_cast<double>(d));
          largest = std::max(largest, score);
        }
        for (Size j = 0; j < seen; ++j) sum += std::exp(p[static_cast<std::size_t>(j)] - largest);
        for (Size j = 0; j < seen; ++j)
          for (Size c = 0; c < d; ++c)
            y.data()[(b * sequence + i) * width + h * d + c] +=
                std::exp(p[static_cast<std::size_t>(j)] - largest) / sum * at(b, j, 2, h)[c];
        if (log_sum_exp) log_sum_exp->data()[(b * heads + h) * sequence + i] = largest + std::log(sum);
      }
  return y;
}

/// Against f64 of the same rounded inputs. Scores err by (d + 2) u sum |q| |k| scale, here at most 34 u * 20; that is
/// the relative error of each weight, twice with its sum's; the sums over up to 530 keys add 530 u. Together some 2000
/// u of the largest |v|, about 4; gradients have one more factor of that kind. bf16 rounds y, and with it the sum of y
/// dy that every gradient contains, once more.
template <class T>
void check_precision(Size sequence, double bound, double vjp_bound, Size heads = 2) {
  Pool pool;
  for (const AttentionRule mask : masks) {
    const auto qkv = random_qkv<T>(2, sequence, heads, 32, pool);
    const auto dy = laws::random<T>(shape(2, sequence, 32 * heads), pool, 2);
    const auto reference = ops::attention(laws::copy(qkv), heads, mask);
    const auto result = ops::attention(qkv, heads, mask);
    laws::check_close(result.y, reference.y, bound);
    laws::check_close(result.log_sum_exp, reference.log_sum_exp, 1e-4);
    const auto dqkv = ops::attention_vjp(qkv, result.y, result.log_sum_exp, heads, mask, dy);
    laws::check_close(
        dqkv, ops::attention_vjp(laws::copy(qkv), reference.y, reference.log_sum_exp, heads, mask, laws::copy(dy)),
        vjp_bound);
  }
}

template <class T>
struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto qkv = Tensor<T, 4, D>::zeros(shape(2, 70, 3, 8), memory);
    auto result = ops::attention(qkv, 2, {AttentionMask::causal});
    auto dy = Tensor<T, 3, D>::zeros(result.y.shape(), memory);
    auto dqkv = ops::attention_vjp(qkv, result.y, result.log_sum_exp, 2, {AttentionMask::causal}, std::move(dy));
  }
};

constexpr bool runs_on_paper(AttentionRule mask, double pairs) {
  Ledger ledger;
  {
    auto qkv = Tensor<bf16, 4, Meta>::zeros(shape(2, 5, 3, 8), ledger);
    auto result = ops::attention(qkv, 2, mask);
    if (ledger.flops_forward() != 4.0 * 2 * 8 * pairs) return false;
    auto dqkv = ops::attention_vjp(qkv, result.y, result.log_sum_exp, 2, mask, result.y);
  }
  return ledger.live() == 0 && ledger.flops_forward() == 14.0 * 2 * 8 * pairs &&
         ledger.peak_by_category()[Category::workspace] == 2 * 5 * 8 * 4;
}
static_assert(runs_on_paper({AttentionMask::causal}, 15) && runs_on_paper({AttentionMask::full}, 25));

}  // namespace

TEST_CASE("attention in tiles is attention by its definition") {
  Pool pool;
  for (const AttentionRule mask : masks)
    for (const Size sequence : {1, 3, 7, 17, 64, 65, 100, 256, 257, 530})
      for (const auto& [heads, d] : {std::pair<Size, Size>{1, 1}, {2, 7}, {1, 40}}) {
        if (sequence > 100 && d == 1) continue;
        const auto qkv = random_qkv<double>(2, sequence, heads, d, pool);
        auto log_sum_exp = Tensor<double, 3>::zeros(shape(2, heads, sequence), pool);
        const auto expected = defined(qkv, heads, mask, &log_sum_exp);
        const auto result = ops::attention(qkv, heads, mask);
        laws::check_close(result.y, expected, 1e-12);
        laws::check_close(result.log_sum_exp, log_sum_exp, 1e-12);
      }
}

TEST_CASE("attention's vjp is its derivative") {
  Pool pool;
  for (const AttentionRule mask : masks)
    for (const std::array<Size, 3>& e : {std::array<Size, 3>{1, 1, 3}, {3, 2, 1}, {7, 2, 3}, {17, 1, 7}, {70, 1, 2}}) {
      const Size sequence = e[0], heads = e[1], d = e[2];
      const auto qkv = random_qkv<double>(2, sequence, heads, d, pool);
      const auto dy = laws::random<double>(shape(2, sequence, heads * d), pool, 2);
      const auto result = ops::attention(qkv, heads, mask);
      laws::check_gradient(qkv, ops::attention_vjp(qkv, result.y, result.log_sum_exp, heads, mask, dy),
                           [&] { return laws::dot(ops::attention(qkv, heads, mask).y, dy); });
    }
}

TEST_CASE("attention's vjp is its directional derivative over many tiles of queries and keys") {
  Pool pool;
  for (const AttentionRule mask : masks)
    for (const Size sequence : {64, 129, 300}) {
      const auto qkv = random_qkv<double>(1, sequence, 2, 5, pool);
      const auto dy = laws::random<double>(shape(1, sequence, 10), pool, 2);
      const auto direction = laws::random<double>(qkv.shape(), pool, 3);
      const auto result = ops::attention(qkv, 2, mask);
      const auto dqkv = ops::attention_vjp(qkv, result.y, result.log_sum_exp, 2, mask, dy);
      const auto moved = [&](double h) {
        const auto x = laws::copy(qkv);
        for (Size i = 0; i < x.count(); ++i) x.data()[i] += h * direction.data()[i];
        return laws::dot(ops::attention(x, 2, mask).y, dy);
      };
      const double expected = laws::dot(dqkv, direction);
      CHECK((moved(1e-5) - moved(-1e-5)) / 2e-5 == doctest::Approx(expected).epsilon(1e-7));
    }
}

TEST_CASE("attention in f32, bf16 and f16 follows f64") {
  for (const Size sequence : {33, 300}) {
    check_precision<float>(sequence, 2000 * 4 * laws::rounding<float>, 8000 * 4 * laws::rounding<float>);
    check_precision<bf16>(sequence, laws::rounding<bf16> + 5e-4, 4 * laws::rounding<bf16>);
    check_precision<f16>(sequence, laws::rounding<f16> + 5e-4, 4 * laws::rounding<f16> + 5e-4);
  }
}

TEST_CASE("attention in f32 follows f64 where the rows of its heads collide in the cache, and are copied") {
  check_precision<float>(150, 2000 * 4 * laws::rounding<float>, 8000 * 4 * laws::rounding<float>, 16);
}

TEST_CASE("no bit of a causal position depends on later ones") {
  Pool pool;
  const auto qkv = random_qkv<float>(1, 150, 1, 16, pool);
  const auto before = ops::attention(qkv, 1, {AttentionMask::causal}).y;
  for (Size i = 100 * 48; i < qkv.count(); ++i) qkv.data()[i] += 1.0f;
  const auto after = ops::attention(qkv, 1, {AttentionMask::causal}).y;
  CHECK(std::memcmp(before.data(), after.data(), 100 * 16 * sizeof(float)) == 0);
  CHECK(laws::differ(laws::elements(before), laws::elements(after)));
}

TEST_CASE("scores beyond the range of exp give the largest one's value") {
  Pool pool;
  const auto qkv = random_qkv<float>(1, 300, 1, 16, pool, 100.0);
  const auto result = ops::attention(qkv, 1, {AttentionMask::full});
  laws::check_close(result.y, defined(laws::copy(qkv), 1, {AttentionMask::full}), 1e-2, 100.0);
  const auto dqkv = ops::attention_vjp(qkv, result.y, result.log_sum_exp, 1, {AttentionMask::full}, result.y);
  for (Size i = 0; i < dqkv.count(); ++i) REQUIRE(std::isfinite(dqkv.data()[i]));
}

TEST_CASE("threads change no bit of attention") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    const auto qkv = random_qkv<T>(2, 130, 3, 8, pool);
    laws::check_threads([&] { return ops::attention(qkv, 3, {AttentionMask::causal}).y; });
    const auto result = ops::attention(qkv, 3, {AttentionMask::causal});
    laws::check_threads(
        [&] { return ops::attention_vjp(qkv, result.y, result.log_sum_exp, 3, {AttentionMask::causal}, result.y); });
  };
  check(0.0);
  check(0.0f);
  check(bf16());
}

TEST_CASE("attention on paper and on the Cpu allocates alike") {
  laws::check_paper(Calls<float>{});
  laws::check_paper(Calls<bf16>{});
}

TEST_CASE("the scratch of attention's tiles does not grow with the sequence: a quarter of a MiB at head_dim 64") {
  const auto check = []<class T>(T) {
    const auto bytes = [](Size head_dim) {
      return static_cast<Size>(sizeof(Compute<T>)) *
             std::max(cpu::detail::AttentionForward<T>::scratch_count(head_dim),
                      cpu::detail::AttentionBackward<T>::scratch_count(head_dim));
    };
    CHECK(bytes(64) < 256_KiB);
    CHECK(bytes(128) < 2 * bytes(64));
  };
  check(double()), check(float()), check(bf16());
}

TEST_CASE("shapes that do not fit attention are an error sentence") {
  Pool pool;
  const auto qkv = Tensor<float, 4>::zeros(shape(2, 5, 3, 8), pool);
  CHECK_THROWS_WITH_AS(ops::attention(qkv, 3, {AttentionMask::full}),
                       "dspp: attention needs [batch, sequence, 3, heads * head_dim] and a number of heads that "
                       "divides the last extent, but it got [2, 5, 3, 8] and 3 heads. Choose heads that divide the "
                       "width.",
                       Error);
  CHECK_THROWS_AS(ops::attention(qkv.reshape(shape(2, 3, 5, 8)), 2, {AttentionMask::full}), Error);
  CHECK_THROWS_AS(ops::attention(qkv, 0, {AttentionMask::full}), Error);
  const auto result = ops::attention(qkv, 2, {AttentionMask::full});
  CHECK_THROWS_WITH_AS(
      ops::attention_vjp(qkv, result.y, result.log_sum_exp, 2, {AttentionMask::full}, result.y.reshape(shape(5, 2, 8))),
      "dspp: attention_vjp needs two tensors of one shape, but they are [5, 2, 8] and [2, 5, 8]. "
      "Reshape or broadcast one of them first.",
      Error);
  CHECK_THROWS_AS(ops::attention_vjp(qkv, result.y, result.log_sum_exp, 4, {AttentionMask::full}, result.y), Error);
}
