// SPDX-License-Identifier: Apache-2.0
// Steps that a GPU repeats by graphs: the bits of steps that are issued launch by launch, whatever comes between them.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <dspp/optim/lion.hpp>
#include <dspp/optim/muon.hpp>
#include <dspp/optim/sgd.hpp>

#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

#if !DSPP_HAS_NVCC()
namespace {

/// What a training saw, bit for bit.
struct Seen {
  std::vector<double> numbers;  ///< of each step: loss, norm, loss scale, whether it was skipped
  std::vector<std::uint64_t> prints;
  bool operator==(const Seen&) const = default;
};

struct Task {
  int steps = 12;
  Size accumulate = 1;
  LossScaleConfig loss_scale{};
};

constexpr Size sequence = 6, vocabulary = 13, rows = 2;

/// The micro-batches of a step.
template <class World>
auto batches_of_step(World& world, Size step, Size accumulate) {
  std::vector<Batch<Cuda>> batches;
  for (Size n = 0; n < accumulate; ++n)
    batches.push_back(batch_of<Cuda>(world.memory(), 0, (step * accumulate + n) * rows, rows, sequence, vocabulary));
  return batches;
}

/// program(world, engine of a TinyModel with dropout).
template <class P, class O, class Program>
void with_engine(const Task& task, bool graphs, const O& optimizer, Program program) {
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, TinyModel<P>(TinyConfig{}), optimizer,
                  BatchSizes{.micro_batch = rows, .sequence = sequence, .accumulate = task.accumulate},
                  EngineConfig{.clip_norm = 0.5, .bucket_bytes = 256, .loss_scale = task.loss_scale, .graphs = graphs});
    program(world, engine);
  });
}

/// between(engine, step) is called before each step.
template <class P, class O, class Between>
Seen train(const Task& task, bool graphs, const O& optimizer, Between between) {
  Seen seen;
  with_engine<P>(task, graphs, optimizer, [&](auto& world, auto& engine) {
    for (Size step = 0; step < task.steps; ++step) {
      between(engine, step);
      engine.set_learning_rate(1e-2 / static_cast<double>(1 + step));
      const StepReport report = engine.train_batch(batches_of_step(world, step, task.accumulate));
      seen.numbers.insert(seen.numbers.end(),
                          {report.loss, report.gradient_norm, report.loss_scale, report.skipped ? 1.0 : 0.0});
      seen.prints.push_back(print_of_state(engine));
    }
  });
  return seen;
}
constexpr auto nothing = [](auto&, Size) {};

template <class P, class O = AdamW>
void check_repeats(const Task& task = {}, const O& optimizer = {}) {
  const Seen eager = train<P>(task, false, optimizer, nothing);
  software_gpu::graph_counts();
  const Seen repeated = train<P>(task, true, optimizer, nothing);
  const auto counts = software_gpu::graph_counts();
  const int parts = static_cast<int>(task.accumulate) + 1;
  CHECK(repeated == eager);
  CHECK(counts == software_gpu::GraphCounts{parts, (task.steps - 2) * parts});
  CHECK(std::set<std::uint64_t>(eager.prints.begin(), eager.prints.end()).size() > eager.prints.size() / 2);
}

}  // namespace

TEST_CASE("repeated steps have the bits of eager ones, with dropout and a schedule, under every precision") {
  check_repeats<Policy<F32, Cuda>>();
  check_repeats<Policy<Bf16, Cuda>>();
}
#endif
