// SPDX-License-Identifier: Apache-2.0
/// attend with lengths, documents and a bias: cut over Tp and over Cp as on one rank. (Values: in
/// ops/attention_rules_test; mistakes: the catalogue.)
// labels: models
#include <doctest/doctest.h>

#include <dspp/models/attention.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/nn/value_beside.hpp>

#include <laws/attention_extras.hpp>
#include <laws/layer_precision.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size batch = 2, sequence = 10, heads = 4, head_dim = 2;
constexpr AttentionRule rule{AttentionMask::full, 7, 1.5, 0.4};
const Global<3> all_q = global_normal(shape(batch, sequence, heads* head_dim), 1);
const Global<3> all_kv = global_normal(shape(batch, sequence, 2 * 2 * head_dim), 2);
const Global<3> all_qkv = global_normal(shape(batch, sequence, 3 * heads * head_dim), 3);
const Global<3> all_bias = global_normal(shape(heads, sequence, sequence), 4);
const Global<3> all_dy = global_normal(shape(batch, sequence, heads* head_dim), 5);

Tensor<std::int32_t, 1> lengths_of(Pool& pool) {
  auto lengths = Tensor<std::int32_t, 1>::zeros(shape(batch), pool);
  lengths.data()[0] = 8, lengths.data()[1] = 0;
  return lengths;
}
/// Of the positions [first, first + count).
Tensor<std::int32_t, 2> documents_of(Pool& pool, Size first = 0, Size count = sequence) {
  auto ids = Tensor<std::int32_t, 2>::zeros(shape(batch, count), pool);
  for (Size b = 0; b < batch; ++b)
    for (Size i = 0; i < count; ++i) ids.data()[b * count + i] = first + i < 6 ? 3 : 1;
  return ids;
}

/// Results over all ranks: y, and the gradients of both inputs and of the bias.
struct Results {
  std::vector<double> y, dx, dkv, dbias;
};

template <class State, int Tp_, int Cp_, int Dim, int Rank>
struct PlaceOf {
  using type = Placed<On<Tp<Tp_>, State>, On<Cp<Cp_>, Shard<Dim>>>;
};
template <class State, int Tp_, int Dim, int Rank>
struct PlaceOf<State, Tp_, 1, Dim, Rank> {
  using type = Placed<On<Tp<Tp_>, State>>;
};
template <class T, int Rank, class State, int Tp_, int Cp_, int Dim = 1>
using On_ = Variable<T, Rank, Cpu, typename PlaceOf<canonical_state<State, Rank>, Tp_, Cp_, Dim, Rank>::type>;

/// attend on Tp_ or Cp_ ranks, fused or grouped.
template <int Tp_, int Cp_>
Results attended(bool fused, bool cut_ids = true) {
  constexpr int ranks = Tp_ * Cp_;
  constexpr bool over_cp = Cp_ > 1;
  using Y = std::conditional_t<over_cp, Shard<1>, Shard<-1>>;
  using KV = std::conditional_t<over_cp, Shard<1>, Shard<-1, 2>>;
  using QKV = std::conditional_t<over_cp, Shard<1>, Shard<-1, 3>>;
  using Bias = std::conditional_t<over_cp, Replicate, Shard<0>>;
  Parts<canonical_state<Y, 3>, 3> y(all_dy.shape, ranks), dq(all_q.shape, ranks);
  Parts<canonical_state<KV, 3>, 3> dkv(all_kv.shape, ranks);
  Parts<canonical_state<QKV, 3>, 3> dqkv(all_qkv.shape, ranks);
  Parts<adjoint<Bias>, 3> dbias(all_bias.shape, ranks);
  on_tp_ranks(ranks, [&](TestRank& here) {
    AnyCommunicator alone(Recorder(0, 1));
    if (over_cp) here.context.along.cp = here.context.along.tp, here.context.along.tp = &alone;
    const auto part = [&]<class State>(State, const Global<3>& x) {
      return part_of<canonical_state<State, 3>, double>(x, here.rank, ranks, here.pool);
    };
    using OfBias = On_<double, 3, std::conditional_t<over_cp, Invariant, Shard<0>>, Tp_, 1>;
    const OfBias bias(part(Bias{}, all_bias), here.tape);
    using Numbers = On_<std::int32_t, 1, Invariant, Tp_, 1>;
    const Lengths lengths{Numbers::constant(lengths_of(here.pool), here.tape)};
    const auto run = [&](const auto& ids) {
      const auto out = [&](const auto& result) {
        y.put(here.rank, result.value());
        here.tape.backward(result.slot(), part(Y{}, all_dy));
        dbias.put(here.rank, here.tape.template take<double, 3>(bias.slot(), bias.shape()));
      };
      if (fused) {
        using X = On_<double, 3, std::conditional_t<over_cp, Invariant, QKV>, Tp_, Cp_>;
        const X qkv(part(QKV{}, all_qkv), here.tape);
        out(attend(qkv, heads / Tp_, rule, ids, ScoreBias{bias}, lengths));
        dqkv.put(here.rank, here.tape.template take<double, 3>(qkv.slot(), qkv.shape()));
      } else {
        using X = On_<double, 3, std::conditional_t<over_cp, Invariant, Y>, Tp_, Cp_>;
        using XKV = On_<double, 3, std::conditional_t<over_cp, Invariant, KV>, Tp_, Cp_>;
        const X q(part(Y{}, all_q), here.tape);
        const XKV kv(part(KV{}, all_kv), here.tape);
        out(attend(q, kv, {heads / Tp_, 2 / Tp_, rule}, {.rope_theta = 50}, ScoreBias{bias}, lengths, ids));
        dq.put(here.rank, here.tape.template take<double, 3>(q.slot(), q.shape()));
        dkv.put(here.rank, here.tape.template take<double, 3>(kv.slot(), kv.shape()));
      }
    };
    const Size own = sequence / Cp_;
    if (cut_ids)
      run(Documents{On_<std::int32_t, 2, Invariant, Tp_, Cp_>::constant(
          documents_of(here.pool, over_cp ? here.rank * own : 0, own), here.tape)});
    else
      run(Documents{On_<std::int32_t, 2, Invariant, Tp_, 1>::constant(documents_of(here.pool), here.tape)});
  });
  return {y.all_or_none().at, (fused ? dqkv.all_or_none() : dq.all_or_none()).at,
          fused ? std::vector<double>(1) : dkv.all_or_none().at, dbias.all_or_none().at};
}

