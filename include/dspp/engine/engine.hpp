// SPDX-License-Identifier: Apache-2.0
/// One training step: composes model, optimizer, replicas and tape, and contains none of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/engine/batch.hpp>
#include <dspp/engine/full_tensors.hpp>
#include <dspp/engine/gradients.hpp>
#include <dspp/engine/materialize.hpp>
#include <dspp/engine/remedies.hpp>
#include <dspp/engine/update.hpp>
#include <dspp/engine/world.hpp>
#include <dspp/optim/clip.hpp>
#include <dspp/optim/loss_scale.hpp>
#include <dspp/zero/in_unit.hpp>

namespace dspp {

struct EngineConfig {
  Size accumulate = 1;           ///< micro-steps per optimizer step: global batch = micro_batch x accumulate x data
  double clip_norm = 1.0;        ///< largest global gradient norm; 0: no clipping
  Size bucket_bytes = 32_MiB;    ///< of parameters, per bucket
  LossScaleConfig loss_scale{};  ///< under F16 alone; the other precisions' scale is 1
};

/// What step() did.
struct StepReport {
  bool acted = false;        ///< false between accumulation boundaries
  bool skipped = false;      ///< a gradient was not finite on some rank: no rank changed anything
  double gradient_norm = 0;  ///< loss scale taken out
  double loss_scale = 1;     ///< that the step was taken with; engine.loss_scale() is the next one's
};

/// What train_batch() did.
struct BatchReport {
  double loss = 0;  ///< the mean of this rank's micro-losses; the global batch's is engine.mean(report.loss)
  StepReport step{};
};

/// Where a training stands, besides its tensors: a step boundary.
struct TrainingProgress {
  Size steps = 0, skipped_steps = 0;
  Size moment_steps = 0;     ///< since the moments were zero
  double learning_rate = 0;  ///< of the next step, unless a schedule sets another
  std::uint64_t seed = 0;    ///< of the random streams, whose position is `steps`
  bool dynamic_loss_scale = false;
  LossScaleState loss_scale{};
};

/// Trains a model: `loss = engine.forward(batch); engine.backward(loss); engine.step();`, DeepSpeed's three verbs.
///
/// The training loss is the mean over the global batch: backward seeds with loss_scale / (replicas x accumulate), the
/// only place where anything is divided (the replicas are the ranks along Data and Cp); the update takes the scale out.
/// Under every ZeRO stage the same steps give the same bits (docs/decisions/0003).
///
/// Memory   as plan<Model>(...) says, byte for byte
/// Throws   Error(state) for calls out of order; whatever a collective throws
///
/// Model needs `policy`, `visit(f)` and `loss(tokens, targets)`.
template <class Model, class Optimizer>
class Engine {
 public:
  using P = typename Model::policy;
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  using OptimizerType = Optimizer;
  static_assert(Optimizer::moment_count >= 0 && Optimizer::moment_count <= max_moments,
                "dspp: Engine needs an optimizer of at most two moments a parameter, but this one has another "
                "moment_count. Keep at most two, or none.");

  constexpr Engine(World<P>& world, Model model, Optimizer optimizer, EngineConfig config = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  constexpr ~Engine();

  /// The mean loss of this rank's micro-batch.
  constexpr Loss<P> forward(const Batch<D>& batch);
  /// Of the last forward's loss. One that throws leaves no gradient behind: the step begins anew.
  constexpr void backward(const Loss<P>& loss);
  /// Acts at the accumulation boundary only. One that throws has changed nothing and left no gradient behind.
  ///
  /// Throws   Error(state) under F16, on every rank, for gradients that overflow at the smallest loss scale
  constexpr StepReport step();
  /// forward, backward and step over the micro-batches of one step. One that throws leaves no gradient behind.
  ///
  /// Throws   Error(usage) unless there are as many as config().accumulate
  template <class Batches>
  constexpr BatchReport train_batch(const Batches& batches);

  /// The mean loss of a batch without learning: no tape, no dropout.
  constexpr double eval(const Batch<D>& batch);
  /// The mean over the replicas of a loss that each computed on its own data.
  constexpr double mean(double loss);
  constexpr double mean(const Loss<P>& loss) { return mean(value_of(loss)); }
  /// Runs `f(model, tape)` without learning, between the root unit's boundaries: for logits and sampling.
  template <class F>
  constexpr auto without_learning(F f);

  /// The parameter or gradient of that global name, e.g. "blocks.0.mlp.up.weight", whole on every rank: data() is its
  /// global elements in row-major order, in the precision of the master. A gradient is there between backward and step:
  /// that of the sum of the micro-losses so far, over replicas x accumulate.
  ///
  /// Cost     one all-reduce over the world. Call it on every rank.
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
    return collected(
        name, [&](const auto& named, const FullTensor& whole) { detail::collect_gradient(*this, named, whole); });
  }

  /// Drops gradients and sets the optimizer's moments to zero, after the weights were replaced: the next step is number
  /// `steps` + 1 of the training, and the first of the moments, whose bias correction begins anew. So does the loss
  /// scale.
  constexpr void restart(Size steps);

