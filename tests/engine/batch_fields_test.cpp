// SPDX-License-Identifier: Apache-2.0
// labels: engine thread
// Batches of a model's own: any fields, the same results for every strategy, at the cost of their plan.
#include <doctest/doctest.h>

#include <laws/difference.hpp>
#include <laws/own_batches.hpp>
#include <support/far_device.hpp>

#include <algorithm>
#include <cmath>

#include <dspp/dspp.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size global_batch = 12;
constexpr int steps = 3;

/// A number in [-1, 1) of a place in the data.
double number_at(Size a, Size b, Size c) {
  return static_cast<double>((a * 7919 + b * 104729 + c * 1299709 + 17) % 2003) / 1001.5 - 1;
}

/// Fills this rank's batch of global samples [first, first + rows).
template <class P>
void fill(PatchBatch<P>& batch, World<P>& world, Size first, const TowerConfig& c) {
  const Size rows = batch.pixels.shape()[0], patches = batch.pixels.shape()[1], cp = world.cp_rank();
  const auto patch = [&](Size i) { return cp * patches + i % patches; };
  batch.pixels.value().write([&](float* host) {
    for (Size i = 0; i < rows * patches * c.patch; ++i)
      host[i] = static_cast<float>(number_at(first + i / (patches * c.patch), patch(i / c.patch), i % c.patch));
  });
  batch.labels.value().write([&](std::int32_t* host) {
    for (Size i = 0; i < rows * patches; ++i) {
      const Size sample = first + i / patches;
      const bool ignored = (sample + 3 * patch(i)) % 5 == 0;  // uneven over ranks
      host[i] = ignored ? ignored_target : static_cast<std::int32_t>((sample + patch(i)) % c.classes);
    }
  });
  batch.weight.value().write([&](float* host) {
    for (Size i = 0; i < rows; ++i) host[i] = static_cast<float>(first + i);
  });
}

template <class P>
void fill(PairBatch<P>& batch, World<P>&, Size first, const TowerConfig& c) {
  const Size rows = batch.left.shape()[0];
  for (int side : {0, 1})
    (side == 0 ? batch.left : batch.right).value().write([&](float* host) {
      for (Size i = 0; i < rows * c.patch; ++i)
        host[i] = static_cast<float>(number_at(first + i / c.patch, side, i % c.patch));
    });
  batch.match.value().write([&](std::int32_t* host) {
    for (Size i = 0; i < rows; ++i) host[i] = static_cast<std::int32_t>(first + i);
  });
  batch.first_sample = first;
}

struct Outcome {
  std::vector<double> losses, norms, targets, cross_entropy, weights;
  std::vector<std::vector<double>> parameters;
  double evaluated = 0;
};

struct Run {
  int ranks = 1;
  Size accumulate = 1;
  TowerConfig config{};
  bool discards = false;  ///< a forward before each
};

template <class Model>
Outcome train(const Run& run) {
  using P = typename Model::policy;
  const Size data = run.ranks / (P::tp * P::cp);
  const BatchSizes sizes{.micro_batch = global_batch / data / run.accumulate, .accumulate = run.accumulate};
  Outcome outcome;
  run_ranks_of<P>({.ranks = run.ranks}, [&](World<P>& world) {
    const Plan paper = plan<Model>(run.config, sizes, {.data = static_cast<int>(data), .rank = world.place()});
    Engine engine{world, Model(run.config), AdamW{.lr = 1e-2}, sizes};
    const auto before = world.traffic();
    Outcome own;
    for (Size step = 0; step < steps; ++step) {
      StepReport report;
      for (Size micro = 0; micro < run.accumulate; ++micro) {
        auto batch = engine.model().new_batch(sizes, world.memory());
        fill(batch, world, (micro * data + world.data_rank()) * sizes.micro_batch, run.config);
        if (run.discards) engine.forward(batch), engine.eval_batch(batch);  // the same samples once more
        auto loss = engine.forward(batch);
        engine.backward(loss);
        report = engine.step();
      }
      own.losses.push_back(report.loss), own.norms.push_back(report.gradient_norm);
      own.targets.push_back(report.targets);
      if (!report.metrics.empty()) {
        own.cross_entropy.push_back(report.metric("cross-entropy"));
        own.weights.push_back(report.metric("weight"));
      }
      if (step == 0) {
        CHECK(world.memory().peak() == paper.peak);
        CHECK((world.traffic() - before).bytes(Purpose::activation) == paper.traffic().bytes(Purpose::activation));
        CHECK((world.traffic() - before).bytes(Purpose::scalar) == paper.traffic().bytes(Purpose::scalar));
      }
    }
    CHECK(world.memory().peak() == paper.peak);
    auto batch = engine.model().new_batch(sizes, world.memory());
    fill(batch, world, world.data_rank() * sizes.micro_batch, run.config);
    own.evaluated = engine.all_reduce_mean(engine.eval_batch(batch));
    for (const auto& named : engine.inventory().parameters) {
      own.parameters.emplace_back();
      engine.gather_parameter(named.name->text).read([&](const auto* host) {
        for (Size i = 0; i < named.parameter->geometry.global_count(); ++i)
          own.parameters.back().push_back(static_cast<double>(host[i]));
      });
    }
    if (world.is_first()) outcome = own;
  });
  return outcome;
}

