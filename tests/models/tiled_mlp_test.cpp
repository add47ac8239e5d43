// SPDX-License-Identifier: Apache-2.0
// In whole models: tests/engine/strategy_chunks_test.cpp.
#include <doctest/doctest.h>

#include <dspp/models/gated_mlp.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/models/tiled_mlp.hpp>

#include <laws/parallel_layer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const MlpConfig config{.width = 8, .ffn_width = 24};
const GatedMlpConfig gated{.width = 8, .ffn_width = 24};
const Global<3> x = global_normal(shape(2, 12, 8), 1), dy = global_normal(shape(2, 12, 8), 2);

template <class L, class Config>
auto run(const Config& c) {
  using P = typename L::policy;
  return run_layer<P, typename P::HiddenState, typename P::HiddenState>([&] { return L(c); }, call_layer, x, dy);
}

/// Compares with the layer of one rank; the bytes moved are the layer's, with its forward's twice.
template <template <class> class M, class P, int Chunks, class Config>
void check_chunks(const Config& c) {
  const auto tiled = run<TiledMlp<M<P>, Chunks>>(c);
  const auto plain = run<M<P>>(c);
  check_same(tiled, run<M<Whole<1>>>(c), 1e-12);
  CHECK(tiled.forward.total() == plain.forward.total());
  CHECK(tiled.backward.total() == plain.backward.total() + plain.forward.total());
  CHECK(tiled.replicated == plain.replicated);
}

}  // namespace

TEST_CASE("an Mlp in chunks equals the whole one at 1 to 4 ranks, with and without SequenceParallel") {
  check_chunks<Mlp, Whole<1>, 4>(config);
  check_chunks<Mlp, Whole<2>, 5>(config);
  check_chunks<Mlp, Whole<4>, 3>(config);
  check_chunks<Mlp, Split<3>, 5>(config);  // eight tokens per rank
  check_chunks<GatedMlp, Whole<2>, 1>(gated);
  check_chunks<GatedMlp, Split<2>, 4>(gated);
}

TEST_CASE("with more chunks than tokens some are empty") {
  check_same(run<TiledMlp<Mlp<Whole<2>>, 30>>(config), run<Mlp<Whole<1>>>(config), 1e-12);
}

TEST_CASE("tiles inside chunks, and chunks inside a Recompute") {
  using P = Whole<2>;
  using Feed = Sequential<P, Tiled<ColumnParallel<Linear, P>, 2, 2>, Tiled<RowParallel<Linear, P>, 2, 2>>;
  using Plain = Sequential<P, ColumnParallel<Linear>, RowParallel<Linear>>;
  const auto plain = run_layer<P, Invariant, Invariant>(
      [] { return Plain(ColumnParallel<Linear, P>(8, 24), RowParallel<Linear, P>(24, 8)); }, call_layer, x, dy);
  const auto tiled = run_layer<P, Invariant, Invariant>(
      [] {
        return TiledMlp<Feed, 3>(
            Feed(Tiled<ColumnParallel<Linear, P>, 2, 2>(8, 24), Tiled<RowParallel<Linear, P>, 2, 2>(24, 8)));
      },
      call_layer, x, dy);
  check_same(tiled, plain, 1e-12);
  check_same(run<Recompute<TiledMlp<Mlp<P>, 3>>>(config), run<TiledMlp<Mlp<P>, 3>>(config), 1e-300);
}

namespace {
/// The peak in bytes above the memory in use before, x included in both.
template <class L>
Size peak_of(L layer) {
  TestRank here;
  Home<double> home(layer, here);
  Hidden<Policy<F64>> in(random<double>(shape(2, 12, 8), here.pool, 8), here.tape);
  here.pool.reset_peak();
  const Size before = here.pool.live();
  Slot output;
  {
    const auto y = layer(in);
    output = y.slot();
  }
  here.tape.backward(output, random<double>(shape(2, 12, 8), here.pool, 9));
  return here.pool.peak() - before;
}
}  // namespace

TEST_CASE("only one chunk's inner activations are in memory at a time") {
  constexpr Size tokens = 24, token_inner = 24 * 8, token = 8 * 8;
  // up(x) and gelu(up(x)), and in backward the gradient of the second while that of the first is computed
  const Size whole = peak_of(Mlp<Policy<F64>>(config)), chunks = peak_of(TiledMlp<Mlp<Policy<F64>>, 6>(config));
  CHECK(whole >= tokens * 3 * token_inner);
  CHECK(chunks <= 4 * (3 * token_inner + 2 * token) + 2 * tokens * token);
}

TEST_CASE("a Dropout inside is an error") {
  using P = Policy<F64>;
  using Feed = Sequential<P, Mlp<P>, Dropout<P>>;
  TestRank here;
  TiledMlp<Feed, 2> layer(Feed(Mlp<P>(config), Dropout<P>(0.5)));
  Home<double> home(layer, here);
  const Hidden<P> in(random<double>(shape(2, 12, 8), here.pool, 8), here.tape);
  CHECK_THROWS_WITH_AS(layer(in),
                       "dspp: TiledMlp needs a layer that draws no random numbers, but a Dropout is in it: each chunk "
                       "would have the same mask. Put the Dropout behind it.",
                       Error);
}
