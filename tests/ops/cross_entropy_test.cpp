// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/ops/cross_entropy.hpp>
#include <dspp/ops/slice.hpp>

#include <laws/difference.hpp>
#include <laws/vjp.hpp>

using namespace dspp;

namespace {

using Targets = Tensor<std::int32_t, 1, Cpu>;

Targets random_targets(Size rows, Size vocabulary, Pool& pool) {
  auto targets = Targets::uninitialized(shape(rows), pool, Category::data);
  for (Size i = 0; i < rows; ++i)
    targets.data()[i] =
        static_cast<std::int32_t>(philox_bits({{8}, 0, 0, 1}, i) % static_cast<std::uint32_t>(vocabulary));
  return targets;
}

/// The gradient of logits where that of a counted row's loss is `share`.
template <class T, class D>
constexpr Tensor<T, 2, D> vjp(Tensor<T, 2, D> logits, const Tensor<std::int32_t, 1, D>& targets,
                              const Tensor<Compute<T>, 1, D>& log_sum_exp, Size first, Size valid, double share,
                              const Tensor<float, 1, D>& weights = {}, TargetProbabilities wanted = {}) {
  auto dy = Scalar<Compute<T>, D>::uninitialized({}, logits.memory());
  auto counted = Scalar<double, D>::uninitialized({}, logits.memory());
  dy.fill(static_cast<Compute<T>>(4 * share));
  counted.fill(4);
  return ops::cross_entropy_vjp(std::move(logits), targets, log_sum_exp, first, valid, dy, counted, weights, wanted);
}

/// The loss of logits on one rank, and its log_sum_exp.
template <class T>
auto whole(const Tensor<T, 2, Cpu>& logits, const Targets& targets, TargetProbabilities wanted = {}) {
  const auto parts = ops::cross_entropy_parts(logits, targets, 0, logits[1], logits[1], wanted);
  return ops::cross_entropy_combine(parts.reshape(shape(1, logits[0], 3)));
}

/// log_sum_exp is within 20 roundings of |x| <= 16, and dlogits = p - 1 at most in size: 40 units of 1.
template <class T>
void check_precision(double label_smoothing) {
  Pool pool;
  const Size rows = 30, columns = 70;
  const auto logits = laws::random<T>(shape(rows, columns), pool, 1, 3.0);
  const auto targets = random_targets(rows, columns, pool);
  const auto wanted = ops::smoothed_targets(label_smoothing, columns);
  const auto got = whole(logits, targets, wanted);
  const auto expected = whole(laws::copy(logits), targets, wanted);
  laws::check_close(got.loss, expected.loss, 20 * laws::rounding<float>);
  laws::check_close(got.log_sum_exp, expected.log_sum_exp, 20 * laws::rounding<float>);
  laws::check_close(vjp(laws::copy<T>(logits), targets, got.log_sum_exp, 0, columns, 1.0, {}, wanted),
                    vjp(laws::copy(logits), targets, expected.log_sum_exp, 0, columns, 1.0, {}, wanted),
                    40 * laws::rounding<float> + (sizeof(T) == 2 ? laws::rounding<T> : 0));
}

struct Calls {
  template <class D>
  constexpr void operator()(Memory<D>& memory) const {
    auto logits = Tensor<bf16, 2, D>::zeros(shape(6, 50), memory);
    const auto targets = Tensor<std::int32_t, 1, D>::zeros(shape(6), memory, Category::data);
    const auto parts = ops::cross_entropy_parts(logits, targets, 0, 40, 40);
    const auto result = ops::cross_entropy_combine(parts.reshape(shape(1, 6, 3)));
    const auto shared = logits;
    const auto apart = vjp(shared, targets, result.log_sum_exp, 0, 40, 0.5);
  }
};

constexpr bool runs_on_paper() {
  Ledger ledger;
  Calls{}.operator()<Meta>(ledger);
  return ledger.live() == 0 &&
         ledger.peak_by_category()[Category::activations] == 2 * round_up(600, 64) + 128 + 64 + 64 + 3 * 64;
}
static_assert(runs_on_paper());

}  // namespace

TEST_CASE("cross_entropy is the mean of -log softmax at the targets, and its vjp the derivative") {
  Pool pool;
  for (const Size columns : {1, 3, 7, 17, 40}) {
    const Size rows = 5;
    const auto logits = laws::random<double>(shape(rows, columns), pool, 1);
    const auto targets = random_targets(rows, columns, pool);
    double expected = 0;
    for (Size i = 0; i < rows; ++i) {
      double sum = 0;
      for (Size j = 0; j < columns; ++j) sum += std::exp(logits.data()[i * columns + j]);
      expected += (std::log(sum) - logits.data()[i * columns + targets.data()[i]]) / static_cast<double>(rows);
    }
    const auto result = whole(logits, targets);
    CHECK(*result.loss.data() == doctest::Approx(expected).epsilon(1e-12));
    const double upstream = 1.7;
    const auto dlogits =
        vjp(laws::copy(logits), targets, result.log_sum_exp, 0, columns, upstream / static_cast<double>(rows));
    laws::check_gradient(logits, dlogits, [&] { return upstream * *whole(logits, targets).loss.data(); });
  }
}

