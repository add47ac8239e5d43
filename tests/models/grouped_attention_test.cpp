// SPDX-License-Identifier: Apache-2.0
// labels: models
#include <doctest/doctest.h>

#include <dspp/models/grouped_attention.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const GroupedAttentionConfig config{.width = 20, .heads = 24, .kv_heads = 12, .head_dim = 2, .rope_theta = 50};
const Global<3> x = global_normal(shape(2, 12, 20), 1), dy = global_normal(shape(2, 12, 20), 2);

template <class P>
auto attention() {
  return run_layer<P, typename P::HiddenState, typename P::HiddenState>([] { return GroupedAttention<P>(config); },
                                                                        call_layer, x, dy);
}

/// Element (b, s, h, j) of [batch, sequence, heads size], rotated by its position.
double turned(const Tensor<double, 3>& v, Size size, Size b, Size s, Size h, Size j, double theta, Size first) {
  const Size half = size / 2, pair = j % half;
  const double* head = v.data() + (b * v[1] + s) * v[2] + h * size;
  const double angle =
      static_cast<double>(first + s) * std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(size));
  return j < half ? head[j] * std::cos(angle) - head[j + half] * std::sin(angle)
                  : head[j] * std::cos(angle) + head[j - half] * std::sin(angle);
}

/// Heads one by one, from the definition.
std::vector<double> by_definition(const Tensor<double, 3>& q, const Tensor<double, 3>& kv, const GroupedHeads& heads,
                                  const RotaryPositions& positions) {
  const Size size = q[2] / heads.heads, group = heads.heads / heads.kv_heads, sequence = q[1];
  std::vector<double> y(static_cast<std::size_t>(q.count()));
  const auto turn = [&](const Tensor<double, 3>& v, Size b, Size s, Size h, Size j) {
    return turned(v, size, b, s, h, j, positions.rope_theta, positions.first);
  };
  for (Size b = 0; b < q[0]; ++b)
    for (Size h = 0; h < heads.heads; ++h)
      for (Size s = 0; s < sequence; ++s) {
        std::vector<double> weights;
        double sum = 0;
        for (Size t = 0; t < (heads.rule.mask == AttentionMask::causal ? s + 1 : sequence); ++t) {
          double score = 0;
          for (Size j = 0; j < size; ++j) score += turn(q, b, s, h, j) * turn(kv, b, t, h / group, j);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += weights.back();
        }
        for (Size j = 0; j < size; ++j)
          for (std::size_t t = 0; t < weights.size(); ++t) {
            const double* values = kv.data() + (b * sequence + static_cast<Size>(t)) * kv[2] + kv[2] / 2;
            y[static_cast<std::size_t>((b * sequence + s) * q[2] + h * size + j)] +=
                weights[t] / sum * values[h / group * size + j];
          }
      }
  return y;
}

}  // namespace

TEST_CASE("attend with grouped heads and rotary positions equals attention by its definition") {
  using P = Policy<F64>;
  TestRank here;
  for (const auto mask : {AttentionMask::causal, AttentionMask::full})
    for (const Size first : {0, 40}) {
      const GroupedHeads heads{4, 2, mask};
      const RotaryPositions positions{.rope_theta = 100, .first = first};
      const auto q = random<double>(shape(2, 5, 16), here.pool, 8), kv = random<double>(shape(2, 5, 16), here.pool, 9);
      const auto expected = by_definition(q, kv, heads, positions);
      const auto y = attend(Hidden<P>(copy(q), here.tape), Hidden<P>(copy(kv), here.tape), heads, positions);
      CHECK(distance({y.value().data(), y.value().data() + y.value().count()}, expected) < 1e-13);
    }
}

TEST_CASE("attend does not change queries and keys that other variables share") {
  using P = Policy<F64>;
  TestRank here;
  const auto q = random<double>(shape(2, 5, 16), here.pool, 8), kv = random<double>(shape(2, 5, 16), here.pool, 9);
  const auto q_before = copy(q), kv_before = copy(kv);
  attend(Hidden<P>(q, here.tape), Hidden<P>(kv, here.tape), {4, 2}, {});
  CHECK(same_bits(q, q_before));
  CHECK(same_bits(kv, kv_before));
}

