// SPDX-License-Identifier: Apache-2.0
/// Steps whose launches a device repeats: how train_batch issues each of them.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/engine/batch.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/step_report.hpp>
#include <dspp/ops/step_numbers.hpp>

namespace dspp {

/// A device that can repeat the launches of a step, by its Graphs: CudaGraphs (cuda/graphs.hpp) says what they do.
template <class D>
concept HasGraphs = Device<D> && requires {
  typename D::Graphs;
};

namespace detail {
[[noreturn]] void refuse_hidden_members();
[[noreturn]] void refuse_other_extents(Size micro_batch);

/// Throws   Error(usage) for EngineConfig::graphs on a device that has none, on several ranks, or where a step takes
///          memory of the host or waits for a disk
template <class D>
constexpr void check_graphs(const EngineConfig& config, const ReplicaConfig& zero, [[maybe_unused]] int ranks) {
  // clang-format off
  if (config.graphs && !std::is_same_v<D, PaperOf<D>> && !HasGraphs<D>)
    require(false, "dspp: EngineConfig::graphs needs a device that repeats launches, such as Cuda, but this one does not. Leave graphs out.", ErrorCode::usage);
  require(!config.graphs || ranks == 1, "dspp: EngineConfig::graphs needs a world of one rank, but this one has more: their collectives are not captured. Leave graphs out.", ErrorCode::usage,
          {{"ranks", ranks}});
  constexpr Tier device = Tier::device;
  const bool stays = zero.optimizer != Tier::disk && zero.parameters == device && zero.activations == device;
  const bool updates_in_step = zero.delay_after == never_delayed && !zero.speculates && !zero.selects_rows;
  require(!config.graphs || updates_in_step, "dspp: EngineConfig::graphs needs updates within their steps, but the policy has Delayed<1>, Speculative or ZenFlow. Leave one out.", ErrorCode::usage);
  require(!config.graphs || stays, "dspp: EngineConfig::graphs needs steps that take no memory of the host, but the policy offloads to a disk, or parameters or activations. Leave one out.",
          ErrorCode::usage);
  // clang-format on
}

/// Runs a step launch by launch.
template <class Engine, class Batches>
constexpr PendingReport train_eagerly(Engine& engine, const Batches& batches, CallSite site) {
  const Size accumulate = engine.sizes().accumulate;
  PendingReport report;
  Size micro_steps = 0;
  const auto& micro_batches = as_batches<typename Engine::B>(batches);
  const auto end = std::end(micro_batches);
  for (auto next = std::begin(micro_batches); next != end;) {
    const typename Engine::B& batch = *next;
    auto loss = engine.forward(batch, site);
    engine.backward(loss, site);
    ++next;
    if (++micro_steps < accumulate) continue;
    if (next != end) refuse_micro_batches(accumulate, "more");
    report = engine.step(site);  // while the batch and its loss are still held, as in a loop of the three verbs
  }
  if (!report.acted()) refuse_micro_batches(accumulate, "fewer");
  return report;
}

/// Of a device that repeats no launches.
template <Device D, class B>
class StepGraphs {
 public:
  constexpr const StepNumbers* numbers() const { return nullptr; }
  constexpr void forget() {}
  template <class Engine, class Batches>
  constexpr PendingReport train(Engine& engine, const Batches& batches, CallSite site) {
    return train_eagerly(engine, batches, site);
  }
};

/// A copy of a batch in tensors of its own: what a captured step reads.
template <class B>
B inputs_like(const B& batch);
/// Copies what the batch holds there; extents are the same.
template <class D, class B>
void copy_inputs(const B& to, const B& from);
/// Of all tensors of a batch, weights of targets too.
template <class B>
std::vector<Size> all_extents_of(const B& batch);
/// Throws   Error(usage) if a batch has members that its visit does not name: a repeated step would not see them change
template <class B>
void check_has_no_hidden_members(const B& batch);

/// With EngineConfig::graphs: a step is repeated if one of its extents was captured, which is done after two steps that
/// were not. Every step has the same bits as without.
///
/// It is eager, too: for other extents than before (if they come twice, they are those to repeat from then on); after
/// set_optimizer, restart, resume, and errors; while a profile is taken; and where the program uses a block that the
/// graphs need, such as for a tensor that it has kept. If it does so again, graphs are captured in other blocks; after
/// three captures of which none was repeated, steps stay eager until one of those changes.
///
/// A repeated step does not call loss(): what a model keeps, counts or prints there stays as it was.
///
/// Cost     a repeated micro-step is a copy of its batch and of StepNumbers, and one launch; so is its update
/// Memory   a batch; what the device's Graphs need
template <Device D, class B>
requires HasGraphs<D>
class StepGraphs<D, B> {
 public:
  /// Of the step under way, where it may be repeated; else null.
  const StepNumbers* numbers() const { return is_under_way_ ? graphs_->numbers() : nullptr; }
  /// What launches have in them changed.
  void forget() {
    if (graphs_) graphs_->forget();
    captures_ = 0;
  }

