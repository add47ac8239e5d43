// SPDX-License-Identifier: Apache-2.0
// What graphs of steps refuse, and calls that fail in a captured or a repeated step: sentences, and training goes on.
// labels: cuda
#include <kernels/cuda_memory.cuh>

#include <set>
#include <string>

#include <laws/graph_training.hpp>

using namespace dspp;
using namespace dspp::laws;
using namespace dspp::laws::of_graphs;

#if !DSPP_HAS_NVCC()
namespace {

/// What a model does that a graph cannot repeat.
enum class Odd { nothing, changes_a_number, changes_an_operation, reads, writes, asks };

template <class P>
struct OddModel : TinyModel<P> {
  Odd odd = Odd::nothing;
  int* calls;

  constexpr OddModel(Odd what, int* counter) : TinyModel<P>(TinyConfig{}), odd(what), calls(counter) {}
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    auto x = this->tokens(ids);
    const int call = ++*calls;
    if (odd == Odd::changes_a_number) x = x * (1.0 + 0.125 * call);
    if (odd == Odd::changes_an_operation && call == 3) x = x + x;
    if (odd == Odd::reads) x.value().read([](const auto*) {});
    if (odd == Odd::writes) {
      const auto beside = Tensor<float, 1, Cuda>::uninitialized(shape(4), x.value().memory());
      beside.write([](float* host) { std::fill_n(host, 4, 1.0f); });
    }
    if (odd == Odd::asks) ops::all_finite(x.value());
    return cross_entropy<P>(this->tokens.logits(this->inside(x)), targets, this->tokens.vocabulary());
  }
};

/// The error of the third step, which is captured; the steps after it have the losses of a training without graphs.
std::string sentence_of(Odd odd) {
  std::string sentence;
  std::vector<double> of_graphs, of_eager;
  for (const bool graphs : {false, true}) {
    using P = Policy<F32, Cuda>;
    run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
      int calls = 0;
      Engine engine(world, OddModel<P>(odd, &calls), AdamW{}, EngineConfig{.graphs = graphs});
      std::vector<double>& losses = graphs ? of_graphs : of_eager;
      for (Size step = 0; step < 5; ++step) {
        const auto batch = batch_of<Cuda>(world.memory(), 0, step * rows, rows, sequence, vocabulary);
        if (step == 2) {
          const std::uint64_t before = print_of_state(engine);
          try {
            if (graphs) engine.train_batch(batch).get();
          } catch (const Error& error) {
            sentence = error.what();
            CHECK(print_of_state(engine) == before);
          }
          calls = step;
          continue;
        }
        losses.push_back(engine.train_batch(batch)->loss);
      }
    });
  }
  if (!sentence.empty()) CHECK(of_graphs == of_eager);
  return sentence;
}

}  // namespace

TEST_CASE("what cannot be repeated is a sentence that names the operation, and leaves the engine usable") {
  CHECK(sentence_of(Odd::nothing) == "");
  const std::string changed = sentence_of(Odd::changes_a_number);
  CHECK(changed.find("dspp: EngineConfig::graphs needs steps whose launches differ only in the numbers of StepNumbers "
                     "and in addresses, but the arguments of 'pointwise' changed (launch ") == 0);
  CHECK(changed.find(" of micro-step 1). ") != std::string::npos);
  CHECK(sentence_of(Odd::changes_an_operation).find(" and the next 'pointwise_pair' (launch ") != std::string::npos);
  CHECK(sentence_of(Odd::reads).find("dspp: to_host after '") == 0);
  CHECK(sentence_of(Odd::writes).find("dspp: from_host after '") == 0);
  CHECK(sentence_of(Odd::asks).find("dspp: to_host after 'squared_norm' needs the host in every step, but ") == 0);
}

TEST_CASE("graphs are refused on several ranks and on devices that have none") {
  const auto refusal = []<class P>(P, int ranks) {
    std::string sentence;
    try {
      run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [](World<P>& world) {
        Engine engine(world, TinyModel<P>(TinyConfig{}), AdamW{}, EngineConfig{.graphs = true});
      });
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::usage);
      sentence = error.what();
    }
    return sentence;
  };
  CHECK(refusal(Policy<F32, Cuda>(), 2).find("dspp: EngineConfig::graphs needs a world of one rank, but ") == 0);
  CHECK(refusal(Policy<F32>(), 1).find("dspp: EngineConfig::graphs needs a device that repeats launches, ") == 0);
  CHECK(refusal(Policy<F32, Cuda>(), 1) == "");
}

