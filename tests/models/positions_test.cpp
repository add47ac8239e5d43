// SPDX-License-Identifier: Apache-2.0
/// Layers that add to or normalise the residual stream give the same results for a whole and a split stream.
#include <doctest/doctest.h>

#include <dspp/models/positions.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/layer_norm.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size longest = 15, width = 4;
const Global<3> x = global_normal(shape(2, 12, width), 1), dy = global_normal(shape(2, 12, width), 2);

/// Positions, dropout and a norm in a row.
template <class P>
struct Entry : Layer<P> {
  Positions<P> positions{longest, width};
  Dropout<P> dropout{0.4};
  LayerNorm<P> norm{width};
  constexpr void visit(auto&& f) {
    f("positions", positions);
    f("dropout", dropout);
    f("norm", norm);
  }
  constexpr auto operator()(const Hidden<P>& in) const { return norm(dropout(positions(in))); }
};

template <class P>
auto entry() {
  return run_layer<P, typename P::HiddenState, typename P::HiddenState>([] { return Entry<P>(); }, call_layer, x, dy);
}

}  // namespace

TEST_CASE(
    "Positions, Dropout and LayerNorm give the same on a whole stream and on its slices, summed gradients included") {
  const auto expected = entry<Whole<1>>();
  double beyond = 0;  // positions that no sequence reached
  for (Size i = 12 * width; i < longest * width; ++i)
    beyond += std::abs(expected.gradients.at("positions.weight")[static_cast<std::size_t>(i)]);
  CHECK(beyond == 0);
  check_same(entry<Whole<2>>(), expected, 1e-300);
  check_same(entry<Split<2>>(), expected);
  check_same(entry<Split<3>>(), expected);
  check_same(entry<Split<4>>(), expected);
}

TEST_CASE("gradients of parameters beside a split stream are summed over Tp, by one all-reduce each in this test") {
  const auto outcome = entry<Split<2>>();
  CHECK(outcome.forward.total() + outcome.backward.total() == 0);
  CHECK(outcome.replicated.bytes(Collective::all_reduce) == (longest * width + 2 * width) * 8);
}

TEST_CASE("the gradients of Positions equal finite differences") {
  using P = Policy<F64>;
  check_layer_gradient<Hidden<P>>(Positions<P>(5, 3), shape(2, 4, 3));
}

TEST_CASE("a sequence longer than the positions is an error that names both") {
  on_tp_ranks(2, [](TestRank& here) {
    using P = Split<2>;
    Positions<P> positions(11, width);
    Home<double> home(positions, here);
    Hidden<P> in(part_of<Shard<1>, double>(x, here.rank, 2, here.pool), here.tape);
    CHECK_THROWS_WITH_AS(positions(in),
                         "dspp: Positions needs a sequence of at most 11, but it is 12 long. Shorten it, or give the "
                         "model more positions.",
                         Error);
  });
}

TEST_CASE("Positions in f32, bf16 and f16 round once, the sums over the batch too") {
  constexpr Size batch = 128, sequence = 5;
  const Global<3> many = global_normal(shape(batch, sequence, 8), 1),
                  dmany = global_normal(shape(batch, sequence, 8), 2);
  check_layer_precision([]<class P> { return Positions<P>(sequence, 8); }, many, dmany,
                        {.y = {1, 1}, .dx = {0, 0}, .parameters = {1, batch}});
}
