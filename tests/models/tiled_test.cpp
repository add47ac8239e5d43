// SPDX-License-Identifier: Apache-2.0
// labels: models
#include <doctest/doctest.h>

#include <dspp/models/tiled.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const LinearConfig config{.in = 24, .out = 36};
const Global<3> x = global_normal(shape(2, 12, 24), 1), dy = global_normal(shape(2, 12, 36), 2);

template <class L, class XState, class YState>
auto run(const LinearConfig& c = config) {
  return run_layer<typename L::policy, XState, YState>([&] { return L(c); }, call_layer, x, dy);
}

/// Compares the tiled layer with the plain one on one rank, and its collectives with those of the plain parallel layer.
template <class P, template <template <class> class, class...> class Wrapper, class XState, class YState>
void check_wrapper() {
  const auto dense = run<Linear<Policy<F64>>, Invariant, Invariant>();
  const auto plain = run<Wrapper<Linear, P>, XState, YState>();
  const auto check = [&](const auto& tiled) {
    check_same(tiled, dense);
    CHECK(tiled.forward == plain.forward);  // calls, too: one collective for any number of tiles
    CHECK(tiled.backward == plain.backward);
    CHECK(tiled.replicated == plain.replicated);
  };
  check(run<Tiled<Wrapper<Linear, P>, 5, 2>, XState, YState>());
}

}  // namespace

TEST_CASE("a tiled Linear equals the plain one") {
  const auto dense = run<Linear<Policy<F64>>, Invariant, Invariant>();
  check_same(run<Tiled<Linear<Policy<F64>>, 1, 4>, Invariant, Invariant>(), dense, 1e-12);
  check_same(run<Tiled<Linear<Policy<F64>>, 4>, Invariant, Invariant>(), dense, 1e-12);
  check_same(run<Tiled<Linear<Policy<F64>>, 5, 7>, Invariant, Invariant>(), dense, 1e-12);
}

TEST_CASE("tiled columns and rows equal the dense layer and move the bytes of plain ones, at 1 to 4 ranks") {
  const auto check = [&]<int N>(std::integral_constant<int, N>) {
    check_wrapper<Whole<N>, ColumnParallel, Invariant, Shard<-1>>();
    check_wrapper<Whole<N>, RowParallel, Shard<-1>, Invariant>();
  };
  check(std::integral_constant<int, 1>{});
  check(std::integral_constant<int, 2>{});
  check(std::integral_constant<int, 3>{});
  check(std::integral_constant<int, 4>{});
}

TEST_CASE("the same under SequenceParallel") {
  check_wrapper<Split<2>, ColumnParallel, Shard<1>, Shard<-1>>();
  check_wrapper<Split<3>, RowParallel, Shard<-1>, Shard<1>>();
  check_wrapper<Policy<F64, Tp<2>, SequenceParallel, RegatherInputs>, ColumnParallel, Shard<1>, Shard<-1>>();
}

TEST_CASE("the gradients of a tiled Linear beside a split sequence are Partial over Tp") {
  const auto dense = run<Linear<Policy<F64>>, Invariant, Invariant>();
  const auto tiled = run<Tiled<Linear<Split<3>>, 2, 2>, Shard<1>, Shard<1>>();
  check_same(tiled, dense);
  CHECK(tiled.replicated.total() > 0);
}

TEST_CASE("separately cut groups are tiled together") {
  const LinearConfig groups{.in = 24, .out = 36, .groups = 3};
  using P = Whole<2>;
  using InThree = ColumnParallel<Linear, P, InGroups<3>>;
  check_same(run<Tiled<InThree, 2, 4>, Invariant, Shard<-1, 3>>(groups), run<InThree, Invariant, Shard<-1, 3>>(groups),
             1e-12);
}

TEST_CASE("a tiled layer moves to another device") {
  using L = Tiled<ColumnParallel<Linear, Whole<2>>, 2, 3>;
  using Q = Policy<F64, Tp<2>, Meta>;
  static_assert(std::is_same_v<rebind<ColumnParallel<Linear, Whole<2>, InGroups<3>>, Meta>,
                               ColumnParallel<Linear, Q, InGroups<3>>>);
  CHECK(std::is_same_v<rebind<L, Meta>, Tiled<ColumnParallel<Linear, Q>, 2, 3>>);
}

TEST_CASE("tiles in f32, bf16 and f16 are as close to f64 as their sums round") {
  constexpr Size in = 192, out = 128, rows = 128;
  const Global<3> wide = global_normal(shape(2, rows / 2, in), 1), dwide = global_normal(shape(2, rows / 2, out), 2);
  const auto make = []<class P> { return Tiled<ColumnParallel<Linear, P>, 3, 2>(in, out); };
  // y is rounded once for each of three tiles of inputs, dx for each of two of outputs
  check_layer_precision<1, Invariant, Shard<-1>>(make, wide, dwide,
                                                 {.y = {3, in + 1}, .dx = {2, out}, .parameters = {1, rows}});
}
