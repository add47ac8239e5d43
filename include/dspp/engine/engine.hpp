// SPDX-License-Identifier: Apache-2.0
/// One training step: composes model, optimizer, replicas and tape, and contains none of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/base/at_run_time.hpp>
#include <dspp/data/batch_sizes.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/engine/engine_facts.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/engine_types.hpp>
#include <dspp/engine/gradient_check.hpp>
#include <dspp/engine/library_checks.hpp>
#include <dspp/engine/micro_step.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/rank_check.hpp>
#include <dspp/engine/remedies.hpp>
#include <dspp/engine/step_graphs.hpp>
#include <dspp/engine/step_report.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/engine/weights.hpp>
#include <dspp/io/checkpoint_lock.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/ops/step_verdict.hpp>
#include <dspp/optim/loss_scale.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/update.hpp>

namespace dspp {

/// Trains a model: `loss = engine.forward(batch); engine.backward(loss); engine.step();`, DeepSpeed's three verbs.
///
/// The training loss is the mean over the counted targets of the global batch, for every split over ranks and
/// micro-steps: backward seeds with loss_scale / (replicas x accumulate) times the micro-batch's share
/// (engine/step_targets.hpp); the replicas are the ranks along Data and Cp. step() divides by the loss scale and
/// corrects for ignored_target and target_weights. A model that reports no count counts every target. Every ZeRO stage
/// gives the same bits (docs/decisions/0003).
///
/// Memory   as plan<Model>(...) gives it, byte for byte
/// Throws   Error(state) for calls out of order; Error(usage), on every rank, if policy, seed, configuration, optimizer
///          or model differ between ranks; what check_ranks() (rank_check.hpp) and collectives throw
///
/// Model needs `policy`, `visit(f)` and `loss(tokens, targets)`.
template <class Model, class Optimizer>
class Engine {
 public:
  using P = typename Model::policy;
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  using B = BatchOf<Model>;
  using OptimizerType = Optimizer;
  static_assert(detail::check_engine_types<Model, Optimizer>());

  /// If sizes.sequence is set, sizes bound every batch: forward takes smaller ones, and throws Error(shape) for a
  /// larger one.
  constexpr Engine(World<P>& world, Model model, Optimizer optimizer, BatchSizes sizes = {}, EngineConfig config = {})
      : Engine(world, std::move(model), optimizer, sizes, config, detail::replica_config<P>(sizes, config)) {}
  /// One micro-step per step, with batches of any extents.
  constexpr Engine(World<P>& world, Model model, Optimizer optimizer, EngineConfig config)
      : Engine(world, std::move(model), optimizer, BatchSizes{}, config) {}
  /// For plans: `zero` has the ZeRO stage and gradient type of the real policy, which the model on paper does not have.
  constexpr Engine(World<P>& world, Model model, Optimizer optimizer, BatchSizes sizes, EngineConfig config,
                   const ReplicaConfig& zero);
  /// Error sentence for a world of another policy. (enable_if, since clang 14 cannot deduce through a concept here.)
  template <class Q, std::enable_if_t<!std::is_same_v<Q, typename Model::policy>, int> = 0>
  constexpr Engine(World<Q>& world, Model model, Optimizer optimizer, BatchSizes sizes = {}, EngineConfig config = {})
      : Engine(detail::world_of<P>(world), std::move(model), optimizer, sizes, config) {}
  template <class Q, std::enable_if_t<!std::is_same_v<Q, typename Model::policy>, int> = 0>
  constexpr Engine(World<Q>& world, Model model, Optimizer optimizer, EngineConfig config)
      : Engine(detail::world_of<P>(world), std::move(model), optimizer, config) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  constexpr ~Engine() { forget_remedies(); }

