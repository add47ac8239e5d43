// SPDX-License-Identifier: Apache-2.0
/// A drawn task under a policy, and what it gives.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <dspp/checkpoint/average_file.hpp>
#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/plan/plan.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <laws/difference.hpp>
#include <laws/exchanged_places.hpp>
#include <laws/random_models.hpp>
#include <laws/random_optimizer.hpp>
#include <laws/random_own.hpp>

namespace dspp::laws {

/// What a run shows.
struct RandomOutcome {
  std::vector<double> losses{}, norms{}, evals{};           ///< of each step, over the global batch
  std::vector<double> scales{};                             ///< of the loss; 0 for a step that was skipped
  std::map<std::string, std::vector<double>> metrics{};     ///< of each step, what was reported beside the loss
  std::map<std::string, std::vector<double>> parameters{};  ///< whole ones, after the last step; and their averages
  std::vector<std::string> without_gradient{};  ///< parameters whose gradient after it is zero in every element
  std::string fault{};  ///< measured beside planned; memory kept beyond its bound; ranks that disagree
};

/// The steps of a task that one run takes: it begins with the state in `folder`, unless with the first step, and leaves
/// its own there, unless with the last.
struct Stretch {
  int begin = 0, end = 1 << 20;
  std::string folder{};
};

/// Trains under policy P on `split.data` times Cp times Tp ranks, with the split's ZeRO stage. Models with a batch of
/// their own take no checkpoints, which are another compilation.
template <class P, class O = DrawnOptimizer, template <class> class Model = RandomModel>
struct RandomRunner {
  static RandomOutcome run(const DrawnTask& task, const DrawnSplit& split, const Stretch& stretch = {}) {
    return run({{task, split}}, stretch)[0];
  }
  /// Several tasks step by step in turn in one world, whose data degree and seed are those of the first.
  static std::vector<RandomOutcome> run(const std::vector<Drawn>& drawn, const Stretch& stretch = {});
  /// The gradients' zeros are looked for where the whole batch is in one micro-step on one rank.
  static bool looks_for_zeros(const DrawnSplit& split) {
    return split.data * P::cp * P::tp == 1 && split.accumulate == 1;
  }
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// A number that follows from the task, a global sample and a position.
inline std::uint64_t random_bits(const DrawnTask& task, Size sample, Size j) {
  std::uint64_t h = task.seed * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(sample * 1009 + j + 1);
  h ^= h >> 31, h *= 0xBF58476D1CE4E5B9u, h ^= h >> 29, h *= 0x94D049BB133111EBu;
  return h ^ (h >> 32);
}

/// Token j of a global sample.
inline std::int32_t random_token(const DrawnTask& task, Size sample, Size j) {
  return static_cast<std::int32_t>(random_bits(task, sample, j) % static_cast<std::uint64_t>(task.model.vocabulary));
}

/// Rows [first, first + rows) of a step, positions [start, start + own) of each. Some targets do not count, and some
/// weigh more than others, but the step's first counts.
inline Batch<Cpu> random_batch(Pool& pool, const DrawnTask& task, Size before, Size first, Size rows, Size own,
                               Size start) {
  const auto extents = shape(rows, own);
  Batch<Cpu> batch{Tensor<std::int32_t, 2>::uninitialized(extents, pool, Category::data, "tokens"),
                   Tensor<std::int32_t, 2>::uninitialized(extents, pool, Category::data, "targets"), first};
  if (task.weighed) batch.target_weights = Tensor<float, 2>::uninitialized(extents, pool, Category::data, "weights");
  for (Size i = 0; i < rows; ++i)
    for (Size j = 0; j < own; ++j) {
      const Size sample = before + first + i, at = start + j;
      const bool counts = (first + i == 0 && at == 0) ||
                          static_cast<double>(random_bits(task, sample + 5000, at) % 100) >= 100 * task.ignored;
      batch.tokens.data()[i * own + j] = random_token(task, sample, at);
      batch.targets.data()[i * own + j] = counts ? random_token(task, sample, at + 1) : ignored_target;
      if (task.weighed)  // sums of quarters are exact
        batch.target_weights.data()[i * own + j] =
            0.25f * static_cast<float>(random_bits(task, sample + 9000, at) % 9 + (first + i == 0 && at == 0));
    }
  return batch;
}

/// A batch of tokens, whose sequences have `all` positions, as that of a model: itself, or the model's own.
template <class Model>
BatchOf<Model> batch_for(const Model& model, const DrawnTask& task, const Batch<Cpu>& given, Size before, Size start,
                         Size all) {
  if constexpr (std::is_same_v<BatchOf<Model>, Batch<Cpu>>) {
    return given;
  } else {
    constexpr Size cp = Model::policy::cp;
    Pool& pool = given.tokens.memory();
    const Size rows = given.tokens[0], own = given.tokens[1], width = task.model.width;
    auto batch = model.new_batch({.micro_batch = rows, .sequence = own * cp}, pool);
    batch.tokens = given.tokens, batch.labels = given.targets, batch.first_sample = given.first_sample;
    for (Size i = 0; i < rows; ++i) {
      const Size sample = before + given.first_sample + i;
      const auto bits = [&](Size stream, Size at) { return random_bits(task, sample + stream, at); };
      batch.weights.value().data()[i] = 0.25f * static_cast<float>(bits(11000, 0) % 9);
      batch.lengths.value().data()[i] =
          static_cast<std::int32_t>(task.model.parts.empty() ? all : length_of(task.model.parts[0], sample, all));
      const Size memory = task.model.memory, keys = memory / cp, first = start / own * keys;
      batch.keys.value().data()[i] = static_cast<std::int32_t>(
          std::max<Size>(std::min<Size>(memory, 2), memory - static_cast<Size>(bits(19000, 0) % 4)));
      for (Size j = 0; j < keys; ++j)  // neighbours differ: equal keys leave no gradient to queries
        batch.memory.value().data()[i * keys + j] =
            static_cast<std::int32_t>((bits(21000, 0) + static_cast<std::uint64_t>(first + j)) %
                                      static_cast<std::uint64_t>(task.model.vocabulary));
      for (Size j = 0; j < own; ++j) {
        batch.types.value().data()[i * own + j] = static_cast<std::int32_t>(bits(13000, start + j) % 2);
        batch.keep.value().data()[i * own + j] = static_cast<std::uint8_t>(bits(15000, start + j) % 4);
        for (Size k = 0; k < width; ++k)
          batch.shifts.value().data()[(i * own + j) * width + k] =
              0.25f * (static_cast<float>(bits(17000, (start + j) * width + k) % 5) - 2);
      }
    }
    return batch;
  }
}

/// Every rank dawdles where it likes.
inline void dawdle(const DrawnTask& task, int rank, Size step, Size a) {
  const std::uint64_t bits = random_bits(task, 7000 + rank, 100 * step + a);
  if (bits % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(bits / 8 % 300));
}

/// The micro-batches of a step, each made when it is asked for.
template <class BatchOf>
struct DrawnBatches {
  const BatchOf& batch_of;
  int step;
  Size count;
  struct Iterator {
    const DrawnBatches* batches;
    Size number;
    auto operator*() const { return batches->batch_of(batches->step, number); }
    Iterator& operator++() { return ++number, *this; }
    bool operator==(const Iterator& other) const { return number == other.number; }
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, count}; }
};

template <class P, int Stage>
struct WithStage;
template <class Z, class... Members, template <class...> class S, int Stage>
struct WithStage<S<Z, Members...>, Stage> {
  using type = S<Zero<Stage>, Members...>;
};

/// f.template operator()<Q>() with P under the split's stage.
template <class P, class F>
auto at_stage(const DrawnSplit& split, F f) {
  switch (split.stage) {
    case 0: return f.template operator()<typename WithStage<P, 0>::type>();
    case 1: return f.template operator()<typename WithStage<P, 1>::type>();
    case 2: return f.template operator()<typename WithStage<P, 2>::type>();
    default: return f.template operator()<typename WithStage<P, 3>::type>();
  }
}

/// Whether runs of a model take checkpoints.
template <template <class> class Model>
inline constexpr bool is_whole = std::is_same_v<Model<Policy<F64>>, RandomModel<Policy<F64>>>;

/// Whether an average is saved beside checkpoints: with one optimizer, since it is the same code with each.
template <class O>
inline constexpr bool takes_average_along = std::is_same_v<O, DrawnOptimizer>;

template <class P, class O, template <class> class Model>
Plan plan_of(World<P>& world, const DrawnTask& task, const DrawnSplit& split, const ReplicaConfig& zero,
             dspp::detail::PaperRecording* recording = nullptr) {
  return dspp::detail::plan_with<Model<P>>(
      task.model, {.micro_batch = split.rows[0], .sequence = task.sequence, .accumulate = split.accumulate},
      {.data = split.data,
       .ranks_per_node = split.ranks_per_node,
       .bucket_bytes = split.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
       .prefetch_bytes = split.prefetch_bytes,
       .live_bytes = split.live_bytes,
       .target_weights = task.weighed,
       .sum_order = split.order,
       .groups = groups_of<O>(task),
       .rank = world.place()},
      optimizer_of<O>(task), zero, recording);
}

template <class P, class O, template <class> class Model>
std::string compare_with_plan(World<P>& world, const DrawnTask& task, const DrawnSplit& split,
                              const ReplicaConfig& zero, Size peak, Size host, Size disk) {
  const Plan paper = plan_of<P, O, Model>(world, task, split, zero);
  const auto differ = [&](const char* what, auto planned, auto measured) {
    return planned == measured ? std::string()
                               : std::string(what) + " on rank " + std::to_string(world.rank()) + ": planned " +
                                     std::to_string(planned) + ", measured " + std::to_string(measured) + "; ";
  };
  const auto measured = [](auto& group) { return group.traffic().without(Purpose::check).total(); };
  const Size checks = (world.traffic() - paper.start_traffic).only(Purpose::check).total();
  return differ("check traffic", paper.check_traffic.total(), checks) + differ("peak bytes", paper.peak, peak) +
         differ("replica traffic", paper.replica_traffic.total(), measured(world.replicas())) +
         differ("a node's traffic", paper.node_traffic.total(),
                world.nodes() > 1 ? measured(world.node_replicas()) : 0) +
         differ("traffic across nodes", paper.across_traffic.total(), measured(world.across_nodes())) +
         differ("Cp traffic", paper.traffic_along.cp.total(), measured(world.cp())) +
         differ("Tp traffic", paper.traffic_along.tp.total(), measured(world.tp())) +
         differ("bytes of the host's memory", paper.host, host) + differ("bytes of a file", paper.disk, disk) +
         differ("bytes inside of nodes", paper.links.inner, world.links().inner) +
         differ("bytes between nodes", paper.links.outer, world.links().outer) +
         differ("world traffic", paper.world_traffic.total(), measured(world.all()));
}

/// One rank's training of a task.
template <class P, class O, template <class> class Model>
class Trainee {
 public:
  Trainee(World<P>& world, const Drawn& drawn)
      : world_(world),
        task_(drawn.task),
        split_(drawn.split),
        engine_(world, Model<P>(watched(task_.model, &nonfinite_, &first_sample_)), optimizer_of<O>(task_), sizes(),
                config(), replicas()) {}

