// SPDX-License-Identifier: Apache-2.0
// Where logits become their gradient in forward, and that it is the gradient of backward.
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/ops/softmax.hpp>
#include <dspp/parallel/vocab.hpp>

#include <laws/difference.hpp>
#include <laws/placed.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size vocabulary = 13, columns = 16, batch = 2, sequence = 6, rows = batch * sequence;

/// How a loss of logits is taken, and what backward gives it.
struct Case {
  double expected = 0, seed = 1;
  bool temporary = true, held = false;
  Size ignored = -1;  ///< this row's target
  double weight = 0;  ///< of all rows, if not 0
};

template <class T>
struct Outcome {
  bool in_forward = false;  ///< the logits were not what they had been
  std::vector<T> gradient;
  Compute<T> loss = 0;
};

/// Logits [batch, sequence, columns] of which the first `vocabulary` are classes.
template <class P>
auto run(const Case& at) {
  using T = ElementOf<P>;
  TestRank here;
  here.context.expected_seed = at.expected;
  const Global<3> values = global_normal(shape(batch, sequence, columns), 3);
  const Tape<Cpu>::Recording scope(here.tape, true);
  Tensor<T, 3, Cpu> holder;
  T* data = nullptr;
  Slot slot;
  const auto make = [&] {
    Hidden<P> logits(part_of<Invariant, T>(values, 0, 1, here.pool), here.tape);
    data = logits.value().data(), slot = logits.slot();
    if (at.held) holder = logits.value();
    return logits;
  };
  const auto ids = Tensor<std::int32_t, 2>::uninitialized(shape(batch, sequence), here.pool, Category::data, "ids");
  for (Size i = 0; i < rows; ++i)
    ids.data()[i] = i == at.ignored ? ignored_target : static_cast<std::int32_t>(i * 7 % vocabulary);
  auto targets = Tokens<P>::constant(ids, here.tape);
  if (at.weight != 0) {
    targets.target_weights = Tensor<float, 2>::uninitialized(shape(batch, sequence), here.pool, Category::data, "w");
    targets.target_weights.fill(static_cast<float>(at.weight));
  }
  const Hidden<P> named = at.temporary ? Hidden<P>() : make();
  const auto loss =
      at.temporary ? cross_entropy<P>(make(), targets, vocabulary) : cross_entropy<P>(named, targets, vocabulary);
  Outcome<T> outcome;
  outcome.loss = *loss.value().data();
  for (Size i = 0; i < values.shape.count(); ++i)
    outcome.in_forward = outcome.in_forward || data[i] != static_cast<T>(values.data()[i]);
  auto seed = Scalar<Compute<T>, Cpu>::uninitialized({}, here.pool);
  seed.fill(static_cast<Compute<T>>(at.seed));
  here.tape.backward(loss.slot(), std::move(seed));
  const auto gradient = here.tape.take<T>(slot, values.shape);
  outcome.gradient.assign(gradient.data(), gradient.data() + gradient.count());
  here.tape.clear();
  return outcome;
}

/// The gradient without anything in forward.
template <class P>
auto apart(Case at) {
  at.expected = 0;
  const auto outcome = run<P>(at);
  CHECK(!outcome.in_forward);
  return outcome;
}

template <class P>
void check_bits(const Case& at, bool in_forward) {
  const auto is = run<P>(at), expected = apart<P>(at);
  CHECK(is.in_forward == in_forward);
  CHECK(is.loss == expected.loss);
  CHECK(is.gradient == expected.gradient);
}

template <class P>
void check_all() {
  check_bits<P>({.expected = 0.75, .seed = 0.75}, true);
  check_bits<P>({.expected = 1024, .seed = 1024}, true);
  // Somebody may still read them.
  check_bits<P>({.expected = 0.75, .seed = 0.75, .temporary = false}, false);
  check_bits<P>({.expected = 0.75, .seed = 0.75, .held = true}, false);
  // The seed will be another one.
  check_bits<P>({.expected = 0.75, .seed = 0.5, .ignored = 4}, false);
  check_bits<P>({.expected = 0.75, .seed = 0.5, .weight = 3}, false);
  check_bits<P>({.expected = 0.75, .seed = 0.75, .weight = 1}, true);
  check_bits<P>({.expected = 0.75, .seed = 1.5}, true);  // exact
}

}  // namespace

