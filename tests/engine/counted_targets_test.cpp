// SPDX-License-Identifier: Apache-2.0
// The training loss is the mean over the counted targets of the global batch for every split over ranks and
// micro-steps: random rows and masks under Sgd, which shows wrong factors, compared with one rank with the whole batch.
// labels: engine
#include <limits>
#include <mutex>

#include <laws/difference.hpp>
#include <laws/training_run.hpp>

#include <dspp/autograd/recompute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/optim/sgd.hpp>

using namespace dspp;

namespace {

constexpr GptConfig small{.layers = 1, .width = 8, .heads = 4, .vocabulary = 13, .sequence = 8, .init_std = 0.4};
constexpr Size steps = 3, bucket_elements = 128;

struct Task {
  Size data = 1, accumulate = 1;
  std::uint64_t seed = 0;
  double clip_norm = 0;
  Size loss_chunk_tokens = 0;
};

Size draw(std::uint64_t seed, Size step, Size what, Size below) {
  return static_cast<Size>(philox_bits({{seed}, step, what, 7}, 0) % static_cast<std::uint64_t>(below));
}

/// The rows of each micro-batch of a step, at index micro_step data + data_rank, and the weights of their targets: 1 or
/// 0 or, in weighted batches, quarters, whose sums are exact.
struct GlobalBatch {
  std::vector<Size> rows;
  std::vector<std::vector<double>> counts;  // [row][position]
  bool weighed = false;

  Size first(Size micro_batch) const {
    Size sum = 0;
    for (Size i = 0; i < micro_batch; ++i) sum += rows[static_cast<std::size_t>(i)];
    return sum;
  }
  double counted() const {
    double sum = 0;
    for (const auto& row : counts)
      for (const double target : row) sum += target;
    return sum;
  }
};

/// Masks of every kind: none, sparse, a micro-batch with a single target, one without any. Weights for half of the
/// seeds.
GlobalBatch global_batch(const Task& task, Size step) {
  const Size micro_batches = task.data * task.accumulate;
  const Size kind = (draw(task.seed, 0, 1, 4) + step) % 4, odd = draw(task.seed, step, 2, micro_batches);
  GlobalBatch all;
  all.weighed = task.seed / 2 % 2 == 1;
  for (Size m = 0; m < micro_batches; ++m) {
    all.rows.push_back(1 + draw(task.seed, step, 10 + m, 4));
    for (Size r = 0; r < all.rows.back(); ++r) {
      std::vector<double> row(static_cast<std::size_t>(small.sequence));
      for (Size j = 0; j < small.sequence; ++j) {
        bool counts = kind == 0 || draw(task.seed, step, 1000 * (m + 1) + 10 * r + j, 3) == 0;
        if (m == odd && kind == 1) counts = r == 0 && j == 5;
        if (m == odd && kind == 2 && micro_batches > 1) counts = false;
        const Size quarters = all.weighed ? 1 + draw(task.seed, step, 500 * (m + 1) + 10 * r + j, 12) : 4;
        row[static_cast<std::size_t>(j)] = counts ? 0.25 * static_cast<double>(quarters) : 0;
      }
      all.counts.push_back(std::move(row));
    }
  }
  return all;
}

/// The same on one rank at once.
GlobalBatch whole(GlobalBatch all) {
  all.rows = {all.first(std::ssize(all.rows))};
  return all;
}

/// The traffic of a step without checks of the ranks: bytes and calls.
void check_traffic(const Traffic& measured, const Traffic& planned) {
  for (int c = 0; c < collective_count; ++c)
    for (const Purpose purpose :
         {Purpose::activation, Purpose::parameter, Purpose::gradient, Purpose::replicated_gradient, Purpose::scalar}) {
      const auto collective = static_cast<Collective>(c);
      CAPTURE(std::string(name_of(collective)));
      CAPTURE(std::string(name_of(purpose)));
      CHECK(measured.bytes(collective, purpose) == planned.bytes(collective, purpose));
      CHECK(measured.calls(collective, purpose) == planned.calls(collective, purpose));
    }
}

struct Seen {
  std::vector<double> losses, evaluated, norms, targets;
  std::map<std::string, std::vector<double>> gradients, parameters;
};

template <class P>
struct Run {
  World<P>& world;
  const Task& task;  // of this run; `batches` may be another's
  std::vector<GlobalBatch> batches;
  Seen& seen;