TEST_CASE("only the distance of two positions matters: a shifted sequence has the same scores") {
  using P = Policy<F64>;
  TestRank here;
  const auto q = random<double>(shape(2, 7, 16), here.pool, 8), kv = random<double>(shape(2, 7, 16), here.pool, 9);
  const auto at = [&](Size first) {
    const auto y = attend(Hidden<P>(copy(q), here.tape), Hidden<P>(copy(kv), here.tape), {4, 2}, {.first = first});
    return std::vector<double>(y.value().data(), y.value().data() + y.value().count());
  };
  CHECK(distance(at(1000), at(0)) < 1e-12);
}

TEST_CASE("GroupedAttention's gradients equal finite differences, causal and full") {
  using P = Policy<F64>;
  check_layer_gradient<Hidden<P>>(GroupedAttention<P>({.width = 4, .heads = 2, .kv_heads = 1}), shape(1, 3, 4));
  check_layer_gradient<Hidden<P>>(
      GroupedAttention<P>(
          {.width = 3, .heads = 4, .kv_heads = 2, .head_dim = 2, .rope_theta = 10, .rule = {AttentionMask::full}}),
      shape(1, 3, 3));
  check_layer_gradient<Hidden<P>>(GroupedAttention<P>({.width = 4, .heads = 2}), shape(2, 2, 4));
  check_layer_gradient<Hidden<P>>(
      GroupedAttention<P>({.width = 4, .heads = 2, .kv_heads = 1, .qkv_bias = true, .qk_norm = true}), shape(1, 3, 4));
}

TEST_CASE("GroupedAttention equals the one of one rank at 2, 3 and 4, with and without SequenceParallel") {
  const auto expected = attention<Whole<1>>();
  check_same(attention<Whole<2>>(), expected);
  check_same(attention<Whole<3>>(), expected);
  check_same(attention<Whole<4>>(), expected);
  check_same(attention<Split<2>>(), expected);
  check_same(attention<Split<3>>(), expected);
  check_same(attention<Split<4>>(), expected);
  check_same(attention<Policy<F64, Tp<2>, SequenceParallel, RegatherInputs>>(), expected);
}

TEST_CASE("GroupedAttention with a norm of queries and keys equals the one of one rank") {
  const auto run = []<class P>(P) {
    auto normed = config;
    normed.head_dim = 4, normed.qkv_bias = normed.qk_norm = true, normed.epsilon = 1e-3;
    return run_layer<P, typename P::HiddenState, typename P::HiddenState>([&] { return GroupedAttention<P>(normed); },
                                                                          call_layer, x, dy);
  };
  const auto expected = run(Whole<1>());
  CHECK(expected.gradients.contains("q_norm.weight"));
  CHECK(expected.gradients.contains("k_norm.weight"));
  CHECK(expected.gradients.contains("kv.bias"));
  check_same(run(Whole<2>()), expected);
  check_same(run(Split<2>()), expected);
}

TEST_CASE("the norm of queries and keys is that of each head before it rotates") {
  using P = Policy<F64>;
  TestRank here;
  GroupedAttention<P> layer({.width = 8, .heads = 2, .kv_heads = 1, .qk_norm = true, .epsilon = 1e-3});
  Home<double> home(layer, here);
  const auto off = here.tape.rehearse();
  const Hidden<P> input(random<double>(shape(2, 5, 8), here.pool, 8), here.tape);
  const auto q = copy(layer.q(input).value()), kv = copy(layer.kv(input).value());
  const auto norm = [](double* head, const double* weight) {
    double squares = 0;
    for (int i = 0; i < 4; ++i) squares += head[i] * head[i] / 4;
    for (int i = 0; i < 4; ++i) head[i] *= weight[i] / std::sqrt(squares + 1e-3);
  };
  for (Size i = 0; i < q.count(); i += 4) norm(q.data() + i, layer.q_norm.weight.value().data());
  for (Size i = 0; i < kv.count(); i += 8) norm(kv.data() + i, layer.k_norm.weight.value().data());
  const auto y =
      attend(Value<P, 3, Shard<-1>>(q, here.tape), Value<P, 3, Shard<-1, 2>>(kv, here.tape), layer.heads, {});
  const auto expected = layer.output(y).value(), result = layer(input).value();
  CHECK(distance({result.data(), result.data() + 80}, {expected.data(), expected.data() + 80}) < 1e-14);
}

