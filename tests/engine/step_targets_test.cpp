// SPDX-License-Identifier: Apache-2.0
// The factors between micro-steps are exactly 1 if all targets count 1, so that no bit changes; equal weights of any
// size change no seed of a gradient.
// labels: engine
#include <laws/difference.hpp>
#include <laws/training_run.hpp>

#include <dspp/engine/step_targets.hpp>
#include <dspp/optim/sgd.hpp>

using namespace dspp;

namespace {

constexpr GptConfig small{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 8, .init_std = 0.4};

/// A micro-batch of a replica: targets, what counts, targets of a weight above 0.
struct Counts {
  double all, counted, nonzero;
};

/// StepTargets of host numbers.
class Step {
 public:
  explicit Step(World<Policy<F64>>& world) : memory_(world.memory()), targets_(memory_, world.replicas()) {}

  void begin(const Counts& counts, double loss) { targets_.begin(numbers(counts, loss)); }
  /// The seed under a scale of 1.
  double add(const Counts& counts, double loss, bool plain_mean) {
    auto mean = Scalar<double, Cpu>::uninitialized({}, memory_);
    mean.fill(loss);
    return targets_.add(numbers(counts, loss), mean, 1, CountedTargets<Cpu>{.plain_mean = plain_mean}).item();
  }
  /// One of the StepScalars.
  double sum(Size of) const {
    const auto scalars = targets_.sum_up();
    return scalars.data()[of];
  }
  double counted() const { return sum(StepScalars::targets); }
  double correction() const { return sum(StepScalars::correction); }
  double mean() const { return sum(StepScalars::loss); }

 private:
  Tensor<double, 1, Cpu> numbers(const Counts& of, double loss) const {
    auto counts = Tensor<double, 1, Cpu>::zeros(shape(TargetCounts::count), memory_);
    counts.data()[TargetCounts::all] = of.all;
    counts.data()[TargetCounts::counted] = of.counted;
    counts.data()[TargetCounts::nonzero] = of.nonzero;
    counts.data()[TargetCounts::loss] = of.counted > 0 ? loss * of.counted : 0;
    return counts;
  }

  Pool& memory_;
  StepTargets<Cpu> targets_;
};

/// Calls f(step, replica) on each replica.
void on_replicas(int replicas, const std::function<void(Step&, int)>& f) {
  using P = Policy<F64>;
  run_ranks_of<P>({.ranks = replicas, .threads_per_rank = 1}, [&](World<P>& world) {
    Step step(world);
    f(step, world.rank());
  });
}

}  // namespace

TEST_CASE("of equal micro-batches whose targets all count both factors are exactly 1") {
  for (int replicas = 1; replicas <= 4; ++replicas)
    on_replicas(replicas, [&](Step& step, int) {
      for (const double count : {1.0, 7.0, 93.0, 4097.0, 1e6 + 3, 9007199254740881.0 / 4096})
        for (int micro_steps = 1; micro_steps <= 3; ++micro_steps) {
          const double all = std::floor(count);
          step.begin({all, all, all}, 0);
          for (int a = 0; a < micro_steps; ++a) CHECK(step.add({all, all, all}, 0, true) == 1);
          CHECK(step.counted() == all * replicas * micro_steps);
          CHECK(step.correction() == 1);
        }
    });
}

TEST_CASE("a common power of two as weight gives the factors of no weights, bit for bit") {
  const auto factors_of = [](double weight) {
    std::vector<double> factors;
    on_replicas(3, [&](Step& step, int replica) {
      const auto counts = [&](double all, double count) { return Counts{all, weight * count, count}; };
      step.begin(counts(7, 5 - replica), 0);
      const double first = step.add(counts(7, 5 - replica), 0, false),
                   second = step.add(counts(7, 2 + replica), 0, false);
      const double correction = step.correction();
      if (replica == 1) factors = {first, second, correction};
    });
    return factors;
  };
  const auto plain = factors_of(1);
  for (const double weight : {0x1p-60, 0.25, 2.0, 0x1p60}) CHECK(factors_of(weight) == plain);
  CHECK(plain[0] == 4 / 7.0);
}

