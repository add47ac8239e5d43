// SPDX-License-Identifier: Apache-2.0
// Steps that a GPU repeats by graphs: the bits of steps that are issued launch by launch, whatever comes between them.
// labels: cuda
#include <kernels/cuda_memory.cuh>

#include <set>

#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim/adagrad.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/lion.hpp>
#include <dspp/optim/muon.hpp>
#include <dspp/optim/sgd.hpp>

#include <laws/folder.hpp>
#include <laws/graph_training.hpp>

using namespace dspp;
using namespace dspp::laws;
using namespace dspp::laws::of_graphs;

#if !DSPP_HAS_NVCC()
namespace {

/// between(engine, step) is called before each step.
template <class P, class O, class Between>
Seen train(const Task& task, bool graphs, const O& optimizer, Between between) {
  Seen seen;
  with_engine<P>(task, graphs, optimizer, [&](auto& world, auto& engine) {
    for (Size step = 0; step < task.steps; ++step) {
      between(engine, step);
      engine.set_learning_rate(1e-2 / static_cast<double>(1 + step));
      const StepReport report = engine.train_batch(batches_of_step(world, step, task.accumulate));
      const double norm = std::isfinite(report.gradient_norm) ? report.gradient_norm : -1;
      seen.numbers.insert(seen.numbers.end(), {report.loss, norm, report.loss_scale, report.skipped ? 1.0 : 0.0});
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

TEST_CASE("repeated steps have the bits of eager ones, with dropout and a schedule, in one micro-step or three") {
  check_repeats<Policy<F32, Cuda>>();
  check_repeats<Policy<F32, Cuda>>({.accumulate = 3});
  check_repeats<Policy<Bf16, Cuda>>({.accumulate = 3});
  check_repeats<Policy<Bf16, Gradients<F32>, Zero<1>, Cuda>>();
  check_repeats<Policy<F32, Zero<2>, Cuda>>({.accumulate = 3});
  check_repeats<Policy<F32, Zero<3>, Cuda>>();
}

TEST_CASE("repeated steps follow a dynamic loss scale through overflows") {
  for (const Size accumulate : {1, 3}) {
    const Task task{.accumulate = accumulate, .loss_scale = {.initial = 0x1p20, .window = 2, .hysteresis = 1}};
    check_repeats<Policy<F16, Cuda>>(task);
    const Seen seen = train<Policy<F16, Cuda>>(task, true, AdamW{}, nothing);
    int skipped = 0;
    for (std::size_t i = 4 * 3; i < seen.numbers.size(); i += 4) skipped += seen.numbers[i + 3] > 0;
    CHECK(skipped > 0);  // of the repeated ones
    CHECK(skipped < 9);
  }
}

TEST_CASE("repeated steps have the bits of eager ones under every optimizer") {
  check_repeats<Policy<F32, Cuda>>({}, Sgd{});
  check_repeats<Policy<Bf16, Cuda>>({}, MomentumSgd{});
  check_repeats<Policy<F32, Cuda>>({}, Lion{});
  check_repeats<Policy<F32, Cuda>>({}, Adagrad{});
  check_repeats<Policy<Bf16, Cuda>>({.accumulate = 3}, Lamb{});
  check_repeats<Policy<F32, Cuda>>({}, Muon{});
}

TEST_CASE("micro-steps that are launched alike have one graph") {
  with_engine<Policy<F32, Cuda>>({.accumulate = 6}, true, AdamW{}, [](auto& world, auto& engine) {
    const int before = software_gpu::live().graphs;
    for (Size step = 0; step < 4; ++step) engine.train_batch(batches_of_step(world, step, 6)).get();
    CHECK(software_gpu::live().graphs - before == 3);  // the first, those that add, the update
  });
}

namespace {

/// The same training without and with graphs, and how often graphs were captured and launched with them.
template <class Between>
software_gpu::GraphCounts check_with(Between between, const Task& task = {}) {
  const Seen eager = train<Policy<F32, Cuda>>(task, false, AdamW{}, between);
  software_gpu::graph_counts();
  CHECK(train<Policy<F32, Cuda>>(task, true, AdamW{}, between) == eager);
  return software_gpu::graph_counts();
}
using Counts = software_gpu::GraphCounts;

}  // namespace

TEST_CASE("evaluation, generation of tensors and reads between steps change nothing") {
  const auto counts = check_with([](auto& engine, Size step) {
    engine.eval_batch(batches_of_step(engine.world(), 100 + step, 1)[0]);
    engine.gather_parameter("inside.up.weight");
  });
  CHECK(counts == Counts{2, 20});
}

TEST_CASE("a tensor that takes a block of the graphs makes steps eager, then they are captured anew") {
  std::vector<Tensor<float, 1, Cuda>> held;
  const auto counts = check_with([&](auto& engine, Size step) {
    if (step == 6)
      for (Size count = 16; count <= 512; count += 16)
        held.push_back(Tensor<float, 1, Cuda>::zeros(shape(count), engine.world().memory()));
    if (step == 9) held.clear();
    if (step == 11) held.clear();
  });
  // Steps 2 to 5 are repeated, 6 is eager, 7 is captured, and is repeated from then on.
  CHECK(counts == Counts{4, 18});
}

TEST_CASE("a tensor that is held for one step makes it eager, and the next is repeated again") {
  std::vector<Tensor<float, 1, Cuda>> held;
  const auto counts = check_with([&](auto& engine, Size step) {
    held.clear();
    if (step != 6) return;
    for (Size count = 16; count <= 512; count += 16)
      held.push_back(Tensor<float, 1, Cuda>::zeros(shape(count), engine.world().memory()));
  });
  CHECK(counts == Counts{2, 18});
}

TEST_CASE("steps are captured anew when memory of theirs was returned to the system") {
  const auto counts = check_with([](auto& engine, Size step) {
    if (step == 6) engine.world().memory().trim();
  });
  CHECK(counts == Counts{4, 20});
}

TEST_CASE("hyper-parameters, a restart and a seed that change make steps eager until they are captured anew") {
  const auto counts = check_with(
      [](auto& engine, Size step) {
        if (step == 5) engine.set_optimizer(AdamW{.beta1 = 0.5});
        if (step == 10) engine.restart(3);
        if (step == 15) {
          auto progress = engine.progress();
          progress.seed = 77;
          engine.resume(progress);
        }
      },
      {.steps = 20});
  CHECK(counts == Counts{8, 24});
}

namespace {

/// The losses of steps whose batches have those numbers of rows.
std::vector<double> losses_of_rows(bool graphs, const std::vector<Size>& rows_of_steps) {
  std::vector<double> losses;
  using P = Policy<F32, Cuda>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 1e-2}, EngineConfig{.graphs = graphs});
    for (const Size of_step : rows_of_steps) {
      const Size step = std::ssize(losses);
      const auto batch = batch_of<Cuda>(world.memory(), 0, step * 4, of_step, sequence, vocabulary);
      losses.push_back(engine.train_batch(batch)->loss);
    }
    losses.push_back(static_cast<double>(print_of_state(engine) % 1000003));
  });
  return losses;
}

}  // namespace

TEST_CASE("a step of other extents is eager, and extents that come twice are those that are repeated") {
  const auto check = [](const std::vector<Size>& rows_of_steps, const Counts& expected) {
    const auto eager = losses_of_rows(false, rows_of_steps);
    software_gpu::graph_counts();
    CHECK(losses_of_rows(true, rows_of_steps) == eager);
    CHECK(software_gpu::graph_counts() == expected);
  };
  check({2, 2, 2, 2, 3, 2, 2}, {2, 8});
  check({2, 2, 2, 3, 3, 3, 3, 3}, {4, 6});
}

TEST_CASE("a training with graphs that is saved and resumed has the bits of one that is not") {
  const Folder folder;
  const auto losses_of = [&](bool saves, bool graphs) {
    std::vector<double> losses;
    const auto train_until = [&](int end, bool loads) {
      with_engine<Policy<F32, Cuda>>({}, graphs, AdamW{}, [&](auto& world, auto& engine) {
        const std::string path = folder.file(graphs ? "repeated" : "eager");
        if (loads) load_checkpoint(engine, path);
        for (Size step = std::ssize(losses); step < end; ++step) {
          losses.push_back(engine.train_batch(batches_of_step(world, step, 1))->loss);
          if (saves && step == 5) save_checkpoint(engine, path, {.tag = "saved", .position = {.next_step = step + 1}});
        }
      });
    };
    if (saves) train_until(6, false);
    train_until(12, saves);
    return losses;
  };
  const auto expected = losses_of(false, false);
  CHECK(losses_of(true, true) == expected);
  CHECK(losses_of(false, true) == expected);
}

TEST_CASE("a checkpoint that is loaded into the engine between repeated steps is what they go on from") {
  const Folder folder;
  for (const bool graphs : {false, true}) {
    std::vector<double> losses;
    with_engine<Policy<F32, Cuda>>({}, graphs, AdamW{}, [&](auto& world, auto& engine) {
      for (Size step = 0; step < 12; ++step) {
        if (step == 2) save_checkpoint(engine, folder.file("between"), {.tag = "saved", .position = {.next_step = 2}});
        if (step == 6) load_checkpoint(engine, folder.file("between"));
        losses.push_back(engine.train_batch(batches_of_step(world, step < 6 ? step : step - 4, 1))->loss);
      }
    });
    CHECK(std::equal(losses.begin() + 2, losses.begin() + 6, losses.begin() + 6));
    CHECK(losses[2] != losses[3]);
  }
}

TEST_CASE("the peaks of repeated steps are those of eager ones, and the plan's") {
  for (const Size accumulate : {1, 3}) {
    CategoryBytes eager_peaks, repeated_peaks;
    Size eager = 0, repeated = 0, live = 0;
    constexpr TinyConfig config{};
    const BatchSizes sizes{.micro_batch = rows, .sequence = sequence, .accumulate = accumulate};
    using Model = TinyModel<Policy<F32, Cuda>>;
    with_engine<Policy<F32, Cuda>>({.accumulate = accumulate}, true, AdamW{}, [&](auto& world, auto& engine) {
      auto& memory = world.memory();
      const auto take = [&](Size step) {  // batches one after another, as plans have them
        engine.train_batch(LazyBatches{world, step, accumulate}).get();
      };
      take(0);
      CHECK(memory.peak() == plan<Model>(config, sizes, {.bucket_bytes = 256, .graphs = true}, AdamW{}).peak);
      CHECK(plan<Model>(config, sizes, {.bucket_bytes = 256}, AdamW{}).peak + 2 * 64 == memory.peak());
      memory.reset_peak();
      take(1);
      eager = memory.peak(), eager_peaks = memory.peak_by_category(), live = memory.live();
      const int parts = static_cast<int>(accumulate) + 1;
      Size step = 2;
      for (Counts counts{}; counts != Counts{0, parts}; counts = software_gpu::graph_counts(), ++step) {
        REQUIRE(step < 10);
        software_gpu::graph_counts();
        memory.reset_peak();
        take(step);
        CHECK(memory.live() == live);
      }
      repeated = memory.peak(), repeated_peaks = memory.peak_by_category();
      CHECK(memory.live() == live);
      CHECK(memory.peak_reserved() <= Pool::reserved_at_most(memory.peak()));
    });
    CHECK(repeated == eager);
    CHECK(repeated_peaks == eager_peaks);
  }
}

TEST_CASE("a repeated step is a handful of calls of CUDA") {
  const auto calls_of = [](bool graphs) {
    int calls = 0;
    with_engine<Policy<F32, Cuda>>({}, graphs, AdamW{}, [&](auto& world, auto& engine) {
      for (Size step = 0; step < 5; ++step) {
        const auto batches = batches_of_step(world, step, 1);
        software_gpu::fail_call(0);
        auto report = engine.train_batch(batches);
        calls = software_gpu::fail_call(0);
        report.get();
      }
    });
    return calls;
  };
  CHECK(calls_of(true) <= 10);
  CHECK(calls_of(false) > 60);
}

namespace {

/// How batches of a training are made: before the last step's report is read, within the step, or while the last
/// ones are still there.
enum class Made { ahead, within, beside };

/// Losses and state of a training of 30 steps. With graphs, the last ten have to be repeated.
Seen train_on_made(Made made, bool graphs, Size accumulate) {
  Seen seen;
  with_engine<Policy<F32, Cuda>>({.accumulate = accumulate}, graphs, AdamW{}, [&](auto& world, auto& engine) {
    const int parts = graphs ? static_cast<int>(accumulate) + 1 : 0;
    PendingReport before;
    std::vector<Batch<Cuda>> batches;
    for (Size step = 0; step < 30; ++step) {
      software_gpu::graph_counts();
      PendingReport report;
      if (made == Made::within) {
        report = engine.train_batch(LazyBatches{world, step, accumulate});
      } else if (made == Made::beside) {
        batches = batches_of_step(world, step, accumulate);
        report = engine.train_batch(batches);
        report.get();
      } else {
        report = engine.train_batch(batches_of_step(world, step, accumulate));
      }
      if (step >= 20) CHECK(software_gpu::graph_counts() == Counts{0, parts});
      if (step > 0) seen.numbers.push_back(before->loss);
      before = std::move(report);
    }
    seen.numbers.push_back(before->loss);
    seen.prints.push_back(print_of_state(engine));
  });
  return seen;
}

}  // namespace

TEST_CASE("batches that take turns in the memory of the graphs get blocks of their own, and steps are repeated") {
  for (const Size accumulate : {1, 3}) {
    const Seen eager = train_on_made(Made::ahead, false, accumulate);
    for (const Made made : {Made::ahead, Made::within, Made::beside}) {
      CAPTURE(static_cast<int>(made));
      CAPTURE(accumulate);
      CHECK(train_on_made(made, true, accumulate) == eager);
    }
  }
}

namespace {

template <class P>
struct ReportingModel : TinyModel<P> {
  using TinyModel<P>::TinyModel;
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    const auto x = this->inside(this->tokens(ids));
    report("mean of the last values", mean(x));
    return cross_entropy<P>(this->tokens.logits(x), targets, this->tokens.vocabulary());
  }
};

}  // namespace

TEST_CASE("reported numbers of repeated steps are those of eager ones") {
  std::vector<double> numbers[2];
  for (const bool graphs : {false, true}) {
    using P = Policy<F32, Cuda>;
    run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
      Engine engine(world, ReportingModel<P>(TinyConfig{}), AdamW{.lr = 1e-2}, BatchSizes{.accumulate = 2},
                    EngineConfig{.graphs = graphs});
      for (Size step = 0; step < 6; ++step) {
        const StepReport report = engine.train_batch(batches_of_step(world, step, 2));
        numbers[graphs].push_back(report.metric("mean of the last values"));
      }
    });
  }
  CHECK(numbers[1] == numbers[0]);
  CHECK(numbers[0][4] != numbers[0][5]);
}

#endif
