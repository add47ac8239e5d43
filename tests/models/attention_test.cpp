// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/models/attention.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const AttentionConfig config{.width = 24, .heads = 12};
const Global<3> x = global_normal(shape(2, 12, 24), 1), dy = global_normal(shape(2, 12, 24), 2);

template <class P>
auto attention() {
  return run_layer<P, typename P::HiddenState, typename P::HiddenState>([] { return SelfAttention<P>(config); },
                                                                        call_layer, x, dy);
}

/// Heads one by one, from the definition: [batch, sequence, 3 width] -> [batch, sequence, width].
std::vector<double> by_definition(const Tensor<double, 3>& qkv, Size heads, bool causal) {
  const Size batch = qkv[0], sequence = qkv[1], width = qkv[2] / 3, size = width / heads;
  std::vector<double> y(static_cast<std::size_t>(batch * sequence * width));
  const auto at = [&](Size b, Size s, Size part, Size j) {
    return qkv.data()[(b * sequence + s) * 3 * width + part * width + j];
  };
  for (Size b = 0; b < batch; ++b)
    for (Size h = 0; h < heads; ++h)
      for (Size s = 0; s < sequence; ++s) {
        std::vector<double> weights;
        double sum = 0;
        for (Size t = 0; t < (causal ? s + 1 : sequence); ++t) {
          double score = 0;
          for (Size j = h * size; j < (h + 1) * size; ++j) score += at(b, s, 0, j) * at(b, t, 1, j);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += weights.back();
        }
        for (Size j = h * size; j < (h + 1) * size; ++j)
          for (std::size_t t = 0; t < weights.size(); ++t)
            y[static_cast<std::size_t>((b * sequence + s) * width + j)] +=
                weights[t] / sum * at(b, static_cast<Size>(t), 2, j);
      }
  return y;
}

}  // namespace

TEST_CASE("attend equals attention by its definition") {
  using P = Policy<F64>;
  TestRank here;
  for (const auto mask : {AttentionMask::causal, AttentionMask::full}) {
    Hidden<P> qkv(random<double>(shape(2, 5, 12), here.pool, 8), here.tape);
    const auto y = attend(qkv, 2, mask);
    const auto expected = by_definition(qkv.value(), 2, mask == AttentionMask::causal);
    CHECK(distance({y.value().data(), y.value().data() + y.value().count()}, expected) < 1e-13);
  }
}

TEST_CASE("SelfAttention's gradients equal finite differences, causal and full") {
  using P = Policy<F64>;
  check_layer_gradient<Hidden<P>>(SelfAttention<P>({.width = 4, .heads = 2}), shape(1, 3, 4));
  check_layer_gradient<Hidden<P>>(SelfAttention<P>({.width = 4, .heads = 2, .rule = {AttentionMask::full}}),
                                  shape(1, 3, 4));
}

TEST_CASE("SelfAttention equals the one of one rank at 2, 3 and 4, with and without SequenceParallel") {
  const auto expected = attention<Whole<1>>();
  check_same(attention<Whole<2>>(), expected);
  check_same(attention<Whole<3>>(), expected);
  check_same(attention<Whole<4>>(), expected);
  check_same(attention<Split<2>>(), expected);
  check_same(attention<Split<3>>(), expected);
  check_same(attention<Split<4>>(), expected);
}

TEST_CASE("SelfAttention in f32, bf16 and f16 is as close to f64 as its products round, on one rank and on two") {
  constexpr Size width = 96, sequence = 64, rows = 2 * sequence;
  const Global<3> wide = global_normal(shape(2, sequence, width), 1),
                  dwide = global_normal(shape(2, sequence, width), 2);
  const auto make = [](AttentionMask mask) {
    return [mask]<class P> { return SelfAttention<P>({.width = width, .heads = 2, .rule = {mask}}); };
  };
  // y: qkv, the heads' result, the output projection. dx: qkv and the heads' result in forward, the gradient of the
  // heads' result, of qkv, and dx; the first weight's gradient rounds as often as dx. In f32: four products, a softmax
  // of some twenty operations per element.
  const Roundings y{3, 2 * width + 2 * sequence + 20}, dx{5, 6 * width + 4 * sequence + 40};
  const Roundings parameters{5, dx.sums + rows};
  check_layer_precision(make(AttentionMask::causal), wide, dwide, {.y = y, .dx = dx, .parameters = parameters});
  check_layer_precision(make(AttentionMask::full), wide, dwide, {.y = y, .dx = dx, .parameters = parameters});
  // two ranks: y is a sum of rounded summands, plus the bias; dx too, without a bias
  check_layer_precision<2>(make(AttentionMask::causal), wide, dwide,
                           {.y = {5, y.sums}, .dx = {6, dx.sums}, .parameters = parameters});
}
