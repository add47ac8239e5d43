// SPDX-License-Identifier: Apache-2.0
// A loss of one's own over what a mask says: with its count it is the mean over the global batch under every strategy,
// also where ranks or micro-steps have other counts, or nothing at all.
// labels: engine thread
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/dspp.hpp>
#include <dspp/engine/source_batches.hpp>
#include <laws/difference.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size places = 4, width = 3, samples = 17;

template <class P>
struct Measured {
  Input<P, float, 3, 1> values;        // [samples, places, width]
  Input<P, std::uint8_t, 2, 1> known;  // [samples, places]: 0 or 1
  Input<P, float, 2, 1> wanted;        // [samples, places]
  constexpr void visit(auto&& f) { f("values", values), f("known", known), f("wanted", wanted); }
};

bool is_known(Size sample, Size place) {
  return sample % 4 != 1 && (sample + place) % 3 != 0;
}

/// Of some samples no place is known, of the others two or three.
struct MeasuredSource {
  template <class P>
  using Batch = Measured<P>;
  Size size() const { return samples; }
  auto shapes() const { return std::tuple(shape(places, width), shape(places), shape(places)); }
  void fill(Size sample, std::span<float> values, std::span<std::uint8_t> known, std::span<float> wanted) const {
    for (Size i = 0; i < places * width; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>((sample * 31 + i * 17) % 13) / 6 - 1;
    for (Size i = 0; i < places; ++i) {
      known[static_cast<std::size_t>(i)] = is_known(sample, i);
      wanted[static_cast<std::size_t>(i)] = static_cast<float>((sample + 2 * i) % 5);
    }
  }
};

/// The mean square error of the known places.
template <class P>
struct Regression : Layer<P> {
  Linear<P> predict{width, 1};
  constexpr explicit Regression(Size) {}
  constexpr void visit(auto&& f) { f("predict", predict); }
  constexpr Loss<P> loss(const Measured<P>& batch) const {
    const auto error = sum<-1>(predict(cast<ElementOf<P>>(batch.values))) - cast<ElementOf<P>>(batch.wanted);
    const auto known = sum(cast<double>(batch.known));
    known.tape().context().loss_counts(known.value());
    return sum(where(batch.known, error * error, 0.0)) / cast<Compute<ElementOf<P>>>(relu(known - 1.0) + 1.0);
  }
  constexpr Measured<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    const auto rows = shape(sizes.micro_batch, places / P::cp);
    Measured<P> batch;
    batch.values = Tensor<float, 3, D>::uninitialized(shape(rows[0], rows[1], width), memory, Category::data);
    batch.known = Tensor<std::uint8_t, 2, D>::uninitialized(rows, memory, Category::data);
    batch.wanted = Tensor<float, 2, D>::uninitialized(rows, memory, Category::data);
    return batch;
  }
};

struct Outcome {
  std::vector<double> losses, counted;
};

template <class P>
Outcome train(int ranks, Size accumulate) {
  const int data_ranks = ranks / (P::tp * P::cp);
  const BatchSizes sizes{.micro_batch = 12 / data_ranks / accumulate, .accumulate = accumulate};
  Outcome outcome;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    const Plan paper = plan<Regression<P>>(Size{1}, sizes, {.data = data_ranks, .rank = world.place()});
    Engine engine{world, Regression<P>(1), AdamW{.lr = 3e-2}, sizes, {.check_ranks = 1}};
    const auto data = batches(world, MeasuredSource{}, sizes, {.steps = 4});
    for (Size step = 0; step < 4; ++step) {
      const StepReport report = engine.train_batch(data.step(step));
      if (!world.is_first()) continue;
      outcome.losses.push_back(report.loss), outcome.counted.push_back(static_cast<double>(report.targets));
    }
    CHECK(world.memory().peak() == paper.peak);
  });
  return outcome;
}

}  // namespace

TEST_CASE("a mean over the places that a mask knows is that of the global batch under every strategy") {
  const Outcome one = train<Policy<F64>>(1, 1);
  const auto check = [&]<class P>(P, int ranks, Size accumulate) {
    CAPTURE(ranks);
    const Outcome split = train<P>(ranks, accumulate);
    CHECK(split.counted == one.counted);
    CHECK(worst_difference(split.losses, one.losses) < 1e-12);
  };
  check(Policy<F64>{}, 1, 12);  // some micro-steps know nothing
  check(Policy<F64, Zero<2>>{}, 3, 2);
  check(Policy<F64, Zero<3>, Cp<2>>{}, 4, 1);
  check(Policy<F64, Zero<1>, Tp<2>, Cp<2>>{}, 4, 6);
  const Outcome bf16 = train<Policy<Bf16, Zero<2>>>(2, 2);
  CHECK(bf16.counted == one.counted);
  CHECK(worst_difference(bf16.losses, one.losses) < 0.05);
}

