// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/selection.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/parallel/vocab_bias.hpp>

#include <laws/layer_precision.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size vocabulary = 13, width = 8, batch = 2, sequence = 12, rows = batch * sequence;
constexpr Size x_bytes = rows * width * 8;
const Global<3> x = global_normal(shape(batch, sequence, width), 1);
const Global<0> one = [] {
  Global<0> seed(Shape<0>{});
  seed.at[0] = 1;
  return seed;
}();

Size token(Size i) {
  return (i * i * 5 + 3 * i) % vocabulary;
}
Size target(Size i) {
  return (i * 7 + 2) % vocabulary;
}

template <class P>
Tokens<P> tokens(Tape<Cpu>& tape, Size (*at)(Size)) {
  auto ids = Tensor<std::int32_t, 2>::uninitialized(shape(batch, sequence), tape.memory(), Category::data, "ids");
  for (Size i = 0; i < rows; ++i) ids.data()[i] = static_cast<std::int32_t>(at(i));
  return Tokens<P>::constant(std::move(ids), tape);
}

/// Look-up plus x, logits by the same table, loss: a GPT without blocks.
template <class P>
auto tied(const VocabParallel<Embedding, P>& table, const Hidden<P>& in, double label_smoothing = 0) {
  auto h = table(tokens<P>(in.tape(), token)) + in;
  return cross_entropy<P>(table.logits(h), tokens<P>(in.tape(), target), vocabulary,
                          {.label_smoothing = label_smoothing});
}

template <class P>
auto run_tied(double label_smoothing = 0) {
  return run_layer<P, typename P::HiddenState, Invariant>(
      [] { return VocabParallel<Embedding, P>(vocabulary, width); },
      [=](const auto& table, const auto& in) { return tied<P>(table, in, label_smoothing); }, x, one);
}

/// The same in one loop each, from the definition.
double loss_by_definition(const Tensor<double, 1>& table, double label_smoothing) {
  double loss = 0;
  for (Size i = 0; i < rows; ++i) {
    double logits[vocabulary], sum = 0;
    for (Size v = 0; v < vocabulary; ++v) {
      logits[v] = 0;
      for (Size j = 0; j < width; ++j)
        logits[v] += (table.data()[token(i) * width + j] + x.data()[i * width + j]) * table.data()[v * width + j];
    }
    for (const double score : logits) sum += std::exp(score);
    loss += std::log(sum) - (1 - label_smoothing) * logits[target(i)];
    for (const double score : logits) loss -= label_smoothing / vocabulary * score;
  }
  return loss / static_cast<double>(rows);
}

}  // namespace

TEST_CASE("a tied table on one rank: the loss by its definition, the gradients by finite differences") {
  using P = Policy<F64>;
  TestRank here;
  VocabParallel<Embedding, P> table(vocabulary, width);
  Home<double> home(table, here);
  const auto value = part_of<Invariant, double>(x, 0, 1, here.pool);
  for (const double smoothing : {0.1, 0.0}) {
    const auto loss = tied<P>(table, Hidden<P>(value, here.tape), smoothing);
    CHECK(std::abs(*loss.value().data() - loss_by_definition(home.value(0), smoothing)) < 1e-12);
    here.tape.clear();
    table.weight.pending_uses() = 0;
  }
  check_variable_gradient<Hidden<P>>(
      here, [&](const Hidden<P>& in) { return tied<P>(table, in); }, value, &home);
}

TEST_CASE("a table of a vocabulary that the degree does not divide equals the one of one rank, with exact traffic") {
  const auto expected = run_tied<Whole<1>>(), smoothed = run_tied<Whole<1>>(0.1);
  CHECK(expected.forward.total() + expected.backward.total() == 0);
  const auto check = [&]<class P>(std::type_identity<P>, Size ranks) {
    const auto outcome = run_tied<P>(), other = run_tied<P>(0.1);
    check_same(outcome, expected);
    check_same(other, smoothed);
    CHECK(other.forward == outcome.forward);
    CHECK(other.backward == outcome.backward);
    const Size all_reduce = 2 * x_bytes * (ranks - 1) / ranks, parts = (ranks - 1) * rows * 3 * 8;
    CHECK(outcome.forward.bytes(Collective::all_reduce) == all_reduce);
    CHECK(outcome.forward.bytes(Collective::all_gather) == parts);
    CHECK(outcome.forward.total() == all_reduce + parts);
    CHECK(outcome.backward.bytes(Collective::all_reduce) == all_reduce);
    CHECK(outcome.backward.total() == all_reduce);
    CHECK(outcome.replicated.total() == 0);
  };
  check(std::type_identity<Whole<2>>{}, 2);
  check(std::type_identity<Whole<3>>{}, 3);
  check(std::type_identity<Whole<4>>{}, 4);
}

