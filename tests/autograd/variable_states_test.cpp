// SPDX-License-Identifier: Apache-2.0
// labels: autograd
/// Types match values: every operator on a value in every state that it takes, over 1 to 4 ranks, gives the one-rank
/// value and gradient. A state or operator added here is checked with all others.
#include <functional>

#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>

#include <laws/placed.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The degree in the type only keeps policies apart: the ranks of a test's group are counted at run time.
template <class State, int Rank>
using Value = Variable<double, Rank, Cpu, Placed<On<Tp<2>, State>>>;

template <int Dim, class State>
inline constexpr bool whole_along = WholeAlong<State, Dim, 3> || std::is_same_v<State, Partial>;

// Each operator: the states that it takes, and its call. `v` is in any state, `same` is placed alike.

struct PlusAndScale {
  template <class State>
  static constexpr bool takes = true;
  static auto of(const auto& v, const auto& same) { return v + 0.5 * same; }
};
struct Times {
  template <class State>
  static constexpr bool takes = !std::is_same_v<State, Partial>;
  static auto of(const auto& v, const auto& same) { return v * same; }
};
struct Activations {
  template <class State>
  static constexpr bool takes = Finished<State>;
  static auto of(const auto& v, const auto&) { return silu(gelu(v)) + relu(v); }
};
struct GateFeatures {
  template <class State>
  static constexpr bool takes = Finished<State> && (WholeAlong<State, 2, 3> || shard_groups<State> % 2 == 0);
  static auto of(const auto& v, const auto&) { return swiglu(v); }
};
struct Softmax {
  template <class State>
  static constexpr bool takes = WholeAlong<State, 2, 3>;
  static auto of(const auto& v, const auto&) { return softmax(v); }
};
struct Transposed {
  template <class State>
  static constexpr bool takes = true;
  static auto of(const auto& v, const auto&) { return transpose<0, 2, 1>(transpose<2, 0, 1>(v)); }
};
struct SecondHalf {
  template <class State>
  static constexpr bool takes = whole_along<2, State>;
  static auto of(const auto& v, const auto&) { return slice<2>(v, v[2] / 2, v[2] / 2); }
};
/// The parts of a dimension, each used differently, in another order.
template <int Dim, int Count>
struct SplitAndMix {
  template <class State>
  static constexpr bool takes = whole_along<Dim, State> ||
                                (shard_groups<State> > 1 && shard_groups<State> % Count == 0);
  static auto of(const auto& v, const auto&) {
    const auto parts = split<Dim, Count>(v);
    return std::get<Count - 1>(parts) + 2.0 * std::get<0>(parts);
  }
};
/// A whole dimension twice, by concat where it is whole, else by join.
template <int Dim>
struct Twice {
  template <class State>
  static constexpr bool takes = true;
  template <class X>
  static auto of(const X& v, const X& same) {
    if constexpr (is_cut_along<state_of<X>, Dim>)
      return join<Dim>(v, same);
    else
      return concat<Dim>(v, same);
  }
};
template <int Dim>
struct SplitAndJoinTurned {
  template <class State>
  static constexpr bool takes = whole_along<Dim, State> || shard_groups<State> == 3;
  static auto of(const auto& v, const auto&) {
    auto [a, b, c] = split<Dim, 3>(v);
    return Twice<Dim>::of(c, 2.0 * a) + Twice<Dim>::of(b, b);
  }
};
struct Gather {
  template <class State>
  static constexpr bool takes = is_shard<State> || std::is_same_v<State, Partial>;
  static auto of(const auto& v, const auto&) { return redistribute<Invariant>(v); }
};
/// A fused projection that is gathered, then split: a silent error if groups are ignored.
struct GatherAndSplit {
  template <class State>
  static constexpr bool takes = is_shard<State>;
  static auto of(const auto& v, const auto&) {
    auto [a, b] = split<2, 2>(redistribute<Replicate>(v));
    return a * b;
  }
};
struct Sum {
  template <class State>
  static constexpr bool takes = true;
  static auto of(const auto& v, const auto&) { return sum(v); }
};
struct Mean {
  template <class State>
  static constexpr bool takes = true;
  static auto of(const auto& v, const auto&) { return mean(v); }
};
struct SquaredNorm {
  template <class State>
  static constexpr bool takes = Finished<State>;
  static auto of(const auto& v, const auto&) { return squared_norm(v); }
};

template <int Rank>
struct Result {
  Global<Rank> y;
  Global<3> dx;
};

/// Cut dimensions are divisible by 2, 3 and 4 ranks times 2 and 3 groups.
template <class State>
Shape<3> extents() {
  Shape<3> shape{{4, 6, 12}};
  if (is_shard<State>) shape[shard_dimension<State>] = 72;
  return shape;
}

