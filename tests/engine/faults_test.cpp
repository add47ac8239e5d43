// SPDX-License-Identifier: Apache-2.0
// A failure is reported once, by its own error, on all ranks, without a hang or a leak.
// labels: thread races
#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Clock = std::chrono::steady_clock;

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 4};

template <class World>
Batch<Cpu> tiny_batch(World& world, Size step) {
  return batch_of(world.memory(), step * 8, 2 * world.data_rank(), 2, 4, 13);
}

template <class World, class Engine>
StepReport one_step(World& world, Engine& engine, Size step) {
  auto batch = tiny_batch(world, step);
  auto loss = engine.forward(batch);
  engine.backward(loss);
  return engine.step();
}

template <class P>
using TinyEngine = Engine<Gpt<P>, AdamW>;

RunOptions on(int ranks) {
  return {.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 30};
}

struct Stopped {
  ErrorCode code{};
  std::string sentence;
};

/// The Error that run_ranks_of throws, if any.
template <class P, class Program>
std::optional<Stopped> error_of(int ranks, Program program) {
  try {
    run_ranks_of<P>(on(ranks), program);
    return std::nullopt;
  } catch (const Error& error) {
    return Stopped{error.code(), error.what()};
  }
}

/// The times at which the ranks stopped.
class Ends {
 public:
  explicit Ends(int ranks) : of_rank_(static_cast<std::size_t>(ranks)) {}
  void note(int rank) { of_rank_[static_cast<std::size_t>(rank)] = Clock::now(); }
  /// From the first to the last.
  double seconds() const {
    const auto [first, last] = std::minmax_element(of_rank_.begin(), of_rank_.end());
    return std::chrono::duration<double>(*last - *first).count();
  }

 private:
  std::vector<Clock::time_point> of_rank_;
};

/// Runs three steps in which the n-th allocation of `faulty_rank` fails. Returns true if it was reached.
template <class P>
bool fails_cleanly_at(Size n, int ranks, int faulty_rank) {
  std::vector<Size> left(static_cast<std::size_t>(ranks), -1);
  std::vector<int> aborted(static_cast<std::size_t>(ranks), 0);
  Ends ends(ranks);
  const auto error = error_of<P>(ranks, [&](World<P>& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    try {
      TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, EngineConfig{.bucket_bytes = 512});
      for (Size step = 0; step < 3; ++step) {
        if (step == 1 && world.rank() == faulty_rank) world.memory().fail_nth_request(n);
        one_step(world, engine, step);
      }
      world.memory().fail_nth_request(0);
      world.all().barrier();  // no rank leaves before all are done
    } catch (const Error& e) {
      ends.note(world.rank());
      aborted[me] = e.code() == ErrorCode::aborted || e.code() == ErrorCode::peer_lost;
      left[me] = world.memory().live();
      throw;
    }
    left[me] = world.memory().live();
  });
  if (!error) return false;
  CAPTURE(n);
  CHECK(ends.seconds() < 1);
  CHECK(error->code == ErrorCode::out_of_memory);
  CHECK(error->sentence.rfind("dspp: a Pool needs ", 0) == 0);
  for (int r = 0; r < ranks; ++r) {
    CHECK(left[static_cast<std::size_t>(r)] == 0);  // nothing is live once its engine is gone
    if (r != faulty_rank) CHECK(aborted[static_cast<std::size_t>(r)] == 1);
  }
  return true;
}

/// Fails at every allocation from the second step on, until none is left.
template <class P>
void check_every_request(int ranks, int faulty_rank, Size at_least) {
  Size n = 1;
  while (fails_cleanly_at<P>(n, ranks, faulty_rank)) ++n;
  MESSAGE("requests that failed cleanly: " << n - 1);
  CHECK(n > at_least);
}

}  // namespace

TEST_CASE("a rank that throws between two steps stops all ranks with its own error, once, within a second") {
  using P = Policy<F32, Zero<3>>;
  for (int culprit : {0, 2}) {
    std::atomic<int> stopped{0};
    Ends ends(4);
    std::string told;
    try {
      run_ranks_of<P>(on(4), [&](World<P>& world) {
        TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, EngineConfig{.bucket_bytes = 512});
        try {
          one_step(world, engine, 0);
          if (world.rank() == culprit) {
            ends.note(culprit);
            throw std::runtime_error("the disk of this rank is full");
          }
          for (Size step = 1; step < 1000; ++step) one_step(world, engine, step);
        } catch (const Error& error) {
          ends.note(world.rank());
          CHECK(error.code() == ErrorCode::aborted);
          ++stopped;
          throw;
        }
      });
    } catch (const std::runtime_error& error) {
      told = error.what();
    }
    CHECK(told == "the disk of this rank is full");
    CHECK(stopped == 3);
    CHECK(ends.seconds() < 1);
  }
}

TEST_CASE("a rank that fails inside a forward stops all ranks with its sentence") {
  using P = Policy<F32, Zero<2>>;
  const auto error = error_of<P>(3, [&](World<P>& world) {
    TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{});
    one_step(world, engine, 0);
    auto batch = tiny_batch(world, 1);
    if (world.rank() == 1) batch.tokens.data()[3] = 13;  // the vocabulary ends at 12
    auto loss = engine.forward(batch);
    engine.backward(loss);
    engine.step();
  });
  REQUIRE(error);
  CHECK(error->code == ErrorCode::usage);
  CHECK(error->sentence.rfind("dspp: ", 0) == 0);
}