void check_near(const Outcome& a, const Outcome& b, double tolerance) {
  CHECK(worst_difference(a.losses, b.losses) < tolerance);
  CHECK(worst_difference(a.norms, b.norms) < tolerance);
  CHECK(a.targets == b.targets);
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    CHECK(worst_difference(a.parameters[i], b.parameters[i]) < 10 * tolerance);
}

}  // namespace

TEST_CASE("batches of floats, labels and weights train alike under every strategy, at the cost of their plan") {
  const Outcome one = train<PatchClassifier<Policy<F64>>>({});
  CHECK(one.losses.back() < one.losses.front());
  REQUIRE(one.cross_entropy.size() == steps);
  CHECK(worst_difference(one.cross_entropy, one.losses) < 1e-12);
  CHECK(worst_difference(one.weights, std::vector<double>(steps, 66)) < 1e-12);
  const auto check = [&]<class P>(P, const Run& run) {
    CAPTURE(run.ranks);
    const Outcome split = train<PatchClassifier<P>>(run);
    check_near(split, one, 1e-12);
    CHECK(worst_difference(split.cross_entropy, split.losses) < 1e-12);  // a report has the loss's own weights
    if (run.accumulate == 1 && P::cp * P::tp == run.ranks) CHECK(split.evaluated == doctest::Approx(one.evaluated));
  };
  check(Policy<F64, Zero<2>>{}, {.ranks = 2});
  check(Policy<F64, Zero<3>>{}, {.ranks = 3, .accumulate = 2});
  check(Policy<F64, Zero<1>, Tp<2>>{}, {.ranks = 4});
  check(Policy<F64, Zero<3>, Cp<2>>{}, {.ranks = 2});
  check(Policy<F64, Cp<2>, Tp<2>>{}, {.ranks = 4, .accumulate = 3});
  check(Policy<F64, Zero<2>, Far>{}, {.ranks = 2, .accumulate = 2});
}

TEST_CASE("in bf16 the same batches train as in f64, but for rounding") {
  const Outcome one = train<PatchClassifier<Policy<F64>>>({});
  check_near(train<PatchClassifier<Policy<Bf16, Zero<2>, Cp<2>>>>({.ranks = 4}), one, 3e-2);
}

TEST_CASE("a value of a batch that is not a number is named with its field and rank") {
  using P = Policy<F64>;
  std::string sentence;
  try {
    run_ranks_of<P>({.ranks = 2}, [](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 2};
      Engine engine{world, PatchClassifier<P>(TowerConfig{}), AdamW{}, sizes};
      auto batch = engine.model().new_batch(sizes, world.memory());
      fill(batch, world, 2 * world.rank(), {});
      if (world.rank() == 1) batch.pixels.value().write([](float* host) { std::fill_n(host, 40, NAN); });
      engine.train_batch(batch);
    });
  } catch (const Error& error) {
    sentence = error.what();
  }
  CHECK(sentence ==
        "dspp: training needs batches that are finite, but in step 1 a value of 'pixels' on rank 1 is not. No rank has "
        "updated anything. Leave such samples out, or let EngineConfig::skip_nonfinite leave some such steps out.");
}

