// SPDX-License-Identifier: Apache-2.0
// Ranks whose training programs diverge get an error with the lines of the programs and of the layers below.
// labels: thread
#include <laws/training_run.hpp>

#include <regex>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 4};

int line_of_layer = 0;

/// A Gpt with a branch that only rank 1 takes.
template <class P>
struct OddModel : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  ColumnParallel<Linear, P> head;

  constexpr explicit OddModel(const GptConfig& c)
      : tokens(EmbeddingConfig{.vocabulary = 14, .width = c.width, .initial = Initial::normal(0.5)}),
        head(LinearConfig{.in = c.width, .out = 14, .bias = false, .initial = Initial::normal(0.1)}) {}

  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("head", head);
  }

  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    auto x = tokens(ids);
    if (x.tape().context().along.tp->rank() == 1) {
      const auto part = redistribute<Shard<2>>(x);
      line_of_layer = __LINE__ + 1;
      x = redistribute<Invariant>(part);
    }
    return cross_entropy<P>(head(x), targets, 13);
  }
};

/// The error of two ranks that run `program(world, engine)`.
template <class Model, class Program>
std::string sentence_of(Program program) {
  using P = typename Model::policy;
  try {
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
      Engine<Model, AdamW> engine(world, Model(tiny), AdamW{});
      program(world, engine, batch_of(world.memory(), 0, 2 * world.data_rank(), 2, 4, 13));
    });
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::mismatch);
    return error.what();
  }
  return "nothing";
}

/// " at <this file>:41", followed by what `below` matches.
std::string at(int line, const std::string& below) {
  return " at engine/call_sites_test[.]cpp:" + std::to_string(line) + below;
}

bool matches(const std::string& sentence, const std::string& pattern) {
  return std::regex_search(sentence, std::regex(pattern));
}

}  // namespace

TEST_CASE("ranks that call different functions of an engine get an error with both lines") {
  int mean = 0, step = 0;
  const auto sentence = sentence_of<Gpt<Policy<Zero<1>, F32>>>([&](auto& world, auto& engine, const auto& batch) {
    auto loss = engine.forward(batch);
    engine.backward(loss);
    if (world.is_first()) {
      mean = __LINE__ + 1;
      engine.all_reduce_mean(loss);
    } else {
      step = __LINE__ + 1;
      engine.step();
    }
  });
  CAPTURE(sentence);
  CHECK(matches(sentence, "rank 0 calls all_reduce[(]f64 x 5[)]" + at(mean, ", but ")));
  const std::string below = " [(]zero/replica_completion[.]hpp:[0-9]+[)][.]";
  CHECK(matches(sentence, "rank 1 calls reduce_scatter[^,]*" + at(step, below)));
}

TEST_CASE("an error of a layer's collective in backward has the line of the program and of the layer") {
  int barrier = 0, backward = 0;
  const auto sentence =
      sentence_of<Gpt<Policy<Zero<0>, F32, Tp<2>>>>([&](auto& world, auto& engine, const auto& batch) {
        auto loss = engine.forward(batch);
        if (world.is_first()) {
          barrier = __LINE__ + 1;
          world.tp().barrier();
        } else {
          backward = __LINE__ + 1;
          engine.backward(loss);
        }
      });
  CAPTURE(sentence);
  CHECK(matches(sentence, "rank 0 calls barrier" + at(barrier, ", but ")));
  CHECK(matches(sentence, "rank 1 calls all_reduce[^,]*" + at(backward, " [(]parallel/[a-z]*[.]hpp:[0-9]+[)][.]")));
}

TEST_CASE("an error of a collective in a user's layer has the layer's line") {
  int forward = 0;
  const auto sentence = sentence_of<OddModel<Policy<Zero<0>, F32, Tp<2>>>>([&](auto&, auto& engine, const auto& batch) {
    forward = __LINE__ + 1;
    auto loss = engine.forward(batch);
  });
  CAPTURE(sentence);
  const std::string layer = " [(]engine/call_sites_test[.]cpp:" + std::to_string(line_of_layer) + "[)][.]";
  CHECK(matches(sentence, "rank 1 calls all_gather[^,]*" + at(forward, layer)));
}