  template <class Engine, class Batches>
  PendingReport train(Engine& engine, const Batches& batches, CallSite site) {
    if (!engine.config().graphs) return train_eagerly(engine, batches, site);
    engine.finish_step();
    engine.abandon(engine.own_);
    if (engine.forwards_ > 0) engine.drop_step();  // forwards without their backward: this step begins anew
    Otherwise unless_issued([&] {
      is_under_way_ = false;
      if (graphs_) graphs_->abandon();
    });
    PendingReport report;
    Size done = 0;
    const Size accumulate = engine.sizes_.accumulate;
    const auto& micro_batches = as_batches<B>(batches);
    const auto end = std::end(micro_batches);
    for (auto next = std::begin(micro_batches); next != end;) {
      const B& batch = *next;
      done == 0 ? begin(engine, batch) : require_same_extents(batch, done);
      const auto end_micro_step = [&] {
        ++next;
        if (++done < accumulate) return;
        if (next != end) refuse_micro_batches(accumulate, "more");
        report = issue_update(engine, site);
      };
      if (way_ == StepWay::repeated) {
        repeat(engine, batch);
        end_micro_step();
        continue;
      }
      if (way_ == StepWay::captured) set_inputs(batch);
      graphs_->begin_part(numbers_of(engine, position_of_next(engine, batch)));
      auto loss = engine.forward_on(engine.own_, way_ == StepWay::captured ? inputs_ : batch, batch, site);
      engine.backward(loss, site);
      graphs_->end_part();
      end_micro_step();  // while the loss is held, as in train_eagerly
    }
    if (!report.acted()) refuse_micro_batches(accumulate, "fewer");
    unless_issued.cancel();
    return report;
  }

 private:
  template <class Engine>
  void begin(Engine& engine, const B& batch) {
    if (!graphs_) {
      check_has_no_hidden_members(batch);
      graphs_ = std::make_unique<typename D::Graphs>(engine.world().memory());
    }
    std::vector<Size> extents = all_extents_of(batch);
    if (extents_.empty() || (extents != extents_ && extents == others_)) {
      forget();
      inputs_ = {}, extents_.clear();
      inputs_ = inputs_like(batch);
      extents_ = extents;
    }
    const bool is_usual = extents == extents_ && engine.world().memory().profiler() == nullptr;
    others_ = extents == extents_ ? std::vector<Size>() : std::move(extents);
    way_ = is_usual && D::Graphs::may_capture() ? next_way() : StepWay::eager;
    graphs_->begin(way_, is_usual);
    is_under_way_ = true;
  }
  /// Of a step as those before.
  StepWay next_way() {
    if (graphs_->may_repeat()) return captures_ = 0, StepWay::repeated;
    if (graphs_->has_graphs() && graphs_->gives_way()) return StepWay::eager;
    if (!graphs_->has_notes() || captures_ == most_captures) return StepWay::eager;
    ++captures_;
    return StepWay::captured;
  }
  void require_same_extents(const B& batch, Size done) {
    if (all_extents_of(batch) == extents_) return;
    if (way_ != StepWay::eager) refuse_other_extents(done + 1);
    graphs_->leave_out_step();
  }
  void set_inputs(const B& batch) {
    copy_inputs<D>(inputs_, batch);
    if constexpr (requires { inputs_.first_sample; }) inputs_.first_sample = batch.first_sample;
  }

  template <class Engine>
  static RandomPosition position_of_next(Engine& engine, const B& batch) {
    return engine.position_of_forward(batch, engine.forwards_);
  }
  template <class Engine>
  static StepNumbers numbers_of(Engine& engine, const RandomPosition& position) {
    return {.random_step = position.step,
            .first_sample = position.first_sample,
            .micro_step = engine.forwards_ + 1,
            .seed = engine.seed_of_all(),
            .loss_scale = engine.scale_.value()};
  }

  /// What forward and backward do beside the launches.
  template <class Engine>
  void repeat(Engine& engine, const B& batch) {
    engine.replicas().begin_micro_step();
    check_batch(batch);
    check_batch_fits(batch, engine.sizes_, Engine::P::cp);
    engine.guard_.before_forward();
    copy_inputs<D>(inputs_, batch);
    const RandomPosition position = position_of_next(engine, batch);
    graphs_->begin_part(numbers_of(engine, position));
    Suspect<B> suspect{batch, true, position};
    engine.guard_.before_backward(suspect, ++engine.forwards_);
  }

  template <class Engine>
  PendingReport issue_update(Engine& engine, CallSite site) {
    const UpdateScalars of_update = engine.scalars_of_update();
    const double loss_scale = engine.scale_.value();
    if (way_ == StepWay::repeated)
      engine.step_.prepare([](void* of_step) { static_cast<Engine*>(of_step)->finish_step(); });
    if (graphs_->begin_part(numbers_of(engine, {}), &of_update)) {
      end();
      engine.micro_steps_ = engine.forwards_ = 0;
      ++engine.begun_;
      engine.step_.begin(&engine, take_again(engine), loss_scale);
      return engine.step_.report();
    }
    PendingReport report = engine.step(site);
    graphs_->end_part();
    if (way_ == StepWay::captured) note_what_is_left(engine);
    end();
    return report;
  }
  void end() {
    graphs_->end();
    is_under_way_ = false;
  }

