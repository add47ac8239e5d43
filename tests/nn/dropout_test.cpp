// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/dropout.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {
const Global<3> x = global_normal(shape(4, 12, 12), 1), dy = global_normal(shape(4, 12, 12), 2);

template <int N, class State>
auto dropped() {
  using P = Policy<F64, Tp<N>>;
  return run_layer<P, State, State>([] { return Dropout<P>(0.3); }, call_layer, x, dy);
}
}  // namespace

TEST_CASE("every rank draws its slice of the one global mask, whatever dimension is split") {
  const auto expected = dropped<1, Invariant>();
  check_same(dropped<3, Replicate>(), expected, 1e-15);
  check_same(dropped<2, Shard<0>>(), expected, 1e-300);
  check_same(dropped<3, Shard<1>>(), expected, 1e-300);
  check_same(dropped<4, Shard<2>>(), expected, 1e-300);
  check_same(dropped<2, Shard<2, 2>>(), expected, 1e-300);
  check_same(dropped<2, Shard<2, 3>>(), expected, 1e-300);
  check_same(dropped<3, Shard<2, 4>>(), expected, 1e-300);
}

TEST_CASE("dropout keeps and scales or zeroes, in the same places forward and backward") {
  const auto outcome = dropped<1, Invariant>();
  Size kept = 0;
  for (std::size_t i = 0; i < x.at.size(); ++i) {
    const bool keeps = outcome.y.at[i] != 0;
    kept += keeps;
    CHECK(outcome.y.at[i] == doctest::Approx(keeps ? x.at[i] / 0.7 : 0));
    CHECK(outcome.dx.at[i] == doctest::Approx(keeps ? dy.at[i] / 0.7 : 0));
  }
  // 576 draws with probability 0.7: five standard deviations are 0.096
  CHECK(std::abs(static_cast<double>(kept) / static_cast<double>(x.at.size()) - 0.7) < 0.096);
}

TEST_CASE("dropout is the identity when not training and at probability 0") {
  using P = Policy<F64>;
  TestRank here;
  Dropout<P> half(0.5), none(0);
  half.site.number = none.site.number = 0;
  Hidden<P> in(part_of<Invariant, double>(x, 0, 1, here.pool), here.tape);
  CHECK(half(in).value().data() == in.value().data());
  here.context.training = true;
  CHECK(none(in).value().data() == in.value().data());
  CHECK(half(in).value().data() != in.value().data());
}

TEST_CASE("two sites and two steps draw different masks") {
  using P = Policy<F64>;
  TestRank here;
  here.context.training = true;
  Dropout<P> a(0.5), b(0.5);
  a.site.number = 0;
  b.site.number = 1;
  Hidden<P> in(part_of<Invariant, double>(x, 0, 1, here.pool), here.tape);
  const auto first = a(in);
  CHECK(same_bits(first.value(), a(in).value()));
  CHECK(differ(elements(first.value()), elements(b(in).value())));
  here.context.random.step = 1;
  CHECK(differ(elements(first.value()), elements(a(in).value())));
}

TEST_CASE("a dropout that visit() did not name is an error") {
  using P = Policy<F64>;
  TestRank here;
  here.context.training = true;
  const Dropout<P> dropout(0.5);
  Hidden<P> in(part_of<Invariant, double>(x, 0, 1, here.pool), here.tape);
  CHECK_THROWS_AS(dropout(in), Error);
}

TEST_CASE("a Dropout that cannot draw by the position in the batch is an error") {
  using P = Policy<F64>;
  TestRank here;
  here.context.training = true;
  here.context.random.samples = 4;
  Dropout<P> dropout(0.5);
  dropout.site.number = 0;
  Hidden<P> in(part_of<Invariant, double>(x, 0, 1, here.pool), here.tape);
  CHECK_NOTHROW(dropout(in));
  CHECK_THROWS_WITH_AS(dropout(reshape(in, shape(48, 12))),
                       "dspp: Dropout needs [batch, sequence, ...], since it draws by the place in the batch, but got "
                       "[48, 12] for 4 samples. Put it before a reshape or transpose, or after the way back.",
                       Error);
  CHECK_THROWS_AS(dropout(transpose<1, 0, 2>(in)), Error);
  here.context.random.samples = 12;  // as many as positions
  CHECK_NOTHROW(dropout(transpose<1, 0, 2>(in)));
}

namespace {
/// What rank `rank` of two along Cp gives for `part`, as an X.
template <class X>
std::vector<double> dropped_over_cp(int rank, const Global<3>& global, bool cut) {
  TestRank here;
  here.context.training = true;
  AnyCommunicator two(Recorder(rank, 2));
  here.context.along.cp = &two;
  Dropout<Policy<F64, Cp<2>>> dropout(0.3);
  dropout.site.number = 0;
  const auto part =
      cut ? part_of<Shard<1>, double>(global, rank, 2, here.pool) : part_of<Invariant, double>(global, 0, 1, here.pool);
  const auto y = dropout(X(part, here.tape)).value();
  return {y.data(), y.data() + y.count()};
}
}  // namespace

TEST_CASE("a sequence that Cp cuts has one mask in slices, and what Cp does not cut the same mask on all its ranks") {
  using Cut = Hidden<Policy<F64, Cp<2>>>;
  Global<3> whole(x.shape);
  whole.at = dropped_over_cp<WholeOverCp<Cut>>(0, x, false);
  CHECK(dropped_over_cp<WholeOverCp<Cut>>(1, x, false) == whole.at);
  Pool pool;
  for (int rank : {0, 1}) {
    CAPTURE(rank);
    const auto slice = part_of<Shard<1>, double>(whole, rank, 2, pool);
    CHECK(dropped_over_cp<Cut>(rank, x, true) == std::vector<double>(slice.data(), slice.data() + slice.count()));
  }
}

TEST_CASE("Dropout in f32, bf16 and f16 drops the same elements as in f64 and rounds the others once") {
  // one operation on the factor 1 / 0.7, one with it
  check_layer_precision([]<class P> { return Dropout<P>(0.3); }, x, dy, {.y = {1, 2}, .dx = {1, 2}, .parameters = {}});
}