TEST_CASE("smoothed labels want a share of every class, and the rest of the target") {
  Pool pool;
  const Size rows = 5, columns = 21;
  const auto logits = laws::random<double>(shape(rows, columns), pool, 1);
  const auto targets = random_targets(rows, columns, pool);
  for (const double share : {0.1, 1.0}) {
    CAPTURE(share);
    double expected = 0;
    for (Size i = 0; i < rows; ++i) {
      double sum = 0;
      for (Size j = 0; j < columns; ++j) sum += std::exp(logits.data()[i * columns + j]);
      for (Size j = 0; j < columns; ++j)
        expected += ((j == targets.data()[i] ? 1 - share : 0) + share / 21) *
                    (std::log(sum) - logits.data()[i * columns + j]) / static_cast<double>(rows);
    }
    const auto wanted = ops::smoothed_targets(share, columns);
    const auto result = whole(logits, targets, wanted);
    CHECK(*result.loss.data() == doctest::Approx(expected).epsilon(1e-12));
    const auto dlogits = vjp(laws::copy(logits), targets, result.log_sum_exp, 0, columns, 1.0 / rows, {}, wanted);
    laws::check_gradient(logits, dlogits, [&] { return *whole(logits, targets, wanted).loss.data(); });
  }
  for (const double bad : {-0.1, 1.5, std::nan("")})
    CHECK_THROWS_WITH_AS(ops::smoothed_targets(bad, columns),
                         ("dspp: cross_entropy needs a label_smoothing from 0 to 1, but it is " + std::to_string(bad) +
                          ". Give the share that all classes have together.")
                             .c_str(),
                         Error);
}

TEST_CASE("columns split over ranks, padded, give the loss and the gradient of the whole") {
  Pool pool;
  const Size rows = 9, vocabulary = 10, ranks = 3, share = 4;  // the last rank has 2 columns and 2 of padding
  const auto logits = laws::random<double>(shape(rows, vocabulary), pool, 2, 2.0);
  const auto padded = ops::pad_zero(logits, 1, 0, ranks * share);
  for (Size i = 0; i < rows; ++i)  // padding must not be looked at
    for (Size j = vocabulary; j < ranks * share; ++j) padded.data()[i * ranks * share + j] = 1e300;
  const auto targets = random_targets(rows, vocabulary, pool);
  for (const double smoothing : {0.0, 0.3}) {
    CAPTURE(smoothing);
    const auto wanted = ops::smoothed_targets(smoothing, vocabulary);
    auto parts = Tensor<double, 3, Cpu>::uninitialized(shape(ranks, rows, 3), pool);
    for (Size rank = 0; rank < ranks; ++rank) {
      const auto part = ops::cross_entropy_parts(ops::slice(padded, 1, rank * share, share), targets, rank * share,
                                                 std::min(share, vocabulary - rank * share), vocabulary, wanted);
      std::copy_n(part.data(), part.count(), parts.data() + rank * rows * 3);
    }
    const auto result = ops::cross_entropy_combine(parts), expected = whole(logits, targets, wanted);
    CHECK(*result.loss.data() == doctest::Approx(*expected.loss.data()).epsilon(1e-13));
    const auto dlogits = vjp(laws::copy(logits), targets, expected.log_sum_exp, 0, vocabulary, 0.1, {}, wanted);
    const auto dpadded = ops::pad_zero(dlogits, 1, 0, ranks * share);
    for (Size rank = 0; rank < ranks; ++rank)
      laws::check_close(vjp(ops::slice(padded, 1, rank * share, share), targets, result.log_sum_exp, rank * share,
                            std::min(share, vocabulary - rank * share), 0.1, {}, wanted),
                        ops::slice(dpadded, 1, rank * share, share), 1e-13);
  }
}

TEST_CASE("a rank without any valid column adds nothing") {
  Pool pool;
  const auto logits = laws::random<float>(shape(4, 6), pool, 3);
  const auto targets = random_targets(4, 6, pool);
  auto parts = Tensor<float, 3, Cpu>::uninitialized(shape(2, 4, 3), pool);
  std::copy_n(ops::cross_entropy_parts(logits, targets, 0, 6).data(), 12, parts.data());
  std::copy_n(ops::cross_entropy_parts(logits, targets, 6, 0).data(), 12, parts.data() + 12);
  CHECK(*ops::cross_entropy_combine(parts).loss.data() == *whole(logits, targets).loss.data());
}