  void step(int step) {
    const Size counted = engine_.steps();
    set_rates(step);
    if (split_.nonfinite != NonFiniteKind::none && step == split_.nonfinite_before) skip(step);
    const StepReport report = train(step);
    if (!needs_loss_scale<ElementOf<P>> && report.skipped) fault_ += "a step was skipped; ";
    if (!report.skipped && engine_.steps() != counted + 1) fault_ += "a step does not count; ";
    outcome_.losses.push_back(report.loss), outcome_.norms.push_back(report.gradient_norm);
    outcome_.scales.push_back(report.skipped ? 0 : report.loss_scale);
    for (const Metric& metric : report.metrics) outcome_.metrics[metric.name].push_back(metric.value);
    if (average_) average_->update();
    if (by_hand_.empty()) return;
    for (const auto& [name, values] : parameters()) {
      double* const own = by_hand_.at(name).data();
      for (std::size_t i = 0; i < values.size(); ++i) own[i] += (1 - task_.average) * (values[i] - own[i]);
    }
  }
  /// After the first step.
  void begin_average() {
    if (task_.average > 0) average_.emplace(engine_, task_.average);
    if (average_ && task_.by_hand) by_hand_ = parameters();
  }
  /// Between two stretches.
  void save(const std::string& folder) {
    save_checkpoint(engine_, folder);
    if constexpr (takes_average_along<O>)
      if (average_) save_average(*average_, folder + "/average");
  }
  void load(const std::string& folder) {
    load_checkpoint(engine_, folder);
    if constexpr (takes_average_along<O>)
      if (task_.average > 0) load_average(average_.emplace(engine_, task_.average), folder + "/average");
  }
  /// After the last: the loss and the parameters under the average.
  void end_average(int last) {
    if (!average_) return;
    average_->within([&] {
      evaluate(last, 1);
      for (auto& [name, values] : parameters()) {
        if (const auto own = by_hand_.find(name); own != by_hand_.end() && worst_difference(values, own->second) > 1e-9)
          fault_ += "the average of " + name + " is another; ";
        outcome_.parameters["average of " + name] = std::move(values);
      }
    });
  }
  /// Before the first step of a world without other trainees: its blocks lie as its plan says.
  void lay_out_as_planned() {
    if (!split_.even() || task_.seed % 3 != 0) return;
    dspp::detail::PaperRecording recording{};
    detail::plan_of<P, O, Model>(world_, task_, split_, replicas(), &recording);
    world_.memory().lay_out_next(recording.timeline);
  }
  /// After the first step of a world without other trainees.
  void compare_with_plan() {
    engine_.replicas().complete_all();
    if (!split_.even()) return;
    const Size peak = world_.memory().peak();
    fault_ += detail::compare_with_plan<P, O, Model>(world_, task_, split_, replicas(), peak,
                                                     engine_.replicas().host_bytes(), engine_.state().disk_bytes());
  }
  /// The loss of the step's samples: in the micro-batches of training, or, in every second step, one batch a rank, of
  /// equal shares of all.
  void evaluate(int step) { evaluate(step, task_.evals); }
  void evaluate(int step, int times) {
    const Size samples = split_.samples();
    const bool other = step % 2 == 0 && samples >= split_.data;
    for (int e = 0; e < times; ++e) {
      MeanLoss sum;
      for (Size a = 0; a < (other ? 1 : split_.accumulate); ++a) {
        const Size first = samples * world_.data_rank() / split_.data;
        const Size rows = samples * (world_.data_rank() + 1) / split_.data - first;
        const MeanLoss part = engine_.eval_batch(other ? samples_of(step, first, rows) : batch(step, a));
        sum.mean += part.mean * part.counted, sum.counted += part.counted;
      }
      if (sum.counted > 0) sum.mean /= sum.counted;
      outcome_.evals.push_back(engine_.all_reduce_mean(sum));
    }
  }
  void note_parameters() { outcome_.parameters.merge(parameters()); }
  RandomOutcome outcome() {
    outcome_.fault = fault_;
    return outcome_;
  }
  void exchange_places() {
    if constexpr (sizeof(ElementOf<P>) >= 4)
      engine_.no_grad([&](const auto&, Tape<Cpu>& tape) {
        fault_ += misplaced<P>(world_, tape, task_.sequence / P::cp);
        return 0;
      });
  }
  void look_for_zeros() {
    auto loss = engine_.forward(batch(task_.steps - 1, 0));
    engine_.backward(loss);
    const ParameterGroups groups = groups_of<O>(task_);
    for (const auto& named : engine_.inventory().parameters) {
      const ParameterGroup* const group = groups.find(named.name->text);
      if (group && group->frozen) continue;
      const auto whole = engine_.gather_gradient(named.name->text);
      const auto* values = whole.data();
      if (std::all_of(values, values + whole.count(), [](auto g) { return g == 0; }))
        outcome_.without_gradient.push_back(named.name->text);
    }
  }

