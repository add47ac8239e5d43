// SPDX-License-Identifier: Apache-2.0
// Ranks with different configurations, or whose states have diverged, throw on every rank with the difference.
// labels: engine
#include <functional>
#include <random>

#include <laws/flipped_bits.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 8};
constexpr Size sequence = 4, micro_batch = 2;

template <class P>
using TinyEngine = Engine<Gpt<P>, AdamW>;

/// The configuration of a rank.
struct Given {
  GptConfig model = tiny;
  AdamW optimizer{.lr = 1e-2};
  BatchSizes sizes{};
  EngineConfig config{.bucket_bytes = 512};
};

template <class World>
Batch<Cpu> batch_for(World& world, Size step) {
  const Size own = sequence / world.cp().size();
  return batch_of(world.memory(), step * 8, micro_batch * world.data_rank(), micro_batch, own, 13,
                  own * world.cp().rank());
}

void weigh(Batch<Cpu>& batch, float weight) {
  batch.target_weights =
      Tensor<float, 2>::uninitialized(batch.targets.shape(), batch.targets.memory(), Category::data, "weights");
  batch.target_weights.fill(weight);
}

template <class World, class Engine>
StepReport one_step(World& world, Engine& engine, Size step) {
  const auto batch = batch_for(world, step);
  auto loss = engine.forward(batch);
  engine.backward(loss);
  return engine.step();
}

/// The error of every rank, or ""; different errors fail the test.
class Sentences {
 public:
  explicit Sentences(int ranks) : of_rank_(static_cast<std::size_t>(ranks)) {}

  template <class World, class Work>
  void collect(World& world, Work work) {
    try {
      work();
    } catch (const Error& error) {
      of_rank_[static_cast<std::size_t>(world.rank())] = error.what();
    }
  }
  std::string one() const {
    for (const std::string& sentence : of_rank_) CHECK(sentence == of_rank_[0]);
    return of_rank_[0];
  }

 private:
  std::vector<std::string> of_rank_;
};

template <class P>
std::string sentence_of(int ranks, const std::function<void(World<P>&)>& program) {
  Sentences sentences(ranks);
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60},
                  [&](World<P>& world) { sentences.collect(world, [&] { program(world); }); });
  return sentences.one();
}

/// "is A on rank 2 and B on the others"
std::string values_on(int odd, int ranks, const std::string& theirs, const std::string& usual) {
  const int o = ranks == 2 ? 1 : odd;
  return "' is " + (o == odd ? theirs : usual) + " on rank " + std::to_string(o) + " and " +
         (o == odd ? usual : theirs) + " on " + (ranks == 2 ? "rank 0" : "the others");
}

struct Difference {
  const char* name;
  const char *theirs, *usual;
  std::function<void(Given&)> make;
};

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all{
      {"optimizer lr", "0.02", "0.01", [](Given& g) { g.optimizer.lr = 0.02; }},
      {"optimizer beta2", "0.5", "0.999", [](Given& g) { g.optimizer.beta2 = 0.5; }},
      {"optimizer weight_decay", "0.5", "0.01", [](Given& g) { g.optimizer.weight_decay = 0.5; }},
      {"micro_batch", "4", "1", [](Given& g) { g.sizes.micro_batch = 4; }},
      {"sequence", "8", "0", [](Given& g) { g.sizes.sequence = 8; }},
      {"accumulate", "2", "1", [](Given& g) { g.sizes.accumulate = 2; }},
      {"clip_norm", "2", "0", [](Given& g) { g.config.clip_norm = 2; }},
      {"bucket_bytes", "1024", "512", [](Given& g) { g.config.bucket_bytes = 1024; }},
      {"check_ranks", "0", "100", [](Given& g) { g.config.check_ranks = 0; }},
      {"model blocks.0.attention heads", "8", "4", [](Given& g) { g.model.heads = 8; }},
      {"model dropout probability", "0.5", "0", [](Given& g) { g.model.dropout = 0.5; }},
      {"model blocks.0.norm1 epsilon", "0.001", "1e-05", [](Given& g) { g.model.epsilon = 1e-3; }},
      {"model tokens.weight stddev", "0.1", "0.02", [](Given& g) { g.model.init_std = 0.1; }},
  };
  return all;
}

template <class P>
void check_start(int ranks) {
  CAPTURE(ranks);
  for (int odd = 0; odd < ranks; ++odd)
    for (const Difference& difference : differences()) {
      const std::string sentence = sentence_of<P>(ranks, [&](World<P>& world) {
        Given given;
        if (world.rank() == odd) difference.make(given);
        TinyEngine<P> engine(world, Gpt<P>(given.model), given.optimizer, given.sizes, given.config);
      });
      CHECK(sentence == "dspp: Engine needs the same on every rank, but '" + std::string(difference.name) +
                            values_on(odd, ranks, difference.theirs, difference.usual) +
                            ". Start all ranks with the same program, options and files.");
    }
}