namespace {

constexpr Size classes = 4;

/// Words of which some are to be predicted, and a class of the whole.
template <class P>
struct Sentences {
  Input<P, float, 3> values;        // [samples, places, width]
  Input<P, std::int32_t, 2> words;  // [samples, places]
  Input<P, std::int32_t, 1> kind;   // [samples]
  constexpr void visit(auto&& f) { f("values", values), f("words", words), f("kind", kind); }
};

struct SentenceSource {
  template <class P>
  using Batch = Sentences<P>;
  Size size() const { return samples; }
  auto shapes() const { return std::tuple(shape(places, width), shape(places), shape()); }
  void fill(Size sample, std::span<float> values, std::span<std::int32_t> words, std::span<std::int32_t> kind) const {
    for (Size i = 0; i < places * width; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>((sample * 29 + i * 7) % 11) / 5 - 1;
    for (Size i = 0; i < places; ++i)
      words[static_cast<std::size_t>(i)] =
          is_known(sample, i) ? static_cast<std::int32_t>((sample + i) % classes) : ignored_target;
    kind[0] = static_cast<std::int32_t>(sample % classes);
  }
};

/// A mean over the words to be predicted and one over the samples, whose counts differ.
template <class P>
struct Pretraining : Layer<P> {
  ColumnParallel<Linear, P> word{width, classes}, kind{width, classes};
  constexpr void visit(auto&& f) { f("word", word), f("kind", kind); }
  constexpr Loss<P> loss(const Sentences<P>& batch) const {
    const auto x = cast<ElementOf<P>>(batch.values);
    return mean_over_samples(cross_entropy<P>(word(x), batch.words, classes) +
                             0.5 * cross_entropy<P>(kind(mean<1>(x)), batch.kind, classes));
  }
};

struct Steps {
  std::vector<double> losses, weights, means;  // of each step, and after it; the mean that eval_batch gives before
  double targets = 0;
};

/// Steps on 12 samples each, in micro-batches of 3.
template <class P, class Optimizer>
Steps pretrain(int ranks, Size micro_batches, Size count, const Optimizer& optimizer, Size only = -1) {
  const Size data_ranks = ranks / (P::tp * P::cp);
  const BatchSizes sizes{.micro_batch = 3, .accumulate = micro_batches / data_ranks};
  Steps steps;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    Engine engine{world, Pretraining<P>(), optimizer, sizes, {.check_ranks = 1}};
    const auto data = batches(world, SentenceSource{},
                              {.micro_batch = 3, .accumulate = only < 0 ? sizes.accumulate : 4}, {.steps = count});
    for (Size step = 0; step < count; ++step) {
      double mean = 0;
      Size number = 0;
      std::vector<Sentences<P>> taken;
      for (const auto& batch : data.step(step)) {
        if (only >= 0 && number++ != only) continue;
        mean += engine.all_reduce_mean(engine.eval_batch(batch)) / static_cast<double>(sizes.accumulate);
        taken.push_back(batch);
      }
      const StepReport report = engine.train_batch(taken);
      const auto weight = engine.gather_parameter("word.weight");
      if (!world.is_first()) continue;
      steps.losses.push_back(report.loss), steps.means.push_back(mean), steps.targets = report.targets;
      steps.weights.assign(weight.data(), weight.data() + weight.count());
    }
  });
  return steps;
}

}  // namespace

TEST_CASE("mean_over_samples of terms that count differently is the mean of the micro-batches' losses") {
  const auto adam = AdamW{.lr = 3e-2};
  const Steps one = pretrain<Policy<F64>>(1, 4, 3, adam);
  CHECK(one.targets == 12);
  CHECK(worst_difference(one.losses, one.means) < 1e-12);
  const auto check = [&](const Steps& split) {
    CHECK(split.targets == 12);
    CHECK(worst_difference(split.losses, one.losses) < 1e-12);
    CHECK(worst_difference(split.means, one.losses) < 1e-12);
    CHECK(worst_difference(split.weights, one.weights) < 1e-12);
  };
  check(pretrain<Policy<F64, Zero<2>>>(2, 4, 3, adam));
  check(pretrain<Policy<F64, Zero<3>>>(4, 4, 3, adam));
  check(pretrain<Policy<F64, Zero<1>, Tp<2>>>(4, 4, 3, adam));
  check(pretrain<Policy<F64, Zero<2>, Cp<2>>>(4, 4, 3, adam));

  const Sgd sgd{.lr = 1};
  std::vector<double> average;
  for (Size only = 0; only < 4; ++only) {
    const Steps alone = pretrain<Policy<F64>>(1, 1, 1, sgd, only);
    average.resize(alone.weights.size());
    for (std::size_t i = 0; i < average.size(); ++i) average[i] += alone.weights[i] / 4;
  }
  CHECK(worst_difference(pretrain<Policy<F64>>(1, 4, 1, sgd).weights, average) < 1e-12);
}

namespace {

/// A cross-entropy that is no part of the loss, but reported.
template <class P>
struct Watched : Layer<P> {
  ColumnParallel<Linear, P> word{width, classes};
  bool in_loss, over_samples;
  constexpr Watched(bool part, bool samples) : in_loss(part), over_samples(samples) {}
  constexpr void visit(auto&& f) { f("word", word); }
  constexpr Loss<P> loss(const Sentences<P>& batch) const {
    const auto x = cast<ElementOf<P>>(batch.values);
    const auto watched = cross_entropy<P>(word(x), batch.words, classes, {.label_smoothing = 0.1});
    report("other", cross_entropy<P>(word(x), batch.words, classes));
    report("watched", watched);
    const auto size = sum(redistribute<Invariant>(square(word(x))));
    const auto loss = in_loss ? size + watched : 0.5 * size;
    return over_samples ? mean_over_samples(loss) : loss;
  }
};

}  // namespace

TEST_CASE("a cross-entropy that only a report takes is an error, since its targets would count") {
  using P = Policy<F64>;
  const auto train = [](bool in_loss, bool over_samples) {
    run_ranks_of<P>({}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 3};
      Engine engine{world, Watched<P>(in_loss, over_samples), AdamW{}, sizes};
      engine.train_batch(batches(world, SentenceSource{}, sizes, {.steps = 1}).step(0));
    });
  };
  CHECK_NOTHROW(train(true, false));
  CHECK_NOTHROW(train(false, true));
  CHECK_THROWS_WITH_AS(train(false, false),
                       "dspp: Engine needs a cross_entropy in the loss whose mean is over the targets that it counts, "
                       "but this loss has none, beside one that has no part in it. Leave that out, or return "
                       "mean_over_samples(loss).",
                       Error);
}
