// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/grouped_attention.hpp>

#include <laws/vjp.hpp>

using namespace dspp;
using ops::GroupedHeads;

namespace {

constexpr AttentionRule masks[] = {{AttentionMask::causal}, {AttentionMask::full}};

/// q and kv of one test, and dy.
template <class T>
struct Inputs {
  Tensor<T, 3> q;
  Tensor<T, 4> kv;
  Tensor<T, 3> dy;

  Inputs(Size batch, Size sequence, Size head_dim, const GroupedHeads& heads, Pool& pool)
      : q(laws::random<T>(shape(batch, sequence, heads.heads * head_dim), pool, 1)),
        kv(laws::random<T>(shape(batch, sequence, Size{2}, heads.kv_heads * head_dim), pool, 2)),
        dy(laws::random<T>(q.shape(), pool, 3)) {}
};

/// [batch, sequence, 3, heads * head_dim] with every head of keys and values repeated for its query heads.
template <class T>
Tensor<T, 4> repeated(const Tensor<T, 3>& q, const Tensor<T, 4>& kv, const GroupedHeads& heads) {
  const Size width = q[2], d = width / heads.heads, group = heads.heads / heads.kv_heads;
  auto qkv = Tensor<T, 4>::uninitialized(shape(q[0], q[1], Size{3}, width), q.memory());
  for (Size row = 0; row < q[0] * q[1]; ++row)
    for (Size c = 0; c < width; ++c) {
      const Size shared = c / d / group * d + c % d;
      qkv.data()[(row * 3 + 0) * width + c] = q.data()[row * width + c];
      qkv.data()[(row * 3 + 1) * width + c] = kv.data()[(row * 2 + 0) * kv[3] + shared];
      qkv.data()[(row * 3 + 2) * width + c] = kv.data()[(row * 2 + 1) * kv[3] + shared];
    }
  return qkv;
}

template <class T>
struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const GroupedHeads heads{4, 2};
    auto q = Tensor<T, 3, D>::zeros(shape(2, 70, 16), memory);
    auto kv = Tensor<T, 4, D>::zeros(shape(2, 70, 2, 8), memory);
    auto result = ops::grouped_attention(q, kv, heads);
    auto d = ops::grouped_attention_vjp(q, kv, result.y, result.log_sum_exp, heads, result.y);
  }
};

constexpr bool runs_on_paper(AttentionRule mask, double pairs) {
  Ledger ledger;
  {
    const GroupedHeads heads{4, 2, mask};
    auto q = Tensor<bf16, 3, Meta>::zeros(shape(2, 5, 16), ledger);
    auto kv = Tensor<bf16, 4, Meta>::zeros(shape(2, 5, 2, 8), ledger);
    auto result = ops::grouped_attention(q, kv, heads);
    if (ledger.flops_forward() != 4.0 * 2 * 16 * pairs) return false;
    auto d = ops::grouped_attention_vjp(q, kv, result.y, result.log_sum_exp, heads, result.y);
  }
  return ledger.live() == 0 && ledger.flops_forward() == 14.0 * 2 * 16 * pairs &&
         ledger.peak_by_category()[Category::workspace] == 2 * 5 * 16 * 4;
}
static_assert(runs_on_paper({AttentionMask::causal}, 15) && runs_on_paper({AttentionMask::full}, 25));

}  // namespace

TEST_CASE("grouped attention is attention with repeated keys and values, bit for bit") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    for (const AttentionRule mask : masks)
      for (const Size sequence : {1, 17, 100, 300})
        for (const auto& [heads, kv_heads] : {std::pair<Size, Size>{6, 2}, {4, 1}, {3, 3}}) {
          const GroupedHeads grouped{heads, kv_heads, mask};
          const Inputs<T> in(2, sequence, 8, grouped, pool);
          const auto result = ops::grouped_attention(in.q, in.kv, grouped);
          const auto expected = ops::attention(repeated(in.q, in.kv, grouped), heads, mask);
          CHECK(laws::same_bits(result.y, expected.y));
          CHECK(laws::same_bits(result.log_sum_exp, expected.log_sum_exp));
        }
  };
  check(0.0);
  check(0.0f);
  check(bf16());
}

TEST_CASE("with a head of keys and values for each query head, its gradients are attention's, bit for bit") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    for (const AttentionRule mask : masks) {
      const GroupedHeads heads{3, 3, mask};
      const Inputs<T> in(2, 150, 8, heads, pool);
      const auto result = ops::grouped_attention(in.q, in.kv, heads);
      const auto d = ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy);
      const auto dqkv = ops::attention_vjp(repeated(in.q, in.kv, heads), result.y, result.log_sum_exp, 3, mask, in.dy);
      CHECK(laws::same_bits(repeated(d.dq, d.dkv, heads), dqkv));
    }
  };
  check(0.0);
  check(0.0f);
  check(bf16());
}

