// SPDX-License-Identifier: Apache-2.0
/// The dimension that Cp cuts, through every operator, and the arrow that makes it whole. (Mistakes: the catalogue,
/// sequence_cut_by_cp.cpp.)
#include <doctest/doctest.h>

#include <atomic>

#include <dspp/autograd.hpp>
#include <dspp/comm/recorder.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/positions.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/nn/rms_norm.hpp>

#include <laws/parallel_layer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F64, Cp<2>>;

/// Of rank Rank, its dimension Dim cut over Ranks ranks of Cp, beside State over Degree ranks of Tp.
template <int Rank, int Dim, int Ranks = 2, class State = Invariant, int Degree = 1>
using CutAt = Variable<double, Rank, Cpu, Placed<On<Tp<Degree>, State>, On<Cp<Ranks>, Shard<Dim>>>>;
template <int Rank, class State = Invariant, int Degree = 1>
using NotCut = Variable<double, Rank, Cpu, Placed<On<Tp<Degree>, State>>>;

template <class X>
X zeros(TestRank& here, const Shape<X::rank>& extents) {
  return X(Tensor<double, X::rank>::zeros(extents, here.pool), here.tape);
}

/// The dimension of x that Cp cuts; -1: none.
constexpr int cut(const auto& x) {
  return std::remove_cvref_t<decltype(x)>::Placement::cp_dimension;
}

}  // namespace

TEST_CASE("a policy without Cp has the types it had, and one with Cp cuts [batch, sequence, ...] along the sequence") {
  using Whole = Policy<F64, Tp<2>>;
  static_assert(std::is_same_v<Hidden<Whole>, NotCut<3, Invariant, 2>>);
  static_assert(std::is_same_v<Hidden<P>, CutAt<3, 1>>);
  static_assert(std::is_same_v<WholeOverCp<Hidden<P>>, NotCut<3>>);
  static_assert(std::is_same_v<WholeOverCp<NotCut<3>>, NotCut<3>>);
  static_assert(Tokens<P>::Placement::cp_dimension == 1 && Tokens<P>::Placement::cp_degree == 2);
  static_assert(Loss<P>::Placement::cp_dimension == -1);
  using Both = Policy<F64, Tp<2>, Cp<3>, SequenceParallel>;
  static_assert(std::is_same_v<Hidden<Both>, CutAt<3, 1, 3, Shard<1>, 2>>);
  static_assert(std::is_same_v<InState<Hidden<Both>, Shard<-1>>, CutAt<3, 1, 3, Shard<2>, 2>>);
}

TEST_CASE("the cut dimension is followed through every operator that keeps positions apart") {
  TestRank here;
  const auto x = zeros<CutAt<3, 1>>(here, shape(2, 4, 6));
  CHECK(cut(gelu(x) + 2.0 * x) == 1);
  CHECK(cut(x * x) == 1);
  CHECK(cut(softmax(x)) == 1);
  CHECK(cut(swiglu(x)) == 1);
  CHECK(cut(cast<float>(x)) == 1);
  CHECK(cut(transpose<1, 2, 0>(x)) == 0);
  CHECK(cut(transpose<0, 2, 1>(x)) == 2);
  CHECK(cut(transpose<2, 0, 1>(x)) == 2);
  CHECK(cut(slice<2>(x, 1, 2)) == 1);
  CHECK(cut(std::get<1>(split<0, 2>(x))) == 1);
  CHECK(cut(std::get<1>(split<-1>(x, std::array<Size, 2>{2, 4}))) == 1);
  CHECK(cut(concat<2>(x, x)) == 1);
  CHECK(cut(redistribute<Replicate>(x)) == 1);
  CHECK(cut(recompute([](const auto& v) { return relu(v); }, x)) == 1);
  CHECK(cut(sum(x)) == -1);
  CHECK(cut(mean(x)) == -1);
  CHECK(cut(squared_norm(x)) == -1);
  CHECK(cut(transpose<0, 2, 1>(zeros<NotCut<3>>(here, shape(2, 4, 6)))) == -1);
}

