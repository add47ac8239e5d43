// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/parallel/row.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const LinearConfig config{.in = 24, .out = 8};
const Shape<3> in_shape{{2, 12, 24}}, out_shape{{2, 12, 8}};
const Global<3> x = global_normal(in_shape, 1), dy = global_normal(out_shape, 2);
constexpr Size y_bytes = 2 * 12 * 8 * 8, bias_bytes = 8 * 8;

auto dense() {
  return run_layer<Policy<F64>, Invariant, Invariant>([] { return Linear<Policy<F64>>(config); }, call_layer, x, dy);
}

template <class P>
auto row() {
  return run_layer<P, Shard<-1>, typename P::HiddenState>([] { return RowParallel<Linear, P>(config); }, call_layer, x,
                                                          dy);
}

}  // namespace

TEST_CASE("RowParallel equals the dense layer at 1 to 4 ranks, and all-reduces y") {
  const auto expected = dense();
  check_same(row<Whole<1>>(), expected);
  const auto check = [&](const auto& outcome, Size ranks) {
    check_same(outcome, expected);
    CHECK(outcome.forward.bytes(Collective::all_reduce) == 2 * y_bytes * (ranks - 1) / ranks);
    CHECK(outcome.forward.total() == outcome.forward.bytes(Collective::all_reduce));
    CHECK(outcome.backward.total() == 0);
    CHECK(outcome.replicated.total() == 0);
  };
  check(row<Whole<2>>(), 2);
  check(row<Whole<3>>(), 3);
  check(row<Whole<4>>(), 4);
}

TEST_CASE("RowParallel under SequenceParallel equals the dense layer; its bias's gradient is summed over Tp") {
  const auto expected = dense();
  const auto check = [&](const auto& outcome, Size ranks) {
    check_same(outcome, expected);
    const Size bytes = y_bytes * (ranks - 1) / ranks;
    CHECK(outcome.forward.bytes(Collective::reduce_scatter) == bytes);
    CHECK(outcome.forward.total() == bytes);
    CHECK(outcome.backward.bytes(Collective::all_gather) == bytes);
    CHECK(outcome.backward.total() == bytes);
    CHECK(outcome.replicated.calls(Collective::all_reduce, Purpose::replicated_gradient) == 1);
  };
  check(row<Split<2>>(), 2);
  check(row<Split<3>>(), 3);
  check(row<Split<4>>(), 4);
  CHECK(row<Split<2>>().replicated.total() == bias_bytes);
}

TEST_CASE("inputs that the degree does not divide are an error") {
  CHECK_THROWS_WITH_AS((RowParallel<Linear, Whole<4>>(6, 8)),
                       "dspp: RowParallel needs inputs that the Tp degree divides, but it does not (in 6, Tp 4). "
                       "Change in or Tp<n>.",
                       Error);
}

TEST_CASE("RowParallel in f32, bf16 and f16 is as close to f64 as its sums round, on one rank and on two") {
  constexpr Size in = 256, out = 192, rows = 128;
  const Global<3> wide = global_normal(shape(2, rows / 2, in), 1), dwide = global_normal(shape(2, rows / 2, out), 2);
  const auto make = []<class P> { return RowParallel<Linear, P>(in, out); };
  const auto check = [&]<int N>(std::integral_constant<int, N>, double y_results) {
    check_layer_precision<N, Shard<-1>, Invariant>(make, wide, dwide,
                                                   {.y = {y_results, in + 1}, .dx = {1, out}, .parameters = {1, rows}});
  };
  check(std::integral_constant<int, 1>{}, 1);
  check(std::integral_constant<int, 2>{}, 3);  // each rank's summand, their sum, the sum with the bias
}
