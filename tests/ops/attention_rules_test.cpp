// SPDX-License-Identifier: Apache-2.0
/// Every rule with every extra, against dense attention and its gradients in f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <dspp/ops/grouped_attention.hpp>

#include <laws/vjp.hpp>

using namespace dspp;

namespace {

constexpr Size batch = 2, head_dim = 3;
constexpr ops::GroupedHeads two_heads{2, 1};

/// What one case takes from data, a bit each of `kinds`: lengths, documents, bias.
struct Extras {
  Tensor<std::int32_t, 1> lengths;
  Tensor<std::int32_t, 2> documents;
  Tensor<double, 3> bias;

  Extras(int kinds, Size sequence, Size keys, Pool& pool) {
    if (kinds & 1) {
      lengths = Tensor<std::int32_t, 1>::zeros(shape(batch), pool);
      lengths.data()[0] = static_cast<std::int32_t>(2 * keys / 3);
      lengths.data()[1] = static_cast<std::int32_t>(sequence == 65 ? 0 : keys);
    }
    if (kinds & 2) {
      documents = Tensor<std::int32_t, 2>::zeros(shape(batch, sequence), pool);
      for (Size i = 0; i < sequence; ++i) {
        documents.data()[i] = static_cast<std::int32_t>(7 - i / 9 % 2);  // the same two ids again and again
        documents.data()[sequence + i] = static_cast<std::int32_t>(i / 40);
      }
    }
    if (kinds & 4) bias = laws::random<double>(shape(two_heads.heads, sequence, keys), pool, 7);
  }
  template <class T>
  ops::AttentionExtras<T, Cpu> as(Size sequence, Size keys, Pool& pool) const {
    ops::AttentionExtras<T, Cpu> extras;
    if (lengths || documents) extras.ranges = ops::key_ranges(batch, sequence, keys, lengths, documents, pool);
    if (bias) extras.bias = laws::copy<T>(bias);
    return extras;
  }
  bool sees(const AttentionRule& rule, Size b, Size i, Size j) const {
    if (rule.mask == AttentionMask::causal && j > i) return false;
    if (rule.window > 0 && std::max(i - j, j - i) >= rule.window) return false;
    if (lengths && j >= lengths.data()[b]) return false;
    for (Size k = std::min(i, j); documents && k < std::max(i, j); ++k)
      if (documents.data()[b * documents[1] + k] != documents.data()[b * documents[1] + k + 1]) return false;
    return true;
  }
};

struct Case {
  Tensor<double, 3> q, dy;
  Tensor<double, 4> kv;

