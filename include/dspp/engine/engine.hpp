// SPDX-License-Identifier: Apache-2.0
/// One training step: composes model, optimizer, replicas and tape, and contains none of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/base/arithmetic.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/engine/engine_facts.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/engine_types.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/rank_check.hpp>
#include <dspp/engine/remedies.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/io/state_lock.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/optim/clip.hpp>
#include <dspp/optim/loss_scale.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/in_unit.hpp>
#include <dspp/zero/materialize.hpp>
#include <dspp/zero/update.hpp>

namespace dspp {

/// Trains a model: `loss = engine.forward(batch); engine.backward(loss); engine.step();`, DeepSpeed's three verbs.
///
/// The training loss is the mean over the targets that count in the global batch, however they are spread over ranks
/// and micro-steps: backward seeds with loss_scale / (replicas x accumulate) times the micro-batch's share
/// (engine/step_targets.hpp), the replicas being the ranks along Data and Cp; step() takes the scale out and makes up
/// for what does not count 1: ignored_target, target_weights. A model that says nothing of it counts every target.
/// Under every ZeRO stage the same steps give the same bits (docs/decisions/0003).
///
/// Memory   as plan<Model>(...) says, byte for byte
/// Throws   Error(state) for calls out of order; Error(usage), on every rank, where one was given another policy, seed,
///          configuration, optimizer or model, and what check_ranks() says (rank_check.hpp); whatever a collective
///          throws
///
/// Model needs `policy`, `visit(f)` and `loss(tokens, targets)`.
template <class Model, class Optimizer>
class Engine {
 public:
  using P = typename Model::policy;
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  using OptimizerType = Optimizer;
  static_assert(detail::check_engine_types<Model, Optimizer>());

  constexpr Engine(World<P>& world, Model model, Optimizer optimizer, EngineConfig config = {})
      : Engine(world, std::move(model), optimizer, config, detail::replica_config<P>(config)) {}
  /// For plans: with the ZeRO stage and the gradients' type of another policy than the model's on paper.
  constexpr Engine(World<P>& world, Model model, Optimizer optimizer, EngineConfig config, const ReplicaConfig& zero);
  /// A sentence: the world is of another policy. (clang 14 deduces by it, but not by its constraint were it a concept.)
  template <class Q, std::enable_if_t<!std::is_same_v<Q, typename Model::policy>, int> = 0>
  constexpr Engine(World<Q>& world, Model model, Optimizer optimizer, EngineConfig config = {})
      : Engine(detail::world_of<P>(world), std::move(model), optimizer, config) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  constexpr ~Engine();

  /// The mean loss of this rank's micro-batch, which knows its count.
  constexpr Loss<P> forward(const Batch<D>& batch, CallSite site = CallSite::here());
  /// Of the last forward's loss. One that throws leaves no gradient behind: the step begins anew.
  constexpr void backward(const Loss<P>& loss, CallSite site = CallSite::here());
  /// Acts at the accumulation boundary only. One that throws has changed nothing and left no gradient behind.
  ///
  /// Throws   Error(state), the same on every rank: where parameters are not finite, or a loss or gradients are not and
  ///          config().skip_nonfinite does not let the step be skipped; under F16 gradients alone skip the step and
  ///          lower the loss scale, and are an error at the smallest; for a gradient of zeros, unless
  ///          config().zero_gradients; Error(usage), on every rank, if no target of the global batch counts
  constexpr StepReport step(CallSite site = CallSite::here()) {
    return detail::with_sentence<D>("step", site, [&] { return act(); });
  }
  /// forward, backward and step over the micro-batches of one step: what step() reports. One that throws has changed
  /// nothing and left no gradient behind.
  ///
  /// Throws   Error(usage) unless there are as many as config().accumulate; Error(state) between two micro-steps
  template <class Batches>
  constexpr StepReport train_batch(const Batches& batches, CallSite site = CallSite::here());

  /// The mean loss of a batch without learning: no tape, no dropout.
  constexpr MeanLoss eval(const Batch<D>& batch, CallSite site = CallSite::here());
  /// The mean over the counted targets of all replicas of a loss that each computed on its own data: what forward and
  /// eval give. Of a number, which does not know its count, the mean over the replicas.
  constexpr double mean(const MeanLoss& loss, CallSite site = CallSite::here());
  constexpr double mean(const Loss<P>& loss, CallSite site = CallSite::here()) {
    return mean(MeanLoss{value_of(loss), loss.counted < 0 ? 1 : loss.counted}, site);
  }
  constexpr double mean(double loss, CallSite site = CallSite::here()) { return mean(MeanLoss{loss, 1}, site); }
  /// Runs `f(model, tape)` without learning, between the root unit's boundaries: for logits and sampling.
  template <class F>
  constexpr auto without_learning(F f, CallSite site = CallSite::here());

