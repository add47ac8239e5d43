// SPDX-License-Identifier: Apache-2.0
// The moving average of weights: the formula, element by element, under every strategy; training does not notice it.
// labels: checkpoint engine
#include <cmath>
#include <string>
#include <vector>

#include <dspp/checkpoint/average_file.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/training_run.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};
constexpr double decay = 0.75;
using Values = ParameterValues;

template <class Engine>
Values parameters_of(Engine& engine) {
  Values values;
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    whole.read([&](const auto* host) { values[named.name->text].assign(host, host + whole.count()); });
  }
  return values;
}

/// The average after three steps, saved in `folder`; checks it against the formula.
template <class Q, class D = Cpu>
Values check_average(int ranks, const std::string& folder) {
  using P = typename rebind<Gpt<Q>, D>::policy;
  Values result;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = 4}, [&](World<P>& world) {
    const EngineConfig config{.bucket_bytes = 400};
    Engine engine(world, Gpt<P>{tiny}, AdamW{.lr = 1e-2}, BatchSizes{}, config,
                  dspp::detail::replica_config<Q>(BatchSizes{}, config));
    const auto loss_of = [&](Size i) {
      return engine.all_reduce_mean(engine.eval_batch(batch_of<D>(world.memory(), i, 0, 2, 4, 13)));
    };
    WeightAverage average{engine, decay};
    Values expected = parameters_of(engine);
    for (Size i = 0; i < 3; ++i) {
      engine.backward(engine.forward(batch_of<D>(world.memory(), 8 * i, 2 * world.data_rank(), 2, 4, 13)));
      if (i == 0) CHECK_THROWS_AS(average.within([] {}), Error);
      engine.step();
      average.update();
      for (auto& [name, values] : parameters_of(engine))
        for (std::size_t j = 0; j < values.size(); ++j)
          expected[name][j] = decay * expected[name][j] + (1 - decay) * values[j];
    }
    world.memory().reset_peak();
    average.within([] {});
    CHECK(world.memory().peak() == world.memory().live());
    const double loss = loss_of(0);
    const Values before = parameters_of(engine);
    const auto print = print_of_state(engine);
    const double of_average = average.within([&] {
      for (const auto& [name, values] : parameters_of(engine))
        CHECK(worst_difference(values, expected.at(name)) < (sizeof(Compute<typename P::Element>) == 8 ? 1e-15 : 1e-6));
      if (world.is_first()) result = expected;
      return loss_of(0);
    });
    CHECK(of_average != loss);
    CHECK(loss_of(0) == loss);
    CHECK(print_of_state(engine) == print);
    CHECK(parameters_of(engine) == before);
    save_average(average, folder);
    Values kept, loaded;
    average.within([&] { kept = parameters_of(engine); });
    average.update();
    average.within([&] { CHECK(parameters_of(engine) != kept); });
    load_average(average, folder);
    average.within([&] { loaded = parameters_of(engine); });
    CHECK(loaded == kept);
    load_weights(engine, folder);
    CHECK(parameters_of(engine) == kept);
  });
  return result;
}

}  // namespace

TEST_CASE(
    "an average has its formula's values under every stage, is saved and loaded, and training does not notice it; on a "
    "far device, too") {
  const Folder folder;
  const Values one = check_average<Policy<F64>>(1, folder.file("one"));
  CHECK(check_average<Policy<F64, Zero<1>>>(1, folder.file("a")) == one);
  const Values two = check_average<Policy<F64>>(2, folder.file("b"));
  CHECK(check_average<Policy<F64, Zero<1>>>(2, folder.file("c")) == two);
  CHECK(check_average<Policy<F64, Zero<2>>>(2, folder.file("d")) == two);
  CHECK(check_average<Policy<F64, Zero<3>>>(2, folder.file("e")) == two);
  CHECK(folder.read("e/model.safetensors") == folder.read("b/model.safetensors"));
  CHECK(check_average<Policy<F64, Zero<2>>, Far>(2, folder.file("far")) == two);
  CHECK(folder.read("far/model.safetensors") == folder.read("b/model.safetensors"));
  check_average<Policy<F64, Zero<3>>>(3, folder.file("f"));
  check_average<Policy<Bf16, Zero<2>, Tp<2>>>(4, folder.file("g"));
}

TEST_CASE("a decay outside of [0, 1) is an error in words") {
  using P = Policy<F64>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>{tiny}, AdamW{}};
    for (const double bad : {-0.1, 1.0, std::nan("")})
      CHECK_THROWS_WITH_AS(
          (WeightAverage{engine, bad}),
          doctest::Contains("dspp: WeightAverage needs a decay from 0 to below 1, but got another. Change it."), Error);
  });
}

TEST_CASE("an update between micro-steps, or of an average of weights that others have replaced, is an error") {
  using P = Policy<F64>;
  const Folder folder;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>{tiny}, AdamW{}, BatchSizes{.accumulate = 2}};
    save_weights(engine, folder.file("weights"));
    WeightAverage average{engine, decay};
    const auto half = [&](Size i) {
      engine.backward(engine.forward(batch_of<Cpu>(world.memory(), 8 * i, 0, 2, 4, 13)));
      engine.step();
    };
    half(0);
    CHECK_THROWS_WITH_AS(average.update(),
                         "dspp: WeightAverage needs a training between two steps, but gradients wait for the next "
                         "step(). Call it after the step that acts.",
                         Error);
    half(1);
    average.update();
    save_average(average, folder.file("average"));
    load_weights(engine, folder.file("weights"));
    CHECK_THROWS_WITH_AS(average.update(),
                         "dspp: WeightAverage needs the weights that it began with, but others were loaded since. Make "
                         "it after loading, or call load_average().",
                         Error);
    load_average(average, folder.file("average"));
    load_weights(engine, folder.file("weights"));  // in either order
    average.update();
    load_weights(engine, folder.file("weights"));
    CHECK_THROWS_AS(average.update(), Error);
    CHECK_THROWS_AS(average.within([] {}), Error);
    WeightAverage later{engine, decay};
    later.update();
  });
}
