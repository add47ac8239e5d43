// SPDX-License-Identifier: Apache-2.0
// Weights alone: the values, losses and texts of the engine that trained them, in the memory of the parameters.
// labels: engine
#include <doctest/doctest.h>

#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/hub/hugging_face.hpp>
#include <dspp/models/llama.hpp>
#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/small_llama.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr RunOptions on(int ranks) {
  return {.ranks = ranks, .threads_per_rank = 1, .seed = 7};
}

/// What weights alone and an engine give before any step.
template <class Model>
void check_fresh(int ranks) {
  using P = typename Model::policy;
  CAPTURE(ranks);
  run_ranks_of<P>(on(ranks), [&](World<P>& world) {
    Pool& pool = world.memory();
    const GenerateConfig some{.tokens = 4, .sequence = 8, .seed = 3};
    const auto batch = batch_of(pool, 0, 2 * world.data_rank(), 2, 12 / P::cp, 61, 12 / P::cp * world.cp_rank());
    const Size before = pool.live();
    double alone = 0, mean = 0;
    std::vector<std::int32_t> text;
    std::vector<double> table;
    {
      Weights weights{world, Model(small_config_of<Model>()), 8000};
      const Plan paper = plan<Model>(small_config_of<Model>(), {.micro_batch = 2, .sequence = 12},
                                     {.data = world.data_size(), .bucket_bytes = 8000, .rank = world.place()});
      CHECK(pool.live() - before == paper.state[Category::parameters]);
      const MeanLoss loss = weights.eval_batch(batch);
      alone = loss.mean;
      mean = weights.all_reduce_mean(loss);
      text = generate(weights, {1, 2, 3}, some);
      weights.gather_parameter("tokens.weight").read([&](const auto* host) { table.assign(host, host + 61 * 24); });
      CHECK(pool.live() - before == paper.state[Category::parameters]);
    }
    CHECK(pool.live() == before);
    Engine engine{world, Model(small_config_of<Model>()), AdamW{}, EngineConfig{.bucket_bytes = 8000}};
    const MeanLoss loss = engine.eval_batch(batch);
    CHECK(loss.mean == alone);
    CHECK(engine.all_reduce_mean(loss) == mean);
    CHECK(generate(engine, {1, 2, 3}, some) == text);
    engine.weights().gather_parameter("tokens.weight").read([&](const auto* host) {
      for (std::size_t i = 0; i < table.size(); ++i)  // of bf16 the engine's masters are finer
        CHECK(static_cast<typename P::Element>(host[i]) == static_cast<typename P::Element>(table[i]));
    });
  });
}

/// Trained, saved, loaded into weights alone under policy Q, and saved by these.
template <class Model, class Reader>
void check_saved(int ranks, int readers) {
  using P = typename Model::policy;
  using Q = typename Reader::policy;
  const Folder folder;
  constexpr bool rounds = sizeof(typename P::Element) == 2 || sizeof(typename Q::Element) == 2;
  const double tolerance = rounds ? 0.05 : 1e-6;
  double loss = 0;
  run_ranks_of<P>(on(ranks), [&](World<P>& world) {
    Engine engine{world, Model(small_config_of<Model>()), AdamW{.lr = 1e-2}};
    engine.train_batch(std::array{batch_of(world.memory(), 0, 2 * world.data_rank(), 2, 12, 61)});
    save_weights(engine, folder.file("engine"));
    const double own = engine.eval_batch(batch_of(world.memory(), 30, 0, 2, 12, 61)).mean;
    if (world.is_first()) loss = own;
  });
  run_ranks_of<Q>(on(readers), [&](World<Q>& world) {
    Weights weights{world, Reader(small_config_of<Reader>())};
    load_weights(weights, folder.file("engine"));
    const double own = weights.eval_batch(batch_of(world.memory(), 30, 0, 2, 12, 61)).mean;
    CHECK(std::abs(own - loss) < tolerance);
    save_weights(weights, folder.file("alone"));
    Engine engine{world, Reader(small_config_of<Reader>()), AdamW{}};
    load_weights(engine, folder.file("alone"));
    CHECK(engine.steps() == 0);
    CHECK(engine.eval_batch(batch_of(world.memory(), 30, 0, 2, 12, 61)).mean == own);
  });
}