namespace {

/// A batch with a member that its visit does not name.
template <class P>
struct HiddenBatch {
  Input<P, std::int32_t, 2> tokens, targets;
  double temperature = 1;
  constexpr void visit(auto&& f) { f("tokens", tokens), f("targets", targets); }
};
template <class P>
struct HiddenModel : TinyModel<P> {
  using TinyModel<P>::TinyModel;
  constexpr Loss<P> loss(const HiddenBatch<P>& batch) const {
    return cross_entropy<P>(this->tokens.logits(this->inside(this->tokens(batch.tokens))), batch.targets,
                            this->tokens.vocabulary());
  }
};

}  // namespace

TEST_CASE("a batch with a member that is no tensor is refused before its first step, and trains without graphs") {
  for (const bool graphs : {false, true}) {
    using P = Policy<F32, Cuda>;
    run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
      Engine engine(world, HiddenModel<P>(TinyConfig{}), AdamW{}, EngineConfig{.graphs = graphs});
      const auto made = batch_of<Cuda>(world.memory(), 0, 0, rows, sequence, vocabulary);
      HiddenBatch<P> batch;
      batch.tokens = made.tokens, batch.targets = made.targets;
      std::string sentence;
      try {
        engine.train_batch(batch).get();
      } catch (const Error& error) {
        sentence = error.what();
      }
      CHECK(sentence.empty() == !graphs);
      if (graphs)
        CHECK(sentence.find("dspp: EngineConfig::graphs needs a batch all of whose members are tensors") == 0);
    });
  }
}

TEST_CASE("micro-batches of other extents within a step are taken in an eager one, and refused in a repeated one") {
  with_engine<Policy<F32, Cuda>>({.accumulate = 2}, true, AdamW{}, [](auto& world, auto& engine) {
    const auto other = batch_of<Cuda>(world.memory(), 0, 0, rows, sequence - 1, vocabulary);
    software_gpu::graph_counts();
    const auto take = [&](Size step, bool is_odd) {
      auto batches = batches_of_step(world, step, 2);
      const auto second = batches[1];
      if (is_odd) batches[1] = other;
      engine.train_batch(batches).get();
    };
    for (Size step = 0; step < 5; ++step) take(step, step == 1);  // what the others are not compared with
    CHECK(software_gpu::graph_counts() == software_gpu::GraphCounts{3, 6});
    const std::uint64_t before = print_of_state(engine);
    std::string sentence;
    try {
      take(5, true);
    } catch (const Error& error) {
      sentence = error.what();
    }
    CHECK(sentence.find("the micro-batches of a step to have the same extents, but number 2 has others. ") !=
          std::string::npos);
    CHECK(print_of_state(engine) == before);
    take(5, false);
    CHECK(engine.steps() == 6);
  });
}

TEST_CASE("too few or too many micro-batches of a repeated step are the sentences of an eager one") {
  for (const Size count : {1, 3}) {
    std::string sentences[2];
    for (const bool graphs : {false, true})
      with_engine<Policy<F32, Cuda>>({.accumulate = 2}, graphs, AdamW{}, [&](auto& world, auto& engine) {
        for (Size step = 0; step < 4; ++step) engine.train_batch(batches_of_step(world, step, 2)).get();
        try {
          engine.train_batch(batches_of_step(world, 4, count)).get();
        } catch (const Error& error) {
          sentences[graphs] = error.what();
        }
        CHECK(engine.steps() == 4);
      });
    CHECK(sentences[1] == sentences[0]);
    CHECK(!sentences[0].empty());
  }
}

TEST_CASE("a wrong id in a repeated step is the sentence of an eager one, and nothing is updated") {
  for (const bool graphs : {false, true})
    with_engine<Policy<F32, Cuda>>({}, graphs, AdamW{}, [&](auto& world, auto& engine) {
      for (Size step = 0; step < 5; ++step) engine.train_batch(batches_of_step(world, step, 1)).get();
      auto batches = batches_of_step(world, 5, 1);
      batches[0].tokens.write([](std::int32_t* host) { std::fill_n(host, rows * sequence, 1), host[3] = 99; });
      const std::uint64_t before = print_of_state(engine);
      std::string sentence;
      try {
        engine.train_batch(batches).get();
      } catch (const Error& error) {
        sentence = error.what();
      }
      CHECK(sentence.find("the id at position 3 is 99. ") != std::string::npos);
      CHECK(print_of_state(engine) == before);
      CHECK(engine.train_batch(batches_of_step(world, 6, 1))->loss > 0);
    });
}

