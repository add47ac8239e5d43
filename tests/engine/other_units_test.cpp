// SPDX-License-Identifier: Apache-2.0
// Ranks that run different units, or are in different micro-steps, call collectives of the same kind and size for
// different data: an error sentence under every stage that communicates units, in the first such step.
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};

enum class Ways { alike, by_rank, by_rank_from_the_second_step, in_another_order };
thread_local Ways ways = Ways::alike;  // a rank is a thread
thread_local bool odd_rank = false, second_step = false;

/// Two equal blocks; each rank may run one of them, or both in another order.
template <class P>
struct Routed : Layer<P> {
  Embedding<P> tokens{tiny.vocabulary, tiny.width};
  InUnit<GptBlock<P>> a{GptBlock<P>(tiny)}, b{GptBlock<P>(tiny)};
  ColumnParallel<Linear, P> head{{.in = tiny.width, .out = tiny.vocabulary}};

  constexpr void visit(auto&& f) { f("tokens", tokens), f("a", a), f("b", b), f("head", head); }
  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    Hidden<P> x = tokens(ids);
    const bool differs = odd_rank && ways != Ways::alike && (ways != Ways::by_rank_from_the_second_step || second_step);
    if (ways == Ways::in_another_order)
      x = differs ? a(b(x)) : b(a(x));
    else
      x = differs ? b(x) : a(x);
    return cross_entropy<P>(head(x), targets, tiny.vocabulary);
  }
};

/// The error of a training of two steps on two ranks.
template <class P>
std::string sentence_of_training(Ways taken, RunOptions options = {.ranks = 2, .timeout_seconds = 30}) {
  try {
    run_ranks_of<P>(options, [&](World<P>& world) {
      ways = taken, odd_rank = world.rank() == 1;
      Engine engine{world, Routed<P>{}, AdamW{.lr = 0.05}, EngineConfig{.check_ranks = 0}};
      for (Size step = 0; step < 2; ++step) {
        second_step = step == 1;
        const auto batch = batch_of(world.memory(), step * 4, 2 * world.data_rank(), 2, 4, tiny.vocabulary);
        auto loss = engine.forward(batch);
        engine.backward(loss);
        engine.step();
      }
    });
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE(
    "ranks that run equal units in different order are an error, under every stage that communicates in backward") {
  const auto check = [&]<class P>(P) {
    CHECK(sentence_of_training<P>(Ways::alike) == "");
    for (const Ways taken : {Ways::by_rank, Ways::by_rank_from_the_second_step, Ways::in_another_order}) {
      CAPTURE(taken);
      const std::string sentence = sentence_of_training<P>(taken);
      CHECK(sentence.starts_with("dspp: the ranks of "));
      CHECK(sentence.find(" call different collectives, ") != sentence.npos);
      if (taken == Ways::in_another_order) continue;  // kinds or sizes may differ before buckets do
      CHECK(sentence.find(" of bucket ") != sentence.npos);
      CHECK(sentence.find(taken == Ways::by_rank_from_the_second_step ? " in micro-step 2" : " in micro-step 1") !=
            sentence.npos);
    }
  };
  check(Policy<Zero<2>>());
  check(Policy<Zero<3>>());
}

TEST_CASE(
    "under stages that reduce at the step only, ranks may run different units: gradients of the others are zero") {
  for (const Ways taken : {Ways::alike, Ways::by_rank, Ways::in_another_order}) {
    CHECK(sentence_of_training<Policy<Zero<0>>>(taken) == "");
    CHECK(sentence_of_training<Policy<Zero<1>>>(taken) == "");
  }
}

TEST_CASE("a rank that catches an error alone and continues with the next batch is an error, not a mismatched step") {
  const auto check = [&]<class P>(P) {
    std::string sentence;
    try {
      run_ranks_of<P>({.ranks = 2, .timeout_seconds = 30}, [&](World<P>& world) {
        ways = Ways::alike;
        Engine engine{world, Routed<P>{}, AdamW{.lr = 0.05}, EngineConfig{.check_ranks = 0}};
        for (Size step = 0; step < 3; ++step) {
          const auto batch = batch_of(world.memory(), step * 4, 2 * world.data_rank(), 2, 4, tiny.vocabulary);
          if (step == 1 && world.rank() == 1) batch.tokens.data()[3] = tiny.vocabulary;
          try {
            auto loss = engine.forward(batch);
            engine.backward(loss);
            engine.step();
          } catch (const Error& error) {
            if (error.code() != ErrorCode::usage) throw;
          }
        }
      });
    } catch (const Error& error) {
      sentence = error.what();
    }
    CHECK(sentence.find(" call different collectives, ") != sentence.npos);
    CHECK(sentence.find(" in micro-step 2") != sentence.npos);
    CHECK(sentence.find(" in micro-step 3") != sentence.npos);
  };
  check(Policy<Zero<0>>());
  check(Policy<Zero<2>>());
}