  /// Calls f(storage) for what a step leaves until its report is read, beside its StepScalars.
  template <class Engine, class F>
  static void for_each_gradient(Engine& engine, F f) {
    for (auto* unit : engine.units())
      for (auto& b : unit->trained_buckets()) f(b.gradient), f(b.reduced);
  }
  template <class Engine>
  void note_what_is_left(Engine& engine) {
    auto& memory = engine.world().memory();
    left_.clear();
    for_each_gradient(engine, [&](const auto& storage) { left_.push_back(memory.traced(storage)); });
    reported_ = engine.step_targets_.reported();
    sums_of_reports_ = memory.traced(engine.step_targets_.sums_of_reports());
    scalars_ = memory.traced(engine.step_.scalars().storage());
  }
  /// The StepScalars of a repeated step, beside what else is left of it.
  template <class Engine>
  Tensor<double, 1, D> take_again(Engine& engine) {
    auto& memory = engine.world().memory();
    std::size_t next = 0;
    for_each_gradient(engine, [&](auto& storage) { storage = memory.take_again(left_[next++]); });
    engine.step_targets_.set_reported(reported_, memory.take_again(sums_of_reports_));
    return Tensor<double, 1, D>::view(memory.take_again(scalars_), 0, shape(StepScalars::count));
  }

  std::unique_ptr<typename D::Graphs> graphs_;
  B inputs_{};
  std::vector<Size> extents_, others_;  ///< of the inputs; of the last step, where it had others
  StepWay way_ = StepWay::eager;
  bool is_under_way_ = false;
  static constexpr int most_captures = 3;
  int captures_ = 0;  ///< since a step was repeated
  std::vector<TracedBlock> left_;
  TracedBlock sums_of_reports_, scalars_;
  List<Metric> reported_;
};

// ---------------------------------------------------------------------------------------------------------------------

/// f(tensor) of all tensors of a batch, which it may replace.
template <class B, class F>
void for_each_input(B& batch, F f) {
  batch.visit([&](const char*, auto& field) {
    auto own = tensor_of(field);
    if (!own) return;
    f(own);
    if constexpr (requires { field.target_weights; }) {
      auto weights = field.target_weights;
      if (weights) f(weights);
      field = std::move(own);
      field.target_weights = std::move(weights);
    } else {
      field = std::move(own);
    }
  });
}

template <class B>
B inputs_like(const B& batch) {
  B inputs = batch;
  for_each_input(inputs, [](auto& tensor) {
    tensor = std::remove_cvref_t<decltype(tensor)>::uninitialized(tensor.shape(), tensor.memory(), Category::data,
                                                                  "inputs of repeated steps");
  });
  return inputs;
}

template <class D, class B>
void copy_inputs(const B& to, const B& from) {
  struct Place {
    Storage<Memory<D>> storage;
    Size offset = 0, bytes = 0;
  };
  std::vector<Place> places;
  B target = to, source = from;
  for_each_input(target, [&](auto& tensor) { places.push_back({tensor.storage(), 0, tensor.bytes()}); });
  std::size_t next = 0;
  for_each_input(source, [&](auto& tensor) {
    const Place& place = places[next++];
    const Size width = tensor.count() > 0 ? tensor.bytes() / tensor.count() : 0;
    copy_bytes<D>(place.storage, place.offset, tensor.storage(), tensor.offset() * width, place.bytes);
  });
}

template <class B>
std::vector<Size> all_extents_of(const B& batch) {
  std::vector<Size> extents;
  B fields = batch;
  for_each_input(fields, [&](auto& tensor) {
    constexpr int rank = std::remove_cvref_t<decltype(tensor)>::rank;
    extents.push_back(rank);
    for (int d = 0; d < rank; ++d) extents.push_back(tensor[d]);
  });
  for_each_tensor(batch, [&](const char*, const auto& tensor) { extents.push_back(tensor ? 1 : 0); });
  return extents;
}

template <class B>
void check_has_no_hidden_members(const B& batch) {
  std::size_t visited = 0;
  for_each_field(batch, [&](const char*, const auto& field) { visited += sizeof field; });
  if constexpr (requires { batch.first_sample; }) visited += sizeof batch.first_sample;
  if constexpr (requires { batch.accumulate; }) visited += sizeof batch.accumulate;
  if (visited < sizeof(B)) refuse_hidden_members();
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_hidden_members() {
  fail(ErrorCode::usage,
       "dspp: EngineConfig::graphs needs a batch all of whose members are tensors that its visit names, but this one "
       "has others, which a repeated step would not see. Make them tensors, or set graphs = false.");
}
DSPP_INLINE void refuse_other_extents(Size micro_batch) {
  fail(ErrorCode::usage,
       "dspp: EngineConfig::graphs needs the micro-batches of a step to have the same extents, but number " +
           std::to_string(micro_batch) + " has others. Give them the same, or set graphs = false.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

}  // namespace dspp