TEST_CASE("logits that nothing else holds become their gradient in forward where its seed is expected") {
  check_all<Policy<F64>>();
  check_all<Policy<F32>>();
  check_all<Policy<Bf16>>();
}

TEST_CASE("logits become their gradient in forward where a tape records, and in no loss of f16") {
  const auto dy_of = [](auto policy, bool recording) {
    using P = decltype(policy);
    using T = ElementOf<P>;
    TestRank here;
    here.context.expected_seed = 0.75;
    const Tape<Cpu>::Recording scope(here.tape, recording);
    const Hidden<P> logits(Tensor<T, 3>::zeros(shape(1, 1, 2), here.pool), here.tape);
    return dspp::detail::dy_in_place<Compute<T>>(logits, 1);
  };
  CHECK(dy_of(Policy<F64>(), true) == 0.75);
  CHECK(dy_of(Policy<F64>(), false) == 0);
  CHECK(dy_of(Policy<F16>(), true) == 0);
  check_bits<Policy<F16>>({.expected = 1024, .seed = 1024}, false);
}

TEST_CASE("logits that were moved into a loss are a sentence where they are read again") {
  using P = Policy<F64>;
  TestRank here;
  const Tape<Cpu>::Recording scope(here.tape, true);
  here.context.expected_seed = 0.75;
  const auto targets = Tokens<P>::constant(Tensor<std::int32_t, 2>::zeros(shape(1, 2), here.pool), here.tape);
  // A loss that forwards what it got, and reads it for an accuracy.
  const auto loss_and_logit = [&](auto&& logits) {
    const auto loss = cross_entropy<P>(std::forward<decltype(logits)>(logits), targets, 3);
    return logits.value().data()[4];
  };
  const auto make = [&] {
    auto values = Tensor<double, 3>::uninitialized(shape(1, 2, 3), here.pool);
    values.fill(5);
    return Hidden<P>(std::move(values), here.tape);
  };
  const char* const sentence =
      "dspp: a tensor needs elements to be read or written, but this one has none: it was never set, was released, or "
      "was moved to where it is used. Read it before that, or pass it without std::move.";
  const auto named = make();
  auto moved = make();
  CHECK(loss_and_logit(named) == 5);
  CHECK_THROWS_WITH_AS(loss_and_logit(make()), sentence, Error);
  CHECK_THROWS_WITH_AS(loss_and_logit(std::move(moved)), sentence, Error);
  CHECK_THROWS_WITH_AS(ops::softmax(moved.value()), sentence, Error);
}

TEST_CASE("a gradient of forward is multiplied where backward has another seed, and is NaN by NaN") {
  using P = Policy<F64>;
  for (const double seed : {0.3, -7.0, 0.0}) {
    const Case at{.expected = 0.7, .seed = seed};
    const auto is = run<P>(at), expected = apart<P>(at);
    CHECK(is.in_forward);
    for (std::size_t i = 0; i < is.gradient.size(); ++i)
      CHECK(difference(is.gradient[i], expected.gradient[i]) <= 1e-15);
  }
  const auto nan = run<P>({.expected = 0.7, .seed = std::numeric_limits<double>::quiet_NaN()});
  for (Size i = 0; i < rows * columns; ++i)
    CHECK(std::isnan(nan.gradient[static_cast<std::size_t>(i)]) == (i % columns < vocabulary));
}

TEST_CASE("a gradient of forward rounds once more in 16 bits where backward has another seed") {
  using P = Policy<Bf16>;
  const Case at{.expected = 0.7, .seed = 0.3};
  const auto is = run<P>(at), expected = apart<P>(at);
  CHECK(is.in_forward);
  for (std::size_t i = 0; i < is.gradient.size(); ++i) {
    const auto e = static_cast<double>(expected.gradient[i]);
    CHECK(difference(static_cast<double>(is.gradient[i]), e) <= 2.1 * 0x1p-8 * std::abs(e));
  }
}