  /// The mean loss of this rank's micro-batch, with its count of targets.
  constexpr Loss<P> forward(const B& batch, CallSite site = CallSite::here()) { return forward(own_, batch, site); }
  /// Takes the loss of the last forward. If it throws, as for a batch that was written since (on a synchronous device),
  /// the current step's gradients are discarded.
  constexpr void backward(const Loss<P>& loss, CallSite site = CallSite::here()) { backward(own_, loss, site); }
  /// The same with a caller's micro-step: up to `accumulate` of one step may be between forward and backward, and their
  /// backwards run in any order that is the same on every rank.
  constexpr MicroStep<D, B> micro_step() { return MicroStep<D, B>(this, weights_.context(), counters()); }
  constexpr Loss<P> forward(MicroStep<D, B>& micro, const B& batch, CallSite site = CallSite::here()) {
    return forward_on(micro, batch, batch, site);
  }
  constexpr void backward(MicroStep<D, B>& micro, const Loss<P>& loss, CallSite site = CallSite::here());
  /// Updates at the accumulation boundary only. If it throws, nothing is updated and the step's gradients are
  /// discarded. On a device that is not synchronous this issues the step, and what it throws is thrown where it is
  /// finished: see PendingReport. The host waits for no value within a step, unless check_ranks() is due in it: once
  /// in config().check_ranks steps.
  ///
  /// Throws   Error(state), the same on every rank: if parameters are not finite; if a loss or gradients are not and
  ///          config().skip_nonfinite does not allow skipping the step (under F16, gradients that overflow skip the
  ///          step and lower the loss scale, and are an error at its minimum); for a gradient of zeros, unless
  ///          config().zero_gradients. Error(usage), on every rank, if no target of the global batch counts
  constexpr PendingReport step(CallSite site = CallSite::here()) {
    return detail::with_sentence("step", site, [&] { return act(); });
  }
  /// If a step is in flight, waits for it and counts it; that is a collective. The functions below that call it are
  /// collectives then, too. If it throws, the step is discarded.
  constexpr void finish_step() {
    if (step_) step_.finish([this](const auto& scalars, StepReport& report) { end_step(scalars, report); });
  }
  /// Runs forward, backward and step over the micro-batches of one step, a range or one Batch; returns step()'s report.
  /// If it throws, nothing is updated and the step's gradients are discarded.
  ///
  /// Throws   Error(usage) unless there are sizes().accumulate micro-batches; Error(state) if the step has begun
  template <class Batches>
  constexpr PendingReport train_batch(const Batches& batches, CallSite site = CallSite::here());

  /// As in Weights. The first two discard a forward(batch) whose backward has not run.
  constexpr MeanLoss eval_batch(const B& batch, CallSite site = CallSite::here()) {
    finish_step();
    abandon(own_);
    return weights_.eval_batch(batch, site);
  }
  template <class F>
  constexpr auto no_grad(F f, CallSite site = CallSite::here()) {
    finish_step();
    abandon(own_);
    return weights_.no_grad(std::move(f), site);
  }
  template <class L>
  constexpr double all_reduce_mean(const L& loss, CallSite site = CallSite::here()) {
    return weights().all_reduce_mean(loss, site);
  }

  /// The parameter or gradient of that global name, e.g. "blocks.0.mlp.up.weight", whole on every rank: data() holds
  /// its global elements in row-major order, in the precision of the master. gather_gradient works between backward
  /// and step. It returns the mean gradient over the targets counted so far, scaled by micro-steps done / accumulate.
  ///
  /// Cost     one all-reduce over the world; for a gradient of several micro-steps also 16 bytes over the replicas.
  ///          Call it on every rank.
  /// Throws   Error(usage) if the model has none of that name; Error(state) for a gradient at another time
  using FullTensor = Tensor<Compute<T>, 1, D>;
  FullTensor gather_parameter(std::string_view name) {
    end_update();
    return detail::collected(
        *this, name, [&](const auto& named, FullTensor& whole) { detail::collect_parameter(*this, named, whole); });
  }
  FullTensor gather_gradient(std::string_view name) {
    if (micro_steps_ == 0) detail::refuse_gather_gradient();
    return detail::collected(*this, name, [&](const auto& named, FullTensor& whole) {
      detail::collect_gradient(*this, named, whole);
      const double correction = step_targets_.correction();
      if (correction != 1) whole = ops::scale(std::move(whole), correction);
    });
  }

  /// Times every kernel, copy and collective of this rank until the end of what it returns. Call on every rank.
  /// `most_events`: how many are kept for a timeline.
  template <class E = Engine>
  Profiling<E> profile(std::size_t most_events = 0) {
    detail::check_profiling<E>();
    return Profiling<E>(*this, most_events);
  }

