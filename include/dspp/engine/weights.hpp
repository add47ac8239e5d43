// SPDX-License-Identifier: Apache-2.0
/// A model's weights, sharded over the ranks: for training by an engine, or for evaluation and inference alone.
#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include <dspp/base/arithmetic.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/engine/engine_facts.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/step_targets.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <dspp/zero/in_unit.hpp>
#include <dspp/zero/materialize.hpp>

namespace dspp {

/// The inventory of a model, its units and their values, which start as the model's initial values. Under Zero<3> each
/// replica keeps its slice and gathers a unit while it is used; else it keeps all.
///
///   Weights weights{world, Gpt<P>{config}};
///   load_weights(weights, "runs/small");
///   auto text = generate(weights, prompt, {.tokens = 100, .sequence = 256});
///
/// Memory   parameters in the policy's element type: no gradients, masters or moments
/// Throws   Error(usage), on every rank, if policy, seed or model differ between ranks
template <class Model>
class Weights {
 public:
  using P = typename Model::policy;
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  using B = BatchOf<Model>;
  using FullTensor = Tensor<Compute<T>, 1, D>;

  /// `offload`: where a policy with Offload<Parameters, Disk> keeps the values.
  constexpr Weights(World<P>& world, Model model, Size bucket_bytes = 32_MiB, const OffloadConfig& offload = {})
      : Weights(world, std::move(model),
                ReplicaConfig{.rule = stage_rule<P::zero_stage>,
                              .bucket_bytes = bucket_bytes,
                              .offload = {offload.folder, offload.calls, {}, offload.parameters},
                              .traffic = P::replica_traffic,
                              .parameters = P::parameter_tier}) {
    detail::with_sentence("Weights", [&] {
      require_same_weights(world, model_.inner);
      materialize([](auto&) {});
      settle_files(*this);
    });
  }
  /// For Engine, which materializes, and keeps what choices refer to: only visits the model.
  constexpr Weights(World<P>& world, Model model, const ReplicaConfig& zero, const ParameterChoices& choices = {})
      : world_(world),
        host_(zero.uses_host<D>(), world.memory()),
        model_(std::move(model)),
        replicas_(world.memory(), host_.memory(), {&world.replicas(), &world.node_replicas(), &world.across_nodes()},
                  zero),
        context_{.memory = &world.memory(),
                 .along = {.data = &world.data(), .cp = &world.cp(), .tp = &world.tp()},
                 .random = {.key = {world.seed()}},
                 .attention_by = P::attention_by,
                 .kept_inputs = {.file = replicas_.input_file(),
                                 .host = zero.activations == Tier::host ? host_.memory() : nullptr,
                                 .partitioned = zero.partitions_activations,
                                 .division = OffloadDivision(zero.offload.activations)},
                 .recomputes_functions = P::recomputes_functions},
        tape_(context_) {
    if (!__builtin_is_constant_evaluated()) check_arithmetic();
    check_replica_config(zero);
    inventory_.set_choices(choices);
    detail::with_sentence("Weights", [&] { walk(model_, inventory_); });
  }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  /// Runs `f(model, tape)` without recording, inside the root unit: for logits and sampling.
  template <class F>
  constexpr auto no_grad(F f, CallSite site = CallSite::here());
  /// The mean loss of a batch: no tape, no dropout.
  constexpr MeanLoss eval_batch(const B& batch, CallSite site = CallSite::here());
  /// The mean, over the counted targets of all replicas, of the losses that forward or eval_batch returned on each; of
  /// plain numbers, the mean over the replicas. Call on every replica.
  constexpr double all_reduce_mean(const MeanLoss& loss, CallSite site = CallSite::here());
  constexpr double all_reduce_mean(const Loss<P>& loss, CallSite site = CallSite::here()) {
    return all_reduce_mean(MeanLoss{static_cast<double>(loss.value().item()), loss.counted ? loss.counted.item() : 1.0},
                           site);
  }
  constexpr double all_reduce_mean(double loss, CallSite site = CallSite::here()) {
    return all_reduce_mean(MeanLoss{loss, 1}, site);
  }

  /// The parameter of that global name, whole on every rank: its elements in row-major order, as Compute<T>.
  ///
  /// Cost     one all-reduce over the world. Call it on every rank.
  /// Throws   Error(usage) if the model has no parameter of that name
  FullTensor gather_parameter(std::string_view name) {
    return detail::collected(
        *this, name, [&](const auto& named, FullTensor& whole) { detail::collect_parameter(*this, named, whole); });
  }