/// logits_at(ids, i) is row i of all logits.
template <class Model>
void check_rows(int ranks) {
  using P = typename Model::policy;
  CAPTURE(ranks);
  run_ranks_of<P>(on(ranks), [&](World<P>& world) {
    Weights weights{world, Model(small_config_of<Model>())};
    const Size own = 12 / P::cp;
    const auto batch = batch_of(world.memory(), 0, 0, 2, own, 61, own * world.cp_rank());
    weights.no_grad([&](const Model& model, Tape<Cpu>& tape) {
      const auto ids = Tokens<P>::constant(batch.tokens, tape);
      const auto all = redistribute<Invariant>(model(ids));
      for (Size position = 0; position < own; ++position) {
        const auto row = redistribute<Invariant>(model.logits_at(ids, position));
        REQUIRE(row.shape() == shape(Size{2}, Size{1}, Size{61}));
        for (Size b = 0; b < 2; ++b)
          for (Size v = 0; v < 61; ++v)
            CHECK(std::abs(row.value().data()[b * 61 + v] - all.value().data()[(b * own + position) * 61 + v]) < 1e-12);
      }
      return 0;
    });
  });
}

}  // namespace

TEST_CASE("weights alone have an engine's values, losses and texts, and take the memory of the parameters") {
  for (const int ranks : {1, 2, 3, 4}) check_fresh<Gpt<Policy<F32>>>(ranks);
  for (const int ranks : {1, 3}) check_fresh<Gpt<Policy<F32, Zero<3>>>>(ranks);
  for (const int ranks : {2, 4}) check_fresh<Gpt<Policy<Bf16, Zero<3>, Tp<2>, SequenceParallel>>>(ranks);
  check_fresh<Gpt<Policy<F64, Cp<2>>>>(2);
}

TEST_CASE("weights go from an engine to weights alone and back, under any strategy and precision") {
  check_saved<Gpt<Policy<F32, Zero<2>>>, Gpt<Policy<F32, Tp<2>>>>(2, 2);
  check_saved<Gpt<Policy<F32>>, Gpt<Policy<F32, Zero<3>>>>(1, 3);
  check_saved<Gpt<Policy<F32>>, Gpt<Policy<Bf16, Zero<3>>>>(1, 2);
  check_saved<Gpt<Policy<Bf16>>, Gpt<Policy<F64>>>(2, 1);
}

TEST_CASE("the logits of one position are those of all at that position") {
  check_rows<Gpt<Policy<F64>>>(1);
  check_rows<Gpt<Policy<F64, Tp<2>, SequenceParallel>>>(2);
  check_rows<Gpt<Policy<F64, Cp<2>>>>(2);
  check_rows<Llama<Policy<F64>>>(1);
  check_rows<Llama<Policy<F64, Tp<2>, SequenceParallel>>>(2);
}

TEST_CASE("ranks with different models are an error") {
  using P = Policy<F32>;
  CHECK_THROWS_WITH_AS(run_ranks_of<P>(on(2),
                                       [](World<P>& world) {
                                         GptConfig config = small_gpt();
                                         if (world.rank() == 1) config.heads = 6;
                                         Weights weights{world, Gpt<P>(config)};
                                       }),
                       doctest::Contains("Weights needs the same on every rank"), Error);
}

TEST_CASE("an engine's parameters follow its masters, and its weights are set through it") {
  using P = Policy<Bf16>;
  run_ranks_of<P>(on(2), [](World<P>& world) {
    Engine engine{world, Gpt<P>(small_gpt()), AdamW{.lr = 1e-3}};
    for (Size step = 0; step < 3; ++step)
      engine.train_batch(std::array{batch_of(world.memory(), 6 * step, 2 * world.data_rank(), 2, 12, 61)});
    Worst worst;
    Size finer = 0;
    for (const auto& named : engine.inventory().parameters) {
      const auto whole = engine.gather_parameter(named.name->text);
      for_each_owned_run(engine, named, [&](Size global, Size count, const float* masters) {
        for (Size i = 0; i < count; ++i) {
          const float value = whole.data()[global + i];
          worst.add(difference(static_cast<double>(value), static_cast<double>(masters[i])));
          finer += static_cast<float>(static_cast<bf16>(value)) != value;
        }
      });
    }
    CHECK(worst.value() == 0);
    CHECK((world.rank() > 0 || finer > 100));
    const std::vector<float> ones(61 * 24, 1.0f);
    CHECK_THROWS_WITH_AS(set_parameter(engine.weights(), "tokens.weight", ones),
                         doctest::Contains("need to be set through the engine"), Error);
    set_parameter(engine, "tokens.weight", ones);
    CHECK(engine.gather_parameter("tokens.weight").data()[7] == 1);
    CHECK(engine.weights().gather_parameter("tokens.weight").data()[7] == 1);
  });
}
