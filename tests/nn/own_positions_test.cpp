// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/nn/own_positions.hpp>

#include <laws/parallel_layer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The slices of all ranks are x; a gradient of each slice comes back inside zeros, and these sum to the whole.
template <int Ranks>
void check_slices() {
  using P = Policy<F64, Cp<Ranks>>;
  const Global<3> x = global_normal(shape(2, 12, 5), 1), dy = global_normal(x.shape, 2);
  Parts<Shard<1>, 3> y_parts(x.shape, Ranks);
  Parts<Partial, 3> dx_parts(x.shape, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    here.context.along.cp = here.context.along.tp;
    AnyCommunicator alone(Recorder(0, 1));
    here.context.along.tp = &alone;
    const WholeOverCp<Hidden<P>> whole(part_of<Replicate, double>(x, here.rank, Ranks, here.pool), here.tape);
    const auto own = own_positions<P>(whole);
    static_assert(std::is_same_v<decltype(own), const Hidden<P>>);
    y_parts.put(here.rank, own.value());
    here.tape.backward(own.slot(), part_of<Shard<1>, double>(dy, here.rank, Ranks, here.pool));
    dx_parts.put(here.rank, here.tape.template take<double, 3>(whole.slot(), whole.shape()));
    CHECK(here.tp.traffic().total() == 0);
  });
  CHECK(y_parts.all_or_none().at == x.at);
  CHECK(dx_parts.all_or_none().at == dy.at);
}

}  // namespace

TEST_CASE("own_positions takes a rank's slice of the sequence, and its gradient lies inside zeros") {
  check_slices<2>();
  check_slices<3>();
  check_slices<4>();
}

TEST_CASE("without Cp, own_positions is the value itself") {
  TestRank here;
  using P = Policy<F64>;
  const Hidden<P> x(Tensor<double, 3>::zeros(shape(2, 3, 4), here.pool), here.tape);
  CHECK(own_positions<P>(x).slot().number == x.slot().number);
}