  constexpr const Model& model() const { return model_.inner; }
  /// The model inside its root unit.
  constexpr InUnit<Model>& rooted() { return model_; }
  constexpr World<P>& world() { return world_; }
  constexpr Replicas<T, D>& replicas() { return replicas_; }
  constexpr const Inventory<T, D>& inventory() const { return inventory_; }
  constexpr const List<Unit<T, D>*>& units() const { return inventory_.units; }
  /// Throws   Error(usage) if an engine trains them, whose masters would overwrite new values
  constexpr void require_untrained() const {
    // clang-format off
    require(!trained_, "dspp: the weights of an engine need to be set through the engine, whose masters would overwrite them at the next step, but they were set directly. Pass the engine instead.",
            ErrorCode::usage);
    // clang-format on
  }
  /// The host's memory beside the device's, which is made with the first call if nothing rests there.
  constexpr Memory<D>& host_memory() {
    host_.make(world_.memory());
    replicas_.set_host_memory(host_.memory());
    return *host_.memory();
  }
  /// The context of forwards without gradients.
  constexpr Context<D>& context() { return context_; }
  constexpr const Context<D>& context() const { return context_; }
  /// Global elements of all parameters, without padding.
  constexpr Size parameter_count() const {
    Size count = 0;
    for (const auto& named : inventory_.parameters) count += named.parameter->geometry.global_count();
    return count;
  }
  /// The model's loss on a batch, recorded on a tape.
  constexpr Loss<P> loss_of(Tape<D>& tape, const B& batch) const {
    if constexpr (detail::is_token_batch<B>) {
      auto targets = Tokens<P>::constant(batch.targets, tape);
      targets.target_weights = batch.target_weights;
      return model_.inner.loss(Tokens<P>::constant(batch.tokens, tape), targets);
    } else {
      return model_.inner.loss(on_tape(batch, tape));
    }
  }

 private:
  template <class, class>
  friend class Engine;

  /// Lays out the units, allocates and fills the values; calls `and_then(bucket)` after each bucket.
  template <class F>
  constexpr void materialize(F and_then);
  /// From now on values are set through the engine.
  constexpr void set_trained() { trained_ = true; }

  World<P>& world_;
  // Declared so that members refer only to earlier ones: operations in flight refer to buckets.
  HostMemory<D> host_;
  InUnit<Model> model_;
  Inventory<T, D> inventory_;
  Replicas<T, D> replicas_;
  Context<D> context_;
  Tape<D> tape_;
  bool trained_ = false;
};

/// Weights, or an engine that trains them.
template <class H>
concept HoldsWeights = requires(H& holder) {
  typename H::P;
  holder.world();
  holder.model();
  holder.inventory();
};

// ---------------------------------------------------------------------------------------------------------------------

template <class Model>
template <class F>
constexpr void Weights<Model>::materialize(F and_then) {
  inventory_.link_units();
  for (Unit<T, D>* unit : inventory_.units) {
    unit->set_up(replicas_);
    for (Bucket<T, D>& b : unit->buckets()) {
      fill_parameters(*this, b, Range{0, b.count}, initial_source(world_.seed()));
      and_then(b);
    }
  }
  inventory_.keep_units_live(replicas_.config().live_bytes);
}

template <class Model>
template <class F>
constexpr auto Weights<Model>::no_grad(F f, CallSite site) {
  CalledAt here(site);
  tape_.clear();
  /// What stayed, or was gathered ahead and is not used: values may be others before and after `f`.
  struct Gathered {
    const List<Unit<T, D>*>& units;
    constexpr void release() const {
      for (Unit<T, D>* unit : units) unit->release();
    }
    constexpr ~Gathered() { release(); }
  } const gathered{inventory_.units};
  gathered.release();
  const typename Tape<D>::Recording off(tape_, false);
  struct DiscardCounts {
    CountedTargets<D>& targets;
    List<Reported<D>>& reports;
    constexpr ~DiscardCounts() { targets = {}, reports.free(); }
  } const discard{context_.targets, context_.reports};
  return model_.within(tape_, [&] { return f(model_.inner, tape_); });
}

template <class Model>
constexpr MeanLoss Weights<Model>::eval_batch(const B& batch, CallSite site) {
  check_batch(batch);
  context_.targets = {}, context_.reports.free();
  const struct Lent {
    Memory<D>& memory;
    constexpr explicit Lent(Memory<D>& from) : memory(from) { memory.lend_region(true); }
    constexpr ~Lent() { memory.lend_region(false); }
  } lent(world_.memory());
  return no_grad(
      [&](const Model&, Tape<D>& tape) {
        const auto loss = loss_of(tape, batch).value();
        const auto counts = counts_of(std::exchange(context_.targets, {}), batch, loss, P::cp);
        MeanLoss mean{static_cast<double>(loss.item())};
        D::to_host(world_.memory(), &mean.counted, counts.data_from(TargetCounts::counted), 1);
        for (const Reported<D>& report : context_.reports)
          mean.metrics.push_back(Metric{report.name, report.value.item()});
        return mean;
      },
      site);
}

template <class Model>
constexpr double Weights<Model>::all_reduce_mean(const MeanLoss& loss, CallSite site) {
  double host[5] = {loss.counted > 0 ? loss.mean * loss.counted : 0, loss.counted};
  const auto sums = Tensor<double, 1, D>::uninitialized(shape(5), world_.memory(), Category::communication, "mean");
  D::from_host(world_.memory(), sums.data(), host, 5);  // no other sum has five: a call on one rank alone is an error
  all_reduce(world_.replicas(), buffer(sums.data(), 5), PurposeAt(Purpose::scalar, site));
  D::to_host(world_.memory(), host, sums.data(), 5);
  return host[1] > 0 ? host[0] / host[1] : 0;
}

}  // namespace dspp