/// Trains `steps` steps; calls `disturb(world, engine, step)` before each.
template <class P>
std::string disturbed(int ranks, Size steps, const EngineConfig& config,
                      const std::function<void(World<P>&, TinyEngine<P>&, Size)>& disturb, Size* reached = nullptr) {
  return sentence_of<P>(ranks, [&](World<P>& world) {
    TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{.lr = 1e-2}, config);
    for (Size step = 0; step < steps; ++step) {
      disturb(world, engine, step);
      one_step(world, engine, step);
      if (reached && world.is_first()) *reached = step + 1;
    }
  });
}

}  // namespace

TEST_CASE("an engine that differs on one rank is an error on every rank, with the rank, the field and both values") {
  for (int ranks = 2; ranks <= 4; ++ranks) check_start<Policy<F32>>(ranks);
  check_start<Policy<Bf16, Zero<3>>>(3);
  check_start<Policy<F32, Zero<2>, Tp<2>>>(4);
  check_start<Policy<F32, Cp<2>>>(2);
}

TEST_CASE("a model of other shapes is an error with the first parameter that differs") {
  using P = Policy<F32>;
  const auto sentence = sentence_of<P>(3, [](World<P>& world) {
    GptConfig config = tiny;
    if (world.rank() == 1) config.ffn_width = 24;
    TinyEngine<P> engine(world, Gpt<P>(config), AdamW{});
  });
  CHECK(sentence.find("'model blocks.0.mlp.up.weight' is f32 [1, 24, 8]") != std::string::npos);
  CHECK(sentence.find("on rank 1 and f32 [1, 32, 8]") != std::string::npos);
  const auto layers = sentence_of<P>(2, [](World<P>& world) {
    GptConfig config = tiny;
    if (world.rank() == 1) config.layers = 2;
    TinyEngine<P> engine(world, Gpt<P>(config), AdamW{});
  });
  CHECK(layers.find(" on rank 1 and ") != std::string::npos);
}

TEST_CASE("a learning rate or a value that differs on one rank stops the next check, before it is used") {
  const auto check = [](auto policy, int ranks, const char* group) {
    using P = decltype(policy);
    for (int odd = 0; odd < ranks; ++odd)
      for (const Size first : {0, 3}) {
        const EngineConfig config{.bucket_bytes = 512, .check_ranks = 3};
        Size reached = 0;
        const std::string rate = disturbed<P>(
            ranks, 9, config,
            [&](World<P>& world, TinyEngine<P>& engine, Size step) {
              if (step == first && world.rank() == odd) engine.set_learning_rate(0.5);
            },
            &reached);
        CHECK(rate == "dspp: training needs the same on every rank, but 'learning rate" +
                          values_on(odd, ranks, "0.5", "0.01") + ", in step " + std::to_string(first + 1) +
                          ". Set it alike on every rank.");
        CHECK(reached == first);
        if (P::zero_stage == 3 && P::tp == 1) continue;  // each value is held once
        const std::string value = disturbed<P>(
            ranks, 9, config,
            [&](World<P>& world, TinyEngine<P>& engine, Size step) {
              if (step == first && world.rank() == odd)
                set_parameter(engine, "norm.bias", std::vector<float>{0, 0, 0, 0, 0, 0, 0, 1});
            },
            &reached);
        CAPTURE(value);
        CHECK(value.rfind(std::string("dspp: ") + group + ", but 'values of norm.bias' is ", 0) == 0);
        CHECK(value.find(", in step " + std::to_string(first + 1) + ". ") != std::string::npos);
        CHECK(value.find("on rank " + std::to_string(ranks == 2 ? 1 : odd) + " and ") != std::string::npos);
        CHECK(reached == first);
      }
  };
  const char* const replicas = "replicas need the same bits of a parameter";
  check(Policy<F32>{}, 2, replicas);
  check(Policy<F16>{}, 3, replicas);
  check(Policy<Bf16, Zero<2>>{}, 3, replicas);
  check(Policy<F32, Cp<2>>{}, 2, replicas);
  check(Policy<F32, Zero<3>, Tp<2>>{}, 2, "ranks of Tp need the same bits of what they share");
}