  Batch<Cpu> micro_batch(Size step, Size a) const {
    const GlobalBatch& all = batches[static_cast<std::size_t>(step)];
    const Size m = a * task.data + world.data_rank(), first = all.first(m), width = small.sequence / P::cp;
    const Size rows = all.rows[static_cast<std::size_t>(m)], start = width * world.cp_rank();
    auto batch = laws::batch_of(world.memory(), 40 * step, first, rows, width, small.vocabulary, start);
    if (all.weighed)
      batch.target_weights =
          Tensor<float, 2>::uninitialized(batch.targets.shape(), world.memory(), Category::data, "weights");
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < width; ++j) {
        const double counts = all.counts[static_cast<std::size_t>(first + i)][static_cast<std::size_t>(start + j)];
        // half of those that do not count have weight 0
        if (counts == 0 && (!all.weighed || j % 2 == 0)) batch.targets.data()[i * width + j] = ignored_target;
        if (all.weighed)
          batch.target_weights.data()[i * width + j] = counts == 0 && j % 2 == 0 ? 5 : static_cast<float>(counts);
      }
    return batch;
  }

  GptConfig config() const {
    GptConfig c = small;
    c.loss_chunk_tokens = task.loss_chunk_tokens;
    return c;
  }

  /// Compared with the plan, whose traffic holds for any rows, and whose peak holds if all ranks have as many rows.
  void check_plan(const Traffic& replicas, const Traffic& cp, const Traffic& tp) const {
    const auto rows = [&](Size a) {
      return batches[0].rows[static_cast<std::size_t>(a * task.data + world.data_rank())];
    };
    const auto paper =
        plan<Gpt<P>>(config(), {.micro_batch = rows(0), .sequence = small.sequence, .accumulate = task.accumulate},
                     {.data = static_cast<int>(task.data),
                      .bucket_bytes = bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
                      .target_weights = batches[0].weighed,
                      .rank = world.place()},
                     Sgd{});
    check_traffic(replicas, paper.replica_traffic);
    for (Size a = 1; a < task.accumulate; ++a)
      if (rows(a) != rows(0)) return;
    check_traffic(cp, paper.traffic_along.cp);
    check_traffic(tp, paper.traffic_along.tp);
    CHECK(world.memory().peak() == paper.peak);
  }

  template <class Engine>
  StepReport verbs(Engine& engine, Size step, bool look) {
    MeanLoss own;
    StepReport report;
    for (Size a = 0; a < task.accumulate; ++a) {
      const auto batch = micro_batch(step, a);
      auto loss = engine.forward(batch);
      own.mean += engine.value_of(loss) * loss.counted.item();
      own.counted += loss.counted.item();
      if (look && task.accumulate == 1) seen.evaluated.push_back(engine.all_reduce_mean(loss));
      engine.backward(loss);
      if (look && a + 1 == task.accumulate) look_at_gradients(engine);
      report = engine.step();
    }
    if (step == 0) engine.replicas().complete_all();
    if (step == 0) check_plan(world.replicas().traffic(), world.cp().traffic(), world.tp().traffic());
    if (own.counted > 0) own.mean /= own.counted;
    seen.losses.push_back(engine.all_reduce_mean(own));
    return report;
  }

  template <class Engine>
  StepReport at_once(Engine& engine, Size step) {
    std::vector<Batch<Cpu>> own;
    for (Size a = 0; a < task.accumulate; ++a) own.push_back(micro_batch(step, a));
    if (task.accumulate == 1) seen.evaluated.push_back(engine.all_reduce_mean(engine.eval_batch(own[0])));
    const StepReport report = engine.train_batch(own);
    seen.losses.push_back(report.loss);
    return report;
  }

  template <class Engine>
  void look_at_gradients(Engine& engine) {
    for (const auto& named : engine.inventory().parameters) {
      const auto all = engine.gather_gradient(named.name->text);
      if (world.is_first()) seen.gradients[named.name->text].assign(all.data(), all.data() + all.count());
    }
  }