TEST_CASE("layers on the features keep the cut of their input, and an embedding that of its ids") {
  TestRank here;
  LayerNorm<P> norm(6);
  RmsNorm<P> rms(6);
  Linear<P> mix(6, 8);
  Embedding<P> table(5, 6);
  Home<double> norms(norm, here), roots(rms, here), mixes(mix, here), rows(table, here);
  const auto off = here.tape.rehearse();
  const auto x = zeros<Hidden<P>>(here, shape(2, 4, 6));
  CHECK(cut(norm(x)) == 1);
  CHECK(cut(rms(transpose<1, 0, 2>(x))) == 0);
  CHECK(cut(mix(x)) == 1);
  CHECK(cut(mix(WholeOverCp<Hidden<P>>(x.value(), here.tape))) == -1);
  CHECK(cut(table.logits(x)) == 1);
  const auto ids = Tensor<std::int32_t, 2>::zeros(shape(2, 4), here.pool);
  CHECK(cut(table(Tokens<P>::constant(ids, here.tape))) == 1);
  CHECK(cut(table(WholeOverCp<Tokens<P>>::constant(ids, here.tape))) == -1);
}

TEST_CASE("a reshape keeps the cut dimension, or takes its new place") {
  TestRank here;
  const auto x = zeros<CutAt<3, 1>>(here, shape(2, 4, 6));
  CHECK(cut(reshape(x, shape(2, 4, 3, 2))) == 1);
  CHECK(cut(reshape(reshape(x, shape(2, 4, 3, 2)), shape(2, 4, 6))) == 1);
  CHECK(cut(reshape<void, Shard<1>>(x, shape(2, 24))) == 1);
  CHECK(cut(reshape<void, Shard<-3>>(x, shape(2, 4, 3, 2))) == 1);
  CHECK(cut(reshape<void, Shard<2>>(x, shape(2, 1, 4, 6))) == 2);
  CHECK(cut(reshape<void, Shard<2>>(x, shape(1, 2, 4, 6))) == 2);
  const auto first = transpose<1, 0, 2>(x);
  CHECK(cut(reshape(first, shape(8, 6))) == 0);
  const auto rows = reshape(first, shape(8, 6));
  CHECK(cut(reshape<void, Shard<0>>(rows, shape(4, 2, 6))) == 0);
  CHECK(cut(reshape<void, Shard<1>>(rows, shape(1, 8, 6))) == 1);
  CHECK(cut(reshape(rows, shape(8, 2, 3))) == 0);
  CHECK(cut(reshape(reshape(first, shape(4, 2, 2, 3)), shape(8, 6))) == 0);
  CHECK(cut(reshape<void, Shard<1>>(zeros<NotCut<3>>(here, shape(2, 4, 6)), shape(8, 6))) == -1);
  const auto both = zeros<CutAt<3, 1, 2, Shard<2>, 2>>(here, shape(2, 4, 6));
  const auto heads = reshape<Shard<2>>(both, shape(2, 4, 3, 2));
  static_assert(std::is_same_v<decltype(heads), const CutAt<4, 1, 2, Shard<2>, 2>>);
  const auto front = reshape<void, Shard<1>>(transpose<2, 0, 1, 3>(heads), shape(6, 4, 2));
  static_assert(std::is_same_v<decltype(front), const CutAt<3, 1, 2, Shard<0>, 2>>);
}

TEST_CASE("a reshape that would mix positions with what lies before them is an error that names both shapes") {
  TestRank here;
  const auto x = zeros<CutAt<3, 1>>(here, shape(2, 4, 6));
  CHECK_THROWS_WITH_AS(
      reshape(x, shape(8, 2, 3)),
      "dspp: reshape needs the sequence, which Cp cuts, to keep its extent and to lie behind as many "
      "elements as before, but dimension 1 of [2, 4, 6] would be dimension 1 of [8, 2, 3]. Name its new "
      "place by reshape<void, Shard<Dim>>(x, shape); to merge it with the batch, transpose<1, 0, 2>(x) first.",
      Error);
  CHECK_THROWS_AS(reshape(x, shape(2, 2, 2, 6)), Error);  // its extent changes: is the second or the third meant?
  CHECK(cut(reshape<void, Shard<1>>(x, shape(2, 2, 2, 6))) == 1);
  CHECK_THROWS_AS((reshape<void, Shard<2>>(x, shape(2, 2, 2, 6))), Error);
  CHECK_THROWS_AS((reshape<void, Shard<0>>(x, shape(8, 6))), Error);
  const auto rows = reshape(transpose<1, 0, 2>(x), shape(8, 6));
  CHECK_THROWS_AS(reshape(rows, shape(1, 8, 6)), Error);  // would call the 1 the sequence
  CHECK_THROWS_AS(reshape(rows, shape(4, 2, 6)), Error);
  CHECK_THROWS_AS(reshape(rows, shape(2, 4, 6)), Error);
  CHECK_THROWS_AS(reshape(rows, shape(4, 12)), Error);
  CHECK_THROWS_AS((reshape<void, Shard<1>>(x, shape(8, 6))), Error);
}