template <class Operator, class State>
auto run(const Global<3>& x, int ranks) {
  using Y = decltype(Operator::of(std::declval<Value<State, 3>>(), std::declval<Value<State, 3>>()));
  using Out = state_of<Y>;
  Shape<Y::rank> whole;  // what one rank has
  {
    TestRank one;
    const Value<State, 3> v(part_of<State, double>(x, 0, 1, one.pool), one.tape);
    whole = Operator::of(v, v).shape();
  }
  const Global<Y::rank> dy = global_normal(whole, 2);
  Parts<Out, Y::rank> y_parts(whole, ranks);
  Parts<adjoint<State>, 3> dx_parts(x.shape, ranks);
  const std::function<void(TestRank&)> one_rank = [&](TestRank& here) {  // erased: compiles in half the time
    Value<State, 3> v(part_of<State, double>(x, here.rank, ranks, here.pool), here.tape);
    const auto y = Operator::of(v, v);
    y_parts.put(here.rank, y.value());
    here.tape.backward(y.slot(), part_of<adjoint<Out>, double>(dy, here.rank, ranks, here.pool));
    dx_parts.put(here.rank, here.tape.template take<double, 3>(v.slot(), v.shape()));
  };
  on_tp_ranks(ranks, one_rank);
  return Result<Y::rank>{y_parts.all_or_none(), dx_parts.all_or_none()};
}

/// On one rank, where every state is the whole value.
template <class Operator, class State>
void check_operator() {
  if constexpr (Operator::template takes<State>) {
    const Global<3> x = global_normal(extents<State>(), 1);
    using Dense = std::conditional_t<Operator::template takes<Invariant>, Invariant, State>;
    const auto expected = run<Operator, Dense>(x, 1);
    for (const int ranks : {1, 2, 3, 4}) {
      CAPTURE(ranks);
      const auto outcome = run<Operator, State>(x, ranks);
      // sums of four summands of order 1, and of the squares of 2000
      CHECK(distance(outcome.y.at, expected.y.at) < 1e-12);
      CHECK(distance(outcome.dx.at, expected.dx.at) < 1e-12);
    }
  }
}

template <class Operator, class... States>
void in_states() {
  (check_operator<Operator, States>(), ...);
}

template <class Operator>
void check() {
  in_states<Operator, Invariant, Replicate, Partial, Shard<0>, Shard<1>, Shard<2>, Shard<1, 3>, Shard<2, 2>,
            Shard<2, 3>, Shard<2, 6>>();
}

}  // namespace

TEST_CASE("pointwise operators give the values and gradients of the whole in every state that they take") {
  check<PlusAndScale>();
  check<Times>();
  check<Activations>();
  check<GateFeatures>();
  check<Softmax>();
}

TEST_CASE("shape operators give those of the whole in every state") {
  check<Transposed>();
  check<SecondHalf>();
  check<SplitAndMix<2, 2>>();
  check<SplitAndMix<2, 3>>();
  check<Twice<2>>();
  check<SplitAndJoinTurned<1>>();
}

TEST_CASE("a gathered value is the whole, and can be split like the whole") {
  check<Gather>();
  check<GatherAndSplit>();
}

TEST_CASE("reductions count every element of every rank once") {
  check<Sum>();
  check<Mean>();
  check<SquaredNorm>();
}

TEST_CASE("reshape turns groups into a dimension, and a dimension into groups") {
  for (const int ranks : {1, 2, 3, 4})
    on_tp_ranks(ranks, [&](TestRank& here) {
      const Global<3> x = global_normal(shape(2, 3, 72), 1);
      Value<Shard<2, 3>, 3> v(part_of<Shard<2, 3>, double>(x, here.rank, ranks, here.pool), here.tape);
      const auto apart = reshape<Shard<3>>(v, shape(v[0], v[1], Size{3}, v[2] / 3));
      static_assert(std::is_same_v<state_of<decltype(apart)>, Shard<3>>);
      Global<4> seen(shape(2, 3, 3, 24));
      seen.at = x.at;
      const auto expected = part_of<Shard<3>, double>(seen, here.rank, ranks, here.pool);
      REQUIRE(apart.shape() == expected.shape());
      CHECK(std::equal(expected.data(), expected.data() + expected.count(), apart.value().data()));
      const auto back = reshape<Shard<2, 3>>(apart, v.shape());
      static_assert(std::is_same_v<state_of<decltype(back)>, Shard<2, 3>>);
      CHECK(std::equal(v.value().data(), v.value().data() + v.value().count(), back.value().data()));
      CHECK_THROWS_AS((reshape<Shard<2, 2>>(v, v.shape())), Error);
    });
}

TEST_CASE("groups of unequal extents are not joined, and odd extents are no groups") {
  TestRank here;
  const auto zeros = [&](Size n) {
    return Value<Shard<2>, 3>(Tensor<double, 3>::zeros(shape(2, 2, n), here.pool), here.tape);
  };
  CHECK_THROWS_WITH_AS((join<2>(zeros(4), zeros(4), zeros(2))),
                       "dspp: join needs groups of one extent, but those after the first have another than its 4 on a "
                       "rank. Join equal groups only, or redistribute<Invariant>(x) and concat.",
                       Error);
  Value<Shard<2, 2>, 3> odd(Tensor<double, 3>::zeros(shape(2, 2, 5), here.pool), here.tape);
  CHECK_THROWS_AS((split<2, 2>(odd)), Error);
}