TEST_CASE("tokens, targets or samples that differ between ranks of Tp stop the check, and are named") {
  using P = Policy<F32, Zero<2>, Tp<2>>;
  const auto with = [](int ranks, int odd, auto change, bool weighed = false) {
    return sentence_of<P>(ranks, [&](World<P>& world) {
      TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, {.accumulate = 2}, {.bucket_bytes = 512});
      for (Size micro_step = 0; micro_step < 2; ++micro_step) {
        auto batch = batch_for(world, micro_step);
        if (weighed) weigh(batch, 1);
        if (micro_step == 1 && world.rank() == odd) change(batch);
        auto loss = engine.forward(batch);
        engine.backward(loss);
        engine.step();
      }
    });
  };
  for (int ranks : {2, 4})
    for (int odd = 0; odd < ranks; ++odd) {
      const auto says = [&](const std::string& sentence, const std::string& what) {
        CAPTURE(sentence);
        CHECK(sentence.rfind("dspp: the ranks of Tp need the same batch, but '" + what + " of micro-step 1' is ", 0) ==
              0);
        CHECK(sentence.find("on rank " + std::to_string(odd | 1) + " and ") != std::string::npos);
        CHECK(sentence.find(" on rank " + std::to_string(odd & ~1) + ", in step 1. ") != std::string::npos);
      };
      says(with(ranks, odd, [](Batch<Cpu>& b) { b.tokens.data()[5] = (b.tokens.data()[5] + 1) % 13; }), "tokens");
      says(with(ranks, odd, [](Batch<Cpu>& b) { b.targets.data()[0] = (b.targets.data()[0] + 1) % 13; }), "targets");
      says(with(ranks, odd, [](Batch<Cpu>& b) { weigh(b, 1); }), "target_weights");
      says(with(
               ranks, odd, [](Batch<Cpu>& b) { b.target_weights.data()[1] = 3; }, true),
           "target_weights");
      says(with(ranks, odd, [](Batch<Cpu>& b) { b.first_sample += 1; }), "first_sample");
    }
}

TEST_CASE("whole sequences given to the ranks of Cp fail the check; equal slices do not") {
  using P = Policy<F32, Cp<2>>;
  constexpr Size length = 4;
  enum Ignored { none, first, last };
  const auto with = [](auto tokens_of, Ignored ignored = none, int weighed_ranks = 0) {
    return sentence_of<P>(4, [&](World<P>& world) {
      TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, EngineConfig{.bucket_bytes = 512});
      using Ids = Tensor<std::int32_t, 2>;
      const auto extents = shape(micro_batch, length);
      Batch<Cpu> batch{Ids::zeros(extents, world.memory(), Category::data),
                       Ids::zeros(extents, world.memory(), Category::data), micro_batch * world.data_rank()};
      if (world.rank() < weighed_ranks) weigh(batch, static_cast<float>(1 + world.rank()));
      for (Size i = 0; i < micro_batch; ++i)
        for (Size j = 0; j < length; ++j) {
          const bool ignores = (ignored == first && j == 0) || (ignored == last && j == length - 1);
          batch.tokens.data()[length * i + j] = tokens_of(i, j);
          batch.targets.data()[length * i + j] = ignores ? ignored_target : tokens_of(i, j + 1);
        }
      auto loss = engine.forward(batch);
      engine.backward(loss);
      engine.step();
    });
  };
  const auto text = [](Size i, Size j) { return static_cast<std::int32_t>(3 * i + j); };
  const auto alike = [](Size, Size) { return 3; };
  const auto again = [](Size i, Size j) { return static_cast<std::int32_t>(i + j % 2); };
  for (const int weighed_ranks : {0, 4})
    for (const Ignored ignored : {none, first, last})
      CHECK(
          with(text, ignored, weighed_ranks) ==
          "dspp: the ranks of Cp need different slices of a sequence, but rank 1 has the tokens of rank 0 too, in step "
          "1. Give each rank its slice of the whole sequences, sequence_slice(world), as batches() does.");
  for (const Ignored ignored : {none, first, last}) CHECK(with(alike, ignored) == "");
  for (const Ignored ignored : {none, first}) CHECK(with(again, ignored) == "");
  CHECK(with(alike, none, 4) == "");
  CHECK(with(alike, none, 2) == "");  // the first two ranks are one replica
  CHECK(with(alike, none, 1) ==
        "dspp: the ranks of Cp need slices of the same sequences, but 'target_weights of micro-step 0' is left out on "
        "rank 1 and given on rank 0, in step 1. Give all ranks of Cp slices of the batch of their world.data_rank().");
}