  void train() {
    Engine engine{world, Gpt<P>(config()), Sgd{.lr = 0.3}, BatchSizes{.accumulate = task.accumulate},
                  EngineConfig{.clip_norm = task.clip_norm,
                               .bucket_bytes = bucket_elements * static_cast<Size>(sizeof(typename P::Element))}};
    for (Size step = 0; step < steps; ++step) {
      const StepReport report = step == 1 ? at_once(engine, step) : verbs(engine, step, step == 2);
      seen.norms.push_back(report.gradient_norm);
      seen.targets.push_back(report.targets);
    }
    for (const auto& named : engine.inventory().parameters) {
      const auto all = engine.gather_parameter(named.name->text);
      if (world.is_first()) seen.parameters[named.name->text].assign(all.data(), all.data() + all.count());
    }
  }
};

/// Trains on the batches of `of`, split as in `task`, or whole on one rank.
template <class P>
Seen trained(const Task& task, const std::vector<GlobalBatch>& batches) {
  const int ranks = static_cast<int>(task.data) * P::cp * P::tp;
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = 3, .timeout_seconds = 60}, [&](World<P>& world) {
    Run<P>{world, task, batches, seen[static_cast<std::size_t>(world.rank())]}.train();
  });
  for (const Seen& other : seen) {
    CHECK(other.losses == seen[0].losses);
    CHECK(other.norms == seen[0].norms);
  }
  return seen[0];
}

void check_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  CHECK(laws::difference_to_largest(a, b) <= tolerance);
}

void check_same(const Seen& split, const Seen& dense, double tolerance) {
  check_near(split.losses, dense.losses, tolerance);
  check_near(split.norms, dense.norms, tolerance);
  CHECK(split.targets == dense.targets);
  if (!split.evaluated.empty()) check_near(split.evaluated, dense.evaluated, tolerance);
  for (const auto of : {&Seen::gradients, &Seen::parameters}) {
    REQUIRE((split.*of).size() == (dense.*of).size());
    for (const auto& parameter : dense.*of) {
      const std::string& name = parameter.first;
      CAPTURE(name);
      check_near((split.*of).at(name), parameter.second, tolerance);
    }
  }
}

using Dense = Policy<F64>;

template <class P>
void check_against_dense(Size data, Size accumulate, std::uint64_t seed) {
  for (const double clip_norm : {0.0, 0.05}) {
    const Task task{.data = data,
                    .accumulate = accumulate,
                    .seed = seed,
                    .clip_norm = clip_norm,
                    .loss_chunk_tokens = seed % 2 == 0 ? 0 : 3};
    CAPTURE(data);
    CAPTURE(accumulate);
    CAPTURE(seed);
    CAPTURE(clip_norm);
    std::vector<GlobalBatch> batches, all_at_once;
    std::vector<double> targets;
    for (Size step = 0; step < steps; ++step) {
      batches.push_back(global_batch(task, step));
      all_at_once.push_back(whole(batches.back()));
      targets.push_back(batches.back().counted());
    }
    const Seen dense = trained<Dense>({.seed = seed, .clip_norm = clip_norm}, all_at_once);
    CHECK(dense.targets == targets);
    check_same(trained<P>(task, batches), dense, 1e-9);
  }
}

/// A few seeds for each degree and number of micro-steps.
template <class P>
void check_policy(Size largest_data) {
  for (Size data = 1; data <= largest_data; ++data)
    for (Size accumulate = 1; accumulate <= 3; ++accumulate)
      for (std::uint64_t seed = 0; seed < 4; ++seed)
        check_against_dense<P>(data, accumulate, 100 * static_cast<std::uint64_t>(3 * data + accumulate) + seed);
}

}  // namespace

TEST_CASE("unequal rows and masks train as the whole batch on one rank: data ranks, stage 0") {
  check_policy<Policy<F64>>(3);
}
TEST_CASE("unequal rows and masks train as the whole batch on one rank: data ranks, stage 3") {
  check_policy<Policy<F64, Zero<3>>>(3);
}
TEST_CASE("unequal rows and masks train as the whole batch on one rank: context ranks, stage 1") {
  check_policy<Policy<F64, Zero<1>, Cp<2>>>(2);
}
TEST_CASE("unequal rows and masks train as the whole batch on one rank: context and tensor ranks, stage 2") {
  check_policy<Policy<F64, Zero<2>, Cp<2>, Tp<2>, SequenceParallel>>(2);
}

