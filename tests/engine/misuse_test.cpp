// SPDX-License-Identifier: Apache-2.0
// Misuse by a user's model or program is one error sentence, never a wrong gradient.
// labels: thread
// alone: includes by condition
#include <cfenv>

#include <dspp/base/config.hpp>
#include <laws/rank_sentence.hpp>
#include <laws/training_run.hpp>

#if DSPP_HAS_SSE2()
#include <xmmintrin.h>
#endif

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size width = 8, vocabulary = 13;

template <class World>
Batch<Cpu> small_batch(World& world, Size step = 0) {
  return batch_of(world.memory(), step * 8, 2 * world.data_rank(), 2, 4, vocabulary);
}

/// One step of Model; the sentence of the error that stops it, or "".
template <class Model>
std::string sentence_of_step(int ranks) {
  using P = typename Model::policy;
  return sentence_of<P>(ranks, [](World<P>& world) {
    Engine engine{world, Model(), AdamW{}};
    const auto batch = small_batch(world);
    auto loss = engine.forward(batch);
    engine.backward(loss);
    engine.step();
  });
}

/// A table, a function of its rows, and the table again as the head.
template <class P, class Middle>
struct Small : Layer<P> {
  VocabParallel<Embedding, P> tokens{vocabulary, width};
  Middle middle;
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("middle", middle);
  }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(middle(tokens(ids))), targets, vocabulary);
  }
};

template <class P>
struct Normed : LayerNorm<P> {
  constexpr Normed() : LayerNorm<P>(width) {}
};

/// Names its only norm twice.
template <class P>
struct NamedTwice : Layer<P> {
  LayerNorm<P> norm{width};
  constexpr void visit(auto&& f) {
    f("norm1", norm);
    f("norm2", norm);
  }
  constexpr auto operator()(const Hidden<P>& x) const { return norm(norm(x)); }
};

/// Uses its norm on the whole sequence and on slices of it.
template <class P>
struct UsedBothWays : Layer<P> {
  LayerNorm<P> norm{width};
  constexpr void visit(auto&& f) { f("norm", norm); }
  constexpr auto operator()(const Hidden<P>& x) const {
    return redistribute<Invariant>(norm(redistribute<Shard<1>>(norm(x))));
  }
};

/// Uses the norm of its unit again outside the unit.
template <class P>
struct UsedOutside : Layer<P> {
  InUnit<LayerNorm<P>> unit{LayerNorm<P>(width)};
  constexpr void visit(auto&& f) { f("unit", unit); }
  constexpr auto operator()(const Hidden<P>& x) const { return unit.inner(unit(x)); }
};

template <class P>
struct TwoOfOneName : Layer<P> {
  LayerNorm<P> one{width}, other{width};
  constexpr void visit(auto&& f) { f("norm", one), f("norm", other); }
  constexpr auto operator()(const Hidden<P>& x) const { return other(one(x)); }
};

/// Adds its parameter without registering the use.
template <class P>
struct Unnoted : Layer<P> {
  ParameterOf<P, 1> shift{"Unnoted shift", shape(width), Initial::zeros()};
  constexpr void visit(auto&& f) { f("shift", shift); }
  constexpr auto operator()(const Hidden<P>& x) const {
    using T = ElementOf<P>;
    const Shape<2> rows{{x[0] * x[1], x[2]}};
    Hidden<P> y(ops::add_bias(x.value().reshape(rows), shift.value()).reshape(x.shape()), x.tape());
    y.on_backward([self = this, slot = x.slot(), rows](Tape<Cpu>& tape, Tensor<T, 3, Cpu> dy) {
      self->shift.accumulate([&](auto d, Write how) { ops::sum_rows_into(d, how, dy.reshape(rows)); });
      tape.give(slot, std::move(dy));
    });
    return y;
  }
};

}  // namespace

TEST_CASE("a parameter whose use a layer does not register is an error") {
  using P = Policy<F32, Tp<2>, SequenceParallel>;
  CHECK(sentence_of_step<Small<P, Unnoted<P>>>(2) ==
        "dspp: a parameter needs its use noted in forward, but Unnoted shift [8] received a gradient without. Call "
        "register_use(x) before on_backward(...).");
}

TEST_CASE("a parameter that visit() names twice is an error") {
  using P = Policy<F32>;
  CHECK(
      sentence_of_step<Small<P, NamedTwice<P>>>(1) ==
      "dspp: visit() needs to name each parameter once, but LayerNorm weight [8] is named again. Name another part, or "
      "leave it out.");
}

