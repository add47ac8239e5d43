// SPDX-License-Identifier: Apache-2.0
/// Every arrow at 1, 2, 3 and 4 ranks keeps the value and the gradient, and its traffic is exact.
// labels: thread races
#include <doctest/doctest.h>

#include <dspp/autograd/redistribute.hpp>

#include <laws/difference.hpp>
#include <laws/placed.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class State, int Ranks>
using Placement = Placed<On<Tp<Ranks>, State>>;

const Shape<3> extents{{24, 24, 12}};

/// Bytes that one rank reads for a move of a tensor of `bytes` bytes in all.
Size bytes_of(Move move, Size bytes, Size ranks) {
  switch (move) {
    case Move::all_reduce: return 2 * (ranks - 1) * bytes / ranks;
    case Move::reduce_scatter:
    case Move::all_gather: return (ranks - 1) * bytes / ranks;
    case Move::all_to_all: return (ranks - 1) * bytes / ranks / ranks;
    default: return 0;
  }
}

Collective collective_of(Move move) {
  return move == Move::all_reduce       ? Collective::all_reduce
         : move == Move::reduce_scatter ? Collective::reduce_scatter
         : move == Move::all_to_all     ? Collective::all_to_all
                                        : Collective::all_gather;
}

void check_traffic(const Traffic& traffic, Move move, Size ranks) {
  const Size bytes = bytes_of(move, extents.count() * 8, ranks);
  CHECK(traffic.total() == bytes);
  CHECK(traffic.bytes(collective_of(move), Purpose::activation) == bytes);
  if (bytes > 0) CHECK(traffic.calls(collective_of(move), Purpose::activation) == 1);
}

template <class From, class To, int Ranks>
void check_arrow() {
  const Global<3> x = global_normal(extents, 1), dy = global_normal(extents, 2);
  Parts<To, 3> y(extents, Ranks);
  Parts<adjoint<From>, 3> dx(extents, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    using X = Variable<double, 3, Cpu, Placement<From, Ranks>>;
    X variable(part_of<From, double>(x, here.rank, Ranks, here.pool), here.tape);
    const Slot input = variable.slot();
    const Shape<3> shape = variable.shape();
    const Traffic start = here.tp.traffic();
    auto moved = redistribute<To>(std::move(variable));
    static_assert(std::is_same_v<state_of<decltype(moved)>, To>);
    const Traffic forward = here.tp.traffic();
    y.put(here.rank, moved.value());
    here.tape.backward(moved.slot(), part_of<adjoint<To>, double>(dy, here.rank, Ranks, here.pool));
    check_traffic(forward - start, arrow<From, To>, Ranks);
    check_traffic(here.tp.traffic() - forward, backward_arrow<From, To>, Ranks);
    dx.put(here.rank, here.tape.take<double, 3>(input, shape));
  });
  // Sums of four summands of order 1 in f64.
  CHECK(distance(y.all_or_none().at, x.at) < 1e-14);
  CHECK(distance(dx.all_or_none().at, dy.at) < 1e-14);
}

/// The pairing of a value with its gradient: a sum over the ranks; an Invariant value is one value, not one per rank.
template <class State>
double pairing(const Parts<State, 3>& x, const Parts<adjoint<State>, 3>& y, int ranks) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) {
    REQUIRE(x.of(r).size() == y.of(r).size());
    sum += std::inner_product(x.of(r).begin(), x.of(r).end(), y.of(r).begin(), 0.0);
  }
  return std::is_same_v<State, Invariant> ? sum / ranks : sum;
}

/// <A x, y> == <x, A^T y>.
template <class From, class To, int Ranks>
void check_adjoint() {
  const Global<3> gx = global_normal(extents, 3), gy = global_normal(extents, 4);
  Parts<From, 3> x(extents, Ranks);
  Parts<To, 3> ax(extents, Ranks);
  Parts<adjoint<To>, 3> y(extents, Ranks);
  Parts<adjoint<From>, 3> aty(extents, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    const auto local_x = part_of<From, double>(gx, here.rank, Ranks, here.pool);
    const auto local_y = part_of<adjoint<To>, double>(gy, here.rank, Ranks, here.pool);
    x.put(here.rank, local_x);
    y.put(here.rank, local_y);
    ax.put(here.rank, move_between<From, To>(here.context, local_x));
    aty.put(here.rank, move_between<adjoint<To>, adjoint<From>>(here.context, local_y));
  });
  const double one = pairing<To>(ax, y, Ranks), other = pairing<From>(x, aty, Ranks);
  CHECK(close(other, one, 1e-10));  // 3456 products of order 1
}

template <class From, class To, template <class, class, int> class Check>
void at_all_ranks() {
  Check<From, To, 1>::run();
  Check<From, To, 2>::run();
  Check<From, To, 3>::run();
  Check<From, To, 4>::run();
}

template <class From, class To, int Ranks>
struct Whole {
  static void run() { check_arrow<From, To, Ranks>(); }
};
template <class From, class To, int Ranks>
struct Adjoint {
  static void run() { check_adjoint<From, To, Ranks>(); }
};

