// SPDX-License-Identifier: Apache-2.0
// Several micro-steps between forward and backward, as in a pipeline.
// labels: thread
#include <deque>
#include <functional>

#include <doctest/doctest.h>

#include <laws/difference.hpp>
#include <laws/training_run.hpp>

#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size micro_steps = 3, rows = 2, sequence = 6;

/// The order of the forwards and backwards of a step.
enum class Schedule { one_by_one, one_ahead, all_forwards_first, last_forward_back_first };

template <class Model>
struct Run {
  using P = typename Model::policy;
  World<P>& world;
  Engine<Model, AdamW> engine;
  std::vector<double> numbers{};

  explicit Run(World<P>& of)
      : world(of),
        engine(of, Model(small_gpt(0.1)), AdamW{.lr = 1e-2}, {.accumulate = micro_steps},
               {.bucket_bytes = 8000, .offload = {.folder = "/tmp"}}) {}

  Batch<Cpu> batch(Size step, Size number) {
    const Size first = (number * world.data_size() + world.data_rank()) * rows;
    return batch_of(world.memory(), step * 24, first, rows, sequence, 61);
  }
  /// One step in which up to `ahead` + 1 micro-steps are in flight, or all with the backwards in reverse.
  void step(Size number, Size ahead, bool reversed = false) {
    struct UnderWay {
      MicroStep<Cpu> micro;
      Loss<P> loss;
      explicit UnderWay(Run& run) : micro(run.engine.micro_step()) {}
    };
    std::deque<UnderWay> under_way;
    StepReport report;
    const auto back = [&](UnderWay& one) {
      engine.backward(one.micro, one.loss);
      report = engine.step();
    };
    for (Size i = 0; i < micro_steps; ++i) {
      UnderWay& one = under_way.emplace_back(*this);
      one.loss = engine.forward(one.micro, batch(number, i));
      if (reversed || std::ssize(under_way) <= ahead) continue;
      back(under_way.front());
      under_way.pop_front();
    }
    while (!under_way.empty()) {
      back(reversed ? under_way.back() : under_way.front());
      reversed ? under_way.pop_back() : under_way.pop_front();
    }
    numbers.push_back(report.loss);
    numbers.push_back(report.gradient_norm);
  }
};

template <class Model>
std::vector<double> train_in(int ranks, Schedule schedule) {
  std::vector<double> result;
  using P = typename Model::policy;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = 4}, [&](World<P>& world) {
    Run<Model> run(world);
    for (Size step = 0; step < 3; ++step) switch (schedule) {
        case Schedule::one_by_one: run.step(step, 0); break;
        case Schedule::one_ahead: run.step(step, 1); break;
        case Schedule::all_forwards_first: run.step(step, micro_steps); break;
        case Schedule::last_forward_back_first: run.step(step, micro_steps, true); break;
      }
    run.numbers.push_back(static_cast<double>(print_of_state(run.engine) % (1u << 30)));
    if (world.rank() == 0) result = run.numbers;
  });
  return result;
}

template <class Model>
void check_schedules(int ranks) {
  CAPTURE(ranks);
  const auto one_by_one = train_in<Model>(ranks, Schedule::one_by_one);
  CHECK(train_in<Model>(ranks, Schedule::one_ahead) == one_by_one);
  CHECK(train_in<Model>(ranks, Schedule::all_forwards_first) == one_by_one);
  const auto reversed = train_in<Model>(ranks, Schedule::last_forward_back_first);  // sums in another order
  REQUIRE(reversed.size() == one_by_one.size());
  for (std::size_t i = 0; i + 1 < reversed.size(); ++i) CHECK(close(reversed[i], one_by_one[i], 1e-9, 0));
}

}  // namespace

TEST_CASE("interleaved micro-steps give the bits of successive ones, in every stage") {
  for (const int ranks : {1, 2, 3}) {
    check_schedules<Gpt<Policy<F64, Zero<0>>>>(ranks);
    check_schedules<Gpt<Policy<F64, Zero<2>>>>(ranks);
    check_schedules<RecomputedGpt<Policy<F64, Zero<3>>>>(ranks);
    check_schedules<RecomputedGpt<Policy<F64, Offload<Activations, Disk>>>>(ranks);
  }
  for (const int ranks : {2, 4}) check_schedules<Gpt<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(ranks);
}