TEST_CASE("two parts of one name are an error") {
  using P = Policy<F32>;
  CHECK(sentence_of_step<Small<P, TwoOfOneName<P>>>(1) ==
        "dspp: visit() needs a name for each parameter that no other has, but two are called 'middle.norm.weight': "
        "files could not distinguish them. Rename the part of one of them.");
}

TEST_CASE("a parameter used beside a whole value and beside slices is refused, but not in a group of one") {
  using P = Policy<F32, Tp<2>>;
  CHECK(
      sentence_of_step<Small<P, UsedBothWays<P>>>(2) ==
      "dspp: a parameter needs uses of one kind over Tp, but LayerNorm weight [8] is used beside an Invariant value "
      "and "
      "beside one that is not: one gradient is whole and the other a summand. redistribute<Replicate>(x) the Invariant "
      "value first.");
  CHECK(sentence_of_step<Small<Policy<F32>, UsedBothWays<Policy<F32>>>>(1) == "");
}

TEST_CASE("under Zero<3> a parameter read outside its unit is an error; under the other stages it is resident") {
  CHECK(sentence_of_step<Small<Policy<F32, Zero<2>>, UsedOutside<Policy<F32, Zero<2>>>>>(2) == "");
  const std::string sentence = sentence_of_step<Small<Policy<F32, Zero<3>>, UsedOutside<Policy<F32, Zero<3>>>>>(2);
  CHECK(sentence.starts_with("dspp: a parameter needs its unit to be entered, but LayerNorm "));
  CHECK(sentence.ends_with(
      " [8] was reached while its values are spread over the replicas. Use it inside the block that visits it, or let "
      "the model visit it itself."));
}

TEST_CASE("backward of an earlier forward's loss is refused") {
  using P = Policy<F32>;
  const std::string sentence = sentence_of<P>(1, [](World<P>& world) {
    Engine engine{world, Small<P, Normed<P>>(), AdamW{}};
    const auto a = small_batch(world, 0), b = small_batch(world, 1);
    auto first = engine.forward(a);
    auto second = engine.forward(b);
    engine.backward(first);
  });
  CHECK(sentence ==
        "dspp: backward needs the loss that the last forward returned, but got another. Call it before the next "
        "forward, and scale a loss inside of the model's loss().");
}

TEST_CASE("train_batch takes exactly the micro-batches of one step, and equals the three verbs") {
  using P = Policy<F32, Zero<3>>;
  std::array<std::vector<double>, 2> losses;
  for (const bool verbs : {false, true}) {
    const std::string sentence = sentence_of<P>(2, [&](World<P>& world) {
      Engine engine{world, Small<P, Normed<P>>(), AdamW{.lr = 0.1}, BatchSizes{.accumulate = 3},
                    EngineConfig{.bucket_bytes = 64}};
      for (Size step = 0; step < 4; ++step) {
        std::vector<Batch<Cpu>> batches;
        for (Size a = 0; a < 3; ++a) batches.push_back(small_batch(world, 3 * step + a));
        StepReport report;
        if (verbs) {
          for (const Batch<Cpu>& batch : batches) {
            auto local = engine.forward(batch);
            engine.backward(local);
            report = engine.step();
          }
        } else {
          report = engine.train_batch(batches);
        }
        CHECK(report.acted);
        if (world.is_first()) losses[verbs].insert(losses[verbs].end(), {report.loss, report.gradient_norm});
      }
    });
    CHECK(sentence == "");
  }
  CHECK(losses[0] == losses[1]);

  for (const std::size_t count : {0, 1, 2, 4, 5, 6, 9}) {
    CAPTURE(count);
    const std::string sentence = sentence_of<P>(1, [&](World<P>& world) {
      Engine engine{world, Small<P, Normed<P>>(), AdamW{}, BatchSizes{.accumulate = 3}};
      std::vector<Batch<Cpu>> batches;
      while (batches.size() < count) batches.push_back(small_batch(world));
      const auto before = engine.gather_parameter("middle.bias");
      try {
        engine.train_batch(batches);
      } catch (const Error&) {
        CHECK(engine.steps() == 0);
        CHECK(engine.at_step_boundary());
        const auto after = engine.gather_parameter("middle.bias");
        CHECK(std::equal(after.data(), after.data() + after.count(), before.data()));
        throw;
      }
    });
    CHECK(sentence ==
          "dspp: train_batch needs 3 micro-batches, one for each micro-step of BatchSizes::accumulate, but got " +
              std::string(count < 3 ? "fewer" : "more") + ". Give it those of one step.");
  }
}