TEST_CASE("products within a position, and with values that are not cut, are allowed") {
  TestRank here;
  const auto heads = zeros<CutAt<3, 0>>(here, shape(8, 2, 3));
  CHECK(cut(batched_matmul(heads, transpose<0, 2, 1>(heads))) == 0);
  const auto q = zeros<CutAt<3, 1>>(here, shape(2, 4, 3));
  const auto keys = zeros<NotCut<3>>(here, shape(2, 3, 8));
  CHECK(cut(batched_matmul(q, keys)) == 1);
  CHECK(cut(batched_matmul(transpose<0, 2, 1>(keys), transpose<0, 2, 1>(q))) == 2);
  const auto rows = zeros<CutAt<2, 0>>(here, shape(8, 6));
  CHECK(cut(matmul(rows, zeros<NotCut<2>>(here, shape(6, 3)))) == 0);
  CHECK(cut(matmul(zeros<NotCut<2>>(here, shape(3, 6)), transpose<1, 0>(rows))) == 1);
  CHECK(cut(matmul(zeros<NotCut<2>>(here, shape(3, 6)), zeros<NotCut<2>>(here, shape(6, 3)))) == -1);
}

namespace {

/// x from the slices of all ranks on each, and the sum of their gradients sliced on the way back.
template <int Ranks, int Dim, class State>
void check_gather() {
  using Slices = Shard<Dim>;
  const Shape<3> extents{{12, 24, 5}};
  const Global<3> x = global_normal(extents, 1), dy = global_normal(extents, 2);
  Parts<Replicate, 3> y(extents, Ranks);
  Parts<Slices, 3> dx(extents, Ranks);
  on_tp_ranks(Ranks, [&](TestRank& here) {
    here.context.along.cp = here.context.along.tp;
    AnyCommunicator alone(Recorder(0, 1));
    here.context.along.tp = &alone;
    using X = Variable<double, 3, Cpu, Placed<On<Tp<1>, State>, On<Cp<Ranks>, Slices>>>;
    const X part(part_of<Slices, double>(x, here.rank, Ranks, here.pool), here.tape);
    const Traffic start = here.tp.traffic();
    const auto whole = redistribute<Replicate, Axis::Cp>(part);
    static_assert(std::is_same_v<decltype(whole), const NotCut<3, State>>);
    const Traffic forward = here.tp.traffic();
    y.put(here.rank, whole.value());
    here.tape.backward(whole.slot(), part_of<Partial, double>(dy, here.rank, Ranks, here.pool));
    dx.put(here.rank, here.tape.take<double, 3>(part.slot(), part.shape()));
    const Size bytes = extents.count() * 8 * (Ranks - 1) / Ranks;
    CHECK((forward - start).bytes(Collective::all_gather, Purpose::activation) == bytes);
    CHECK((here.tp.traffic() - forward).bytes(Collective::reduce_scatter, Purpose::activation) == bytes);
    CHECK((here.tp.traffic() - start).total() == 2 * bytes);
  });
  CHECK(y.all_or_none().at == x.at);
  CHECK(distance(dx.all_or_none().at, dy.at) < 1e-14);
}

}  // namespace

TEST_CASE("redistribute<Replicate, Axis::Cp> gathers the positions, and sums and slices their gradients") {
  check_gather<2, 1, Invariant>();
  check_gather<3, 1, Replicate>();
  check_gather<4, 1, Partial>();
  check_gather<2, 0, Invariant>();
  check_gather<3, 0, Invariant>();
  check_gather<4, 0, Invariant>();
}