  Case(Size sequence, Size keys, Pool& pool, double factor = 1)
      : q(laws::random<double>(shape(batch, sequence, 2 * head_dim), pool, 1, factor)),
        dy(laws::random<double>(q.shape(), pool, 2)),
        kv(laws::random<double>(shape(batch, keys, Size{2}, head_dim), pool, 3)) {}
};

struct Dense {
  Tensor<double, 3> y, dq, dbias;
  Tensor<double, 4> dkv;
};

/// By its definition, matrix by matrix.
Dense dense(const Case& in, const AttentionRule& rule, const Extras& extras) {
  const Size n = in.q[1], m = in.kv[1], d = head_dim, heads = two_heads.heads;
  Pool& pool = static_cast<Pool&>(in.q.memory());
  Dense out{Tensor<double, 3>::zeros(in.q.shape(), pool), Tensor<double, 3>::zeros(in.q.shape(), pool),
            Tensor<double, 3>::zeros(shape(heads, n, m), pool), Tensor<double, 4>::zeros(in.kv.shape(), pool)};
  const double scale = rule.scale > 0 ? rule.scale : 1 / std::sqrt(static_cast<double>(d));
  std::vector<double> p(static_cast<std::size_t>(m)), slope(p);
  for (Size b = 0; b < batch; ++b)
    for (Size h = 0; h < heads; ++h)
      for (Size i = 0; i < n; ++i) {
        const Size row = ((b * n + i) * heads + h) * d;
        const auto key = [&](Size j, Size part) { return ((b * m + j) * 2 + part) * d; };
        double sum = 0, dot = 0;
        for (Size j = 0; j < m; ++j) {
          double s = 0;
          for (Size c = 0; c < d; ++c) s += scale * in.q.data()[row + c] * in.kv.data()[key(j, 0) + c];
          double& at = p[static_cast<std::size_t>(j)] = 0;
          const double t = rule.softcap > 0 ? std::tanh(s / rule.softcap) : 0;
          slope[static_cast<std::size_t>(j)] = scale * (1 - t * t);
          if (rule.softcap > 0) s = rule.softcap * t;
          if (extras.bias) s += extras.bias.data()[(h * n + i) * m + j];
          if (extras.sees(rule, b, i, j)) sum += at = std::exp(s);
        }
        for (Size j = 0; j < m; ++j) {
          double& at = p[static_cast<std::size_t>(j)];
          if (at == 0) continue;
          at /= sum;
          for (Size c = 0; c < d; ++c) {
            out.y.data()[row + c] += at * in.kv.data()[key(j, 1) + c];
            dot += at * in.kv.data()[key(j, 1) + c] * in.dy.data()[row + c];
          }
        }
        for (Size j = 0; j < m; ++j) {
          const double at = p[static_cast<std::size_t>(j)];
          if (at == 0) continue;
          double dp = 0;
          for (Size c = 0; c < d; ++c) dp += in.kv.data()[key(j, 1) + c] * in.dy.data()[row + c];
          const double ds = at * (dp - dot), dqk = ds * slope[static_cast<std::size_t>(j)];
          out.dbias.data()[(h * n + i) * m + j] += ds;
          for (Size c = 0; c < d; ++c) {
            out.dq.data()[row + c] += dqk * in.kv.data()[key(j, 0) + c];
            out.dkv.data()[key(j, 0) + c] += dqk * in.q.data()[row + c];
            out.dkv.data()[key(j, 1) + c] += at * in.dy.data()[row + c];
          }
        }
      }
  return out;
}

/// keys: of another sequence; 0: of the queries' own.
template <class T>
void check(Size sequence, const AttentionRule& rule, int kinds, double bound, Size keys = 0) {
  CAPTURE(sequence);
  CAPTURE(keys);
  if (keys == 0) keys = sequence;
  CAPTURE(kinds);
  CAPTURE(rule.window);
  Pool pool;
  Extras extras(kinds, sequence, keys, pool);
  const auto beside = extras.as<T>(sequence, keys, pool);
  Case in(sequence, keys, pool);
  const auto q = laws::copy<T>(in.q), dy = laws::copy<T>(in.dy);
  const auto kv = laws::copy<T>(in.kv);
  in.q = laws::copy(q), in.dy = laws::copy(dy), in.kv = laws::copy(kv);  // the reference has the rounded inputs
  if (beside.bias) extras.bias = laws::copy(beside.bias);
  const Dense expected = dense(in, rule, extras);
  const ops::GroupedHeads heads{two_heads.heads, two_heads.kv_heads, rule};
  const auto result = ops::grouped_attention(q, kv, heads, beside);
  laws::check_close(result.y, expected.y, bound);
  Tensor<Compute<T>, 3> dbias;
  if (beside.bias) dbias = Tensor<Compute<T>, 3>::zeros(beside.bias.shape(), pool);
  const auto d = ops::grouped_attention_vjp(q, kv, result.y, result.log_sum_exp, heads, dy, beside, dbias);
  laws::check_close(d.dq, expected.dq, 4 * bound);
  laws::check_close(d.dkv, expected.dkv, 4 * bound, 4);
  if (dbias) laws::check_close(dbias, expected.dbias, 4 * bound);
}

constexpr AttentionRule rules[] = {{AttentionMask::causal},
                                   {AttentionMask::full},
                                   {AttentionMask::causal, 5},
                                   {AttentionMask::full, 5},
                                   {AttentionMask::causal, 70},
                                   {AttentionMask::full, 70},
                                   {AttentionMask::full, 1},
                                   {AttentionMask::full, 0, 1.5, 0.3},
                                   {AttentionMask::causal, 70, 1.5, 0.3}};

/// Operations of one product of one head of one feature, as twice the pairs that are counted one by one.
constexpr double counted(Size sequence, const AttentionRule& rule) {
  double pairs = 0;
  for (Size i = 0; i < sequence; ++i)
    for (Size j = 0; j < sequence; ++j) {
      const Size distance = i > j ? i - j : j - i;
      pairs += (rule.mask == AttentionMask::full || j <= i) && (rule.window == 0 || distance < rule.window);
    }
  return 2 * pairs;
}
constexpr bool counts_pairs() {
  for (const AttentionMask mask : {AttentionMask::causal, AttentionMask::full})
    for (const Size sequence : {0, 1, 7, 16})
      for (const Size window : {0, 1, 5, 7, 20})
        if (kernels::AttentionExtents{1, sequence, 1, 1, 1, {mask, window}}.flops() !=
            counted(sequence, {mask, window}))
          return false;
  return true;
}
static_assert(counts_pairs());

template <class T>
struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    const ops::GroupedHeads heads{4, 2, {AttentionMask::causal, 9, 2.0}};
    auto q = Tensor<T, 3, D>::zeros(shape(2, 70, 16), memory);
    auto kv = Tensor<T, 4, D>::zeros(shape(2, 70, 2, 8), memory);
    const auto lengths = Tensor<std::int32_t, 1, D>::zeros(shape(2), memory);
    const auto documents = Tensor<std::int32_t, 2, D>::zeros(shape(2, 70), memory);
    const ops::AttentionExtras<T, D> extras{ops::key_ranges(2, 70, 70, lengths, documents, memory),
                                            Tensor<T, 3, D>::zeros(shape(4, 70, 70), memory)};
    const auto dbias = Tensor<Compute<T>, 3, D>::zeros(shape(4, 70, 70), memory);
    auto result = ops::grouped_attention(q, kv, heads, extras);
    auto d = ops::grouped_attention_vjp(q, kv, result.y, result.log_sum_exp, heads, result.y, extras, dbias);
  }
};

}  // namespace

