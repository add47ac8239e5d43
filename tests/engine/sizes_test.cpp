// SPDX-License-Identifier: Apache-2.0
// An engine takes batches of its sizes and smaller ones; larger ones and impossible sizes are errors.
// labels: thread
#include <dspp/engine/batches.hpp>
#include <dspp/engine/evaluate.hpp>
#include <laws/rank_sentence.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 12, .accumulate = 2};

/// A rank's part of `rows` sequences of `tokens` tokens.
template <class P>
Batch<Cpu> batch_for(World<P>& world, Size rows, Size sequence) {
  const Size own = sequence / P::cp;
  return batch_of(world.memory(), 0, rows * world.data_rank(), rows, own, 61, own * world.cp_rank());
}

template <class P>
std::string sentence_of_batch(int ranks, const BatchSizes& of_engine, Size rows, Size sequence) {
  return sentence_of<P>(ranks, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, of_engine};
    engine.forward(batch_for(world, rows, sequence));
  });
}

std::string larger(Size rows, Size sequence) {
  return "dspp: Engine needs batches of at most its micro_batch and sequence, but got a larger one (rows " +
         std::to_string(rows) + ", micro_batch 2, tokens of a sequence " + std::to_string(sequence) +
         ", sequence 12). Give both the same sizes.";
}

}  // namespace

TEST_CASE("batches of the sizes and smaller ones are taken, larger ones than planned are not") {
  using One = Policy<F64>;
  for (const Size rows : {1, 2})
    for (const Size sequence : {1, 11, 12}) CHECK(sentence_of_batch<One>(1, sizes, rows, sequence) == "");
  CHECK(sentence_of_batch<One>(1, sizes, 3, 12) == larger(3, 12));
  CHECK(sentence_of_batch<One>(1, sizes, 2, 13) == larger(2, 13));
  CHECK(sentence_of_batch<One>(1, sizes, 1, 16) == larger(1, 16));
}

TEST_CASE("under Cp the sizes are those of whole sequences") {
  using Halves = Policy<F64, Cp<2>>;
  CHECK(sentence_of_batch<Halves>(2, sizes, 2, 12) == "");
  CHECK(sentence_of_batch<Halves>(2, sizes, 2, 14).find(larger(2, 14)) != std::string::npos);
}

TEST_CASE("sizes without a sequence bound no batch") {
  using P = Policy<F64>;
  CHECK(sentence_of_batch<P>(1, {}, 3, 16) == "");
  CHECK(sentence_of_batch<P>(1, {.micro_batch = 1, .accumulate = 2}, 3, 16) == "");
}

TEST_CASE("a larger batch changes nothing, and evaluation takes any") {
  using P = Policy<F64, Zero<2>>;
  std::vector<double> losses[2];
  for (const bool larger_between : {false, true})
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
      Engine engine{world, Gpt<P>(small_gpt()), AdamW{.lr = 0.1}, sizes};
      for (int step = 0; step < 2; ++step) {
        for (Size micro_step = 0; micro_step < sizes.accumulate; ++micro_step) {
          if (larger_between) {
            CHECK_THROWS_AS(engine.forward(batch_for(world, 3, 12)), Error);
            engine.eval_batch(batch_for(world, 3, 16));
          }
          auto loss = engine.forward(batch_for(world, 2, 12));
          engine.backward(loss);
          const StepReport report = engine.step();
          CHECK(report.acted == (micro_step == 1));
          if (report.acted && world.is_first()) losses[larger_between].push_back(report.loss);
        }
      }
    });
  CHECK(losses[0].size() == 2);
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("the batches that sizes make fit the engine of the same sizes") {
  using P = Policy<F32, Zero<1>>;
  auto text = std::make_shared<data::Text>();
  for (int i = 0; i < 500; ++i) text->bytes.push_back(static_cast<unsigned char>(i % 61));
  text->training_bytes = 400;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, sizes, EngineConfig{.clip_norm = 1}};
    const std::shared_ptr<const data::Text> source = text;
    const auto data = batches(world, source, engine.sizes(), {.steps = 3});
    CHECK(data.size() == 6);
    for (Size step = 0; step < 3; ++step) CHECK(engine.train_batch(data.step(step)).acted());
    CHECK(evaluate(engine, source, engine.sizes()).tokens == 96);  // 8 windows in 99 bytes
    CHECK(engine.steps() == 3);
  });
}

TEST_CASE("batches of another accumulate than the engine's are refused, where steps would come early or never") {
  using P = Policy<F32>;
  auto text = std::make_shared<data::Text>();
  for (int i = 0; i < 500; ++i) text->bytes.push_back(static_cast<unsigned char>(i % 61));
  text->training_bytes = 400;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    const std::shared_ptr<const data::Text> source = text;
    for (const Size own : {1, 2, 4})
      for (const Size of_batches : {1, 2, 4}) {
        Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{.accumulate = own}};
        const auto data = batches(world, source, BatchSizes{2, 12, of_batches}, {.steps = 1});
        std::string said = "no error";
        try {
          for (const auto batch : data.step(0)) {
            auto loss = engine.forward(batch);
            engine.backward(loss);
            engine.step();
          }
        } catch (const Error& error) {
          said = error.what();
        }
        CHECK(engine.steps() == (own == of_batches ? 1 : 0));
        const std::string refused =
            "dspp: Engine needs batches made for its own accumulate, but got one made for another (accumulate of the "
            "batch " +
            std::to_string(of_batches) + ", accumulate of the engine " + std::to_string(own) +
            "). Give both the same BatchSizes.";
        CHECK(said == (own == of_batches ? "no error" : refused));
        engine.forward(batch_for(world, 2, 12));  // a batch of one's own says nothing
      }
  });
}

TEST_CASE("an engine returns its sizes and its configuration, whichever it was given") {
  using P = Policy<F64>;
  run_ranks_of<P>({.threads_per_rank = 1}, [](World<P>& world) {
    Engine plain{world, Gpt<P>(small_gpt()), AdamW{}};
    CHECK(plain.sizes().accumulate == 1);
    CHECK(plain.sizes().sequence == 0);
    Engine sized{world, Gpt<P>(small_gpt()), AdamW{}, sizes};
    CHECK(sized.sizes().micro_batch == 2);
    CHECK(sized.sizes().sequence == 12);
    CHECK(sized.sizes().accumulate == 2);
    CHECK(sized.config().clip_norm == 0);
    Engine configured{world, Gpt<P>(small_gpt()), AdamW{}, EngineConfig{.clip_norm = 2}};
    CHECK(configured.sizes().accumulate == 1);
    CHECK(configured.config().clip_norm == 2);
    Engine both{world, Gpt<P>(small_gpt()), AdamW{}, sizes, EngineConfig{.clip_norm = 3}};
    CHECK(both.sizes().accumulate == 2);
    CHECK(both.config().clip_norm == 3);
  });
}

TEST_CASE("sizes out of range are an error") {
  using P = Policy<F64>;
  const auto sentence = [](const BatchSizes& wrong) {
    return sentence_of<P>(1, [&](World<P>& world) { Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, wrong}; });
  };
  const std::string needs = "dspp: Engine needs sizes of at least 1, but got less (micro_batch ";
  const std::string advice = "). Raise them, or leave them out.";
  CHECK(sentence({.micro_batch = 0, .sequence = 8}) == needs + "0, sequence 8, accumulate 1" + advice);
  CHECK(sentence({.sequence = -1}) == needs + "1, sequence -1, accumulate 1" + advice);
  CHECK(sentence({.accumulate = 0}) == needs + "1, sequence 0, accumulate 0" + advice);
}