  /// Discards gradients, zeroes the optimizer's moments and resets the loss scale, after the weights were replaced: the
  /// next step is number `steps` + 1 of the training, and bias correction restarts. If a disk refuses, call it again.
  constexpr void restart(Size steps);

  constexpr TrainingProgress progress() {
    finish_step();
    return {steps_,           skipped_,       moment_steps_, learning_rate_, weights_.context().random.key.seed,
            scale_.dynamic(), scale_.state(), run_};
  }
  /// Sets the run number of a training that has none yet; the same on every rank.
  constexpr void name_run(std::uint64_t run) { run_ = run; }
  /// Discards gradients and resumes at `progress`, tensors being replaced; with its loss scale if both are dynamic.
  constexpr void resume(const TrainingProgress& progress);
  /// Ends what is in flight, so that tensors may be replaced by others of their extents.
  constexpr void settle() { finish_step(), state_.end_update(), state_.settle(), graphs_.forget(); }
  /// Ends the step in flight, delayed updates, and gathers of values, which traffic() then counts. On every rank.
  constexpr void end_update() { finish_step(), state_.end_update(micro_steps_ == 0 && !own_.waits_for_backward_); }
  /// True if no micro-step is pending.
  constexpr bool at_step_boundary() const { return micro_steps_ == 0; }

  constexpr Size steps() { return finish_step(), steps_; }
  constexpr Size skipped_steps() { return finish_step(), skipped_; }
  /// The scale of the next step: dynamic or fixed under F16, else 1. The same on every rank, since the norm is.
  constexpr double loss_scale() { return finish_step(), scale_.value(); }
  constexpr double learning_rate() const { return learning_rate_; }
  /// Throws   Error(usage) unless it is a number of at least 0
  constexpr void set_learning_rate(double rate) {
    check_learning_rate(rate);
    learning_rate_ = rate;
  }

  /// The weights that it trains: to read, evaluate and save. Set and load values through the engine, which also sets
  /// the masters.
  constexpr Weights<Model>& weights() { return finish_step(), weights_; }
  constexpr const Model& model() const { return weights_.model(); }
  constexpr World<P>& world() { return world_; }
  constexpr const BatchSizes& sizes() const { return sizes_; }
  constexpr const EngineConfig& config() const { return config_; }
  constexpr const Optimizer& optimizer() const { return optimizer_; }
  /// Other hyper-parameters from the next step on, the same on every rank; the learning rate stays.
  constexpr void set_optimizer(const Optimizer& optimizer) {
    check_optimizer(optimizer), optimizer_ = optimizer, graphs_.forget(), state_.speculative().drop();
  }
  /// This rank's shard of the optimizer state.
  constexpr ShardedState<T, D>& state() { return finish_step(), state_; }
  constexpr Replicas<T, D>& replicas() { return weights_.replicas(); }
  constexpr const Inventory<T, D>& inventory() const { return weights_.inventory(); }
  constexpr const List<Unit<T, D>*>& units() const { return weights_.units(); }
  /// Whether the current step checks the ranks, and how many steps did.
  constexpr const RankCheck<D>& rank_check() { return finish_step(), check_; }
  /// Locks on the folders that this training saves in, held until the engine is destroyed. On the first rank.
  io::CheckpointLocks& checkpoint_locks() { return checkpoint_locks_.get_or_make(); }
  constexpr Size parameter_count() const { return weights_.parameter_count(); }

  static constexpr double value_of(const Loss<P>& loss) { return static_cast<double>(loss.value().item()); }