TEST_CASE(
    "without a first_sample the samples are counted over ranks and micro-steps: dropout masks are those of one rank") {
  const TowerConfig config{.dropout = 0.3};
  const Outcome one = train<PatchClassifier<Policy<F64>>>({.config = config});
  for (const bool discards : {false, true})
    check_near(train<PatchClassifier<Policy<F64, Zero<2>>>>(
                   {.ranks = 3, .accumulate = 2, .config = config, .discards = discards}),
               one, 1e-12);
}

TEST_CASE("two towers compare each sample with those of all data ranks") {
  const Outcome one = train<TwoTowers<Policy<F64>>>({});
  CHECK(one.losses.back() < one.losses.front());
  check_near(train<TwoTowers<Policy<F64>>>({.ranks = 2}), one, 1e-12);
  check_near(train<TwoTowers<Policy<F64, Zero<3>>>>({.ranks = 4}), one, 1e-12);
  check_near(train<TwoTowers<Policy<F64, Zero<2>, Tp<2>>>>({.ranks = 4}), one, 1e-12);
  check_near(train<TwoTowers<Policy<F64, Zero<2>, Cp<2>>>>({.ranks = 4}), one, 1e-12);
  check_near(train<TwoTowers<Policy<F64, Zero<1>, Far>>>({.ranks = 3}), one, 1e-12);
}

TEST_CASE("a batch that lacks a field, has an empty one, other rows or too many is refused with its name") {
  using P = Policy<F64>;
  const auto says = [](auto spoil) {
    std::string sentence;
    try {
      run_ranks_of<P>({}, [&](World<P>& world) {
        Engine engine{world, PatchClassifier<P>(TowerConfig{}), AdamW{}, BatchSizes{.micro_batch = 2}};
        auto batch = engine.model().new_batch({.micro_batch = 2}, world.memory());
        fill(batch, world, 0, {});
        spoil(batch, world);
        engine.forward(batch);
      });
    } catch (const Error& error) {
      sentence = error.what();
    }
    return sentence;
  };
  CHECK(says([](auto& batch, auto&) { batch.weight = {}; }) ==
        "dspp: a batch needs all of its fields, but 'weight' was never set. Give it a Tensor, or leave it out of "
        "visit.");
  CHECK(says([](auto& batch, auto& world) { batch.weight = Tensor<float, 1>::zeros(shape(0), world.memory()); }) ==
        "dspp: a batch needs at least one element in every field, but 'weight' is [0]. Leave the batch out.");
  CHECK(says([](auto& batch, auto& world) { batch.weight = Tensor<float, 1>::zeros(shape(3), world.memory()); }) ==
        "dspp: a batch needs a row for every sample in each field, but 'weight' has 3 and the first field 2. Give all "
        "the same extent of dimension 0.");
  CHECK(says([](auto& batch, auto& world) {
          batch = PatchClassifier<P>(TowerConfig{}).new_batch({.micro_batch = 3}, world.memory());
        }).find("dspp: Engine needs batches of at most its micro_batch, but got a larger one") == 0);
}

namespace {
/// Reshapes its labels before the loss.
template <class P>
struct Reshaped : PatchClassifier<P> {
  constexpr explicit Reshaped(const TowerConfig& c) : PatchClassifier<P>(c) {}
  constexpr Loss<P> loss(const PatchBatch<P>& batch) const {
    auto changed = batch;
    changed.labels = reshape(batch.labels, batch.labels.shape());
    return PatchClassifier<P>::loss(changed);
  }
};

template <template <class> class Model>
double loss_with_weights(bool weighted) {
  using P = Policy<F64>;
  double loss = 0;
  run_ranks_of<P>({}, [&](World<P>& world) {
    Engine engine{world, Model<P>(TowerConfig{}), AdamW{}};
    auto batch = engine.model().new_batch({.micro_batch = 2}, world.memory());
    fill(batch, world, 0, {});
    if (weighted) {
      batch.labels.target_weights = Tensor<float, 2>::zeros(batch.labels.shape(), world.memory());
      batch.labels.target_weights.write([](float* host) { host[1] = 2, host[2] = 1; });
    }
    loss = StepReport(engine.train_batch(batch)).loss;
  });
  return loss;
}
}  // namespace