  constexpr TrainingProgress progress() const {
    return {steps_,           skipped_,      moment_steps_, learning_rate_, context_.random.key.seed,
            scale_.dynamic(), scale_.state()};
  }
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
  constexpr std::span<Unit<T, D>* const> units() { return inventory_.units; }
  /// Global elements of all parameters, padding not counted.
  constexpr Size parameter_count() const;

  static constexpr double value_of(const Loss<P>& loss) {
    if constexpr (D::real) return static_cast<double>(*loss.value().data());
    return 0;
  }

 private:
  constexpr void set_up();
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
  constexpr Tokens<P> constant(const Tensor<std::int32_t, 2, D>& ids) { return Tokens<P>::constant(ids, tape_); }

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
  Tape<D> tape_;
  Size steps_ = 0, skipped_ = 0, micro_steps_ = 0;
  Size moment_steps_ = 0;  ///< since the moments were zero: the optimizer's own count
  bool forward_done_ = false;
  const void* loss_ = nullptr;  ///< where the last forward's loss lies; null on paper
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// While it lives, the context is one of a step that learns.
class Training {
 public:
  constexpr explicit Training(bool& flag) : flag_(flag) { flag_ = true; }
  constexpr ~Training() { flag_ = false; }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

 private:
  bool& flag_;
};

/// Gradients<ByUse>: the element type without accumulation, f32 with it.
template <class P>
constexpr bool wide_gradients(Size accumulate) {
  using T = typename P::Element;  // detail has an ElementOf of its own
  if constexpr (std::is_same_v<T, Compute<T>>) return false;
  return std::is_same_v<typename P::GradientChoice, Gradients<ByUse>>
             ? accumulate > 1
             : std::is_same_v<typename P::GradientChoice, Gradients<F32>>;
}
}  // namespace detail

template <class Model, class Optimizer>
constexpr Engine<Model, Optimizer>::Engine(World<P>& world, Model model, Optimizer optimizer, EngineConfig config)
    : world_(world),
      optimizer_(optimizer),
      config_(config),
      learning_rate_(optimizer.lr),
      scale_(needs_loss_scale<T> ? LossScale(config.loss_scale) : LossScale()),
      context_{.memory = &world.memory(), .tp = &world.tp(), .cp = &world.cp(), .random = {.key = {world.seed()}}},
      model_(std::move(model)),
      replicas_(
          world.memory(), world.replicas(),
          ReplicaConfig{stage_rule<P::zero_stage>, detail::wide_gradients<P>(config.accumulate), config.bucket_bytes}),
      tape_(context_) {
  check_optimizer(optimizer);
  require(config.accumulate >= 1,
          "dspp: Engine needs at least one micro-step per step, but accumulate is smaller. Raise it.");
  require(config.clip_norm >= 0, "dspp: Engine needs a clip_norm of at least 0, but got less. 0 means no clipping.");
  require(
      needs_loss_scale<T> || config.loss_scale == LossScaleConfig{},
      "dspp: Engine needs F16 for a loss scale, since the other precisions' is 1, but one is configured. Use F16 or "
      "leave loss_scale out.");
  set_up();
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::set_up() {
  walk(model_, inventory_);
  add_remedies();
  inventory_.link_units();
  for (Unit<T, D>* unit : inventory_.units) {
    unit->set_up(replicas_);
    for (Bucket<T, D>& b : unit->buckets()) allocate_state<Optimizer>(b, replicas_, world_.seed(), world_.place().tp);
  }
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
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::restart(Size steps) {
  drop_step();
  for (Unit<T, D>* unit : inventory_.units)
    for (Bucket<T, D>& b : unit->buckets())
      for (int i = 0; i < Optimizer::moment_count; ++i) b.moments[i].fill({});
  steps_ = steps;
  moment_steps_ = 0;
  if (needs_loss_scale<T>) scale_ = LossScale(config_.loss_scale);
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::resume(const TrainingProgress& progress) {
  check_learning_rate(progress.learning_rate);
  drop_step();
  steps_ = progress.steps, skipped_ = progress.skipped_steps, moment_steps_ = progress.moment_steps;
  learning_rate_ = progress.learning_rate;
  context_.random.key = {progress.seed};
  if (needs_loss_scale<T>) scale_ = LossScale(config_.loss_scale);
  if (scale_.dynamic() && progress.dynamic_loss_scale) scale_.set_state(progress.loss_scale);
}

template <class Model, class Optimizer>
constexpr Loss<typename Model::policy> Engine<Model, Optimizer>::forward(const Batch<D>& batch) {
  if (micro_steps_ == config_.accumulate)
    fail(ErrorCode::state, "dspp: forward needs the step before to be taken, but " + std::to_string(micro_steps_) +
                               " micro-steps are waiting for it. Call step().");
  check_batch(batch);
  abandon_forward();
  const detail::Training training(context_.training);
  context_.random.step = steps_;
  context_.random.first_sample = batch.first_sample;
  auto loss = model_.within(tape_, [&] { return model_.inner.loss(constant(batch.tokens), constant(batch.targets)); });
  forward_done_ = true;
  if constexpr (D::real) loss_ = loss.value().data();
  return loss;
}

template <class Model, class Optimizer>
constexpr void Engine<Model, Optimizer>::backward(const Loss<P>& loss) {
  if (!forward_done_)
    fail(ErrorCode::state,
         "dspp: backward needs a forward of its own, but there was none since the last. Call forward(batch).");
  if constexpr (D::real)
    if (loss.value().data() != loss_)
      fail(
          ErrorCode::state,
          "dspp: backward needs the loss of the last forward, but got another. Call backward before the next forward.");
  forward_done_ = false;
  Undo undo{this};
  const detail::Training training(context_.training);
  auto seed = Tensor<Compute<T>, 0, D>::uninitialized({}, world_.memory(), Category::activations, "loss seed");
  seed.fill(
      static_cast<Compute<T>>(scale_.value() / static_cast<double>(world_.replicas().size() * config_.accumulate)));
  tape_.backward(loss.slot(), std::move(seed));
  tape_.clear();
  inventory_.check_uses();
  undo.cancel();
  ++micro_steps_;
}

template <class Model, class Optimizer>
constexpr StepReport Engine<Model, Optimizer>::step() {
  if (micro_steps_ < config_.accumulate) return {};
  micro_steps_ = 0;
  Undo undo{this};
  for (std::size_t i = inventory_.units.size(); i-- > 0;) inventory_.units[i]->reduce_for_step();
  replicas_.complete_all();
  sum_replicated_gradients<T, D>(units(), replicas_, world_.tp());
  StepReport report{.acted = true, .loss_scale = scale_.value()};
  report.gradient_norm = gradient_norm<T, D>(units(), replicas_, world_.tp()) / report.loss_scale;
  report.skipped = !(report.gradient_norm - report.gradient_norm == 0);  // neither infinite nor NaN
  scale_.update(report.skipped);
  undo.cancel();
  if (report.skipped) {
    ++skipped_;
  } else {
    ++steps_;
    ++moment_steps_;
    const UpdateScalars scalars{
        .step = moment_steps_,
        .lr = learning_rate_,
        .gradient_scale = clip_coefficient(report.gradient_norm, config_.clip_norm) / report.loss_scale};
    for (Unit<T, D>* unit : inventory_.units)
      for (Bucket<T, D>& b : unit->buckets()) update_bucket(optimizer_, b, replicas_, scalars);
  }
  for (Unit<T, D>* unit : inventory_.units) unit->drop_gradients();
  if (!report.skipped && replicas_.rule().optimizer_is_split() && !replicas_.rule().values_are_split()) {
    for (Unit<T, D>* unit : inventory_.units)
      for (Bucket<T, D>& b : unit->buckets()) replicas_.start_refresh(b);
    replicas_.complete_all();
  }
  return report;
}

template <class Model, class Optimizer>
template <class Batches>
constexpr BatchReport Engine<Model, Optimizer>::train_batch(const Batches& batches) {
  BatchReport report;
  Undo undo{this};
  for (const Batch<D>& batch : batches) {
    auto loss = forward(batch);
    report.loss += value_of(loss) / static_cast<double>(config_.accumulate);
    backward(loss);
    report.step = step();
  }
  if (!report.step.acted || micro_steps_ != 0)
    fail(ErrorCode::usage, "dspp: train_batch needs " + std::to_string(config_.accumulate) +
                               " micro-batches, one for each micro-step of EngineConfig::accumulate, but got another "
                               "number. Give it those of one step.");
  undo.cancel();
  return report;
}

template <class Model, class Optimizer>
template <class F>
constexpr auto Engine<Model, Optimizer>::without_learning(F f) {
  abandon_forward();
  const typename Tape<D>::Recording off(tape_, false);
  return model_.within(tape_, [&] { return f(model_.inner, tape_); });
}

template <class Model, class Optimizer>
constexpr double Engine<Model, Optimizer>::eval(const Batch<D>& batch) {
  check_batch(batch);
  return without_learning([&](const Model& model, Tape<D>&) {
    return value_of(model.loss(constant(batch.tokens), constant(batch.targets)));
  });
}

template <class Model, class Optimizer>
constexpr double Engine<Model, Optimizer>::mean(double loss) {
  auto sum = Tensor<double, 0, D>::uninitialized({}, world_.memory(), Category::communication, "mean");
  sum.fill(loss);
  all_reduce(world_.replicas(), buffer(sum.data(), 1), Purpose::scalar);
  if constexpr (D::real) return *sum.data() / static_cast<double>(world_.replicas().size());
  return 0;
}

template <class Model, class Optimizer>
constexpr Size Engine<Model, Optimizer>::parameter_count() const {
  Size count = 0;
  for (const auto& named : inventory_.parameters) count += named.parameter->geometry.global_count();
  return count;
}

}  // namespace dspp
