// SPDX-License-Identifier: Apache-2.0
// Batches in buckets, smoothed labels, a bias of the vocabulary, Lion and Adagrad on a device whose host knows values
// only when it waits for them: the Cpu's bits, and no wait inside a step.
// labels: thread
#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/bucket_batches.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/optim/adagrad.hpp>
#include <dspp/optim/lion.hpp>
#include <dspp/parallel/vocab_bias.hpp>
#include <dspp/zero/full_tensors.hpp>

#include <support/far_device.hpp>

using namespace dspp;

namespace {

template <class P>
struct LineBatch {
  Tokens<P> tokens, targets;
  Size first_sample = 0, accumulate = 0;
  constexpr void visit(auto&& f) { f("tokens", tokens), f("targets", targets); }
};

/// Sample n has 1 + n mod 7 tokens.
struct Lines {
  template <class P>
  using Batch = LineBatch<P>;

  Size size() const { return 40; }
  Size length(Size sample) const { return 1 + sample % 7; }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape(sizes.sequence)); }
  auto padding() const { return std::tuple(3, ignored_target); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(length(sample)); ++i) {
      tokens[i] = static_cast<std::int32_t>((5 * sample + 3 * static_cast<Size>(i)) % 13);
      targets[i] = (tokens[i] + 4) % 13;
    }
  }
};

/// The next token by a table of bigrams and a bias of each.
template <class P>
struct Smoothed : Layer<P> {
  VocabParallel<Embedding, P> table{13, 8};
  VocabBias<P> bias{13};
  constexpr void visit(auto&& f) { f("table", table), f("bias", bias); }
  constexpr Loss<P> loss(const LineBatch<P>& batch) const {
    return cross_entropy<P>(bias(table.logits(table(batch.tokens))), batch.targets, 13, {.label_smoothing = 0.1});
  }
};

/// Losses and parameters of an epoch in buckets on two data ranks.
template <class P, class O>
std::vector<double> trained(const O& optimizer) {
  std::vector<double> values;
  run_ranks_of<P>({.ranks = 2 * P::tp, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    const auto buckets = bucket_plan(Lines{}, {.lengths = {2, 5, 7}, .tokens = 28});
    Engine engine{world, Smoothed<P>(), optimizer, buckets.engine_sizes(2), EngineConfig{.check_ranks = 0}};
    const auto data = batches(world, Lines{}, buckets, {.steps = buckets.steps()});
    for (Size step = 0; step < buckets.steps(); ++step) {
      const auto waits = [&] {
        if constexpr (std::is_same_v<DeviceOf<P>, Far>)
          return far_device::of(world.memory()).waits();
        else
          return Size{0};
      };
      const auto batch = data.step(step);
      const Size before = waits();
      const auto report = engine.train_batch(batch);
      CHECK(waits() == before);
      if (world.is_first()) values.push_back(report->loss);
      report.get();
    }
    for (const char* name : {"table.weight", "bias.bias"})
      engine.gather_parameter(name).read([&](const auto* host) {
        if (world.is_first()) values.insert(values.end(), host, host + (name[0] == 't' ? 13 * 8 : 13));
      });
  });
  return values;
}

template <class... Members>
void check_far() {
  const auto check = [](const auto& optimizer) {
    const std::vector<double> near = trained<Policy<Members..., Cpu>>(optimizer);
    REQUIRE(near.size() > 13 * 9);
    CHECK(trained<Policy<Members..., Far>>(optimizer) == near);
    return near;
  };
  const std::vector<double> lion = check(Lion{.lr = 1e-2}), adagrad = check(Adagrad{.lr = 1e-1});
  CHECK(lion[0] == adagrad[0]);
  CHECK(lion[1] != adagrad[1]);
  // The bias moved, under Lion by as many steps up as down for some tokens.
  for (std::size_t i = 1; i <= 13; ++i) CHECK(adagrad[adagrad.size() - i] != 0);
  CHECK(std::count(lion.end() - 13, lion.end(), 0.0) < 6);
}

}  // namespace

TEST_CASE("on a far device buckets, smoothed labels, a vocabulary's bias, Lion and Adagrad have the Cpu's bits") {
  check_far<F64, Zero<0>>();
  check_far<F64, Zero<2>, Tp<2>>();
  check_far<F64, Zero<3>>();
}