TEST_CASE("a failed allocation anywhere in a step is an out_of_memory error and leaks nothing, on one rank") {
  check_every_request<Policy<F32>>(1, 0, 50);
  check_every_request<Policy<F32, Zero<3>>>(1, 0, 50);
}

TEST_CASE("a failed allocation anywhere in a step of one rank stops its peers, and nothing leaks") {
  check_every_request<Policy<F32, Zero<3>>>(2, 1, 50);
  check_every_request<Policy<F32, Zero<2>>>(2, 0, 50);
}

TEST_CASE("a Pool's limit is one byte too small: the error has the map; at the plan's peak it trains") {
  using P = Policy<F32, Zero<3>>;
  const Plan paper = plan<Gpt<P>>(tiny, {.micro_batch = 2, .sequence = 4}, {.data = 2, .bucket_bytes = 512});
  const auto train_within = [&](Size limit) {
    return error_of<P>(2, [&](World<P>& world) {
      world.memory().set_limit(limit);
      TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, EngineConfig{.bucket_bytes = 512});
      for (Size step = 0; step < 3; ++step) one_step(world, engine, step);
    });
  };
  CHECK(!train_within(paper.peak));
  const auto error = train_within(paper.peak - 1);
  REQUIRE(error);
  CHECK(error->code == ErrorCode::out_of_memory);
  CHECK(error->sentence.find("of a limit of") != std::string::npos);
  CHECK(error->sentence.find("largest: ") != std::string::npos);
}

TEST_CASE("forward, backward and step out of order are errors with the right call") {
  using P = Policy<F32>;
  run_ranks_of<P>(on(1), [&](World<P>& world) {
    TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{}, BatchSizes{.accumulate = 2});
    const auto says = [](const char* call) { return doctest::Contains(call); };
    auto batch = tiny_batch(world, 0);
    CHECK_THROWS_WITH_AS(engine.step(), says("Call forward(batch), backward(loss), then step()."), Error);

    auto loss = engine.forward(batch);
    engine.backward(loss);
    CHECK_THROWS_WITH_AS(engine.backward(loss), says("Call forward(batch)."), Error);
    CHECK(!engine.step().acted());  // between boundaries

    auto second = engine.forward(batch);
    engine.backward(second);
    CHECK_THROWS_WITH_AS(engine.forward(batch), says("Call step()."), Error);
    CHECK(engine.step().acted());
    CHECK_THROWS_WITH_AS(engine.step(), says("Call forward(batch), backward(loss), then step()."), Error);
    CHECK(engine.steps() == 1);

    const double silent = engine.eval_batch(batch).mean;
    CHECK(std::isfinite(silent));
    auto third = engine.forward(batch);
    (void)engine.eval_batch(batch);  // ends that forward
    CHECK_THROWS_WITH_AS(engine.backward(third), says("Call forward(batch)."), Error);
  });
}

TEST_CASE("a forward may be repeated before its backward: the last one counts") {
  using P = Policy<F32, Zero<3>>;
  std::array<std::vector<double>, 2> losses;
  for (bool repeat : {false, true})
    run_ranks_of<P>(on(2), [&](World<P>& world) {
      TinyEngine<P> engine(world, Gpt<P>(tiny), AdamW{.lr = 0.1}, EngineConfig{.bucket_bytes = 512});
      for (Size step = 0; step < 4; ++step) {
        auto batch = tiny_batch(world, step);
        if (repeat) {
          (void)engine.forward(tiny_batch(world, step + 1));
          (void)engine.eval_batch(tiny_batch(world, step + 2));
        }
        auto loss = engine.forward(batch);
        const double mean = engine.all_reduce_mean(loss);
        engine.backward(loss);
        engine.step();
        if (world.is_first()) losses[repeat].push_back(mean);
      }
    });
  CHECK(losses[0] == losses[1]);
}

namespace {

/// A layer whose visit() omits one of its two parts.
template <class P>
struct Forgetful : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  LayerNorm<P> norm;
  constexpr explicit Forgetful(const GptConfig& c) : tokens(c.vocabulary, c.width), norm(c.width) {}
  constexpr void visit(auto&& f) { f("tokens", tokens); }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    return cross_entropy<P>(tokens.logits(norm(tokens(ids))), targets, tokens.vocabulary());
  }
};

}  // namespace

TEST_CASE("a parameter that visit() does not name is an error that names it, not a wrong gradient") {
  using P = Policy<F32>;
  const auto error = error_of<P>(1, [&](World<P>& world) {
    Engine<Forgetful<P>, AdamW> engine(world, Forgetful<P>(tiny), AdamW{});
    one_step(world, engine, 0);
  });
  REQUIRE(error);
  CHECK(error->code == ErrorCode::state);
  CHECK(error->sentence.find("LayerNorm ") != std::string::npos);
  CHECK(error->sentence.find("visit()") != std::string::npos);
}