TEST_CASE("beside a mean over elements one ignored target of millions is an error, and float rounding is not") {
  on_replicas(1, [&](Step& step, int) {
    step.begin({1e7, 1e7, 1e7}, 0);
    CHECK(step.add({1e7, 1e7, 1e7}, 0, true) == 1);
    CHECK_THROWS_AS(step.add({1e7, 1e7 - 1, 1e7 - 1}, 0, true), Error);
    step.begin({1e3, 1e3 - 4e-8, 1e3}, 0);
    CHECK(step.add({1e3, 1e3 + 3e-6, 1e3}, 0, true) > 0);
    CHECK_THROWS_AS(step.add({1e3, 1e3 - 1, 1e3}, 0, true), Error);
  });
}

TEST_CASE("a step whose first micro-batches count nothing is seeded by the targets") {
  on_replicas(2, [&](Step& step, int) {
    step.begin({6, 0, 0}, 0);
    CHECK(step.add({6, 0, 0}, 0, false) == 0);
    CHECK(step.add({6, 3, 3}, 0, false) == 0.5);
    CHECK(step.correction() == 4);
    step.begin({6, 0, 0}, 0);
    CHECK(step.add({6, 0, 0}, 0, false) == 0);
    CHECK(step.correction() == 1);
  });
}

TEST_CASE("the mean loss is that over all replicas' counted targets, in one micro-step and in several") {
  for (int replicas = 1; replicas <= 4; ++replicas)
    for (int micro_steps = 1; micro_steps <= 3; ++micro_steps) {
      double sum = 0, count = 0;
      const auto counted = [](int replica, int a) { return static_cast<double>((replica + 2 * a) % 5); };  // 0, too
      const auto loss = [](int replica, int a) { return 0.25 * replica - a; };
      for (int r = 0; r < replicas; ++r)
        for (int a = 0; a < micro_steps; ++a) count += counted(r, a), sum += counted(r, a) * loss(r, a);
      on_replicas(replicas, [&](Step& step, int replica) {
        const auto counts = [&](int a) { return Counts{6, counted(replica, a), counted(replica, a)}; };
        step.begin(counts(0), loss(replica, 0));
        for (int a = 0; a < micro_steps; ++a) step.add(counts(a), loss(replica, a), false);
        CHECK(step.counted() == count);
        CHECK(step.mean() == (count > 0 ? sum / count : 0));
      });
    }
}

TEST_CASE("a loss that is not finite makes the seed NaN, and the first of a step is kept with its micro-step") {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  on_replicas(1, [&](Step& step, int) {
    const Counts all{4, 4, 4};
    step.begin(all, 1);
    CHECK(step.add(all, 1, false) == 1);
    CHECK(step.sum(StepScalars::bad_micro_step) == 0);
    CHECK(step.sum(StepScalars::bad_loss) == 0);
    CHECK(std::isnan(step.add(all, -infinite, false)));
    CHECK(std::isnan(step.add(all, std::nan(""), false)));
    CHECK(step.add(all, 1, false) == 1);
    CHECK(step.sum(StepScalars::bad_micro_step) == 2);
    CHECK(step.sum(StepScalars::bad_loss) == -infinite);
    step.begin(all, 1);
    CHECK(step.sum(StepScalars::bad_micro_step) == 0);
  });
}

TEST_CASE("in f16 gradients under any common weight are those of weight 1, bit for bit") {
  using P = Policy<F16>;
  const auto gradient_of = [](float weight) {
    std::vector<float> gradient;
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .seed = 3}, [&](World<P>& world) {
      Engine engine{world, Gpt<P>(small), Sgd{}, EngineConfig{.clip_norm = 0}};
      auto batch = laws::batch_of(world.memory(), 0, 3 * world.rank(), 3, 8, small.vocabulary);
      if (weight > 0) {
        batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
        batch.target_weights.fill(weight);
      }
      auto loss = engine.forward(batch);
      engine.backward(loss);
      const auto all = engine.gather_gradient("tokens.weight");
      if (world.is_first()) gradient.assign(all.data(), all.data() + all.count());
    });
    return gradient;
  };
  const auto plain = gradient_of(0);
  CHECK(laws::largest_of(plain) > 0);
  for (const float weight : {0x1p-24f, 1.0f, 0x1p20f}) CHECK(gradient_of(weight) == plain);
}