TEST_CASE("the backward of a forward of an earlier or discarded step is refused") {
  using Model = Gpt<Policy<F64>>;
  run_ranks_of<Model::policy>({}, [&](World<Model::policy>& world) {
    Run<Model> run(world);
    auto late = run.engine.micro_step();
    const auto loss = run.engine.forward(late, run.batch(0, 0));
    run.step(0, 0);
    CHECK_THROWS_WITH_AS(run.engine.backward(late, loss), doctest::Contains("backward needs a forward of its own"),
                         Error);
    run.step(1, 0);
    const auto again = run.engine.forward(late, run.batch(2, 0));
    run.engine.restart(2);
    CHECK_THROWS_WITH_AS(run.engine.backward(late, again), doctest::Contains("backward needs a forward of its own"),
                         Error);
    auto other = run.engine.micro_step();
    const auto its = run.engine.forward(other, run.batch(2, 0));
    CHECK_THROWS_WITH_AS(run.engine.backward(late, its), doctest::Contains("backward needs a forward of its own"),
                         Error);
    run.engine.forward(late, run.batch(2, 1));
    CHECK_THROWS_WITH_AS(run.engine.backward(late, its), doctest::Contains("the loss that the last forward returned"),
                         Error);
  });
}

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 8};

Batch<Cpu> tiny_batch(auto& world, Size first) {
  return batch_of(world.memory(), 0, first, 2, 4, 13);
}

}  // namespace

TEST_CASE("a step takes as many micro-steps as it accumulates, with any number in flight") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [](World<P>& world) {
    Engine engine{world, Gpt<P>{tiny}, AdamW{}};
    auto first = engine.micro_step(), second = engine.micro_step();
    const auto one = engine.forward(first, tiny_batch(world, 0)), other = engine.forward(second, tiny_batch(world, 0));
    engine.backward(second, other);
    CHECK_THROWS_WITH_AS(engine.backward(first, one), doctest::Contains("BatchSizes::accumulate micro-steps before it"),
                         Error);
    CHECK_THROWS_WITH_AS(engine.forward(first, tiny_batch(world, 0)),
                         doctest::Contains("the pending step to be taken first"), Error);
    const double norm = engine.step()->gradient_norm;
    Engine alone{world, Gpt<P>{tiny}, AdamW{}};
    alone.backward(alone.forward(tiny_batch(world, 0)));
    CHECK(alone.step()->gradient_norm == norm);
  });
}

namespace {

template <class P>
struct Numbers {
  Input<P, float, 2, 1> values;  // [samples, 8], without the number of the first sample
  constexpr void visit(auto&& f) { f("values", values); }
};

template <class P>
struct Dropping : Layer<P> {
  Linear<P> linear{8, 8};
  Dropout<P> dropout{0.5};
  constexpr void visit(auto&& f) { f("linear", linear), f("dropout", dropout); }
  constexpr Loss<P> loss(const Numbers<P>& batch) const {
    if (batch.values.value().data()[0] > 100) fail(ErrorCode::usage, "a wrong number");
    const auto y = dropout(linear(cast<ElementOf<P>>(batch.values)));
    return mean(y * y);
  }
};

using OwnEngine = Engine<Dropping<Policy<F64>>, AdamW>;

/// The norm of a step of two micro-steps, whose forwards `run` does.
double norm_of_step(const std::function<void(OwnEngine&, const Numbers<Policy<F64>>&, const Numbers<Policy<F64>>&,
                                             const Numbers<Policy<F64>>& wrong)>& run) {
  using P = Policy<F64>;
  double norm = 0;
  run_ranks_of<P>({}, [&](World<P>& world) {
    OwnEngine engine{world, Dropping<P>(), AdamW{}, {.accumulate = 2}};
    const auto filled = [&](float first) {
      Numbers<P> batch;
      batch.values = Tensor<float, 2>::zeros(shape(3, 8), world.memory());
      for (Size i = 0; i < 24; ++i) batch.values.value().data()[i] = first + static_cast<float>(i % 5);
      return batch;
    };
    run(engine, filled(1), filled(2), filled(1000));
    norm = engine.step()->gradient_norm;
  });
  return norm;
}

}  // namespace