TEST_CASE("without a base of angles nothing rotates") {
  using P = Policy<F64>;
  TestRank here;
  const auto q = random<double>(shape(2, 5, 12), here.pool, 8), kv = random<double>(shape(2, 5, 12), here.pool, 9);
  const auto y = attend(Hidden<P>(q, here.tape), Hidden<P>(kv, here.tape), {4, 2}, {.rope_theta = 0});
  std::vector<double> expected;
  for (Size b = 0; b < 2; ++b)
    for (Size i = 0; i < 5; ++i)
      for (Size h = 0; h < 4; ++h) {
        double sum = 0, value[3] = {};
        for (Size j = 0; j <= i; ++j) {
          const double *k = kv.data() + (b * 5 + j) * 12 + h / 2 * 3, *at = q.data() + (b * 5 + i) * 12 + h * 3;
          const double p = std::exp((k[0] * at[0] + k[1] * at[1] + k[2] * at[2]) / std::sqrt(3.0));
          sum += p;
          for (int c = 0; c < 3; ++c) value[c] += p * k[6 + c];
        }
        for (const double v : value) expected.push_back(v / sum);
      }
  CHECK(distance({y.value().data(), y.value().data() + y.value().count()}, expected) < 1e-13);
  GroupedAttention<P>({.width = 12, .heads = 4, .rope_theta = 0});  // heads of 3 features
}

TEST_CASE("both projections share one gather of x, and one sum of their dx") {
  const Size stream = 2 * 12 * 20 * 8;
  const auto whole = attention<Whole<2>>(), split = attention<Split<2>>();
  CHECK(whole.forward.bytes(Collective::all_reduce, Purpose::activation) == stream);
  CHECK(whole.backward.bytes(Collective::all_reduce, Purpose::activation) == stream);
  CHECK(whole.backward.calls(Collective::all_reduce, Purpose::activation) == 1);
  CHECK(split.forward.calls(Collective::all_gather, Purpose::activation) == 1);
  CHECK(split.backward.calls(Collective::reduce_scatter, Purpose::activation) == 1);
}

TEST_CASE("GroupedAttention in f32, bf16 and f16 is as close to f64 as its products round, on one rank and on two") {
  constexpr Size width = 96, sequence = 64, rows = 2 * sequence;
  const Global<3> wide = global_normal(shape(2, sequence, width), 1),
                  dwide = global_normal(shape(2, sequence, width), 2);
  const auto make = [](AttentionMask mask) {
    return [mask]<class P> { return GroupedAttention<P>({.width = width, .heads = 4, .kv_heads = 2, .rule = {mask}}); };
  };
  // y: the projections, their rotation, the heads' result, the output projection. dx: the first three in forward, the
  // gradient of the heads' result, of the rotated projections, of the projections, of both inputs, and their sum; dk
  // and dv are sums over two query heads.
  const Roundings y{4, 2 * width + 2 * sequence + 30}, dx{8, 6 * width + 6 * sequence + 60};
  const Roundings parameters{8, dx.sums + rows};
  check_layer_precision(make(AttentionMask::causal), wide, dwide, {.y = y, .dx = dx, .parameters = parameters});
  check_layer_precision(make(AttentionMask::full), wide, dwide, {.y = y, .dx = dx, .parameters = parameters});
  // two ranks: y is a sum of rounded summands; dx too
  check_layer_precision<2>(make(AttentionMask::causal), wide, dwide,
                           {.y = {5, y.sums}, .dx = {9, dx.sums}, .parameters = parameters});
}

TEST_CASE("GroupedAttention names the extents that do not fit") {
  const auto make = [](const GroupedAttentionConfig& c) { return GroupedAttention<Policy<F64>>(c); };
  CHECK_THROWS_WITH_AS(make({.width = 10, .heads = 4}),
                       "dspp: GroupedAttention needs a width that its heads divide, but they do not (width 10, heads "
                       "4). Change width or heads, or give head_dim.",
                       Error);
  CHECK_THROWS_WITH_AS(make({.width = 12, .heads = 6, .kv_heads = 4}),
                       "dspp: GroupedAttention needs query heads that its kv_heads divide, but they do not (heads 6, "
                       "kv_heads 4). Change heads or kv_heads.",
                       Error);
  CHECK_THROWS_WITH_AS(make({.width = 12, .heads = 4}),
                       "dspp: GroupedAttention needs heads of an even number of features, which turn in pairs, but "
                       "they have an odd one (head_dim 3). Change head_dim.",
                       Error);
}