  /// The parameter or gradient of that global name, e.g. "blocks.0.mlp.up.weight", whole on every rank: data() is its
  /// global elements in row-major order, in the precision of the master. A gradient is there between backward and step:
  /// that of the mean over the targets counted so far, times the share of the micro-steps done.
  ///
  /// Cost     one all-reduce over the world, of a gradient of several micro-steps 16 bytes over the replicas more. Call
  ///          it on every rank.
  /// Throws   Error(usage) if the model has none of that name; Error(state) for a gradient at another time
  using FullTensor = Tensor<Compute<T>, 1, D>;
  FullTensor full_parameter(std::string_view name) {
    return collected(
        name, [&](const auto& named, const FullTensor& whole) { detail::collect_parameter(*this, named, whole); });
  }
  FullTensor full_gradient(std::string_view name) {
    // clang-format off
    require(micro_steps_ > 0, "dspp: full_gradient needs a backward since the last step, but there was none: gradients are gone. Ask between backward and step.", ErrorCode::state);
    // clang-format on
    return collected(name, [&](const auto& named, const FullTensor& whole) {
      detail::collect_gradient(*this, named, whole);
      const double correction = step_targets_.correction(step_targets_.mean().counted);
      for (Size i = 0; correction != 1 && i < whole.count(); ++i)
        whole.data()[i] *= static_cast<Compute<T>>(correction);
    });
  }

  /// Drops gradients and sets the optimizer's moments to zero, after the weights were replaced: the next step is number
  /// `steps` + 1 of the training, and the first of the moments, whose bias correction begins anew. So does the loss
  /// scale.
  constexpr void restart(Size steps);

  constexpr TrainingProgress progress() const {
    return {steps_,           skipped_,       moment_steps_, learning_rate_, context_.random.key.seed,
            scale_.dynamic(), scale_.state(), run_};
  }
  /// Names a training that has no name yet; the same on every rank.
  constexpr void name_run(std::uint64_t run) { run_ = run; }
  /// Drops gradients and goes on from there, after the tensors were replaced. The loss scale does where both are
  /// dynamic; else it is that of the configuration.
  constexpr void resume(const TrainingProgress& progress);
  /// Whether no micro-step waits for a step.
  constexpr bool at_step_boundary() const { return micro_steps_ == 0; }

  constexpr Size steps() const { return steps_; }
  constexpr Size skipped_steps() const { return skipped_; }
  /// Of the next step: dynamic or fixed under F16, else 1. The same on every rank, since the norm is.
  constexpr double loss_scale() const { return scale_.value(); }
  constexpr double learning_rate() const { return learning_rate_; }
  /// Throws   Error(usage) unless it is a number of at least 0
  constexpr void set_learning_rate(double rate) {
    check_learning_rate(rate);
    learning_rate_ = rate;
  }

  constexpr const Model& model() const { return model_.inner; }
  constexpr World<P>& world() { return world_; }
  constexpr const EngineConfig& config() const { return config_; }
  constexpr const Optimizer& optimizer() const { return optimizer_; }
  constexpr Replicas<T, D>& replicas() { return replicas_; }
  constexpr const Inventory<T, D>& inventory() const { return inventory_; }
  constexpr const List<Unit<T, D>*>& units() const { return inventory_.units; }
  /// Whether the current step checks the ranks, and how many steps did.
  constexpr const RankCheck<D>& rank_check() const { return check_; }
  /// The folders that this training saves in, held against other jobs until the engine goes. On the first rank.
  StateLocks& state_locks() { return state_locks_; }
  /// Global elements of all parameters, padding not counted.
  constexpr Size parameter_count() const;

  static constexpr double value_of(const Loss<P>& loss) { return static_cast<double>(loss.value().item()); }

 private:
  constexpr void set_up();
  constexpr StepReport act();
  constexpr void add_remedies();
  constexpr void abandon_forward();
  constexpr void drop_step();
  /// Drops the step unless what may throw came to its end.
  struct Undo {
    Engine* engine;
    constexpr void cancel() { engine = nullptr; }
    constexpr ~Undo() {
      if (engine) engine->drop_step();
    }
  };
  template <class Collect>
  FullTensor collected(std::string_view name, Collect collect) {
    const auto& named = find_parameter(*this, name);
    auto whole = FullTensor::zeros(shape(named.parameter->geometry.global_count()), world_.memory(),
                                   Category::communication, "full tensor");
    collect(named, whole);
    return whole;
  }
  constexpr auto loss_of(auto& model, const Batch<D>& batch) {
    constexpr unsigned cut = P::cp > 1 ? 1u << 1 : 0u;  // Cp cuts [batch, sequence] along the sequence
    auto targets = Tokens<P>::constant(batch.targets, tape_, cut);
    targets.target_weights = batch.target_weights;
    return model.loss(Tokens<P>::constant(batch.tokens, tape_, cut), targets);
  }