 private:
  friend class detail::StepGraphs<D, B>;
  constexpr int counters() const { return inventory().counters(weights_.replicas_.rule()); }
  constexpr void set_up();
  /// forward() of a batch from tensors that hold the same.
  constexpr Loss<P> forward_on(MicroStep<D, B>& micro, const B& inputs, const B& batch, CallSite site);
  /// The position of a batch before which `before` others of its rank were in the step.
  constexpr RandomPosition position_of_forward(const B& batch, Size before) const {
    return detail::position_of(batch, weights_.context().random.key, steps_,
                               before * world_.data_size() + world_.data_rank(), sizes_.micro_batch);
  }
  constexpr UpdateScalars scalars_of_update() { return {.step = moment_steps_ + 1, .lr = learning_rate_}; }
  constexpr PendingReport act();
  constexpr void issue_step();
  constexpr void end_step(const Tensor<double, 1, D>& scalars, StepReport& report);
  constexpr void forget_remedies() {
    world_.memory().ask_remedies(this, [] { return std::vector<Remedy>{}; });
  }
  constexpr void abandon(MicroStep<D, B>& micro);
  constexpr void drop_step();
  constexpr double seed_of_all() const {  ///< of a micro-batch whose targets all count
    return scale_.value() / static_cast<double>(world_.replicas().size() * sizes_.accumulate);
  }
  /// Discards the step's gradients at the end of the scope unless cancelled.
  struct Undo {
    Engine* engine;
    MicroStep<D, B>* micro = nullptr;
    constexpr void cancel() { engine = nullptr; }
    constexpr ~Undo() {
      if (engine && micro) micro->abandon();
      if (engine) engine->drop_step();
    }
  };