TEST_CASE("attention by every rule with lengths, documents and a bias is dense attention, and so are its gradients") {
  for (const AttentionRule& rule : rules)
    for (const Size sequence : {1, 63, 65, 130})
      for (int kinds = 0; kinds < 8; ++kinds) check<double>(sequence, rule, kinds, 1e-12);
  // several tiles of keys forward
  check<double>(300, {AttentionMask::full, 40}, 3, 1e-12);
  check<double>(300, {AttentionMask::causal, 200, 1.5}, 5, 1e-12);
}

TEST_CASE("keys of another sequence, fewer or more, with lengths and a bias, are dense attention, too") {
  for (const Size sequence : {1, 63, 65, 130})
    for (const Size keys : {1, 7, 64, 129, 300})
      for (const int kinds : {0, 1, 4, 5}) {
        check<double>(sequence, {AttentionMask::full}, kinds, 1e-12, keys);
        check<double>(sequence, {AttentionMask::full, 0, 1.5, 0.3}, kinds, 1e-12, keys);
      }
  check<float>(65, {AttentionMask::full}, 5, 1e-5, 130);
  check<bf16>(130, {AttentionMask::full, 0, 1.5}, 5, 8 * laws::rounding<bf16>, 65);
  static_assert(kernels::AttentionExtents{2, 5, 4, 2, 8, {AttentionMask::full}, 3}.flops() == 2 * 32 * 2 * 5 * 3);
}

TEST_CASE("the same in f32 and bf16 as close as they round") {
  for (const AttentionRule& rule : {AttentionRule{AttentionMask::full, 70, 1.5, 0.3}, {AttentionMask::causal, 5}}) {
    for (const Size sequence : {130, 300}) {  // one tile forward, and several
      check<float>(sequence, rule, 7, 1e-5);
      check<bf16>(sequence, rule, 7, 8 * laws::rounding<bf16>);
    }
  }
}