TEST_CASE("cross_entropy is stable for logits of 1e4 and in the tail") {
  Pool pool;
  auto logits = Tensor<float, 2, Cpu>::zeros(shape(1, 3), pool);
  logits.data()[0] = 1e4f;
  const auto targets = Targets::zeros(shape(1), pool);
  CHECK(*whole(logits, targets).loss.data() == 0.0f);
  targets.data()[0] = 1;
  CHECK(*whole(logits, targets).loss.data() == 1e4f);
}

TEST_CASE("cross_entropy in f32, bf16 and f16 follows f64") {
  for (const double label_smoothing : {0.0, 0.2}) {
    check_precision<float>(label_smoothing);
    check_precision<bf16>(label_smoothing);
    check_precision<f16>(label_smoothing);
  }
}

TEST_CASE("cross_entropy_vjp works in place when it may, with the same bits on any number of threads") {
  Pool pool;
  const auto logits = laws::random<bf16>(shape(400, 300), pool, 4);
  const auto targets = random_targets(400, 300, pool);
  const auto result = whole(logits, targets);
  const auto op = [&](Tensor<bf16, 2, Cpu> t) { return vjp(std::move(t), targets, result.log_sum_exp, 0, 300, 1.0); };
  laws::check_in_place(logits, op);
  laws::check_threads([&] { return op(logits); });
  laws::check_threads([&] { return ops::cross_entropy_parts(logits, targets, 0, 300); });
}

TEST_CASE("cross_entropy makes the same allocations on paper") {
  laws::check_paper(Calls{});
}

TEST_CASE("ignored targets have no loss and no gradient, on no rank, whatever their logits are") {
  Pool pool;
  const Size rows = 9, vocabulary = 10, ranks = 2, share = 5;
  const auto logits = laws::random<double>(shape(rows, vocabulary), pool, 2, 2.0);
  for (const Size counted : {0, 1, 5, 9}) {
    CAPTURE(counted);
    auto some = laws::copy(logits);
    auto targets = random_targets(rows, vocabulary, pool);
    double expected = 0;
    for (Size i = 0; i < rows; ++i) {
      if (i * 7 % rows >= counted) {
        targets.data()[i] = ignored_target;
        std::fill_n(some.data() + i * vocabulary, vocabulary, std::nan(""));
        continue;
      }
      double sum = 0;
      for (Size j = 0; j < vocabulary; ++j) sum += std::exp(logits.data()[i * vocabulary + j]);
      expected += (std::log(sum) - logits.data()[i * vocabulary + targets.data()[i]]) / static_cast<double>(counted);
    }
    auto parts = Tensor<double, 3, Cpu>::uninitialized(shape(ranks, rows, 3), pool);
    for (Size rank = 0; rank < ranks; ++rank) {
      const auto part =
          ops::cross_entropy_parts(ops::slice(some, 1, rank * share, share), targets, rank * share, share, vocabulary);
      std::copy_n(part.data(), part.count(), parts.data() + rank * rows * 3);
    }
    const auto result = ops::cross_entropy_combine(parts, targets);
    CHECK(result.counted.item() == static_cast<double>(counted));
    CHECK(laws::close(*result.loss.data(), expected, 1e-12, 0));
    const auto all = whole(logits, random_targets(rows, vocabulary, pool));
    const auto dense =
        vjp(laws::copy(logits), random_targets(rows, vocabulary, pool), all.log_sum_exp, 0, vocabulary, 0.3);
    const auto dlogits = vjp(laws::copy(some), targets, result.log_sum_exp, 0, vocabulary, 0.3);
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < vocabulary; ++j) {
        const double wanted = targets.data()[i] == ignored_target ? 0 : dense.data()[i * vocabulary + j];
        CHECK(std::abs(dlogits.data()[i * vocabulary + j] - wanted) <= 1e-13);
      }
  }
}