TEST_CASE("a forward that threw, or is repeated, draws the random numbers of its own micro-step") {
  const double undisturbed = norm_of_step([](auto& engine, const auto& a, const auto& b, const auto&) {
    engine.backward(engine.forward(a));
    engine.backward(engine.forward(b));
  });
  CHECK(undisturbed > 0);
  CHECK(norm_of_step([](auto& engine, const auto& a, const auto& b, const auto& wrong) {
          CHECK_THROWS_AS(engine.forward(wrong), Error);
          engine.backward(engine.forward(a));
          engine.forward(a);
          CHECK_THROWS_AS(engine.forward(wrong), Error);
          CHECK_THROWS_AS(engine.forward(wrong), Error);
          engine.backward(engine.forward(b));
        }) == undisturbed);
  CHECK(norm_of_step([](auto& engine, const auto& a, const auto& b, const auto& wrong) {
          auto first = engine.micro_step(), second = engine.micro_step();
          engine.forward(first, a);
          const auto of_b = engine.forward(second, b);
          CHECK_THROWS_AS(engine.forward(first, wrong), Error);
          const auto of_a = engine.forward(first, a);
          engine.backward(first, of_a);
          engine.backward(second, of_b);
        }) == undisturbed);
}

TEST_CASE("the check of ranks covers the batch of every micro-step, in any order of forwards") {
  using P = Policy<F64, Tp<2>>;
  for (const bool forwards_first : {false, true}) {
    CAPTURE(forwards_first);
    const auto program = [&](World<P>& world) {
      Engine engine{world, Gpt<P>{tiny}, AdamW{}, {.accumulate = 2}};
      auto batch = tiny_batch(world, 0);
      if (world.rank() == 1) batch.first_sample = 5;
      auto first = engine.micro_step(), second = engine.micro_step();
      const auto one = engine.forward(first, batch);
      if (!forwards_first) engine.backward(first, one);
      const auto other = engine.forward(second, tiny_batch(world, 2));
      if (forwards_first) engine.backward(first, one);
      engine.backward(second, other);
      engine.step();
    };
    CHECK_THROWS_WITH_AS(run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, program),
                         doctest::Contains("the ranks of Tp need the same batch"), Error);
  }
}

TEST_CASE("an engine refuses another's micro-steps, and a tape that records beside its forwards") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [](World<P>& world) {
    Engine small{world, Gpt<P>{tiny}, AdamW{}};
    GptConfig two = tiny;
    two.layers = 2;
    Engine large{world, Gpt<P>{two}, AdamW{}};
    auto of_small = small.micro_step();
    CHECK_THROWS_WITH_AS(large.forward(of_small, tiny_batch(world, 0)), doctest::Contains("micro-steps of its own"),
                         Error);
    const auto loss = small.forward(of_small, tiny_batch(world, 0));
    CHECK_THROWS_WITH_AS(large.backward(of_small, loss), doctest::Contains("micro-steps of its own"), Error);
    small.backward(of_small, loss);
    small.step();
    Context<Cpu> context = small.weights().context();
    Tape<Cpu> tape(context);
    CHECK_THROWS_WITH_AS(small.weights().loss_of(tape, tiny_batch(world, 0)),
                         doctest::Contains("a micro-step that counts its gradients"), Error);
    auto own = small.forward(tiny_batch(world, 0));
    CHECK_THROWS_WITH_AS(own.tape().backward(own.slot(), Scalar<double>::zeros({}, world.memory())),
                         doctest::Contains("a micro-step that counts its gradients"), Error);
  });
}