 private:
  void set_rates(int step) {
    if (task_.schedule.kind == ScheduleKind::constant) return;
    const StepRates now = (task_.by_hand ? rates_by_hand : rates_of)(task_.schedule, task_.lr, step);
    engine_.set_learning_rate(now.lr);
    if (now.momentum >= 0) engine_.set_optimizer(optimizer_of<O>(task_, now.momentum));
  }
  std::map<std::string, std::vector<double>> parameters() {
    std::map<std::string, std::vector<double>> all;
    for (const auto& named : engine_.inventory().parameters) {
      const auto whole = engine_.gather_parameter(named.name->text);
      all[named.name->text].assign(whole.data(), whole.data() + whole.count());
    }
    return all;
  }
  static DrawnModel watched(DrawnModel model, const NonFiniteKind* nonfinite, const Size* first_sample) {
    model.nonfinite = nonfinite, model.first_sample = first_sample;
    return model;
  }
  BatchSizes sizes() const { return {.accumulate = split_.accumulate}; }
  ReplicaConfig replicas() const {
    auto replicas = at_stage<P>(split_, [&]<class Q>() { return dspp::detail::replica_config<Q>(sizes(), config()); });
    replicas.traffic = split_.traffic, replicas.delay_after = task_.delay_after, replicas.zenflow = split_.zenflow;
    replicas.speculates = split_.speculates, replicas.selects_rows = split_.selects_rows;
    replicas.partitions_activations = split_.partitions_activations && P::tp > 1 && !P::sequence_parallel;
    if (has_host_memory<DeviceOf<P>>) {
      replicas.optimizer = split_.tier, replicas.offload.folder = "/tmp";
      if (split_.offloads_parameters && split_.stage == 3)
        replicas.parameters = split_.tier == Tier::disk ? Tier::disk : Tier::host;
      replicas.activations = split_.activations;
    }
    return replicas;
  }
  EngineConfig config() const {
    EngineConfig config{.clip_norm = task_.clip_norm,
                        .bucket_bytes = split_.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
                        .prefetch_bytes = split_.prefetch_bytes,
                        .live_bytes = split_.live_bytes,
                        .skip_nonfinite = 1,
                        .zero_gradients = true,
                        .groups = groups_of<O>(task_),
                        .check_ranks = task_.check_ranks};
    if (needs_loss_scale<ElementOf<P>>) config.loss_scale = {.initial = 4096, .window = 1, .hysteresis = 1};
    return config;
  }
  auto batch(int step, Size a) const {
    dawdle(task_, world_.rank(), step, a);
    const auto mine = static_cast<std::size_t>(a * split_.data + world_.data_rank());
    const Size first = std::accumulate(split_.rows.begin(), split_.rows.begin() + static_cast<long>(mine), Size{0});
    return samples_of(step, first, split_.rows[mine]);
  }
  auto samples_of(int step, Size first, Size rows) const {
    const Size own = task_.sequence_of(step) / P::cp;
    first_sample_ = step * split_.samples() + first;
    const Size before = step * split_.samples(), start = own * world_.cp_rank();
    return batch_for(engine_.model(), task_, random_batch(world_.memory(), task_, before, first, rows, own, start),
                     before, start, own * P::cp);
  }
  StepReport train(int step) {
    const auto batch_of = [&](int s, Size a) { return batch(s, a); };
    return engine_.train_batch(DrawnBatches<decltype(batch_of)>{batch_of, step, split_.accumulate});
  }
  /// A step that changes nothing, since a loss or gradient of one Tp group is not finite: on one of its ranks alone it
  /// may meet nothing of its own, such as rows of a table.
  void skip(int step) {
    const int odd = static_cast<int>(split_.nonfinite_rank % static_cast<std::uint64_t>(world_.size()));
    if (world_.rank() / P::tp == odd / P::tp) nonfinite_ = split_.nonfinite;
    const Size before = engine_.skipped_steps();
    if (!train(step).skipped || engine_.skipped_steps() != before + 1)
      fault_ += "a step that is not finite was not skipped; ";
    nonfinite_ = NonFiniteKind::none;
  }