TEST_CASE("the same under SequenceParallel, with the same traffic") {
  const auto expected = run_tied<Whole<1>>();
  const auto check = [&](const auto& outcome, Size ranks) {
    check_same(outcome, expected);
    const Size once = x_bytes * (ranks - 1) / ranks, parts = (ranks - 1) * rows * 3 * 8;
    CHECK(outcome.forward.bytes(Collective::reduce_scatter) == once);
    CHECK(outcome.forward.bytes(Collective::all_gather) == once + parts);
    CHECK(outcome.forward.total() == 2 * once + parts);
    CHECK(outcome.backward.bytes(Collective::reduce_scatter) == once);
    CHECK(outcome.backward.bytes(Collective::all_gather) == once);
    CHECK(outcome.backward.total() == 2 * once);
    CHECK(outcome.replicated.total() == 0);
  };
  check(run_tied<Split<2>>(), 2);
  check(run_tied<Split<3>>(), 3);
  check(run_tied<Split<4>>(), 4);
}

TEST_CASE("tokens and targets outside the vocabulary are errors, even where the table has padding for them") {
  using P = Whole<2>;
  on_tp_ranks(2, [](TestRank& here) {
    VocabParallel<Embedding, P> table(vocabulary, width);
    Home<double> home(table, here);
    Hidden<P> in(part_of<Invariant, double>(x, here.rank, 2, here.pool), here.tape);
    const auto beyond = [](Size) { return vocabulary; };
    CHECK_THROWS_AS(table(tokens<P>(here.tape, beyond)), Error);
    CHECK_THROWS_AS(cross_entropy<P>(table.logits(in), tokens<P>(here.tape, beyond), vocabulary), Error);
    here.tape.clear();
  });
}

namespace {

/// Operations on logits: gathered, as Invariant and as Replicate; changed and reordered before.
struct Gathered {
  static auto of(const auto& logits) { return redistribute<Invariant>(logits); }
};
struct GatheredForParts {
  static auto of(const auto& logits) { return softmax(redistribute<Replicate>(logits)); }
};
struct ChangedFirst {
  static auto of(const auto& logits) { return redistribute<Invariant>(gelu(0.5 * logits) * (logits + logits)); }
};
struct OfLaterPositions {
  static auto of(const auto& logits) { return redistribute<Invariant>(slice<1>(logits, 5, sequence - 5)); }
};
struct Reordered {
  template <class X>
  static auto of(const X& logits) {
    const auto turned = transpose<1, 0, 2>(concat<0>(logits, logits));
    const auto rows_first = shape(turned[0] * turned[1], turned[2]);
    if constexpr (is_shard<state_of<X>>)
      return redistribute<Invariant>(reshape<PaddedShard<1>>(turned, rows_first));
    else
      return reshape(turned, rows_first);
  }
};

/// A table of `tokens` rows, with Of applied to its logits of x.
template <class P, class Of, template <class> class Table, class Seed>
auto score(Size tokens, const Seed& seed) {
  constexpr auto call = [](const auto& table, const auto& in) { return Of::of(table.logits(in)); };
  using Y = decltype(call(std::declval<Table<P>>(), std::declval<Hidden<P>>()));
  return run_layer<P, typename P::HiddenState, state_of<Y>>([=] { return Table<P>(tokens, width); }, call, x, seed);
}
template <class P>
using Cut = VocabParallel<Embedding, P>;

/// With and without padding, with a rank that has only padding, and with one row per rank.
template <class Of, class Shape>
void check_scores(Shape seed_shape) {
  for (const Size tokens : {13, 12, 5, 4}) {
    CAPTURE(tokens);
    const auto seed = global_normal(seed_shape(tokens), 7);
    const auto expected = score<Policy<F64>, Of, Embedding>(tokens, seed);
    const auto check = [&](const auto& outcome) {
      check_same(outcome, expected);
      for (const double y : outcome.y.at) CHECK(std::isfinite(y));
    };
    check(score<Whole<1>, Of, Cut>(tokens, seed));
    check(score<Whole<2>, Of, Cut>(tokens, seed));
    check(score<Whole<3>, Of, Cut>(tokens, seed));
    check(score<Whole<4>, Of, Cut>(tokens, seed));
    check(score<Split<3>, Of, Cut>(tokens, seed));
  }
}

}  // namespace

