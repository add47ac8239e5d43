// SPDX-License-Identifier: Apache-2.0
// A batch with a field of masks (u8) that Cp cuts, from a source of one's own: the same under every strategy, at the
// cost of its plan; and the metrics of eval_batch.
// labels: engine thread
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/dspp.hpp>
#include <dspp/engine/source_batches.hpp>
#include <laws/difference.hpp>
#include <laws/sentence_of.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size places = 4, width = 3, classes = 6;

template <class P>
struct Masked {
  Input<P, float, 3, 1> values;       // [samples, places, width]
  Input<P, std::uint8_t, 2, 1> seen;  // [samples, places]: 0 or 1
  Input<P, std::int32_t, 2, 1> labels;
  constexpr void visit(auto&& f) { f("values", values), f("seen", seen), f("labels", labels); }
};

/// 17 samples; about a third of their places is masked.
struct MaskedSource {
  template <class P>
  using Batch = Masked<P>;
  bool all_seen = false;
  Size size() const { return 17; }
  auto shapes() const { return std::tuple(shape(places, width), shape(places), shape(places)); }
  void fill(Size sample, std::span<float> values, std::span<std::uint8_t> seen, std::span<std::int32_t> labels) const {
    for (Size i = 0; i < places * width; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>((sample * 31 + i * 17) % 13) / 6 - 1;
    for (Size i = 0; i < places; ++i) {
      seen[static_cast<std::size_t>(i)] = all_seen || (sample + i) % 3 != 0;
      labels[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((sample + 2 * i) % classes);
    }
  }
};

/// The classes of places; a masked one is a place of zeros.
template <class P>
struct MaskedClassifier : Layer<P> {
  Linear<P> embed{width, 8};
  ColumnParallel<Linear, P> head{8, classes};
  constexpr explicit MaskedClassifier(Size) {}
  constexpr void visit(auto&& f) { f("embed", embed), f("head", head); }
  constexpr Loss<P> loss(const Masked<P>& batch) const {
    const auto x = cast<ElementOf<P>>(batch.values);
    const auto loss = cross_entropy<P>(head(embed(where(batch.seen, x, 0 * x))), batch.labels, classes);
    report("seen", mean(cast<ElementOf<P>>(batch.seen)));
    return loss;
  }
  constexpr Masked<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    const auto rows = shape(sizes.micro_batch, places / P::cp);
    Masked<P> batch;
    batch.values = Tensor<float, 3, D>::uninitialized(shape(rows[0], rows[1], width), memory, Category::data);
    batch.seen = Tensor<std::uint8_t, 2, D>::uninitialized(rows, memory, Category::data);
    batch.labels = Tensor<std::int32_t, 2, D>::uninitialized(rows, memory, Category::data);
    return batch;
  }
};

struct Outcome {
  std::vector<double> losses, seen;
  double evaluated = 0, evaluated_seen = 0;
};

template <class P>
Outcome train(int ranks, Size accumulate = 1, MaskedSource source = {}) {
  const int data_ranks = ranks / (P::tp * P::cp);
  const BatchSizes sizes{.micro_batch = 12 / data_ranks / accumulate, .accumulate = accumulate};
  Outcome outcome;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    const Plan paper = plan<MaskedClassifier<P>>(Size{1}, sizes, {.data = data_ranks, .rank = world.place()});
    Engine engine{world, MaskedClassifier<P>(1), AdamW{.lr = 3e-2}, sizes, {.check_ranks = 1}};
    const auto data = batches(world, source, sizes, {.steps = 5});
    Outcome own;
    for (Size step = 0; step < 5; ++step) {
      const StepReport report = engine.train_batch(data.step(step));
      own.losses.push_back(report.loss), own.seen.push_back(report.metric("seen"));
    }
    CHECK(world.memory().peak() == paper.peak);
    const MeanLoss mean = engine.eval_batch(data[0]);
    REQUIRE(mean.metrics.size() == 1);
    CHECK(mean.metrics[0].name == std::string("seen"));
    own.evaluated_seen = mean.metrics[0].value;
    own.evaluated = engine.all_reduce_mean(mean);
    if (world.is_first()) outcome = own;
  });
  return outcome;
}

}  // namespace

TEST_CASE("a field of masks trains alike under every strategy, at the cost of its plan") {
  const Outcome one = train<Policy<F64>>(1);
  CHECK(one.losses.back() < one.losses.front());
  CHECK(worst_difference(one.losses, train<Policy<F64>>(1, 1, {.all_seen = true}).losses) > 1e-4);
  const auto check = [&]<class P>(P, int ranks, Size accumulate) {
    CAPTURE(ranks);
    const Outcome split = train<P>(ranks, accumulate);
    CHECK(worst_difference(split.losses, one.losses) < 1e-12);
    CHECK(worst_difference(split.seen, one.seen) < 1e-12);
  };
  check(Policy<F64, Zero<2>>{}, 3, 2);
  check(Policy<F64, Zero<3>, Cp<2>>{}, 4, 1);
  check(Policy<F64, Zero<1>, Tp<2>, Cp<2>>{}, 4, 2);
  check(Policy<F64, Zero<3>, Far>{}, 2, 1);
}

TEST_CASE("eval_batch has the metrics of its batch") {
  const Outcome one = train<Policy<F64>>(1), two = train<Policy<F64, Zero<1>>>(2);
  CHECK(one.evaluated == doctest::Approx(two.evaluated).epsilon(1e-12));
  CHECK(one.evaluated_seen > 0);
  CHECK(one.evaluated_seen < 1);
  CHECK(two.evaluated_seen != one.evaluated_seen);  // of this rank's half alone
  CHECK(train<Policy<F64>>(1, 1, {.all_seen = true}).evaluated_seen == 1);
}