TEST_CASE("weights of targets in a batch of one's own count, and no operator loses them without a word") {
  const double plain = loss_with_weights<PatchClassifier>(false);
  CHECK(loss_with_weights<Reshaped>(false) == plain);
  CHECK(loss_with_weights<PatchClassifier>(true) != plain);
  CHECK_THROWS_WITH_AS(
      loss_with_weights<Reshaped>(true),
      "dspp: targets with target_weights need to reach cross_entropy as they are, but an operator would "
      "make new ones without weights. Reshape or transpose the logits, and give the weights to the new "
      "targets.",
      Error);
}

TEST_CASE("weights of targets in a batch of one's own are compared between ranks, and may not change before backward") {
  using P = Policy<F64, Tp<2>>;
  const auto train = [](int other_rank, bool changes) {
    run_ranks_of<P>({.ranks = 2}, [&](World<P>& world) {
      Engine engine{world, PatchClassifier<P>(TowerConfig{}), AdamW{}, {}, {.check_ranks = 1}};
      auto batch = engine.model().new_batch({.micro_batch = 2}, world.memory());
      fill(batch, world, 0, {});
      batch.labels.target_weights = Tensor<float, 2>::zeros(batch.labels.shape(), world.memory());
      batch.labels.target_weights.write(
          [&](float* host) { host[1] = world.rank() == other_rank ? 2 : 1, host[2] = 1; });
      const auto loss = engine.forward(batch);
      if (changes) batch.labels.target_weights.write([](float* host) { host[1] = 3; });
      engine.backward(loss);
      engine.step();
    });
  };
  CHECK_NOTHROW(train(-1, false));
  CHECK_THROWS_WITH_AS(train(1, false), doctest::Contains("but 'labels of micro-step 0' is"), Error);
  CHECK_THROWS_WITH_AS(train(-1, true),
                       "dspp: backward needs the batch of its forward unchanged, but it was written in between. Refill "
                       "it after backward.",
                       Error);
}

namespace {
/// The classes of images by a patch embedding and a vector added to it.
template <class P>
struct Pictures {
  Input<P, ElementOf<P>, 4> pixels;
  Input<P, std::int32_t, 1> labels;
  constexpr void visit(auto&& f) { f("pixels", pixels), f("labels", labels); }
};
template <class P>
struct PictureClassifier : Layer<P> {
  PatchEmbedding<P> patches;
  ParameterOf<P, 1> shift;
  ColumnParallel<Linear, P> head;
  constexpr explicit PictureClassifier(const TowerConfig& c)
      : patches({.channels = 2, .patch = 2, .width = c.width}),
        shift("PictureClassifier shift", shape(c.width), Initial::zeros()),
        head(c.width, c.classes) {}
  constexpr void visit(auto&& f) { f("patches", patches), f("shift", shift), f("head", head); }
  constexpr Loss<P> loss(const Pictures<P>& batch) const {
    const auto x = patches(batch.pixels);
    return cross_entropy<P>(head(mean<1>(x + value_beside(x, shift))), batch.labels, 6);
  }
  constexpr Pictures<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    Pictures<P> batch;
    batch.pixels =
        Tensor<ElementOf<P>, 4, D>::uninitialized(shape(sizes.micro_batch, Size{2}, Size{4}, Size{4}), memory);
    batch.labels = Tensor<std::int32_t, 1, D>::uninitialized(shape(sizes.micro_batch), memory);
    return batch;
  }
};
}  // namespace

TEST_CASE("a frozen patch embedding, and a frozen vector beside it, have no operations in backward") {
  using Model = PictureClassifier<Policy<F64>>;
  const auto backward = [](const ParameterGroups& groups) {
    return plan<Model>(TowerConfig{}, {.micro_batch = 3}, {.groups = groups}).backward_flops;
  };
  const ParameterGroups patches = {
      {.name = "patches", .contains = [](std::string_view p) { return p.starts_with("patches"); }, .frozen = true}};
  const ParameterGroups both = {
      {.name = "all", .contains = [](std::string_view p) { return !p.starts_with("head"); }, .frozen = true}};
  const double all = backward({}), rows = 3 * 4;
  CHECK(all - backward(patches) >= 2 * rows * 8 * 8);  // the product of the weight's gradient
  CHECK(backward(both) < backward(patches));
}