TEST_CASE("the fused product takes the same rule and extras") {
  Pool pool;
  const AttentionRule rule{AttentionMask::full, 40, 1.5};
  const Extras extras(7, 130, 130, pool);
  const auto beside = extras.as<float>(130, 130, pool);
  const auto qkv = laws::random<float>(shape(batch, 130, 3, 2 * head_dim), pool, 1);
  const auto dy = laws::random<float>(shape(batch, 130, 2 * head_dim), pool, 2);
  auto q = Tensor<float, 3>::zeros(dy.shape(), pool);
  auto kv = Tensor<float, 4>::zeros(shape(batch, 130, 2, 2 * head_dim), pool);
  constexpr Size width = 2 * head_dim;
  for (Size row = 0; row < batch * 130; ++row) {
    std::copy_n(qkv.data() + 3 * row * width, width, q.data() + row * width);
    std::copy_n(qkv.data() + (3 * row + 1) * width, 2 * width, kv.data() + 2 * row * width);
  }
  const ops::GroupedHeads heads{2, 2, rule};
  const auto expected = ops::grouped_attention(q, kv, heads, beside);
  const auto result = ops::attention(qkv, 2, rule, beside);
  CHECK(laws::same_bits(result.y, expected.y));
  const auto dbias = Tensor<float, 3>::zeros(beside.bias.shape(), pool), same = laws::copy<float>(dbias);
  const auto d = ops::grouped_attention_vjp(q, kv, expected.y, expected.log_sum_exp, heads, dy, beside, dbias);
  const auto dqkv = ops::attention_vjp(qkv, result.y, result.log_sum_exp, 2, rule, dy, beside, same);
  CHECK(laws::same_bits(dbias, same));
  for (Size row = 0; row < batch * 130; ++row) {
    REQUIRE(std::equal(d.dq.data() + row * width, d.dq.data() + (row + 1) * width, dqkv.data() + 3 * row * width));
    REQUIRE(std::equal(d.dkv.data() + 2 * row * width, d.dkv.data() + 2 * (row + 1) * width,
                       dqkv.data() + (3 * row + 1) * width));
  }
  laws::check_threads([&] {
    const auto sum = Tensor<float, 3>::zeros(beside.bias.shape(), pool);
    ops::attention_vjp(qkv, result.y, result.log_sum_exp, 2, rule, dy, beside, sum);
    return sum;
  });
}

TEST_CASE("a sample of length 0 and a row whose bias is -infinity give 0 and no gradients, not NaN") {
  Pool pool;
  const Extras extras(5, 65, 65, pool);
  for (Size j = 0; j < 65; ++j) extras.bias.data()[3 * 65 + j] = -std::numeric_limits<double>::infinity();
  const auto beside = extras.as<double>(65, 65, pool);
  const Case in(65, 65, pool);
  const ops::GroupedHeads heads{2, 1, {AttentionMask::full}};
  const auto result = ops::grouped_attention(in.q, in.kv, heads, beside);
  const auto dbias = Tensor<double, 3>::zeros(beside.bias.shape(), pool);
  const auto d = ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy, beside, dbias);
  const auto zero = [](const double* from, Size count) {
    return std::all_of(from, from + count, [](double x) { return x == 0; });
  };
  const Size one = 65 * 2 * head_dim;
  CHECK(zero(result.y.data() + one, one));
  CHECK(zero(d.dq.data() + one, one));
  CHECK(zero(d.dkv.data() + one, one));
  CHECK(zero(result.y.data() + 3 * 2 * head_dim, head_dim));
  CHECK(zero(d.dq.data() + 3 * 2 * head_dim, head_dim));
  CHECK(zero(dbias.data() + 3 * 65, 65));
  for (Size i = 0; i < d.dkv.count(); ++i) REQUIRE(std::isfinite(d.dkv.data()[i]));
}

TEST_CASE("no bit depends on keys that are left out, and past the length they may be NaN") {
  Pool pool;
  const Case in(130, 130, pool);
  const auto results = [&](int kinds) {
    const Extras extras(kinds, 130, 130, pool);
    const auto beside = extras.as<double>(130, 130, pool);
    const ops::GroupedHeads heads{2, 1, {AttentionMask::full}};
    const auto result = ops::grouped_attention(in.q, in.kv, heads, beside);
    return std::pair(result.y,
                     ops::grouped_attention_vjp(in.q, in.kv, result.y, result.log_sum_exp, heads, in.dy, beside).dq);
  };
  const auto change = [&](double value) {  // keys and values behind the length of sample 0
    for (Size i = 86 * 2 * head_dim; i < 130 * 2 * head_dim; ++i) in.kv.data()[i] = value;
  };
  const auto [y, dq] = results(1);
  for (const double value : {1e100, -1e300, std::numeric_limits<double>::quiet_NaN()}) {
    change(value);
    const auto [same_y, same_dq] = results(1);
    CHECK(laws::same_bits(y, same_y));
    CHECK(laws::same_bits(dq, same_dq));
  }
  change(1);
  const auto [z, dz] = results(2);
  change(1e100);  // of later documents than that of the first 81 positions
  const auto [same_z, same_dz] = results(2);
  CHECK(std::equal(z.data(), z.data() + 81 * 2 * head_dim, same_z.data()));
  CHECK(std::equal(dz.data(), dz.data() + 81 * 2 * head_dim, same_dz.data()));
}