  World<P>& world_;
  Optimizer optimizer_;
  BatchSizes sizes_;
  EngineConfig config_;
  double learning_rate_;
  LossScale scale_;
  // Declared so that members refer only to earlier ones: tape nodes refer to all that is above.
  Weights<Model> weights_;
  ShardedState<T, D> state_;
  StepTargets<D> step_targets_;
  MicroStep<D, B> own_;                                            ///< of the three verbs
  Size steps_ = 0, skipped_ = 0, micro_steps_ = 0, forwards_ = 0;  ///< the last two of this step
  Size begun_ = 0;                                                 ///< steps, including discarded ones
  Size moment_steps_ = 0;  ///< since the moments were zero: the step count of bias correction
  RankCheck<D> check_;
  std::uint64_t run_ = 0;
  detail::FiniteGuard<D, B> guard_;
  detail::StepInFlight<D> step_;
  detail::StepGraphs<D, B> graphs_;
  AtRunTime<io::CheckpointLocks> checkpoint_locks_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class Model, class Optimizer>
constexpr Engine<Model, Optimizer>::Engine(World<P>& world, Model model, Optimizer optimizer, BatchSizes sizes,
                                           EngineConfig config, const ReplicaConfig& zero)
    : world_(world),
      optimizer_(optimizer),
      sizes_(sizes),
      config_(config),
      learning_rate_(optimizer.lr),
      scale_(needs_loss_scale<T> ? LossScale(config.loss_scale) : LossScale()),
      weights_(world, std::move(model), zero, {&config_.groups, detail::asks_for_matrices<Optimizer>}),
      state_(weights_.replicas()),
      step_targets_(world.memory(), world.replicas()),
      own_(this, weights_.context(), counters()),
      check_(config.check_ranks, world.size()) {
  detail::check_settings(optimizer, sizes, config);
  detail::check_loss_scale<T>(config);
  detail::check_graphs<D>(config, zero, world.size());
  detail::Otherwise unless_set_up([this] { forget_remedies(); });
  detail::with_sentence("Engine", [&] { set_up(); });
  unless_set_up.cancel();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::set_up() {
  require_same_engines(*this, weights_.rooted().inner);
  inventory().check_groups();
  detail::ask_stage_remedies(*this);
  weights_.materialize(
      [&](Bucket<T, D>& b) { state_.add(b, moments_in<Optimizer>(b), world_.seed(), world_.tp_rank()); });
  if (replicas().config().keeps_more_for_steps()) state_.prepare_steps(units(), world_.tp().size());
  state_.settle();
  weights_.set_trained();
  replicas().check_reductions(check_.of_reductions());
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::abandon(MicroStep<D, B>& micro) {
  if (micro.give_back_number(begun_, forwards_)) --forwards_;  // its samples come again
  micro.abandon();
  for (Unit<T, D>* unit : units()) unit->release();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::drop_step() {
  abandon(own_);
  state_.speculative().drop(), replicas().drop_step();
  for (Unit<T, D>* unit : units()) unit->drop_gradients();
  micro_steps_ = forwards_ = 0;
  ++begun_;
  step_.discard(), guard_.drop_step();
  check_.forget();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::restart(Size steps) {
  finish_step(), drop_step(), state_.end_update(), graphs_.forget();
  read_state(*this, [&] {
    for (Unit<T, D>* unit : units())
      for (Bucket<T, D>& b : unit->buckets()) state_.clear_moments(b);
    state_.settle();
  });
  steps_ = steps, moment_steps_ = 0, run_ = 0;
  if (needs_loss_scale<T>) scale_ = LossScale(config_.loss_scale);
  check_.reset(), guard_.reset();
  replicas().check_reductions(check_.of_reductions());
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::resume(const TrainingProgress& progress) {
  check_learning_rate(progress.learning_rate);
  finish_step(), drop_step(), state_.end_update(), graphs_.forget();
  steps_ = progress.steps, skipped_ = progress.skipped_steps, moment_steps_ = progress.moment_steps;
  learning_rate_ = progress.learning_rate;
  weights_.context().random.key = {progress.seed};
  run_ = progress.run;
  if (needs_loss_scale<T>) scale_ = LossScale(config_.loss_scale);
  if (scale_.dynamic() && progress.dynamic_loss_scale) scale_.set_state(progress.loss_scale);
  check_.reset(), guard_.reset();
  replicas().check_reductions(check_.of_reductions());
}

template <class Model, class Optimizer>
constexpr Loss<typename Model::policy> Engine<Model, Optimizer>::forward_on(MicroStep<D, B>& micro, const B& inputs,
                                                                            const B& batch, CallSite site) {
  micro.require_engine(this);
  finish_step();
  state_.settle();
  replicas().begin_micro_step();
  if (micro_steps_ >= sizes_.accumulate) detail::refuse_forward(micro_steps_);
  check_batch(batch);
  check_batch_fits(batch, sizes_, P::cp);
  abandon(micro);
  Context<D>& context = micro.context_;
  const detail::Training training(context.training);
  context.random = position_of_forward(batch, micro.take_number(begun_, forwards_));
  context.numbers = graphs_.numbers();
  context.targets.clear(), context.reports.clear(), context.kept_inputs.division.restart();
  context.expected_seed = context.numbers && needs_loss_scale<T> ? 0 : seed_of_all();
  guard_.before_forward();
  const detail::CountsUses counting{replicas().micro_step(), micro.uses_.data(), inventory().count()};
  micro.counts_uses_ = true;
  micro.keep(batch);
  if (check_.due()) micro.input_ = print_of(batch, context.random.first_sample);
  auto loss = detail::with_sentence("forward", site, [&] {
    return weights_.rooted().within(micro.tape_, [&] { return weights_.loss_of(micro.tape_, inputs); });
  });
  micro.targets_ = counts_of(context.targets, inputs, loss.value(), P::cp);
  context.targets.of_terms.clear();
  std::swap(micro.reports_, context.reports);
  loss.counted = Scalar<double, D>::view(micro.targets_.storage(), TargetCounts::counted, {});
  micro.waits_for_backward_ = true;
  micro.step_ = begun_;
  micro.loss_ = loss.value().data();
  micro.suspect_ = guard_.after_forward(batch, context.random, loss.value());
  return loss;
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::backward(MicroStep<D, B>& micro, const Loss<P>& loss, CallSite site) {
  micro.require_engine(this);
  if (!micro.waits_for_backward_ || micro.step_ != begun_)
    fail(ErrorCode::state,
         "dspp: backward needs a forward of its own, but there was none since the last, or eval_batch, no_grad or "
         "generate discarded it. Call forward(batch).");
  if (loss.value().data() != micro.loss_)
    fail(ErrorCode::state,
         "dspp: backward needs the loss that the last forward returned, but got another. Call it before the next "
         "forward, and scale a loss inside of the model's loss().");
  if (micro_steps_ >= sizes_.accumulate) detail::refuse_backward();
  micro.waits_for_backward_ = false, micro.numbered_ = -1;
  Undo undo{this, &micro};
  micro.require_same_batch();
  const detail::CountsUses counting{replicas().micro_step(), micro.uses_.data(), inventory().count()};
  const detail::Training training(micro.context_.training);
  if (micro_steps_ == 0) step_targets_.begin(micro.targets_);
  const CountedTargets<D>& reported = micro.context_.targets;
  if (check_.due()) check_.note(micro_steps_, std::move(micro.input_), micro.reports_, reported.all_count);
  auto seed = step_targets_.add(micro.targets_, loss.value(), seed_of_all(), reported, micro.context_.numbers);
  step_targets_.add_reports(micro.reports_, micro.targets_);
  micro.reports_.clear(), micro.targets_ = {};
  guard_.before_backward(micro.suspect_, micro_steps_ + 1);
  for (Unit<T, D>* unit : units()) unit->begin_pass();
  if (replicas().begin_backward(micro_steps_ + 1 == sizes_.accumulate) && replicas().config().speculates)
    state_.begin_updates(!check_.due(), optimizer_, scalars_of_update(), scale_.value());
  detail::with_sentence("backward", site, [&] { micro.tape_.backward(loss.slot(), std::move(seed)); });
  micro.tape_.clear();
  detail::require_means_of_loss(reported);
  inventory().check_uses(micro.uses_, [&] { replicas().complete_all(); });
  if (replicas().reduces_units()) start_reductions<T, D>(units());  // behind backward all ranks have started the same
  micro.counts_uses_ = false, ++micro_steps_, undo.cancel();
}

template <class Model, class Optimizer>
constexpr PendingReport Engine<Model, Optimizer>::act() {
  if (micro_steps_ == 0) detail::refuse_step();
  if (micro_steps_ < sizes_.accumulate) return {};
  const TimelineRange<D> range(world_.memory(), "step");
  step_.prepare([](void* engine) { static_cast<Engine*>(engine)->finish_step(); });
  issue_step();
  refresh_units<T, D>(units(), replicas());  // first: a step that throws may have ended the update before
  if constexpr (detail::known_at_once<D>) finish_step();
  return step_.report();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::issue_step() {
  micro_steps_ = forwards_ = 0;
  ++begun_;
  Undo undo{this};
  finish_reductions<T, D>(units(), replicas());
  sum_replicated_gradients<T, D>(units(), replicas(), world_.tp());
  const auto scalars = step_targets_.sum_up();
  step_targets_.sum_up_reports();
  auto norm = gradient_norm<T, D>(units(), replicas(), world_.tp());
  const StepLimits limits = detail::limits_of<Optimizer, Compute<T>>(config_, scale_.value(), graphs_.numbers());
  ops::judge_step<D>(world_.memory(), limits, norm.data(), scalars.data());
  norm.release();
  const auto check = [&] { check_.due() ? check_ranks(*this, check_, scalars) : void(); };
  state_.in_step(world_.all(), scalars, check, [&] {
    update_units<T, D>(units(), optimizer_, state_, scalars_of_update(), scalars.data(), world_.tp());
  });
  step_.begin(this, scalars, scale_.value());
  undo.cancel();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::end_step(const Tensor<double, 1, D>& scalars, StepReport& report) {
  Undo undo{this};
  scalars.read([&](const auto* host) {
    Context<D>& context = weights_.context();
    report.loss = host[StepScalars::loss], report.targets = host[StepScalars::targets];
    report.gradient_norm = host[StepScalars::gradient_norm];
    report.metrics = step_targets_.metrics(report.targets);
    const auto repeat = [&](const B& batch, const RandomPosition& position) {
      const detail::Training training(context.training);
      context.random = position;
      eval_batch(batch);
    };
    if (host[StepScalars::verdict] == static_cast<double>(StepVerdict::nonfinite))
      require_unchanged_gradients(*this, check_);
    report.skipped = guard_.skips(*this, context, host, report.nonfinite, repeat);
  });
  scale_.update(!(report.gradient_norm - report.gradient_norm == 0));  // infinite or NaN
  undo.cancel();
  if (report.skipped)
    ++skipped_;
  else
    ++steps_, ++moment_steps_;
  for (Unit<T, D>* unit : units()) unit->drop_gradients();
  check_.end_step(), replicas().end_step(check_.of_reductions(), report.skipped || scale_.value() != report.loss_scale);
}

template <class Model, class Optimizer>
template <class Batches>
constexpr PendingReport Engine<Model, Optimizer>::train_batch(const Batches& batches, CallSite site) {
  if (micro_steps_ != 0) detail::refuse_begun(micro_steps_);
  Undo undo{this};
  PendingReport report = graphs_.train(*this, batches, site);
  undo.cancel();
  return report;
}

}  // namespace dspp
