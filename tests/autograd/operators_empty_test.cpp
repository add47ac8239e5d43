// SPDX-License-Identifier: Apache-2.0
// Values without elements, as of a slice or a batch of none, through every operator: forward and backward.
#include <doctest/doctest.h>

#include <dspp/autograd.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/gated_mlp.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/parallel/tiled_loss.hpp>

#include <laws/parallel_layer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64>;
template <int Rank>
using Plain = Variable<double, Rank, Cpu, Placed<On<Tp<1>, Invariant>>>;

template <int Rank>
Plain<Rank> zeros(TestRank& here, const Shape<Rank>& extents) {
  return Plain<Rank>(Tensor<double, Rank>::zeros(extents, here.pool), here.tape);
}

/// Runs y = f(x) and its backward; y has `count` elements, and so many does x receive as it has.
template <int Rank, class F>
void pass(TestRank& here, const Shape<Rank>& extents, Size count, F f) {
  CAPTURE(to_string(extents));
  const auto x = zeros(here, extents);
  const auto y = f(x);
  CHECK(y.shape().count() == count);
  using Y = std::remove_cvref_t<decltype(y)>;
  here.tape.backward(y.slot(), Tensor<typename Y::Element, Y::rank>::zeros(y.shape(), here.pool));
  CHECK(here.tape.template take<double, Rank>(x.slot(), x.shape()).count() == x.shape().count());
  here.tape.clear();
}

}  // namespace

TEST_CASE("operators pass values without elements, whichever extent is zero") {
  TestRank here;
  for (int empty = 0; empty < 3; ++empty) {
    const Shape<3> extents = shape(2, 4, 6).with(empty, 0);
    const auto same = [&](auto f) { pass(here, extents, 0, f); };
    same([](const auto& x) { return gelu(x) + 2.0 * x; });
    same([](const auto& x) { return relu(x) * x; });
    same([](const auto& x) { return softmax(x); });
    same([](const auto& x) { return swiglu(x); });
    same([](const auto& x) { return cast<float>(x); });
    same([](const auto& x) { return transpose<1, 2, 0>(x); });
    same([](const auto& x) { return transpose<0, 2, 1>(x); });
    same([](const auto& x) { return reshape(x, shape(x[0] * x[1], x[2])); });
    same([](const auto& x) { return slice<1>(x, 0, x[1] / 2); });
    same([](const auto& x) { return std::get<1>(split<1, 2>(x)); });
    same([](const auto& x) { return concat<2>(x, x); });
    const Size products = extents[0] * extents[1] * extents[1];  // sums over no features are zero
    pass(here, extents, products, [](const auto& x) { return batched_matmul(x, transpose<0, 2, 1>(x)); });
    same([](const auto& x) { return recompute([](const auto& v) { return gelu(v); }, x); });
    pass(here, extents, 1, [](const auto& x) { return sum(x); });
    pass(here, extents, 1, [](const auto& x) { return squared_norm(x); });
  }
  pass(here, shape(2, 4, 6), 0, [](const auto& x) { return slice<0>(x, 0, 0); });
  pass(here, shape(2, 4, 6), 0, [](const auto& x) { return slice<2>(x, 6, 0); });
}

TEST_CASE("a product over no elements is zero, and one without rows or columns has none") {
  TestRank here;
  for (const auto& [m, k, n] : {std::array<Size, 3>{0, 3, 2}, {4, 0, 2}, {4, 3, 0}}) {
    const auto b = zeros(here, shape(k, n));
    pass(here, shape(m, k), m * n, [&](const auto& a) { return matmul(a, b); });
    const auto batched = zeros(here, shape(2, k, n));
    pass(here, shape(2, m, k), 2 * m * n, [&](const auto& a) { return batched_matmul(a, batched); });
  }
}

TEST_CASE("layers pass a batch without samples and samples without positions") {
  TestRank here;
  LayerNorm<P> norm(6);
  RmsNorm<P> rms(6);
  Linear<P> mix(6, 8);
  Embedding<P> table(5, 6);
  VocabParallel<Embedding, P> head(5, 6);
  GatedMlp<P> gated({6, 8});
  GroupedAttention<P> grouped(GroupedAttentionConfig{.width = 6, .heads = 3, .kv_heads = 1});
  Dropout<P> dropout(0.5);
  dropout.site.number = 0;
  here.context.training = true;
  Home<double> norms(norm, here), roots(rms, here), mixes(mix, here), rows(table, here), heads(head, here),
      gates(gated, here), groups(grouped, here);
  for (const auto& extents : {shape(0, 4, 6), shape(2, 0, 6)}) {
    pass(here, extents, 0, [&](const auto& x) { return norm(x); });
    pass(here, extents, 0, [&](const auto& x) { return rms(x); });
    pass(here, extents, 0, [&](const auto& x) { return mix(x); });
    pass(here, extents, 0, [&](const auto& x) { return gated(x); });
    pass(here, extents, 0, [&](const auto& x) { return dropout(x); });
    pass(here, extents, 0, [&](const auto& x) { return table.logits(x); });
    pass(here, extents, 0, [](const auto& x) { return attend(x, 2, AttentionMask::causal); });
    pass(here, extents, 0, [&](const auto& x) { return grouped(x); });
    const auto ids =
        Tokens<P>::constant(Tensor<std::int32_t, 2>::zeros(shape(extents[0], extents[1]), here.pool), here.tape);
    CHECK(table(ids).shape() == extents);
    pass(here, extents, 1, [&](const auto& x) { return cross_entropy<P>(head.logits(x), ids, head.vocabulary()); });
    pass(here, extents, 1, [&](const auto& x) { return TiledLoss<P>(3)(head, x, ids); });
  }
}