TEST_CASE("a NaN of a query is one of its result, however few keys it sees; a window may be of any length") {
  Pool pool;
  for (const Size sequence : {1, 5, 20, 40, 300}) {
    CAPTURE(sequence);
    auto qkv = Tensor<float, 4>::zeros(shape(1, sequence, 3, 8), pool);
    std::fill_n(qkv.data(), qkv.count(), 1.0f);
    constexpr Size far = std::numeric_limits<Size>::max();
    for (const AttentionMask mask : {AttentionMask::causal, AttentionMask::full}) {
      const auto y = ops::attention(qkv, 2, {.mask = mask, .window = far}).y;
      CHECK(std::all_of(y.data(), y.data() + y.count(), [](float a) { return std::abs(a - 1) < 1e-6f; }));
    }
    qkv.data()[0] = std::nanf("");  // of the first query, which sees one key
    CHECK(std::isnan(ops::attention(qkv, 2, {AttentionMask::causal}).y.data()[0]));
    CHECK(std::isnan(ops::attention(qkv, 2, {AttentionMask::full}).y.data()[0]));
  }
}

TEST_CASE("attention with extras on paper and on the Cpu allocates alike") {
  laws::check_paper(Calls<float>{});
  laws::check_paper(Calls<bf16>{});
}

TEST_CASE("rules and extras that do not fit are an error sentence") {
  Pool pool;
  const auto qkv = Tensor<float, 4>::zeros(shape(2, 5, 3, 8), pool);
  CHECK_THROWS_WITH_AS(ops::attention(qkv, 2, {AttentionMask::causal, -1}),
                       "dspp: attention needs a window of at least 0, a softcap and a scale from 1e-30 to 1e30, but "
                       "one is not (window -1). Give 0 for the usual.",
                       Error);
  CHECK_THROWS_AS(ops::attention(qkv, 2, {.softcap = -1}), Error);
  for (const double bad : {std::nan(""), HUGE_VAL, 1e-50}) {
    CHECK_THROWS_AS(ops::attention(qkv, 2, {.scale = bad}), Error);
    CHECK_THROWS_AS(ops::attention(qkv, 2, {.softcap = bad}), Error);
  }
  auto lengths = Tensor<std::int32_t, 1>::zeros(shape(2), pool);
  lengths.data()[1] = 6;
  CHECK_THROWS_WITH_AS(ops::key_ranges(2, 5, 5, lengths, {}, pool),
                       "dspp: attention needs lengths from 0 to 5, the positions of the sequence, but that of sample 1 "
                       "is 6. Count the tokens of the sample that are not padding.",
                       Error);
  lengths.data()[1] = -1;
  CHECK_THROWS_AS(ops::key_ranges(2, 5, 5, lengths, {}, pool), Error);
  CHECK_THROWS_AS(ops::key_ranges(3, 5, 5, lengths, {}, pool), Error);
  CHECK_THROWS_AS(ops::key_ranges(2, 5, 5, {}, Tensor<std::int32_t, 2>::zeros(shape(2, 4), pool), pool), Error);
  const ops::AttentionExtras<float, Cpu> extras{{}, Tensor<float, 3>::zeros(shape(2, 5, 4), pool)};
  CHECK_THROWS_AS(ops::attention(qkv, 2, {AttentionMask::causal}, extras), Error);

  const auto q = Tensor<float, 3>::zeros(shape(2, 5, 8), pool);
  const auto kv = Tensor<float, 4>::zeros(shape(2, 7, 2, 8), pool),
             none = Tensor<float, 4>::zeros(shape(2, 0, 2, 8), pool);
  for (const AttentionRule& rule : {AttentionRule{}, {AttentionMask::full, 3}})
    CHECK_THROWS_WITH_AS(ops::grouped_attention(q, kv, {2, 2, rule}),
                         "dspp: attention to other keys needs a full mask without a window, but has another rule "
                         "(queries 5, keys 7). Give .mask = AttentionMask::full.",
                         Error);
  CHECK_THROWS_WITH_AS(ops::grouped_attention(q, none, {2, 2, {AttentionMask::full}}),
                       "dspp: attention to other keys needs at least one key, but there is none (queries 5). Leave it "
                       "out.",
                       Error);
  CHECK_THROWS_WITH_AS(ops::key_ranges(2, 5, 7, {}, Tensor<std::int32_t, 2>::zeros(shape(2, 5), pool), pool),
                       "dspp: attention by documents needs queries and keys of one sequence, but these have different "
                       "lengths (queries 5, keys 7). Give Lengths of the keys.",
                       Error);
}