namespace {

enum class Terms {
  mean_alone,
  two_cross_entropies,
  two_over_samples,
  sometimes_over_samples,
  cross_entropy_and_mean,
  other_targets,
  alone,
  recomputed,
  float_sum,
  no_number,
  device_number,
};

thread_local double device_number = 0;  ///< what a loss reports; a rank is a thread

/// A user's loss that reports no count, and two whose terms count differently.
template <class P, Terms What>
struct OwnLoss : Layer<P> {
  VocabParallel<Embedding, P> tokens;
  constexpr OwnLoss()
      : tokens(EmbeddingConfig{.vocabulary = small.vocabulary, .width = 4, .initial = Initial::normal(0.5)}) {}
  constexpr void visit(auto&& f) { f("tokens", tokens); }
  constexpr Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    const auto x = tokens(ids);
    if constexpr (What == Terms::cross_entropy_and_mean) {
      return cross_entropy<P>(tokens.logits(x), targets, small.vocabulary) + mean(x * x);
    } else if constexpr (What == Terms::two_cross_entropies) {
      const auto next = cross_entropy<P>(tokens.logits(x), targets, small.vocabulary);
      const auto same = cross_entropy<P>(tokens.logits(x), ids, small.vocabulary);
      return next + same;
    } else if constexpr (What == Terms::two_over_samples || What == Terms::sometimes_over_samples) {
      const auto next = cross_entropy<P>(tokens.logits(x), targets, small.vocabulary);
      if (What == Terms::sometimes_over_samples && targets.value().data()[0] == ignored_target) return next;
      return mean_over_samples(next + cross_entropy<P>(tokens.logits(x), ids, small.vocabulary));
    } else if constexpr (What == Terms::float_sum || What == Terms::no_number) {
      float sum = 0;
      for (Size i = 0; i < targets.target_weights.count(); ++i) sum += targets.target_weights.data()[i];
      if (What == Terms::no_number) sum = std::numeric_limits<float>::quiet_NaN();
      x.tape().context().loss_counts(static_cast<double>(sum));
      return cross_entropy<P>(tokens.logits(x), targets, small.vocabulary);
    } else if constexpr (What == Terms::device_number) {
      auto number = Scalar<double, Cpu>::uninitialized({}, x.memory());
      number.fill(device_number);
      x.tape().context().loss_counts(number);
      return sum(x);
    } else if constexpr (What == Terms::alone) {
      return cross_entropy<P>(tokens.logits(x), targets, small.vocabulary);
    } else if constexpr (What == Terms::recomputed) {
      const auto of = [logits = tokens.logits(x)](const Tokens<P>& which) {
        return cross_entropy<P>(logits, which, small.vocabulary);
      };
      return recompute(of, targets);
    } else if constexpr (What == Terms::other_targets) {
      return cross_entropy<P>(tokens.logits(x), ids, small.vocabulary);
    } else {
      return mean(x);
    }
  }
};

/// Rows [first, first + rows) of a few tokens each.
template <class P>
Batch<Cpu> rows_of(World<P>& world, Size first, Size rows) {
  return laws::batch_of(world.memory(), 0, first, rows, 3, small.vocabulary);
}

/// The table after a step with micro-batches of `rows` rows, of a model with its own loss, and the loss. Sets `norm` to
/// that of the gradient.
std::vector<double> stepped(const std::vector<Size>& rows, int ranks, double lr = 1, double clip_norm = 0,
                            double* norm = nullptr) {
  using P = Policy<F64, Zero<2>>;
  std::vector<double> table;
  run_ranks_of<P>({.ranks = ranks, .seed = 3}, [&](World<P>& world) {
    const auto own = static_cast<Size>(rows.size()) / ranks;
    Engine engine{world, OwnLoss<P, Terms::mean_alone>(), Sgd{.lr = lr}, BatchSizes{.accumulate = own},
                  EngineConfig{.clip_norm = clip_norm}};
    std::vector<Batch<Cpu>> batches;
    for (Size a = 0; a < own; ++a) {
      const Size m = a * ranks + world.rank();
      Size first = 0;
      for (Size i = 0; i < m; ++i) first += rows[static_cast<std::size_t>(i)];
      batches.push_back(rows_of(world, first, rows[static_cast<std::size_t>(m)]));
    }
    const StepReport report = engine.train_batch(batches);
    const double loss = report.loss;
    if (norm && world.is_first()) *norm = report.gradient_norm;
    const auto all = engine.gather_parameter("tokens.weight");
    if (!world.is_first()) return;
    table.assign(all.data(), all.data() + all.count());
    table.push_back(loss);
  });
  return table;
}

void ignore(const Batch<Cpu>& batch) {
  std::fill_n(batch.targets.data(), batch.targets.count(), ignored_target);
}

}  // namespace