TEST_CASE("a row of weight n equals n rows: loss, count and gradient") {
  Pool pool;
  const Size rows = 7, vocabulary = 9;
  const Size times[] = {1, 3, 0, 2, 1, 0, 5};
  const auto logits = laws::random<double>(shape(rows, vocabulary), pool, 21, 4.0);
  auto targets = random_targets(rows, vocabulary, pool);
  targets.data()[3] = ignored_target;
  auto weights = Tensor<float, 1, Cpu>::zeros(shape(rows), pool);
  std::vector<Size> from;  // the row that each repeated one is
  for (Size i = 0; i < rows; ++i) {
    weights.data()[i] = static_cast<float>(times[i]);
    from.insert(from.end(), static_cast<std::size_t>(times[i]), i);
  }
  const auto repeated = std::ssize(from);
  auto all = Tensor<double, 2, Cpu>::zeros(shape(repeated, vocabulary), pool);
  auto all_targets = Targets::zeros(shape(repeated), pool);
  for (Size i = 0; i < repeated; ++i) {
    const Size row = from[static_cast<std::size_t>(i)];
    std::copy_n(logits.data() + row * vocabulary, vocabulary, all.data() + i * vocabulary);
    all_targets.data()[i] = targets.data()[row];
  }
  const auto combined = [&](const auto& x, const auto& ids, const Tensor<float, 1, Cpu>& w) {
    const auto parts = ops::cross_entropy_parts(x, ids, 0, vocabulary, vocabulary);
    return ops::cross_entropy_combine(parts.reshape(shape(1, x[0], 3)), ids, w);
  };
  auto some = laws::copy(logits);  // what does not count may be anything
  for (const Size i : {2, 5}) std::fill_n(some.data() + i * vocabulary, vocabulary, std::nan(""));
  const auto weighed = combined(some, targets, weights), dense = combined(all, all_targets, {});
  CHECK(weighed.counted.item() == 10);
  CHECK(weighed.counted.item() == dense.counted.item());
  CHECK(*weighed.loss.data() == doctest::Approx(*dense.loss.data()).epsilon(1e-14));
  const auto dlogits = vjp(laws::copy(some), targets, weighed.log_sum_exp, 0, vocabulary, 0.3, weights);
  const auto each = vjp(laws::copy(all), all_targets, dense.log_sum_exp, 0, vocabulary, 0.3);
  auto sum = Tensor<double, 2, Cpu>::zeros(shape(rows, vocabulary), pool);
  for (Size i = 0; i < repeated; ++i)
    for (Size j = 0; j < vocabulary; ++j)
      sum.data()[from[static_cast<std::size_t>(i)] * vocabulary + j] += each.data()[i * vocabulary + j];
  laws::check_close(dlogits, sum, 1e-14);
  for (const float bad : {-1.0f, std::nanf(""), HUGE_VALF}) {
    weights.data()[4] = bad;
    CHECK_THROWS_WITH_AS(combined(some, targets, weights),
                         ("dspp: cross_entropy needs weights of targets that are 0 or more, but the one at position 4 "
                          "is " +
                          std::to_string(bad) + ". Give an ignored target weight 0.")
                             .c_str(),
                         Error);
  }
}

TEST_CASE("a wrong target or extent of cross_entropy is an error with its value") {
  Pool pool;
  const auto logits = laws::random<float>(shape(3, 8), pool, 5);
  auto targets = Targets::zeros(shape(3), pool);
  targets.data()[2] = 9;
  CHECK_THROWS_WITH_AS(
      ops::cross_entropy_parts(logits, targets, 0, 8, 9),
      "dspp: cross_entropy_parts needs targets from 0 to 8, or -100 for one that does not count, but the target at "
      "position 2 is 9. Encode the text with the vocabulary that the model was made for.",
      Error);
  targets.data()[2] = -1;
  CHECK_THROWS_WITH_AS(
      ops::cross_entropy_parts(logits, targets, 0, 8, 9),
      "dspp: cross_entropy_parts needs targets from 0 to 8, or -100 for one that does not count, but the target at "
      "position 2 is -1. No vocabulary has an id below 0: look for another ignore index, or for a truncated "
      "integer.",
      Error);
  CHECK_THROWS_WITH_AS(
      ops::cross_entropy_parts(logits, targets, 0, 9),
      "dspp: cross_entropy_parts needs valid_columns from 0 to the 8 columns of the logits, but it got "
      "9. Count the columns of this rank without padding.",
      Error);
  const auto two = Targets::zeros(shape(2), pool);
  CHECK_THROWS_WITH_AS(ops::cross_entropy_parts(logits, two, 0, 8),
                       "dspp: cross_entropy_parts needs targets of 3 elements, but it has 2. Give one that fits the "
                       "other arguments.",
                       Error);
  const auto sums = laws::random<float>(shape(2), pool, 6);
  CHECK_THROWS_WITH_AS(
      vjp(logits, targets, sums, 0, 8, 1.0),
      "dspp: cross_entropy_vjp needs a log_sum_exp of 3 elements, but it has 2. Give one that fits the "
      "other arguments.",
      Error);
  CHECK_THROWS_WITH_AS(
      ops::cross_entropy_combine(laws::random<float>(shape(1, 2, 4), pool, 7)),
      "dspp: cross_entropy_combine needs parts of 3 elements, but it has 4. Give one that fits the other "
      "arguments.",
      Error);
}