TEST_CASE("what Cp does not cut is not gathered, and a context without Cp is an error") {
  TestRank here;
  const auto x = zeros<NotCut<3>>(here, shape(2, 4, 6));
  CHECK(redistribute<Replicate, Axis::Cp>(x).value().data() == x.value().data());
  const auto slices = zeros<CutAt<3, 1>>(here, shape(2, 4, 6));
  const char* const sentence =
      "dspp: a sequence cut over Cp<2> needs the ranks that have its slices, but the tape's context has 1 along Cp. "
      "Take the tape of an engine.";
  CHECK_THROWS_WITH_AS((redistribute<Replicate, Axis::Cp>(slices)), sentence, Error);
  CHECK_THROWS_WITH_AS(attend(slices, 2, AttentionMask::full), sentence, Error);
  Dropout<P> dropout(0.5);
  dropout.site.number = 0;
  here.context.training = true;
  CHECK_THROWS_WITH_AS(dropout(slices), sentence, Error);
  Positions<P> positions(8, 6);
  Home<double> home(positions, here);
  CHECK_THROWS_WITH_AS(positions(slices), sentence, Error);
}

namespace {

/// Calls f(x) on every rank of Ranks along Cp, with Tp alone.
template <int Ranks, class X, class F>
void on_cp_ranks(const Shape<X::rank>& extents, F f) {
  on_tp_ranks(Ranks, [&](TestRank& here) {
    here.context.along.cp = here.context.along.tp;
    AnyCommunicator alone(Recorder(0, 1));
    here.context.along.tp = &alone;
    f(here, zeros<X>(here, extents));
  });
}

}  // namespace

TEST_CASE("a context with another number of ranks along Cp than the type says is an error on each of them") {
  std::atomic<int> errors = 0;
  on_cp_ranks<3, CutAt<3, 1, 2>>(shape(2, 4, 6), [&](TestRank&, const auto& x) {
    try {
      redistribute<Replicate, Axis::Cp>(x);
    } catch (const Error& error) {
      errors += error.code() == ErrorCode::state;
    }
  });
  CHECK(errors == 3);
}

TEST_CASE("values without elements pass the arrows as others do") {
  const auto pass = [](TestRank& here, const auto& x) {
    const auto whole = redistribute<Replicate, Axis::Cp>(x);
    constexpr int dimension = std::remove_cvref_t<decltype(x)>::Placement::cp_dimension;
    CHECK(whole.shape() == x.shape().with(dimension, 2 * x[dimension]));
    here.tape.backward(whole.slot(), Tensor<double, 3, Cpu>::zeros(whole.shape(), here.pool));
    CHECK(here.tape.template take<double, 3>(x.slot(), x.shape()).count() == 0);
  };
  on_cp_ranks<2, CutAt<3, 0>>(shape(0, 4, 6), pass);
  on_cp_ranks<2, CutAt<3, 1>>(shape(0, 4, 6), pass);
  on_cp_ranks<2, CutAt<3, 1>>(shape(2, 0, 6), pass);
  on_cp_ranks<2, CutAt<3, 2>>(shape(0, 4, 6), pass);
  on_cp_ranks<2, CutAt<3, 2>>(shape(2, 0, 6), pass);
  on_cp_ranks<2, CutAt<3, 1>>(shape(0, 4, 6), [](TestRank& here, const auto& x) {
    const auto y = attend(x, 2, AttentionMask::causal);
    CHECK(y.shape() == shape(0, 4, 2));
    here.tape.backward(y.slot(), Tensor<double, 3, Cpu>::zeros(y.shape(), here.pool));
  });
  on_tp_ranks(2, [](TestRank& here) {
    using X = NotCut<3, Shard<1>, 2>;
    for (const auto& extents : {shape(0, 4, 6), shape(2, 0, 6), shape(2, 4, 0)}) {
      const auto x = zeros<X>(here, extents);
      const auto whole = redistribute<Replicate>(x);
      CHECK(whole.shape() == x.shape().with(1, 2 * x[1]));
      CHECK(redistribute<Shard<1>>(whole).shape() == x.shape());
      const auto features = redistribute<Shard<2>>(x);
      CHECK(features.shape() == shape(x[0], 2 * x[1], x[2] / 2));
      CHECK(redistribute<Shard<1>>(features).shape() == x.shape());
      here.tape.backward(features.slot(), Tensor<double, 3, Cpu>::zeros(features.shape(), here.pool));
      here.tape.clear();
    }
  });
}