TEST_CASE("a model that reports no count counts every target: 5 rows and 1 are 6") {
  const auto six = stepped({6}, 1);
  check_near(stepped({5, 1}, 1), six, 1e-13);
  check_near(stepped({5, 1}, 2), six, 1e-13);
  check_near(stepped({1, 2, 2, 1}, 2), six, 1e-13);
}

TEST_CASE("a step of Sgd has the norm of the gradient, and clipped the norm of the limit") {
  for (const int ranks : {1, 2}) {
    const auto before = stepped({2, 4}, ranks, 0);
    const auto length_of_step = [&](double clip_norm, double& norm) {
      const auto after = stepped({2, 4}, ranks, 1, clip_norm, &norm);
      double square = 0;
      for (std::size_t i = 0; i + 1 < after.size(); ++i)  // the last is a loss
        square += std::pow(after[i] - before[i], 2);
      return std::sqrt(square);
    };
    double norm = 0, clipped_norm = 0;
    const double whole = length_of_step(0, norm), within = length_of_step(2 * norm, clipped_norm);
    const double clipped = length_of_step(norm / 4, clipped_norm);
    CHECK(whole == doctest::Approx(norm).epsilon(1e-12));
    CHECK(within == whole);
    CHECK(clipped == doctest::Approx(norm / 4 * norm / (norm + 1e-6)).epsilon(1e-12));
    CHECK(clipped_norm == norm);  // what is reported is the gradient's
    CHECK(norm > 1e-3);
  }
}

TEST_CASE(
    "a global batch without a counted target is refused on every rank, changes nothing, and the next one trains") {
  using P = Policy<F16, Zero<1>>;
  int refused = 0;
  std::mutex mutex;
  run_ranks_of<P>({.ranks = 2, .seed = 3}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(small), AdamW{}, BatchSizes{.accumulate = 2}};
    const auto before = engine.gather_parameter("tokens.weight");
    const auto good = rows_of(world, 2 * world.rank(), 2), bad = rows_of(world, 0, 2);
    ignore(bad);
    CHECK(engine.eval_batch(bad).mean == 0);
    CHECK(engine.all_reduce_mean(engine.eval_batch(bad)) == 0);
    try {
      engine.train_batch(std::vector<Batch<Cpu>>{bad, bad});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      CHECK(error.what() ==
            std::string(
                "dspp: step needs a target that counts, but all of the global batch are ignored or weigh 0. Leave "
                "it out."));
      ++refused;
    }
    CHECK(engine.at_step_boundary());
    CHECK(engine.steps() == 0);
    const auto after = engine.gather_parameter("tokens.weight");
    CHECK(std::equal(after.data(), after.data() + after.count(), before.data()));
    // one rank's micro-batches may be ignored; the loss is the mean over the counted ones: rank 0's good batch, and
    // rank 1's twice
    auto expected = engine.eval_batch(good);
    expected.counted *= world.is_first() ? 1 : 2;
    const double mean = engine.all_reduce_mean(expected);
    const StepReport report = engine.train_batch(std::vector<Batch<Cpu>>{world.is_first() ? bad : good, good});
    CHECK(report.acted);
    CHECK(!report.skipped);
    CHECK(report.gradient_norm > 0);
    CHECK(report.targets == 18);
    CHECK(report.loss == doctest::Approx(mean).epsilon(1e-12));
  });
  CHECK(refused == 2);
}