TEST_CASE("grouped attention's vjp is its derivative by queries, keys and values") {
  Pool pool;
  for (const AttentionRule mask : masks)
    for (const std::array<Size, 4>& e : {std::array<Size, 4>{1, 2, 1, 3}, {7, 4, 2, 2}, {17, 3, 1, 3}, {70, 2, 1, 2}}) {
      const GroupedHeads heads{e[1], e[2], mask};
      const Inputs<double> in(2, e[0], e[3], heads, pool);
      const auto result = ops::grouped_attention(in.q, in.kv, heads);
      const auto d = ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy);
      const auto value = [&] { return laws::dot(ops::grouped_attention(in.q, in.kv, heads).y, in.dy); };
      laws::check_gradient(in.q, d.dq, value);
      laws::check_gradient(in.kv, d.dkv, value);
    }
}

TEST_CASE("over many tiles, dk and dv are the sums over the query heads of a group") {
  Pool pool;
  for (const AttentionRule mask : masks) {
    const GroupedHeads heads{6, 2, mask};
    const Inputs<double> in(1, 300, 4, heads, pool);
    const auto result = ops::grouped_attention(in.q, in.kv, heads);
    const auto d = ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy);
    const auto dqkv = ops::attention_vjp(repeated(in.q, in.kv, heads), result.y, result.log_sum_exp, 6, mask, in.dy);
    const auto dq = laws::copy(in.q);
    const auto dkv = Tensor<double, 4>::zeros(in.kv.shape(), pool);
    for (Size row = 0; row < 300; ++row)
      for (Size c = 0; c < 24; ++c) {
        dq.data()[row * 24 + c] = dqkv.data()[row * 72 + c];
        for (Size part : {0, 1})
          dkv.data()[(row * 2 + part) * 8 + c / 12 * 4 + c % 4] += dqkv.data()[row * 72 + (part + 1) * 24 + c];
      }
    laws::check_close(d.dq, dq, 1e-12);
    laws::check_close(d.dkv, dkv, 1e-12);
  }
}

TEST_CASE("grouped attention in f32, bf16 and f16 follows f64: dk and dv are summed over a group in f32") {
  Pool pool;
  const auto check = [&]<class T>(T, double bound, double vjp_bound) {
    for (const AttentionRule mask : masks) {
      const GroupedHeads heads{8, 2, mask};
      const Inputs<T> in(1, 130, 32, heads, pool);
      const auto q = laws::copy(in.q);
      const auto kv = laws::copy(in.kv);
      const auto exact = ops::grouped_attention(q, kv, heads);
      const auto result = ops::grouped_attention(in.q, in.kv, heads);
      laws::check_close(result.y, exact.y, bound);
      const auto d = ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy);
      const auto exact_d = ops::grouped_attention_vjp(q, kv, exact.y, exact.log_sum_exp, heads, laws::copy(in.dy));
      laws::check_close(d.dq, exact_d.dq, vjp_bound);
      laws::check_close(d.dkv, exact_d.dkv, vjp_bound);
    }
  };
  // as attention's; dk and dv are sums over four query heads
  check(0.0f, 2000 * 4 * laws::rounding<float>, 4 * 8000 * laws::rounding<float>);
  check(bf16(), laws::rounding<bf16> + 5e-4, 8 * laws::rounding<bf16>);
  // two roundings, that of y and the gradient's own; sums over a group rounded head by head to f16 are 2.9 u away
  check(f16(), laws::rounding<f16> + 5e-4, 2 * laws::rounding<f16>);
}

TEST_CASE("threads change no bit of grouped attention") {
  Pool pool;
  const auto check = [&]<class T>(T) {
    const GroupedHeads heads{4, 2};
    const Inputs<T> in(2, 130, 8, heads, pool);
    const auto result = ops::grouped_attention(in.q, in.kv, heads);
    const auto vjp = [&] {
      return ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy);
    };
    laws::check_threads([&] { return ops::grouped_attention(in.q, in.kv, heads).y; });
    laws::check_threads([&] { return vjp().dq; });
    laws::check_threads([&] { return vjp().dkv; });
  };
  check(0.0);
  check(0.0f);
  check(bf16());
}

TEST_CASE("grouped attention on paper and on the Cpu allocates alike") {
  laws::check_paper(Calls<float>{});
  laws::check_paper(Calls<bf16>{});
}

TEST_CASE("shapes that do not fit grouped attention are an error sentence") {
  Pool pool;
  const auto q = Tensor<float, 3>::zeros(shape(2, 5, 12), pool);
  const auto kv = Tensor<float, 4>::zeros(shape(2, 5, 2, 6), pool);
  CHECK_THROWS_WITH_AS(ops::grouped_attention(q, kv, {4, 3}),
                       "dspp: grouped_attention needs q [batch, sequence, heads * head_dim], kv [batch, keys, 2, "
                       "kv_heads * head_dim] and kv_heads that divide heads, but it got [2, 5, 12], [2, 5, 2, 6], 4 "
                       "heads and 3 of keys and values. Choose heads that fit the extents.",
                       Error);
  CHECK_THROWS_AS(ops::grouped_attention(q, kv, {0, 1}), Error);
  CHECK_THROWS_AS(ops::grouped_attention(q, kv, {4, 1}), Error);
  CHECK_THROWS_AS(ops::grouped_attention(q, kv.reshape(shape(2, 5, 1, 12)), {4, 2}), Error);
  const auto result = ops::grouped_attention(q, kv, {4, 2});
  CHECK_THROWS_AS(ops::grouped_attention_vjp(q, kv, result.y, result.log_sum_exp.reshape(shape(2, 5, 4)), {4, 2}, q),
                  Error);
}