TEST_CASE("a batch that was made for another accumulate is refused") {
  using P = Policy<F64>;
  const auto train = [](Size made_for) {
    run_ranks_of<P>({}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 2, .accumulate = 2};
      Engine engine{world, TwoTowers<P>(TowerConfig{}), AdamW{}, sizes};
      auto batch = engine.model().new_batch(sizes, world.memory());
      fill(batch, world, 0, {});
      batch.accumulate = made_for;
      engine.forward(batch);
    });
  };
  CHECK_NOTHROW(train(2));
  CHECK_THROWS_WITH_AS(train(1),
                       "dspp: Engine needs batches made for its own accumulate, but got one made for another "
                       "(accumulate of the batch 1, accumulate of the engine 2). Give both the same BatchSizes.",
                       Error);
}

TEST_CASE("a field of a batch that is on no tape is refused where it is used, and on_tape puts it on one") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [](World<P>& world) {
    Weights weights{world, PatchClassifier<P>(TowerConfig{})};
    auto batch = weights.model().new_batch({.micro_batch = 2}, world.memory());
    fill(batch, world, 0, {});
    weights.no_grad([&](const auto& model, auto& tape) {
      CHECK_THROWS_WITH_AS(
          model.embed(cast<double>(batch.pixels)),
          "dspp: an operation needs values on a tape, but got a field of a batch that is on none. Take "
          "it inside of loss(batch), or of on_tape(batch, tape).",
          Error);
      const auto y = model.embed(cast<double>(on_tape(batch, tape).pixels));
      CHECK(y.shape() == shape(2, 4, 8));
      return 0;
    });
  });
}

namespace {
/// Reports two numbers, in another order on data rank 1.
template <class P>
struct Reporter : PatchClassifier<P> {
  constexpr explicit Reporter(const TowerConfig& c) : PatchClassifier<P>(c) {}
  constexpr Loss<P> loss(const PatchBatch<P>& batch) const {
    const auto loss = PatchClassifier<P>::loss(batch);
    const bool first = loss.tape().context().along.data->rank() == 0;
    report(first ? "a" : "b", loss);
    report(first ? "b" : "a", loss);
    return loss;
  }
};
}  // namespace

TEST_CASE("ranks that report other names, or in another order, are told so in the first step") {
  using P = Policy<F64>;
  const auto run = [] {
    run_ranks_of<P>({.ranks = 2}, [](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 2};
      Engine engine{world, Reporter<P>(TowerConfig{}), AdamW{}, sizes};
      auto batch = engine.model().new_batch(sizes, world.memory());
      fill(batch, world, 2 * world.rank(), {});
      engine.train_batch(batch);
    });
  };
  CHECK_THROWS_WITH_AS(run(),
                       "dspp: training needs the same on every rank, but 'reports' is cross-entropy, weight, b, a on "
                       "rank 1 and cross-entropy, weight, a, b on rank 0, in step 1. Set it alike on every rank.",
                       Error);
}

namespace {
/// Reports a number in forwards with an even number only.
template <class P>
struct SometimesReporter : PatchClassifier<P> {
  mutable int forwards = 0;
  constexpr explicit SometimesReporter(const TowerConfig& c, int begun) : PatchClassifier<P>(c), forwards(begun) {}
  constexpr Loss<P> loss(const PatchBatch<P>& batch) const {
    const auto loss = PatchClassifier<P>::loss(batch);
    if (forwards++ % 2 == 0) report("sometimes", loss);
    report("always", loss);
    return loss;
  }
};
}  // namespace

TEST_CASE("a number that only some micro-steps report is refused: its mean would lack the others' targets") {
  using P = Policy<F64>;
  for (const int begun : {0, 1})
    run_ranks_of<P>({}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = 2, .accumulate = 2};
      Engine engine{world, SometimesReporter<P>(TowerConfig{}, begun), AdamW{}, sizes};
      auto batch = engine.model().new_batch(sizes, world.memory());
      fill(batch, world, 0, {});
      CHECK_THROWS_WITH_AS(engine.train_batch(std::vector{batch, batch}),
                           "dspp: the micro-steps of a step need the same reports, but 'sometimes' is not in all of "
                           "them. Report a number in every forward, or in none of a step.",
                           Error);
    });
}