  World<P>& world_;
  Optimizer optimizer_;
  EngineConfig config_;
  double learning_rate_;
  LossScale scale_;
  Context<D> context_;
  // In the order of what refers to what: operations in flight refer to buckets, nodes of the tape to all.
  InUnit<Model> model_;
  Inventory<T, D> inventory_;
  Replicas<T, D> replicas_;
  StepTargets<D> step_targets_;
  Tape<D> tape_;
  Size steps_ = 0, skipped_ = 0, micro_steps_ = 0;
  Size moment_steps_ = 0;  ///< since the moments were zero: the optimizer's own count
  RankCheck<D> check_;
  std::uint64_t run_ = 0;
  bool forward_done_ = false;
  TargetCounts targets_{};      ///< of the last forward's batch
  const void* loss_ = nullptr;  ///< where the last forward's loss lies; null on paper
  detail::FiniteGuard<D> guard_;
  struct NoLocks {};
  std::conditional_t<D::real, StateLocks, NoLocks> state_locks_{};
};

// ---------------------------------------------------------------------------------------------------------------------

template <class Model, class Optimizer>
constexpr Engine<Model, Optimizer>::Engine(World<P>& world, Model model, Optimizer optimizer, EngineConfig config,
                                           const ReplicaConfig& zero)
    : world_(world),
      optimizer_(optimizer),
      config_(config),
      learning_rate_(optimizer.lr),
      scale_(needs_loss_scale<T> ? LossScale(config.loss_scale) : LossScale()),
      context_{.memory = &world.memory(), .tp = &world.tp(), .cp = &world.cp(), .random = {.key = {world.seed()}}},
      model_(std::move(model)),
      replicas_(world.memory(), world.replicas(), zero),
      step_targets_(world.memory(), world.replicas()),
      tape_(context_),
      check_(config.check_ranks, world.size()) {
  if constexpr (D::real) check_arithmetic();
  check_optimizer(optimizer);
  check_engine_config(config);
  require(
      needs_loss_scale<T> || config.loss_scale == LossScaleConfig{},
      "dspp: Engine needs F16 for a loss scale, since the other precisions' is 1, but one is configured. Use F16 or "
      "leave loss_scale out.");
  struct Forget {
    Engine* engine;
    constexpr ~Forget() {
      if constexpr (D::real)
        if (engine) engine->world_.memory().set_remedies(engine, {});
    }
  } unless_set_up{this};
  detail::with_sentence<D>("Engine", [&] { set_up(); });
  unless_set_up.engine = nullptr;
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::set_up() {
  walk(model_, inventory_);
  same_engines(*this, model_.inner);
  add_remedies();
  inventory_.link_units();
  for (Unit<T, D>* unit : inventory_.units) {
    unit->set_up(replicas_);
    for (Bucket<T, D>& b : unit->buckets()) allocate_state<Optimizer>(b, replicas_, world_.seed(), world_.place().tp);
  }
  replicas_.check_reductions(check_.due());
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::add_remedies() {
  if constexpr (D::real) {
    constexpr Size state = sizeof(Compute<T>);
    constexpr Size master = std::is_same_v<T, Compute<T>> ? 0 : state;
    const ParameterBytes each{sizeof(T), replicas_.gradient_bytes(1), master + Optimizer::moment_count * state};
    Size count = 0;
    for (Unit<T, D>* unit : inventory_.units)
      for (const ParameterBase<D>* p : unit->parameters()) count += p->count();
    world_.memory().set_remedies(this, stage_remedies(replicas_.rule(), each, count, world_.replicas().size()));
  }
}

template <class Model, class Optimizer>
constexpr Engine<Model, Optimizer>::~Engine() {
  if constexpr (D::real) world_.memory().set_remedies(this, {});
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::abandon_forward() {
  tape_.clear();
  for (Unit<T, D>* unit : inventory_.units) unit->abandon();
  forward_done_ = false;
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::drop_step() {
  abandon_forward();
  replicas_.abandon();
  for (Unit<T, D>* unit : inventory_.units) unit->drop_gradients();
  micro_steps_ = 0;
  guard_.drop_step();
  check_.forget();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::restart(Size steps) {
  drop_step();
  for (Unit<T, D>* unit : inventory_.units)
    for (Bucket<T, D>& b : unit->buckets())
      for (int i = 0; i < Optimizer::moment_count; ++i) b.moments[i].fill({});
  steps_ = steps;
  moment_steps_ = 0;
  run_ = 0;
  if (needs_loss_scale<T>) scale_ = LossScale(config_.loss_scale);
  check_.begin_anew(), guard_.begin_anew();
  replicas_.check_reductions(check_.due());
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::resume(const TrainingProgress& progress) {
  check_learning_rate(progress.learning_rate);
  drop_step();
  steps_ = progress.steps, skipped_ = progress.skipped_steps, moment_steps_ = progress.moment_steps;
  learning_rate_ = progress.learning_rate;
  context_.random.key = {progress.seed};
  run_ = progress.run;
  if (needs_loss_scale<T>) scale_ = LossScale(config_.loss_scale);
  if (scale_.dynamic() && progress.dynamic_loss_scale) scale_.set_state(progress.loss_scale);
  check_.begin_anew(), guard_.begin_anew();
  replicas_.check_reductions(check_.due());
}

template <class Model, class Optimizer>
constexpr Loss<typename Model::policy> Engine<Model, Optimizer>::forward(const Batch<D>& batch, CallSite site) {
  replicas_.begin_micro_step();
  if (micro_steps_ == config_.accumulate)
    fail(ErrorCode::state, "dspp: forward needs the step before to be taken, but " + std::to_string(micro_steps_) +
                               " micro-steps are waiting for it. Call step().");
  check_batch(batch);
  abandon_forward();
  const detail::Training training(context_.training);
  context_.random.step = steps_, context_.targets = {};
  context_.random.first_sample = batch.first_sample, context_.random.samples = batch.tokens.shape()[0];
  if (check_.due()) check_.note(micro_steps_, batch);
  auto loss = detail::with_sentence<D>(
      "forward", site, [&] { return model_.within(tape_, [&] { return loss_of(model_.inner, batch); }); });
  targets_ = counts_of(context_.targets, batch);
  loss.counted = targets_.counted;
  forward_done_ = true;
  if constexpr (D::real) loss_ = loss.value().data(), guard_.after_forward(batch, value_of(loss));
  return loss;
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::backward(const Loss<P>& loss, CallSite site) {
  if (!forward_done_)
    fail(ErrorCode::state,
         "dspp: backward needs a forward of its own, but there was none since the last. Call forward(batch).");
  if constexpr (D::real)
    if (loss.value().data() != loss_)
      fail(ErrorCode::state,
           "dspp: backward needs the loss that the last forward returned, but got another. Call it before the next "
           "forward, and scale a loss inside of the model's loss().");
  forward_done_ = false;
  Undo undo{this};
  const detail::Training training(context_.training);
  const double mean = value_of(loss);
  if (micro_steps_ == 0) step_targets_.begin(targets_, mean);
  const double share = step_targets_.add(targets_, mean, context_.targets.plain_mean);
  auto seed = Tensor<Compute<T>, 0, D>::uninitialized({}, world_.memory(), Category::activations, "loss seed");
  const auto micro_batches = static_cast<double>(world_.replicas().size() * config_.accumulate);
  seed.fill(static_cast<Compute<T>>(scale_.value() / micro_batches * share));
  if constexpr (D::real) guard_.before_backward(seed);
  detail::with_sentence<D>("backward", site, [&] { tape_.backward(loss.slot(), std::move(seed)); });
  tape_.clear();
  inventory_.check_uses([&] { replicas_.complete_all(); });
  undo.cancel();
  ++micro_steps_;
}

template <class Model, class Optimizer>
constexpr StepReport Engine<Model, Optimizer>::act() {
  if (micro_steps_ < config_.accumulate) return {};
  micro_steps_ = 0;
  Undo undo{this};
  for (std::size_t i = inventory_.units.size(); i-- > 0;) inventory_.units[i]->reduce_for_step();
  replicas_.complete_all();
  if (replicas_.checks_reductions()) check_reduced_gradients<T, D>(units(), replicas_);
  sum_replicated_gradients<T, D>(units(), replicas_, world_.tp());
  const MeanLoss loss = step_targets_.mean();
  StepReport report{.acted = true, .loss = loss.mean, .loss_scale = scale_.value(), .targets = loss.counted};
  if (!(report.targets > 0))
    fail(ErrorCode::usage,
         "dspp: step needs a target that counts, but all of the global batch are ignored or weigh 0. Leave it out.");
  const double correction = step_targets_.correction(report.targets);
  report.gradient_norm = gradient_norm<T, D>(units(), replicas_, world_.tp()) / report.loss_scale * correction;
  if (check_.due()) check_ranks(*this, check_, report.gradient_norm);
  if constexpr (D::real)
    report.skipped = guard_.skips(*this, context_, report.gradient_norm, report.nonfinite, [&](const Batch<D>& batch) {
      const detail::Training training(context_.training);
      context_.random.first_sample = batch.first_sample, context_.random.samples = batch.tokens.shape()[0];
      eval(batch);
    });
  scale_.update(!(report.gradient_norm - report.gradient_norm == 0));  // infinite or NaN
  undo.cancel();
  if (report.skipped) {
    ++skipped_;
  } else {
    ++steps_;
    ++moment_steps_;
    const UpdateScalars scalars{
        .step = moment_steps_,
        .lr = learning_rate_,
        .gradient_scale = clip_coefficient(report.gradient_norm, config_.clip_norm) / report.loss_scale * correction};
    for (Unit<T, D>* unit : inventory_.units)
      for (Bucket<T, D>& b : unit->buckets()) update_bucket(optimizer_, b, replicas_, scalars);
  }
  for (Unit<T, D>* unit : inventory_.units) unit->drop_gradients();
  check_.end_step();
  replicas_.check_reductions(check_.due());
  if (!report.skipped && replicas_.rule().optimizer_is_split() && !replicas_.rule().values_are_split()) {
    for (Unit<T, D>* unit : inventory_.units)
      for (Bucket<T, D>& b : unit->buckets()) replicas_.start_refresh(b);
    replicas_.complete_all();
  }
  return report;
}

template <class Model, class Optimizer>
template <class Batches>
constexpr StepReport Engine<Model, Optimizer>::train_batch(const Batches& batches, CallSite site) {
  if (micro_steps_ != 0)
    fail(ErrorCode::state, "dspp: train_batch needs a step that has not begun, but " + std::to_string(micro_steps_) +
                               " micro-steps are done. Finish it with forward, backward and step.");
  const auto refuse = [&](const char* got) {
    fail(ErrorCode::usage, "dspp: train_batch needs " + std::to_string(config_.accumulate) +
                               " micro-batches, one for each micro-step of EngineConfig::accumulate, but got " + got +
                               ". Give it those of one step.");
  };
  StepReport report;
  Undo undo{this};
  auto next = std::begin(batches);
  const auto end = std::end(batches);
  while (next != end) {
    const Batch<D>& batch = *next;
    auto loss = forward(batch, site);
    backward(loss, site);
    ++next;
    if (micro_steps_ < config_.accumulate) continue;
    if (next != end) refuse("more");
    report = step(site);  // while the batch and its loss are still held, as in a loop of the three verbs
  }
  if (!report.acted) refuse("fewer");
  undo.cancel();
  return report;
}

template <class Model, class Optimizer>
template <class F>
constexpr auto Engine<Model, Optimizer>::without_learning(F f, CallSite site) {
  CalledAt here(site);
  abandon_forward();
  const typename Tape<D>::Recording off(tape_, false);
  return model_.within(tape_, [&] { return f(model_.inner, tape_); });
}

template <class Model, class Optimizer>
constexpr MeanLoss Engine<Model, Optimizer>::eval(const Batch<D>& batch, CallSite site) {
  check_batch(batch);
  context_.targets = {};
  const double mean =
      without_learning([&](const Model& model, Tape<D>&) { return value_of(loss_of(model, batch)); }, site);
  return {mean, counts_of(context_.targets, batch).counted};
}

template <class Model, class Optimizer>
constexpr double Engine<Model, Optimizer>::mean(const MeanLoss& loss, CallSite site) {
  double host[5] = {loss.counted > 0 ? loss.mean * loss.counted : 0, loss.counted};
  const auto sums = Tensor<double, 1, D>::uninitialized(shape(5), world_.memory(), Category::communication, "mean");
  D::from_host(world_.memory(), sums.data(), host, 5);  // five: where one rank alone asks, it meets no other sum
  all_reduce(world_.replicas(), buffer(sums.data(), 5), PurposeAt(Purpose::scalar, site));
  D::to_host(world_.memory(), host, sums.data(), 5);
  return host[1] > 0 ? host[0] / host[1] : 0;
}

template <class Model, class Optimizer>
constexpr Size Engine<Model, Optimizer>::parameter_count() const {
  Size count = 0;
  for (const auto& named : inventory_.parameters) count += named.parameter->geometry.global_count();
  return count;
}

}  // namespace dspp
