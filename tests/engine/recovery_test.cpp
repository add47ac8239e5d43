// SPDX-License-Identifier: Apache-2.0
// An error leaves an engine as before the failed call: the same training continues.
// labels: thread races
#include <laws/tiled_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 4, .dropout = 0.2};

template <class World>
Batch<Cpu> tiny_batch(World& world, Size step) {
  return batch_of(world.memory(), step * 8, 2 * world.data_rank(), 2, 4, 13);
}

using Curve = std::vector<double>;

/// Four steps of two micro-steps on one rank. From the second step on, the n-th allocation fails once; then the step is
/// repeated from its first micro-batch. `failed`: the allocation was reached.
template <class P, class Model = Gpt<P>>
Curve curve_with_failure(Size n, bool& failed, const GptConfig& config = tiny) {
  Curve curve;
  failed = false;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine engine{world, Model(config), AdamW{.lr = 0.05}, BatchSizes{.accumulate = 2},
                  EngineConfig{.bucket_bytes = 512}};
    for (Size step = 0; step < 4;) {
      if (step == 1 && !failed) world.memory().fail_nth_request(n);
      try {
        const std::vector<Batch<Cpu>> batches{tiny_batch(world, 2 * step), tiny_batch(world, 2 * step + 1)};
        const StepReport report = engine.train_batch(batches);
        curve.insert(curve.end(), {report.loss, report.gradient_norm});
        ++step;
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::out_of_memory);
        failed = true;
      }
      if (step > 1) world.memory().fail_nth_request(0);
    }
  });
  return curve;
}

}  // namespace

TEST_CASE("a step that ran out of memory anywhere and is repeated continues the same training, bit for bit") {
  bool failed = false;
  const auto check = [&]<class P>(P) {
    const Curve undisturbed = curve_with_failure<P>(1'000'000, failed);
    CHECK(!failed);
    Size n = 1;
    for (failed = true; failed; n += 3) {
      CAPTURE(n);
      CHECK(curve_with_failure<P>(n, failed) == undisturbed);
    }
    CHECK(n > 100);
  };
  check(Policy<F32>());
  check(Policy<F32, Zero<2>>());
  check(Policy<F32, Zero<3>>());
}

TEST_CASE("the same out of memory with a tile open, or within the loss's chunks") {
  using P = Policy<F32, Zero<3>>;
  GptConfig by_chunks = tiny;
  by_chunks.loss_chunk_tokens = 3;
  bool failed = false;
  const auto curve = [&](Size n) { return curve_with_failure<P, Gpt<P, TiledFeed<P>>>(n, failed, by_chunks); };
  const Curve undisturbed = curve(1'000'000);
  CHECK(!failed);
  Size n = 1;
  for (failed = true; failed; n += 3) {
    CAPTURE(n);
    CHECK(curve(n) == undisturbed);
  }
  CHECK(n > 200);
}

TEST_CASE("after a wrong token in forward or eval dropout is off and the tape on") {
  using P = Policy<F32, Zero<3>>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(tiny), AdamW{}};
    auto good = tiny_batch(world, 0), bad = tiny_batch(world, 0);
    bad.tokens.data()[5] = 13;
    const double silent = engine.eval_batch(good).mean;
    CHECK_THROWS_AS(engine.forward(bad), Error);
    CHECK(engine.eval_batch(good).mean == silent);  // with dropout it would differ
    CHECK_THROWS_AS(engine.eval_batch(bad), Error);
    auto loss = engine.forward(good);
    CHECK(engine.value_of(loss) != silent);
    engine.backward(loss);
    CHECK(engine.step().acted());
  });
}