TEST_CASE(
    "a loss that does not apply target_weights is refused; doubling all weights changes nothing, and 1 is as none") {
  using P = Policy<F64>;
  const auto table_after = [](float weight) {
    std::vector<double> table;
    run_ranks_of<P>({.seed = 3}, [&](World<P>& world) {
      Engine engine{world, Gpt<P>(small), Sgd{.lr = 0.3}};
      auto batch = rows_of(world, 0, 2);
      if (weight > 0) {
        batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
        std::fill_n(batch.target_weights.data(), batch.targets.count(), weight);
      }
      const StepReport report = engine.train_batch(std::vector<Batch<Cpu>>{batch});
      CHECK(report.targets == (weight > 0 ? weight : 1) * 6);
      CHECK(engine.eval_batch(batch).counted == report.targets);
      const auto all = engine.gather_parameter("tokens.weight");
      table.assign(all.data(), all.data() + all.count());
    });
    return table;
  };
  const auto plain = table_after(0);
  CHECK(table_after(1) == plain);
  CHECK(table_after(2) == plain);
  run_ranks_of<P>({}, [&](World<P>& world) {
    auto batch = rows_of(world, 0, 2);
    batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
    const char* const sentence =
        "dspp: Engine needs a loss that applies the batch's target_weights, but this model's does not. Use "
        "cross_entropy with the targets passed to loss(tokens, targets), call loss_counts(sum of the weights) in a "
        "loss of your own, or leave target_weights out.";
    Engine says_nothing{world, OwnLoss<P, Terms::mean_alone>(), Sgd{}};
    Engine has_another{world, OwnLoss<P, Terms::other_targets>(), Sgd{}};
    Engine has_one_of_two{world, OwnLoss<P, Terms::two_cross_entropies>(), Sgd{}};
    for (const float weight : {1.0f, 2.0f}) {  // of half of the targets: of 2 the sum is that of no weights
      std::fill_n(batch.target_weights.data(), 3, weight);
      CHECK_THROWS_WITH_AS(says_nothing.forward(batch), sentence, Error);
      CHECK_THROWS_WITH_AS(has_another.forward(batch), sentence, Error);
      CHECK_THROWS_WITH_AS(has_another.eval_batch(batch), sentence, Error);
    }
    CHECK_THROWS_WITH_AS(has_one_of_two.forward(batch), sentence, Error);
    batch.target_weights.data()[1] = -1;
    CHECK_THROWS_WITH_AS(says_nothing.forward(batch),
                         "dspp: Engine needs weights of targets that are 0 or more, but the one at position 1 is "
                         "-1.000000. Give an ignored target weight 0.",
                         Error);
    batch.target_weights = {};
    CHECK(has_another.train_batch(std::vector<Batch<Cpu>>{batch})->targets == 6);
  });
}

TEST_CASE("a user's loss may sum the weights in floats, and its count must be a number") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [&](World<P>& world) {
    auto batch = rows_of(world, 0, 2);
    batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
    std::fill_n(batch.target_weights.data(), 6, 0.1f);
    Engine sums{world, OwnLoss<P, Terms::float_sum>(), Sgd{}};
    CHECK(sums.train_batch(std::vector<Batch<Cpu>>{batch})->targets == 6 * static_cast<double>(0.1f));
    Engine says_nan{world, OwnLoss<P, Terms::no_number>(), Sgd{}};
    const char* const sentence =
        "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().";
    CHECK_THROWS_WITH_AS(says_nan.forward(batch), sentence, Error);
    batch.target_weights = {};
    CHECK_THROWS_WITH_AS(says_nan.forward(batch), sentence, Error);
  });
}

TEST_CASE("a count in the device's memory must be a number of at least 0, too, and set") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [&](World<P>& world) {
    Engine engine{world, OwnLoss<P, Terms::device_number>(), Sgd{}};
    const auto batch = rows_of(world, 0, 2);
    for (const double bad : {-2.0, -1e-300, std::nan(""), std::numeric_limits<double>::infinity()}) {
      device_number = bad;
      CHECK_THROWS_WITH_AS(
          engine.forward(batch),
          "dspp: Engine needs a loss that counts 0 targets or more, but got another number. Change loss_counts().",
          Error);
    }
    device_number = 5;
    CHECK(engine.train_batch(std::vector<Batch<Cpu>>{batch})->targets == 5);
    Context<Cpu> context{.memory = &world.memory()};
    CHECK_THROWS_WITH_AS(context.loss_counts(Scalar<double, Cpu>()),
                         "dspp: loss_counts needs a number, but its Scalar was never set. Count the targets, or leave "
                         "the call out.",
                         Error);
  });
}

TEST_CASE("losses without gradients leave nothing behind") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [&](World<P>& world) {
    Engine engine{world, OwnLoss<P, Terms::alone>(), Sgd{}};
    const auto batch = rows_of(world, 0, 2);
    std::vector<Size> live;
    for (int i = 0; i < 4; ++i) {
      engine.no_grad([&](const auto& model, auto& tape) {
        return model.loss(Tokens<P>::constant(batch.tokens, tape), Tokens<P>::constant(batch.targets, tape))
            .value()
            .item();
      });
      engine.eval_batch(batch);
      live.push_back(world.memory().live());
    }
    CHECK(live == std::vector<Size>(4, live[0]));
  });
}