TEST_CASE("gathered logits are those of the vocabulary, without padding, and so are the gradients through them") {
  const auto all = [](Size tokens) { return shape(batch, sequence, tokens); };
  check_scores<Gathered>(all);
  check_scores<GatheredForParts>(all);
  check_scores<ChangedFirst>(all);
  check_scores<OfLaterPositions>([](Size tokens) { return shape(batch, sequence - 5, tokens); });
  check_scores<Reordered>([](Size tokens) { return shape(2 * rows, tokens); });
}

TEST_CASE("logits in the padding are finite, and a loss over more tokens than there are logits is an error") {
  using P = Whole<4>;
  on_tp_ranks(4, [](TestRank& here) {
    VocabParallel<Embedding, P> table(vocabulary, width), smaller(vocabulary - 1, width);
    Home<double> home(table, here), other(smaller, here);
    Hidden<P> in(part_of<Invariant, double>(x, here.rank, 4, here.pool), here.tape);
    const auto logits = table.logits(in);
    CHECK(logits.whole() == vocabulary);
    bool finite = true;
    for (Size i = 0; i < logits.value().count(); ++i) finite = finite && std::isfinite(logits.value().data()[i]);
    CHECK(finite);
    CHECK_THROWS_AS(cross_entropy<P>(logits, tokens<P>(here.tape, target), vocabulary + 1), Error);
    CHECK_THROWS_AS(slice<-1>(redistribute<Invariant>(logits), vocabulary, 1), Error);
    here.tape.clear();
  });
}

namespace {
/// A table and a bias of its logits.
template <class P>
struct Biased : Layer<P> {
  VocabParallel<Embedding, P> table{vocabulary, width};
  VocabBias<P> bias{vocabulary};
  Biased() { bias.bias.initial = Initial::normal(1); }
  void visit(auto&& f) { f("table", table), f("bias", bias); }
};

template <class P>
auto run_biased() {
  return run_layer<P, typename P::HiddenState, Invariant>(
      [] { return Biased<P>(); },
      [](const auto& layer, const auto& in) {
        return cross_entropy<P>(layer.bias(layer.table.logits(in)), tokens<P>(in.tape(), target), vocabulary);
      },
      x, one);
}
}  // namespace

TEST_CASE("a bias of the logits is split as they are, and its gradient is a finite difference") {
  check_same(run_biased<Whole<3>>(), run_biased<Whole<1>>());
  const auto another = [] {
    run_layer<Whole<3>, Invariant, Invariant>(
        [] {
          Biased<Whole<3>> layer;
          layer.bias.vocabulary += 1;
          return layer;
        },
        [](const auto& layer, const auto& in) {
          return cross_entropy<Whole<3>>(layer.bias(layer.table.logits(in)), tokens<Whole<3>>(in.tape(), target),
                                         vocabulary);
        },
        x, one);
  };
  CHECK_THROWS_AS(another(), Error);
  using P = Whole<1>;
  TestRank here;
  Biased<P> layer;
  Home<double> home(layer, here);
  const auto loss = [&](const Hidden<P>& in) {
    return cross_entropy<P>(layer.bias(layer.table.logits(in)), tokens<P>(in.tape(), target), vocabulary);
  };
  check_variable_gradient<Hidden<P>>(here, loss, part_of<Invariant, double>(x, 0, 1, here.pool), &home);
}

TEST_CASE("whole logits, of classes that the degree does not divide, have the loss of one rank and no traffic") {
  const auto run = []<class P>(std::type_identity<P>, double label_smoothing) {
    return run_layer<P, typename P::HiddenState, Invariant>(
        [] { return Linear<P>(LinearConfig{.in = width, .out = vocabulary, .initial = Initial::normal(0.5)}); },
        [=](const auto& head, const auto& in) {
          return cross_entropy<P>(head(redistribute<Invariant>(in)), tokens<P>(in.tape(), target), vocabulary,
                                  {.label_smoothing = label_smoothing});
        },
        x, one);
  };
  for (const double smoothing : {0.0, 0.1}) {
    const auto expected = run(std::type_identity<Whole<1>>{}, smoothing);
    const auto two = run(std::type_identity<Whole<2>>{}, smoothing);
    check_same(two, expected);
    CHECK(two.forward.total() + two.backward.total() + two.replicated.total() == 0);
    check_same(run(std::type_identity<Whole<3>>{}, smoothing), expected);
    check_same(run(std::type_identity<Split<3>>{}, smoothing), expected);
  }
  TestRank here;
  Linear<Whole<1>> head(LinearConfig{.in = width, .out = vocabulary, .initial = Initial::normal(0.5)});
  Home<double> home(head, here);
  const auto loss = [&](const Hidden<Whole<1>>& in) {
    return cross_entropy<Whole<1>>(head(in), tokens<Whole<1>>(in.tape(), target), vocabulary);
  };
  check_variable_gradient<Hidden<Whole<1>>>(here, loss, part_of<Invariant, double>(x, 0, 1, here.pool), &home);
}

