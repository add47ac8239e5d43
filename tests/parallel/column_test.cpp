// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/parallel/column.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const LinearConfig config{.in = 8, .out = 24};
const Shape<3> in_shape{{2, 12, 8}}, out_shape{{2, 12, 24}};
const Global<3> x = global_normal(in_shape, 1), dy = global_normal(out_shape, 2);
constexpr Size x_bytes = 2 * 12 * 8 * 8;

auto dense() {
  return run_layer<Policy<F64>, Invariant, Invariant>([] { return Linear<Policy<F64>>(config); }, call_layer, x, dy);
}

template <class P>
auto column() {
  return run_layer<P, typename P::HiddenState, Shard<-1>>([] { return ColumnParallel<Linear, P>(config); }, call_layer,
                                                          x, dy);
}

}  // namespace

TEST_CASE("ColumnParallel equals the dense layer at 1 to 4 ranks, and all-reduces dx") {
  const auto expected = dense();
  check_same(column<Whole<1>>(), expected);
  const auto check = [&](const auto& outcome, Size ranks) {
    check_same(outcome, expected);
    CHECK(outcome.forward.total() == 0);
    CHECK(outcome.backward.bytes(Collective::all_reduce) == 2 * x_bytes * (ranks - 1) / ranks);
    CHECK(outcome.backward.total() == outcome.backward.bytes(Collective::all_reduce));
    CHECK(outcome.replicated.total() == 0);
  };
  check(column<Whole<2>>(), 2);
  check(column<Whole<3>>(), 3);
  check(column<Whole<4>>(), 4);
}

namespace {

const LinearConfig in_three{.in = 8, .out = 72, .groups = 3};
const Global<3> dy_of_three = global_normal(shape(2, 12, 72), 3), dy_of_one = global_normal(out_shape, 2);

/// The outputs of a product in three groups: unchanged; mixed group by group; gathered and then mixed.
constexpr auto as_they_are = [](const auto& layer, const auto& in) { return gelu(layer(in)); };
constexpr auto mixed = [](const auto& layer, const auto& in) {
  auto [a, b, c] = split<-1, 3>(gelu(layer(in)));
  return a * b + 2.0 * c;
};
constexpr auto gathered_then_mixed = [](const auto& layer, const auto& in) {
  auto [a, b, c] = split<-1, 3>(redistribute<Invariant>(layer(in)));
  return gelu(a) * b + 2.0 * c;
};

template <class P, class Out, class Call>
void check_groups(Call call, const Global<3>& seed) {
  using Column = ColumnParallel<Linear, P, InGroups<3>>;
  const auto expected =
      run_layer<Policy<F64>, Invariant, Invariant>([] { return Linear<Policy<F64>>(in_three); }, call, x, seed);
  check_same(run_layer<P, typename P::HiddenState, Out>([] { return Column({.in = 8, .out = 72}); }, call, x, seed),
             expected);
}

template <class P>
void check_groups() {
  check_groups<P, Shard<-1, 3>>(as_they_are, dy_of_three);
  check_groups<P, Shard<-1>>(mixed, dy_of_one);
  check_groups<P, Invariant>(gathered_then_mixed, dy_of_one);
}

}  // namespace

TEST_CASE("outputs in three groups are those of the dense layer: in groups, split, and gathered") {
  check_groups<Whole<1>>();
  check_groups<Whole<2>>();
  check_groups<Whole<3>>();
  check_groups<Whole<4>>();
  check_groups<Split<3>>();
}

TEST_CASE("groups that the type does not name are an error") {
  CHECK_THROWS_WITH_AS(
      (ColumnParallel<Linear, Whole<2>>({.in = 8, .out = 24, .groups = 2})),
      "dspp: ColumnParallel needs the groups of its type, but its configuration names others (type 1, configuration "
      "2). Write ColumnParallel<Linear, P, InGroups<n>>.",
      Error);
  CHECK_THROWS_AS((ColumnParallel<Linear, Whole<2>, InGroups<3>>({.in = 8, .out = 24, .groups = 2})), Error);
  CHECK_THROWS_AS((ColumnParallel<Linear, Whole<2>, InGroups<3>>({.in = 8, .out = 20})), Error);
}