TEST_CASE("terms of a loss that count different numbers of targets are refused") {
  using P = Policy<F64>;
  run_ranks_of<P>({}, [&](World<P>& world) {
    Engine engine{world, OwnLoss<P, Terms::two_cross_entropies>(), Sgd{}};
    const auto batch = rows_of(world, 0, 2);
    CHECK(engine.train_batch(std::vector<Batch<Cpu>>{batch})->targets == 6);
    batch.targets.data()[1] = ignored_target;
    CHECK_THROWS_WITH_AS(
        engine.forward(batch),
        "dspp: Engine needs terms of a loss that count the same number of targets, but one counts "
        "6.000000 and another 5.000000. Ignore the same targets in each, or return mean_over_samples(loss).",
        Error);
  });
}

TEST_CASE("mean_over_samples of token batches counts every target, with weights and unequal rows, too") {
  using P = Policy<F64>;
  run_ranks_of<P>({.ranks = 2}, [&](World<P>& world) {
    const BatchSizes sizes{.accumulate = 2};
    Engine engine{world, OwnLoss<P, Terms::two_over_samples>(), Sgd{}, sizes, {.check_ranks = 1}};
    std::vector<Batch<Cpu>> batches;
    double own = 0;
    for (Size a = 0; a < 2; ++a) {
      const Size rows = 1 + world.rank() + 2 * a;
      batches.push_back(rows_of(world, 8 * world.rank() + 4 * a, rows));
      auto& batch = batches.back();
      std::fill_n(batch.targets.data(), a + world.rank(), ignored_target);
      batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
      batch.target_weights.write([&](float* w) {
        for (Size i = 0; i < batch.targets.count(); ++i) w[i] = static_cast<float>(1 + i % 3);
      });
      const MeanLoss mean = engine.eval_batch(batch);
      CHECK(mean.counted == static_cast<double>(batch.targets.count()));
      own += mean.mean * mean.counted;
    }
    std::vector<double> sum = {own};
    all_reduce(world.replicas(), buffer(sum.data(), 1), Purpose::scalar);
    const StepReport report = engine.train_batch(batches);
    const Size tokens = batches[0].targets[1] * (1 + 2 + 3 + 4);
    CHECK(report.targets == static_cast<double>(tokens));
    CHECK(report.loss == doctest::Approx(sum[0] / report.targets).epsilon(1e-12));
  });
}

TEST_CASE("mean_over_samples in some micro-steps only, or on some ranks only, is an error") {
  using P = Policy<F64>;
  const auto train = [](int ranks, std::vector<Size> ignored) {
    run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
      const BatchSizes sizes{.accumulate = std::ssize(ignored) / ranks};
      Engine engine{world, OwnLoss<P, Terms::sometimes_over_samples>(), Sgd{}, sizes, {.check_ranks = 1}};
      std::vector<Batch<Cpu>> batches;
      for (std::size_t m = 0; m < ignored.size(); ++m)
        if (static_cast<int>(m) % ranks == world.rank()) {
          batches.push_back(rows_of(world, 2 * static_cast<Size>(m), 2));
          std::fill_n(batches.back().targets.data(), ignored[m], ignored_target);
        }
      engine.train_batch(batches);
    });
  };
  CHECK_NOTHROW(train(1, {0, 0}));
  CHECK_NOTHROW(train(2, {1, 1}));
  for (const std::vector<Size>& mixed : {std::vector<Size>{0, 1}, {1, 0}}) {
    CHECK_THROWS_WITH_AS(train(1, mixed),
                         "dspp: the micro-steps of a step need one kind of mean, but only some of them return "
                         "mean_over_samples(loss). Return it in every forward, or in none.",
                         Error);
    CHECK_THROWS_WITH_AS(train(2, mixed), doctest::Contains("'reports' is "), Error);
  }
}