namespace {

/// The steps of a run with a flipped bit.
struct Flip {
  int odd = 0;
  Size at = 0;  ///< the step
  Size accumulate = 1;
  std::uint64_t random = 0;  ///< which reduction of the step, and which bit
};

struct Outcome {
  std::string sentence;
  Size steps = 0;                       ///< that were taken
  std::vector<std::uint64_t> prints{};  ///< of the ranks' states, where all steps were
};

/// Trains with a flipped bit in one rank's result of a reduction of gradients.
template <class P>
Outcome train_flipped(int ranks, const Flip& flip, Size check_ranks, Size steps) {
  Outcome outcome;
  outcome.prints.resize(static_cast<std::size_t>(ranks));
  Sentences sentences(ranks);
  Size now = 0, in_step = -1, number = 0;  // of the odd rank
  const auto damage = [&](int rank, Purpose purpose, Buffer out) {
    if (rank != flip.odd || purpose != Purpose::gradient) return;
    if (in_step != now) in_step = now, number = 0;
    const auto reductions = static_cast<std::uint64_t>(5 * flip.accumulate);
    if (now == flip.at && number++ == static_cast<Size>(flip.random % reductions))
      flip_bit(out, flip.random / reductions);
  };
  run_damaged<P>(ranks, damage, [&](World<P>& world) {
    sentences.collect(world, [&] {
      TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{.lr = 1e-2}, {.accumulate = flip.accumulate},
                           {.clip_norm = 0, .bucket_bytes = 256, .check_ranks = check_ranks});
      for (Size step = 0; step < steps; ++step) {
        if (world.rank() == flip.odd) now = step;
        for (Size i = 0; i < flip.accumulate; ++i) one_step(world, engine, step * flip.accumulate + i);
        if (world.rank() == flip.odd) outcome.steps = step + 1;
      }
      outcome.prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
    });
  });
  outcome.sentence = sentences.one();
  return outcome;
}

bool is_named(const std::string& sentence, int odd) {
  return sentence.find("on rank " + std::to_string(odd) + " ") != std::string::npos;
}

/// Flips in steps that check, or with more steps between checks in those that do not: each is found there, before the
/// update, and the rank is named.
template <class P>
void check_flips(int ranks, int flips, const char* who, std::uint64_t seed, Size check_ranks = 1, Size accumulate = 1) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < flips; ++i) {
    const Flip flip{.odd = static_cast<int>(random() % static_cast<unsigned>(ranks)),
                    .at = (check_ranks > 1) + i % 3,
                    .accumulate = accumulate,
                    .random = random()};
    const Outcome outcome = train_flipped<P>(ranks, flip, check_ranks, 4);
    CAPTURE(i);
    CAPTURE(flip.odd);
    CAPTURE(outcome.sentence);
    CHECK(outcome.sentence.rfind(std::string("dspp: ") + who, 0) == 0);
    CHECK(is_named(outcome.sentence, flip.odd));
    CHECK(outcome.steps == flip.at);
  }
}

const char* const sums = "a reduced gradient needs to be the sum over the replicas";
const char* const changed = "a reduced gradient needs to stay unchanged until the update, but on rank";
const char* const copies = "replicas need the same reduced gradient";

}  // namespace

TEST_CASE("a bit flipped in a reduced gradient in a step that checks is found, and the rank is named: 100 of 100") {
  check_flips<Policy<F32>>(3, 15, copies, 1);
  check_flips<Policy<Bf16>>(4, 10, copies, 2);
  check_flips<Policy<F16>>(3, 10, copies, 3);
  check_flips<Policy<F32, Zero<1>>>(2, 15, sums, 4);
  check_flips<Policy<F32, Zero<2>>>(3, 10, sums, 5);
  check_flips<Policy<Bf16, Zero<2>>>(3, 15, sums, 6);
  check_flips<Policy<F16, Zero<3>>>(2, 15, sums, 7);
  check_flips<Policy<Bf16, Zero<3>>>(4, 10, sums, 8);
}

TEST_CASE("under stage 0 a bit flipped in any step is found within the interval, unless it left no trace") {
  using P = Policy<F32>;
  constexpr Size interval = 4;
  const Outcome sound = train_flipped<P>(3, {.at = -1}, interval, 2 * interval);
  REQUIRE(sound.sentence.empty());
  std::mt19937_64 random(9);
  int found = 0;
  for (int i = 0; i < 30; ++i) {
    const Flip flip{.odd = i % 3, .at = 1 + i % (interval - 1), .random = random()};
    const Outcome outcome = train_flipped<P>(3, flip, interval, 2 * interval);
    CAPTURE(i);
    CAPTURE(outcome.sentence);
    if (outcome.sentence.empty()) {
      CHECK(outcome.prints == sound.prints);  // rounded away, in the padding, or in no reduction
      continue;
    }
    ++found;
    CHECK(outcome.steps <= flip.at + interval);
    CHECK(is_named(outcome.sentence, flip.odd));
  }
  MESSAGE("found: " << found << " of 30");
  CHECK(found >= 15);
}