TEST_CASE("ColumnParallel under SequenceParallel equals the dense layer, gathers x and reduce-scatters dx") {
  const auto expected = dense();
  const auto check = [&](const auto& outcome, Size ranks) {
    check_same(outcome, expected);
    const Size bytes = x_bytes * (ranks - 1) / ranks;
    CHECK(outcome.forward.bytes(Collective::all_gather) == bytes);
    CHECK(outcome.forward.total() == bytes);
    CHECK(outcome.backward.bytes(Collective::reduce_scatter) == bytes);
    CHECK(outcome.backward.total() == bytes);
    CHECK(outcome.replicated.total() == 0);
  };
  check(column<Split<2>>(), 2);
  check(column<Split<3>>(), 3);
  check(column<Split<4>>(), 4);
}

TEST_CASE("RegatherInputs gives the same bits for one more all-gather of x and less memory") {
  const auto check = [&](const auto& regathered, const auto& kept, Size ranks) {
    check_same(regathered, kept, 1e-300);
    CHECK(regathered.forward == kept.forward);
    const Traffic more = regathered.backward - kept.backward;
    CHECK(more.bytes(Collective::all_gather, Purpose::activation) == x_bytes * (ranks - 1) / ranks);
    CHECK(more.calls(Collective::all_gather, Purpose::activation) == 1);
    CHECK(more.total() == x_bytes * (ranks - 1) / ranks);
  };
  check(column<Policy<F64, Tp<2>, SequenceParallel, RegatherInputs>>(), column<Split<2>>(), 2);
  check(column<Policy<F64, Tp<3>, SequenceParallel, RegatherInputs>>(), column<Split<3>>(), 3);
}

namespace {
/// Bytes that a column-parallel layer saves for backward, without x.
template <class P>
Size kept_bytes() {
  Size kept = 0;
  on_tp_ranks(P::tp, [&](TestRank& here) {
    ColumnParallel<Linear, P> layer(config);
    Home<double> home(layer, here);
    Hidden<P> input(part_of<typename P::HiddenState, double>(x, here.rank, here.size, here.pool), here.tape);
    const Size before = here.pool.live();
    const auto y = layer(input);
    if (here.rank == 0) kept = here.pool.live() - before - y.value().bytes();
    here.tape.clear();
  });
  return kept;
}
}  // namespace

TEST_CASE("a column keeps its gathered input; under RegatherInputs only this rank's slice") {
  CHECK(kept_bytes<Whole<2>>() == 0);
  CHECK(kept_bytes<Split<2>>() == x_bytes);
  CHECK(kept_bytes<Policy<F64, Tp<2>, SequenceParallel, RegatherInputs>>() == 0);
}

TEST_CASE("outputs that the degree does not divide are an error") {
  CHECK_THROWS_WITH_AS((ColumnParallel<Linear, Whole<4>>(8, 6)),
                       "dspp: ColumnParallel needs outputs that the Tp degree divides, but it does not (out 6, groups "
                       "1, Tp 4). Change out or Tp<n>, or take a Linear.",
                       Error);
}

TEST_CASE("ColumnParallel in f32, bf16 and f16 is as close to f64 as its sums round, on one rank and on two") {
  constexpr Size in = 192, out = 256, rows = 128;
  const Global<3> wide = global_normal(shape(2, rows / 2, in), 1), dwide = global_normal(shape(2, rows / 2, out), 2);
  const auto make = []<class P> { return ColumnParallel<Linear, P>(in, out); };
  const auto check = [&]<int N>(std::integral_constant<int, N>, double dx_results) {
    check_layer_precision<N, Invariant, Shard<-1>>(
        make, wide, dwide, {.y = {1, in + 1}, .dx = {dx_results, out}, .parameters = {1, rows}});
  };
  check(std::integral_constant<int, 1>{}, 1);
  check(std::integral_constant<int, 2>{}, 2);  // each rank's summand of dx, and their sum
}