TEST_CASE("a row whose allowed classes are all on one rank has the loss and the gradients of one rank") {
  constexpr Size classes = 12;
  const auto run = []<class P>(std::type_identity<P>, double logit) {
    return run_layer<P, typename P::HiddenState, Invariant>(
        [] { return ColumnParallel<Linear, P>(LinearConfig{.in = width, .out = classes}); },
        [=](const auto& head, const auto& in) {
          const auto allowed =
              Tensor<std::uint8_t, 3>::zeros(shape(batch, sequence, classes), in.memory(), Category::data, "allowed");
          for (Size i = 0; i < rows; ++i)
            for (Size j : {token(i) % classes, token(i) % classes / 2 * 2}) allowed.data()[i * classes + j] = 1;
          const auto mask = Input<P, std::uint8_t, 3>::constant(allowed, in.tape());
          return cross_entropy<P>(where(mask, head(in), logit),
                                  tokens<P>(in.tape(), [](Size i) { return token(i) % classes; }), classes);
        },
        x, one);
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto expected = run(std::type_identity<Whole<1>>{}, -infinity);
  check_same(run(std::type_identity<Whole<1>>{}, -1e30), expected);
  check_same(run(std::type_identity<Whole<2>>{}, -infinity), expected);
  check_same(run(std::type_identity<Whole<3>>{}, -infinity), expected);
}

TEST_CASE("a table of fewer rows than ranks is an error") {
  CHECK_THROWS_WITH_AS((VocabParallel<Embedding, Whole<4>>(3, width)),
                       "dspp: VocabParallel needs as many rows as ranks, but has fewer. Lower Tp<n>.", Error);
}

namespace {
constexpr Size many_rows = 192, words = 64, features = 96;
const Global<3> many = global_normal(shape(1, many_rows, features), 1);
const Global<3> logits = global_normal(shape(1, many_rows, words), 3);

/// Ids with `different` distinct values.
template <class P, Size different>
Tokens<P> ids(Tape<Cpu>& tape) {
  auto values = Tensor<std::int32_t, 2>::uninitialized(shape(1, many_rows), tape.memory(), Category::data, "ids");
  for (Size i = 0; i < many_rows; ++i) values.data()[i] = static_cast<std::int32_t>(i * 7 % different);
  return Tokens<P>::constant(std::move(values), tape);
}

/// The residual stream whole, the logits cut along the vocabulary.
template <int N>
void check_table_precision(const LayerRoundings& counted) {
  const auto look_up_and_score = [](const auto& table, const auto& in) {
    using P = typename std::remove_cvref_t<decltype(table)>::policy;
    return table.logits(table(ids<P, 3>(in.tape())) + in);
  };
  check_layer_precision<N, Invariant, PaddedShard<-1>>(
      []<class P> { return VocabParallel<Embedding, P>(words, features); }, look_up_and_score, many, logits, counted);
}

/// A layer of policy P without parameters.
template <class P>
struct Nothing : Layer<P> {
  constexpr void visit(auto&&) {}
};

template <int N>
void check_loss_precision(const LayerRoundings& counted) {
  const auto loss = [](const auto& layer, const auto& in) {
    using P = typename std::remove_cvref_t<decltype(layer)>::policy;
    return cross_entropy<P>(in, ids<P, words>(in.tape()), words);
  };
  check_layer_precision<N, Shard<-1>, Invariant>([]<class P> { return Nothing<P>(); }, loss, logits, one, counted);
}
}  // namespace

TEST_CASE("a tied table in f32, bf16 and f16 is as close to f64 as its sums round, on one rank and on two") {
  // y: the look-up plus x, the product; its gradient: look-up plus x, the product's, the sum of both uses'. On two
  // ranks the look-up adds zeros, and dx is a sum of two rounded summands.
  check_table_precision<1>({.y = {2, features}, .dx = {1, words}, .parameters = {3, words + many_rows}});
  check_table_precision<2>({.y = {2, features}, .dx = {2, words}, .parameters = {4, words + many_rows}});
}

TEST_CASE("the loss of bf16 logits is an f32 number: nothing of it is rounded to bf16, on one rank and on two") {
  // a sum over the words, and some ten operations for each exponential and logarithm
  check_loss_precision<1>({.y = {0, words + 20}, .dx = {1, words + 30}, .parameters = {}});
  check_loss_precision<2>({.y = {0, words + 20}, .dx = {1, words + 30}, .parameters = {}});
}