TEST_CASE("under split stages a bit flipped in a step that does not check is found in that step: 100 of 100") {
  const auto check = [](auto policy, int ranks, int flips, std::uint64_t seed, Size accumulate = 1) {
    using P = decltype(policy);
    check_flips<P>(ranks, flips, changed, seed, 100, accumulate);
  };
  check(Policy<F32, Zero<1>>{}, 2, 15, 13);
  check(Policy<Bf16, Zero<1>>{}, 3, 10, 14);
  check(Policy<F32, Zero<2>>{}, 3, 15, 15);
  check(Policy<F64, Zero<2>>{}, 4, 10, 16);
  check(Policy<F16, Zero<2>>{}, 3, 15, 17);
  check(Policy<F16, Zero<3>>{}, 2, 10, 18);
  check(Policy<Bf16, Zero<3>>{}, 4, 15, 19, 3);
  check(Policy<F32, Zero<3>, Tp<2>>{}, 4, 10, 20, 2);
}

TEST_CASE("a reduced gradient that changes in memory before the update is found on its rank, in any step") {
  const auto check = [](auto policy, SumOrder order) {
    using P = decltype(policy);
    for (int odd = 0; odd < 3; ++odd)
      for (const Size at : {Size{0}, Size{1}})                  // the first of two steps checks
        for (const Size after : {Size{0}, Size{1}, Size{2}}) {  // micro-steps of the step
          Sentences sentences(3);
          run_ranks_of<P>(
              {.ranks = 3, .threads_per_rank = 1, .timeout_seconds = 60, .sum_order = order}, [&](World<P>& world) {
                sentences.collect(world, [&] {
                  TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, {.accumulate = 3}, {.bucket_bytes = 512});
                  for (Size micro_step = 0; micro_step < 6; ++micro_step) {
                    const auto batch = batch_for(world, micro_step);
                    auto loss = engine.forward(batch);
                    engine.backward(loss);
                    engine.replicas().complete_all();
                    if (world.rank() == odd && micro_step == 3 * at + after)
                      engine.units()[0]->buckets()[0].reduced.data()[3] ^= std::byte{4};
                    engine.step();
                  }
                });
              });
          const std::string sentence = sentences.one();
          CAPTURE(sentence);
          CHECK(sentence.rfind(std::string("dspp: ") + changed, 0) == 0);
          CHECK(is_named(sentence, odd));
          CHECK(sentence.find(", in step " + std::to_string(at + 1) + ". Nothing was updated") != std::string::npos);
        }
  };
  check(Policy<F32, Zero<2>>{}, SumOrder::rank);
  check(Policy<F32, Zero<2>>{}, SumOrder::transport);
  check(Policy<Bf16, Zero<3>>{}, SumOrder::rank);
}

TEST_CASE("checks change no bit and raise no false error: every precision and stage, in 40 steps each") {
  const auto check = [](auto policy, int ranks, Size accumulate) {
    using P = decltype(policy);
    std::vector<std::uint64_t> prints[2];
    for (const Size every : {0, 1}) {
      prints[every].resize(static_cast<std::size_t>(ranks));
      run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
        GptConfig config = tiny;
        config.dropout = 0.1;
        TinyEngine<P> engine(world, Gpt<P>(config), AdamW{.lr = 1e-2}, {.accumulate = accumulate},
                             {.bucket_bytes = 512, .check_ranks = every});
        for (Size step = 0; step < 40 * accumulate; ++step) one_step(world, engine, step);
        CHECK(engine.rank_check().count() == 40 * every);
        prints[every][static_cast<std::size_t>(world.rank())] = print_of_state(engine);
      });
    }
    CHECK(prints[0] == prints[1]);
  };
  check(Policy<F32>{}, 3, 1);
  check(Policy<F16>{}, 3, 1);
  check(Policy<Bf16>{}, 4, 2);
  check(Policy<F32, Zero<1>>{}, 2, 2);
  check(Policy<Bf16, Zero<2>>{}, 3, 2);
  check(Policy<F16, Zero<3>>{}, 2, 1);
  check(Policy<Bf16, Zero<3>>{}, 4, 1);
  check(Policy<F32, Zero<2>, Tp<2>>{}, 4, 1);
  check(Policy<F32, Zero<3>, Tp<2>>{}, 2, 1);
  check(Policy<F32, Cp<2>>{}, 4, 1);
}