template <template <class, class, int> class Check>
void every_arrow() {
  at_all_ranks<Invariant, Replicate, Check>();
  at_all_ranks<Partial, Invariant, Check>();
  at_all_ranks<Partial, Replicate, Check>();
  at_all_ranks<Invariant, Shard<1>, Check>();
  at_all_ranks<Replicate, Shard<1>, Check>();
  at_all_ranks<Shard<1>, Invariant, Check>();
  at_all_ranks<Shard<1>, Replicate, Check>();
  at_all_ranks<Partial, Shard<1>, Check>();
  at_all_ranks<Shard<1>, Shard<2>, Check>();
  at_all_ranks<Shard<2>, Shard<0>, Check>();
  at_all_ranks<Shard<0>, Shard<1>, Check>();
  at_all_ranks<Invariant, Shard<1, 2>, Check>();
  at_all_ranks<Replicate, Shard<1, 2>, Check>();
  at_all_ranks<Shard<1, 2>, Invariant, Check>();
  at_all_ranks<Shard<1, 2>, Replicate, Check>();
  at_all_ranks<Partial, Shard<1, 2>, Check>();
  at_all_ranks<Shard<1, 2>, Shard<0>, Check>();
  at_all_ranks<Shard<2>, Shard<1, 2>, Check>();
  at_all_ranks<Shard<1, 2>, Shard<0, 2>, Check>();
}

}  // namespace

TEST_CASE("every arrow keeps the value, its backward keeps the gradient, and each costs its collective exactly") {
  every_arrow<Whole>();
}

TEST_CASE("the backward of every arrow is its adjoint") {
  every_arrow<Adjoint>();
}

TEST_CASE("the first and the last dimension are cut and gathered like the middle one") {
  check_arrow<Shard<0>, Replicate, 3>();
  check_arrow<Partial, Shard<0>, 3>();
  check_arrow<Invariant, Shard<0>, 3>();
  check_arrow<Replicate, Shard<0>, 3>();
  check_arrow<Shard<2>, Invariant, 3>();
  check_arrow<Partial, Shard<2>, 3>();
  check_arrow<Replicate, Shard<2>, 3>();
}

TEST_CASE("redistribute to the state a value has already records nothing") {
  TestRank here;
  using X = Variable<double, 3, Cpu, Placement<Shard<2>, 1>>;
  X x(Tensor<double, 3>::zeros(extents, here.pool), here.tape);
  const auto y = redistribute<Shard<-1>>(x);
  CHECK(y.value().data() == x.value().data());
  CHECK(y.slot().number == x.slot().number);
  CHECK(here.tape.node_count() == 0);
}

TEST_CASE("a sum over ranks is in place for a value that is moved in, and leaves a kept one unchanged") {
  on_tp_ranks(2, [&](TestRank& here) {
    using X = Variable<double, 3, Cpu, Placement<Partial, 2>>;
    X kept(part_of<Partial, double>(global_normal(extents, 1), here.rank, 2, here.pool), here.tape);
    const double before = kept.value().data()[0];
    const Size one = kept.value().bytes();
    here.pool.reset_peak();
    auto apart = redistribute<Invariant>(kept);
    CHECK(kept.value().data()[0] == before);
    CHECK(here.pool.peak() == 2 * one);
    const double* block = kept.value().data();
    apart = {};
    here.pool.reset_peak();
    const auto in_place = redistribute<Invariant>(std::move(kept));
    CHECK(in_place.value().data() == block);
    CHECK(here.pool.peak() == one);
  });
}

TEST_CASE("a dimension that the degree does not divide is an error that names it, on every rank") {
  on_tp_ranks(3, [&](TestRank& here) {
    using X = Variable<double, 2, Cpu, Placement<Invariant, 3>>;
    X x(Tensor<double, 2>::zeros(shape(6, 4), here.pool), here.tape);
    CHECK_THROWS_WITH_AS(redistribute<Shard<1>>(x),
                         "dspp: splitting over ranks needs a dimension that their number divides, but dimension 1 of "
                         "[6, 4] is not a multiple of 3. Change the extent or the degree.",
                         Error);
  });
}

namespace {

/// Shard to whole to summand to shard and back, on any device.
template <Device D>
constexpr void there_and_back(Context<D>& context) {
  Tape<D> tape(context);
  using X = Variable<float, 3, D, Placement<Shard<1>, 2>>;
  X x(Tensor<float, 3, D>::zeros(Shape<3>{{2, 4, 6}}, *context.memory), tape);
  auto y = redistribute<Shard<0>>(redistribute<Shard<2>>(redistribute<Invariant>(std::move(x))));
  tape.backward(y.slot(), Tensor<float, 3, D>::zeros(y.shape(), *context.memory));
  using Padded = Variable<float, 3, D, Placement<PaddedShard<1>, 2>>;
  Padded p(Tensor<float, 3, D>::zeros(Shape<3>{{2, 4, 6}}, *context.memory), tape, 7);
  auto invariant = redistribute<Invariant>(p);
  tape.backward(invariant.slot(), Tensor<float, 3, D>::zeros(invariant.shape(), *context.memory));
  auto replicate = redistribute<Replicate>(std::move(p));
  tape.backward(replicate.slot(), Tensor<float, 3, D>::zeros(replicate.shape(), *context.memory));
}

struct Counted {
  Size peak = 0, live = 0;
  Traffic traffic;
  friend constexpr bool operator==(const Counted&, const Counted&) = default;
};

constexpr Counted on_paper() {
  Ledger ledger;
  Recorder<> group(1, 2);
  Context<Meta> context{.memory = &ledger, .along = {.tp = &group}};
  there_and_back(context);
  return {ledger.peak(), ledger.live(), group.traffic()};
}

}  // namespace

TEST_CASE("arrows work in constant expressions, and paper counts as the real device") {
  constexpr Counted paper = on_paper();
  static_assert(paper.live == 0 && paper.peak > 0);
  on_tp_ranks(2, [&](TestRank& here) {
    there_and_back(here.context);
    CHECK(Counted{here.pool.peak(), here.pool.live(), here.tp.traffic()} == paper);
  });
}