  World<P>& world_;
  const DrawnTask& task_;
  const DrawnSplit& split_;
  NonFiniteKind nonfinite_ = NonFiniteKind::none;
  mutable Size first_sample_ = 0;  ///< of the last batch
  Engine<Model<P>, O> engine_;
  std::optional<WeightAverage<Engine<Model<P>, O>>> average_;
  std::map<std::string, std::vector<double>> by_hand_;  ///< the average
  RandomOutcome outcome_;
  std::string fault_;
};

/// Whether two outcomes have the same bits, the faults left out.
inline bool same_bits(const RandomOutcome& a, const RandomOutcome& b) {
  const auto same = [](const std::vector<double>& x, const std::vector<double>& y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
  };
  const auto same_maps = [&](const auto& maps, const auto& others) {
    return std::equal(maps.begin(), maps.end(), others.begin(), others.end(),
                      [&](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
  };
  return same(a.losses, b.losses) && same(a.norms, b.norms) && same(a.evals, b.evals) && same(a.scales, b.scales) &&
         same_maps(a.metrics, b.metrics) && same_maps(a.parameters, b.parameters);
}

}  // namespace detail

template <class P, class O, template <class> class Model>
std::vector<RandomOutcome> RandomRunner<P, O, Model>::run(const std::vector<Drawn>& drawn, const Stretch& stretch) {
  const int ranks = drawn[0].split.data * P::cp * P::tp;
  std::vector<std::vector<RandomOutcome>> of_ranks(static_cast<std::size_t>(ranks));
  run_ranks_of<P>(RunOptions{.ranks = ranks,
                             .threads_per_rank = 1,
                             .seed = drawn[0].task.seed,
                             .timeout_seconds = 120,
                             .ranks_per_node = drawn[0].split.ranks_per_node,
                             .sum_order = drawn[0].split.order},
                  [&](World<P>& world) {
                    world.memory().poison(drawn[0].task.seed % 2 == 0);
                    using Trainee = detail::Trainee<P, O, Model>;
                    std::vector<std::unique_ptr<Trainee>> trainees;
                    for (const Drawn& d : drawn) trainees.push_back(std::make_unique<Trainee>(world, d));
                    const auto each = [&](int step, auto f) {
                      for (std::size_t i = 0; i < drawn.size(); ++i)
                        if (step < drawn[i].task.steps) f(*trainees[i]);
                    };
                    if constexpr (detail::is_whole<Model>)
                      if (stretch.begin > 0) trainees[0]->load(stretch.folder);
                    const bool alone = drawn.size() == 1;
                    if (alone && stretch.begin == 0) trainees[0]->lay_out_as_planned();
                    for (int step = stretch.begin; step < std::min(10, stretch.end); ++step) {
                      each(step, [&](auto& trainee) { trainee.step(step); });
                      if (alone && step == 0) trainees[0]->compare_with_plan();
                      if (step == 0) each(step, [&](auto& trainee) { trainee.begin_average(); });
                      each(step, [&](auto& trainee) { trainee.evaluate(step); });
                    }
                    const bool saves = stretch.end < drawn[0].task.steps;
                    for (std::size_t i = 0; i < drawn.size() && !saves; ++i)
                      trainees[i]->end_average(drawn[i].task.steps - 1);
                    trainees[0]->exchange_places();
                    const Pool& memory = world.memory();
                    std::string fault;
                    if (memory.peak_reserved() > Pool::reserved_at_most(memory.peak()))
                      fault = "reserved " + std::to_string(memory.peak_reserved()) + " bytes for a peak of " +
                              std::to_string(memory.peak()) + "; ";
                    if constexpr (detail::is_whole<Model>)
                      if (saves) trainees[0]->save(stretch.folder);
                    for (auto& trainee : trainees) trainee->note_parameters();
                    if (!saves && alone && stretch.begin == 0 && looks_for_zeros(drawn[0].split))
                      trainees[0]->look_for_zeros();
                    for (auto& trainee : trainees) {
                      auto& outcomes = of_ranks[static_cast<std::size_t>(world.rank())];
                      outcomes.push_back(trainee->outcome());
                      outcomes.back().fault += fault;
                    }
                  });
  std::vector<RandomOutcome> outcomes = of_ranks[0];
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank)
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      outcomes[i].fault += of_ranks[rank][i].fault;
      if (!detail::same_bits(of_ranks[rank][i], outcomes[i]))
        outcomes[i].fault += "rank " + std::to_string(rank) + " has other losses, norms or parameters than rank 0; ";
    }
  return outcomes;
}

}  // namespace dspp::laws