TEST_CASE("train_batch takes a Batch as the whole of a step of one micro-batch") {
  using P = Policy<F32>;
  const auto trained = [](Size accumulate) {
    return sentence_of<P>(1, [&](World<P>& world) {
      Engine engine{world, Small<P, Normed<P>>(), AdamW{}, BatchSizes{.accumulate = accumulate}};
      const Batch<Cpu> batch = small_batch(world);
      const double before = engine.eval_batch(batch).mean;
      const StepReport report = engine.train_batch(batch);
      CHECK(report.loss == before);
      CHECK(engine.steps() == 1);
    });
  };
  CHECK(trained(1) == "");
  CHECK(
      trained(2) ==
      "dspp: train_batch needs 2 micro-batches, one for each micro-step of BatchSizes::accumulate, but got fewer. Give "
      "it those of one step.");
}

TEST_CASE("train_batch begins at a step boundary") {
  using P = Policy<F32>;
  CHECK(sentence_of<P>(1,
                       [](World<P>& world) {
                         Engine engine{world, Small<P, Normed<P>>(), AdamW{}, BatchSizes{.accumulate = 2}};
                         const std::vector<Batch<Cpu>> batches{small_batch(world, 0), small_batch(world, 1)};
                         auto loss = engine.forward(batches[0]);
                         engine.backward(loss);
                         engine.train_batch(batches);
                       }) ==
        "dspp: train_batch needs a step that has not begun, but 1 micro-steps are done. Finish it with forward, "
        "backward and step.");
}

TEST_CASE("set_parameter takes the whole parameter") {
  using P = Policy<F32>;
  CHECK(sentence_of<P>(1, [](World<P>& world) {
          Engine engine{world, Small<P, Normed<P>>(), AdamW{}};
          set_parameter(engine, "middle.bias", std::vector<float>(7));
        }) == "dspp: set_parameter needs all 8 elements of 'middle.bias', but got 7. Give the whole parameter.");
}

namespace {
/// Neither run() nor an Engine begins while the processor of this thread is in a wrong state; both do afterwards.
void check_refused(const char* word) {
  using P = Policy<F64>;
  const std::string at_start = sentence_of<P>(1, [](World<P>&) {});
  CHECK(at_start.find("dspp: training needs the arithmetic of IEEE 754, but the processor ") == 0);
  CHECK(at_start.find(word) != std::string::npos);
}
}  // namespace

TEST_CASE("another rounding mode or flush-to-zero is refused at the start") {
  using P = Policy<F64>;
  std::fesetround(FE_UPWARD);
  check_refused("round to nearest");
  std::fesetround(FE_TOWARDZERO);
  check_refused("round to nearest");
  std::fesetround(FE_TONEAREST);
#if DSPP_HAS_SSE2()
  for (const unsigned bit : {0x8000u, 0x0040u}) {  // flush to zero, denormals are zero: crtfastmath.o sets both
    _mm_setcsr(_mm_getcsr() | bit);
    check_refused("subnormal");
    _mm_setcsr(_mm_getcsr() & ~bit);
    const std::string at_engine = sentence_of<P>(2, [bit](World<P>& world) {
      _mm_setcsr(_mm_getcsr() | bit);
      Engine engine{world, Small<P, Normed<P>>(), AdamW{}};
    });
    CHECK(at_engine.find("subnormal") != std::string::npos);
  }
#endif
  CHECK(sentence_of<P>(1, [](World<P>&) {}) == "");
}

TEST_CASE(
    "a main program with an invalid number of ranks exits with status 2, and with an unknown exception with status 1") {
  const auto status_of = [](std::vector<std::string> words, auto program) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return run<Policy<F32>>(static_cast<int>(argv.size()), argv.data(), program);
  };
  int ran = 0;
  const auto count = [&](World<Policy<F32>>&) { ++ran; };
  CHECK(status_of({"program"}, count) == 0);
  CHECK(ran == 1);
  for (const char* wrong : {"4294967297", "two", "-1", ""}) CHECK(status_of({"program", "--ranks", wrong}, count) == 2);
  CHECK(status_of({"program", "--ranks"}, count) == 2);
  CHECK(status_of({"program", "--seed", "x"}, count) == 2);
  CHECK(ran == 1);
  CHECK(status_of({"program"}, [](World<Policy<F32>>&) { throw 5; }) == 1);
  CHECK(status_of({"program"}, [](World<Policy<F32>>&) { throw std::runtime_error("mine"); }) == 1);
}