TEST_CASE("a loss that is not finite in a repeated step is named as in an eager one") {
  std::vector<std::string> sentences;
  for (const bool graphs : {false, true})
    with_engine<Policy<F32, Cuda>>({}, graphs, AdamW{}, [&](auto& world, auto& engine) {
      for (Size step = 0; step < 5; ++step) engine.train_batch(batches_of_step(world, step, 1)).get();
      const std::vector<double> weight(8 * 12, 3e38);
      set_parameter(engine, "inside.down.weight", weight);
      try {
        engine.train_batch(batches_of_step(world, 5, 1)).get();
      } catch (const Error& error) {
        sentences.push_back(error.what());
      }
    });
  REQUIRE(sentences.size() == 2);
  CHECK(sentences[0] == sentences[1]);
}

namespace {

/// What four steps with graphs saw, of which the third is captured and the fourth repeated. In step `failing` the n-th
/// call that issues it fails, or its work does: what is thrown is noted, and a call's step is taken again.
struct FailedRun {
  std::string sentence{}, call{};
  Seen seen{};
};
FailedRun train_with_failure(Size failing, int n, bool is_late) {
  FailedRun run;
  with_engine<Policy<F32, Cuda>>({}, true, AdamW{}, [&](auto& world, auto& engine) {
    for (Size step = 0; step < 4; ++step) {
      const auto batches = batches_of_step(world, step, 1);
      if (step == failing) {
        is_late ? software_gpu::fail_work_of_call(n) : software_gpu::fail_call(n);
        try {
          auto report = engine.train_batch(batches);
          if (!is_late) software_gpu::fail_call(0);
          run.seen.numbers.push_back(report->loss);
        } catch (const Error& error) {
          run.sentence = error.what();
        }
        run.call = software_gpu::failed_call();
        software_gpu::fail_call(0);
        if (is_late && !run.sentence.empty()) return;
        if (run.sentence.empty()) continue;
      }
      run.seen.numbers.push_back(engine.train_batch(batches)->loss);
    }
    run.seen.prints.push_back(print_of_state(engine));
  });
  return run;
}
int calls_of_step(Size step) {
  int calls = 0;
  with_engine<Policy<F32, Cuda>>({}, true, AdamW{}, [&](auto& world, auto& engine) {
    for (Size i = 0; i <= step; ++i) {
      const auto batches = batches_of_step(world, i, 1);
      software_gpu::fail_call(0);
      auto report = engine.train_batch(batches);
      calls = software_gpu::fail_call(0);
      report.get();
    }
  });
  return calls;
}

}  // namespace

TEST_CASE("whichever call of a captured or a repeated step fails is a sentence, and the step can be taken again") {
  const auto before = software_gpu::live();
  const Seen expected = train_with_failure(4, 0, false).seen;
  REQUIRE(expected.numbers.size() == 4);
  std::set<std::string> failed;
  for (const Size step : {2, 3}) {
    const int calls = calls_of_step(step);
    for (const bool is_late : {false, true})
      for (int n = 1; n <= calls; n += is_late ? 4 : 1) {  // late: the error comes by a later call
        const FailedRun run = train_with_failure(step, n, is_late);
        INFO("step ", step, ", call ", n, is_late ? ", late, " : ", ", run.call, ": ", run.sentence);
        CHECK(software_gpu::live() == before);
        failed.insert(run.call);
        if (run.sentence.empty()) {  // memory was found elsewhere, or the call issues nothing
          CHECK((is_late || run.call == "cudaMallocHost"));
          CHECK(run.seen == expected);
          continue;
        }
        CHECK(run.sentence.rfind("dspp: ", 0) == 0);
        CHECK(run.sentence.find("; rank 0 on GPU 0] needs a GPU that runs it, but CUDA gives '") != std::string::npos);
        if (!is_late) CHECK(run.seen == expected);
      }
  }
  for (const char* call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch",
                           "cudaMemcpyAsync", "cudaLaunchKernelEx", "cublasLtMatmul", "cudaEventRecord"})
    CHECK(failed.count(call) == 1);
}
#endif