void check_same_results(const Results& a, const Results& b) {
  CHECK(distance(a.y, b.y) < 1e-12);
  CHECK(distance(a.dx, b.dx) < 1e-12);
  CHECK(distance(a.dkv, b.dkv) < 1e-12);
  CHECK(distance(a.dbias, b.dbias) < 1e-12);
}

/// An own layer whose scores have a learned bias, of all heads on every rank.
template <class P>
struct BiasedAttention : Layer<P> {
  SelfAttention<P> attention{{.width = 8, .heads = 4, .rule = {AttentionMask::full, 6, 2.0}}};
  ParameterOf<P, 3> bias{"bias", dspp::shape(4, 10, 10), Initial::normal(1)};

  constexpr void visit(auto&& f) { f("attention", attention), f("bias", bias); }
  constexpr auto operator()(const Hidden<P>& x) const {
    return attention(x, ScoreBias{redistribute<Shard<0>>(value_beside(x, bias))});
  }
};

}  // namespace

TEST_CASE("attend with every extra, cut over Tp or Cp, is that of one rank") {
  for (const bool fused : {true, false}) {
    const Results one = attended<1, 1>(fused);
    check_same_results(attended<2, 1>(fused), one);
    check_same_results(attended<1, 2>(fused), one);
    check_same_results(attended<1, 2>(fused, false), one);
  }
}

TEST_CASE("a learned bias of the scores gets its gradient on every rank, and from finite differences") {
  using One = Policy<F64>;
  const auto run = []<class P>(P) {
    return run_layer<P, typename P::HiddenState, typename P::HiddenState>([] { return BiasedAttention<P>(); },
                                                                          call_layer, all_q, all_dy);
  };
  const auto expected = run(Whole<1>());
  CHECK(expected.gradients.contains("bias"));
  check_same(run(Whole<2>()), expected);
  check_same(run(Split<2>()), expected);
  check_layer_gradient<Hidden<One>>(BiasedAttention<One>(), shape(2, 10, 8));
}

TEST_CASE("attend with every extra works on a device whose memory the host cannot touch, and on paper") {
  TestRank here;
  FarMemory memory;
  Pool pool(0, &memory);
  pool.poison(true);
  AnyCommunicator alone(Recorder(0, 1));
  Context<Far> far{.memory = &pool, .along = {.tp = &alone}};
  CHECK(attend_with_extras<bf16>(here.context) == attend_with_extras<bf16>(far));
  Ledger ledger;
  Recorder<> group(0, 1);
  Context<Meta> paper{.memory = &ledger, .along = {.tp = &group}};
  attend_with_extras<bf16>(paper);
  CHECK(here.pool.peak() == ledger.peak());
  CHECK(ledger.live() == 0);
}

TEST_CASE("lengths outside the sequence are an error sentence of attend, and layers name what changes results") {
  TestRank here;
  const Hidden<Policy<F64>> qkv(Tensor<double, 3>::zeros(shape(2, 5, 6), here.pool), here.tape);
  const auto lengths = Input<Policy<F64>, std::int32_t, 1>::constant(lengths_of(here.pool), here.tape);
  CHECK_THROWS_WITH_AS(attend(qkv, 2, AttentionMask::full, Lengths{lengths}),
                       "dspp: attention needs lengths from 0 to 5, the positions of the sequence, but that of sample 0 "
                       "is 8. Count the tokens of the sample that are not padding.",
                       Error);
  std::string names;
  const auto name = [&](const char* text, auto) { names += text + std::string(" "); };
  SelfAttention<Policy<F64>>({.width = 4, .heads = 2}).describe(name);
  CHECK(names == "heads mask ");
  GroupedAttention<Policy<F64>>({.width = 4, .heads = 2, .rule = rule}).describe(name);
  CHECK(names == "heads mask heads kv_heads mask window softcap scale rope_theta ");
}