TEST_CASE("a mean over elements beside a cross-entropy is exact with unequal rows, and refused with unequal masks") {
  using P = Policy<F64>;
  const auto norm_of = [](int ranks, std::vector<Size> rows, std::vector<Size> ignored_rows) {
    double norm = 0;
    run_ranks_of<P>({.ranks = ranks, .seed = 3}, [&](World<P>& world) {
      const Size own = std::ssize(rows) / ranks;
      Engine engine{world, OwnLoss<P, Terms::cross_entropy_and_mean>(), Sgd{}, {.accumulate = own}, {.clip_norm = 0}};
      std::vector<Batch<Cpu>> batches;
      Size first = 0;
      for (std::size_t m = 0; m < rows.size(); first += rows[m++]) {
        if (static_cast<int>(m) % ranks != world.rank()) continue;
        batches.push_back(rows_of(world, first, rows[m]));
        std::fill_n(batches.back().targets.data(), ignored_rows[m], ignored_target);
      }
      const double own_norm = engine.train_batch(batches)->gradient_norm;
      if (world.is_first()) norm = own_norm;
    });
    return norm;
  };
  CHECK(norm_of(2, {5, 1}, {0, 0}) == doctest::Approx(norm_of(1, {6}, {0})).epsilon(1e-12));
  CHECK(norm_of(1, {5, 1}, {0, 0}) == doctest::Approx(norm_of(1, {6}, {0})).epsilon(1e-12));
  CHECK(norm_of(2, {2, 2}, {1, 1}) > 0);  // the same share
  CHECK(norm_of(1, {4}, {3}) > 0);        // alone
  for (const int ranks : {1, 2})
    CHECK_THROWS_WITH_AS(norm_of(ranks, {3, 3}, {1, 0}),
                         "dspp: Engine needs the same mean target weight (0 for ignored ones) on every rank and in "
                         "every micro-step if a loss takes mean(x), but these differ. Take sum(x) / (the sum of the "
                         "batch's target weights), neither ignore nor weight targets, or, if it is no report, "
                         "return mean_over_samples(loss).",
                         Error);
}

TEST_CASE("beside a mean over elements mean weights that are equal up to float rounding are accepted") {
  using P = Policy<F64>;
  run_ranks_of<P>({.ranks = 2}, [&](World<P>& world) {
    Engine engine{world, OwnLoss<P, Terms::cross_entropy_and_mean>(), Sgd{}, BatchSizes{.accumulate = 2}};
    std::vector<Batch<Cpu>> batches;
    for (Size a = 0; a < 2; ++a) {
      batches.push_back(rows_of(world, 8 * a + 4 * world.rank(), 4));
      auto& weights = batches.back().target_weights;
      weights = Tensor<float, 2>::zeros(batches.back().targets.shape(), world.memory());
      double sum = 0;
      for (Size i = 0; i < weights.count(); ++i)
        sum += static_cast<double>(weights.data()[i] = static_cast<float>(1 + draw(5, a, 12 * world.rank() + i, 7)));
      for (Size i = 0; i < weights.count(); ++i)
        weights.data()[i] *= static_cast<float>(static_cast<double>(weights.count()) / sum);
    }
    CHECK(engine.train_batch(batches).acted());
  });
}

TEST_CASE("a recomputed loss has the weights of its targets") {
  using P = Policy<F64>;
  const auto table_of = []<Terms Which>(std::integral_constant<Terms, Which>) {
    std::vector<double> table;
    run_ranks_of<P>({.seed = 3}, [&](World<P>& world) {
      Engine engine{world, OwnLoss<P, Which>(), Sgd{.lr = 1}};
      auto batch = rows_of(world, 0, 2);
      batch.target_weights = Tensor<float, 2>::zeros(batch.targets.shape(), world.memory());
      for (Size i = 0; i < 6; ++i) batch.target_weights.data()[i] = static_cast<float>(i);
      engine.train_batch(std::vector<Batch<Cpu>>{batch});
      const auto all = engine.gather_parameter("tokens.weight");
      table.assign(all.data(), all.data() + all.count());
    });
    return table;
  };
  CHECK(table_of(std::integral_constant<Terms, Terms::recomputed>{}) ==
        table_of(std::integral_constant<Terms, Terms::alone>{}));
}

TEST_CASE("all_reduce_mean on one rank alone is an error, not a mix with another rank's count of targets") {
  using P = Policy<F64>;
  std::string said;
  try {
    run_ranks_of<P>({.ranks = 2, .timeout_seconds = 20}, [&](World<P>& world) {
      Engine engine{world, OwnLoss<P, Terms::mean_alone>(), Sgd{}};
      const auto batch = rows_of(world, 2 * world.rank(), 2);
      auto loss = engine.forward(batch);
      if (world.is_first()) static_cast<void>(engine.all_reduce_mean(loss));
      engine.backward(loss);
      engine.step();
    });
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said.find("call different collectives") != std::string::npos);
}
