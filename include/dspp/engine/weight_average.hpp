// SPDX-License-Identifier: Apache-2.0
/// An exponential moving average of the weights that an engine trains.
#pragma once

#include <utility>

#include <dspp/engine/engine.hpp>
#include <dspp/ops/copy.hpp>
#include <dspp/ops/update_matrices.hpp>

namespace dspp {

/// average = decay average + (1 - decay) weights, of the masters where there are some. It starts as the weights.
///
///   WeightAverage average{engine, 0.999};
///   engine.step();
///   average.update();                                                            // after each step
///   const double loss = average.within([&] { return evaluate(engine, text, sizes).loss; });
///   average.within([&] { save_weights(engine, "average"); });
///
/// Frozen parameters are not averaged. Checkpoints do not hold the average: save and load it beside them
/// (checkpoint/average_file.hpp).
///
/// Cost     update() reads masters and average once; within() exchanges both twice and, under Zero<1> and Zero<2>,
///          gathers the values twice
/// Memory   a Compute<T> per parameter that this rank updates, in the optimizer's category: PlanOptions::average plans
///          it; update() and within() allocate nothing, unless the optimizer's state is on a disk
/// Source   Polyak and Juditsky 1992, Acceleration of stochastic approximation by averaging
template <class Engine>
class WeightAverage {
 public:
  using T = typename Engine::T;
  using D = typename Engine::D;
  using State = Compute<T>;
  using Average = Tensor<State, 1, D>;

  /// Call on every rank.
  ///
  /// Throws   Error(usage) for a decay outside of [0, 1), or another on other ranks
  constexpr WeightAverage(Engine& engine, double decay)
      : engine_(engine), decay_(decay), loads_(engine.state().loads()) {
    // clang-format off
    require(detail::is_decay_rate(decay), "dspp: WeightAverage needs a decay from 0 to below 1, but got another. Change it.");
    // clang-format on
    if (engine.world().size() > 1)
      detail::compare_given(engine.world().host(), "WeightAverage", [&](auto&) { return Facts().add("decay", decay); });
    for_each_bucket([&](auto& b) {
      const Average weights = weights_of(b);
      auto copy =
          Average::uninitialized(weights.shape(), engine.world().memory(), Category::optimizer, "average of weights");
      ops::copy_into(copy, 0, weights);
      averages_.push_back(std::move(copy));
    });
    engine.state().settle();
  }
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;

  /// Throws   Error(state) between backward and step, or if weights were loaded since the last update; Error(file) if
  ///          this rank's disk refuses a part: then the average is at its end
  constexpr void update() {
    require_own_weights();
    engine_.end_update();
    broken_ = true;
    each([&](auto& b, Average& average) { ops::combine_into(average, decay_, weights_of(b), 1 - decay_); });
    engine_.state().settle();
    broken_ = false;
    restored_ = false, loads_ = engine_.state().loads();
  }

  /// Runs f() while the engine's weights are the averages, and returns its result. Training is an error of f's, not
  /// checked. Call on every rank.
  ///
  /// Throws   Error(state) between backward and step, or if weights were loaded since the last update; Error(file), on
  ///          every rank, if a disk refuses the exchange, which is undone, or the way back, and the weights are the
  ///          averages still. If it refuses to undo, the weights are of both, and the average is at its end. f's own
  ///          error hides one of the way back
  template <class F>
  constexpr auto within(F f) {
    require_own_weights();
    exchange();
    struct Back {
      WeightAverage* average;
      constexpr ~Back() {
        if (!average) return;
        try {
          average->exchange_back();
        } catch (...) {  // f's own error is thrown
        }
      }
    } back{this};
    const auto end = [&] { back.average = nullptr, exchange_back(); };
    if constexpr (std::is_void_v<decltype(f())>) {
      f();
      end();
    } else {
      auto result = f();
      end();
      return result;
    }
  }

  /// Fills this rank's part from a source, as fill_parameters() does: for loading.
  template <class Source>
  constexpr void fill(const Source& source) {
    each([&](auto& b, Average& average) {
      write_values(b, engine_.replicas().owned(b), engine_.world().tp_rank(), source, average.memory(), average.data());
    });
    restored_ = true;
  }
  constexpr Engine& engine() { return engine_; }

 private:
  template <class F>
  constexpr void for_each_bucket(F f) {
    engine_.end_update();
    for (auto* unit : engine_.units())
      for (auto& b : unit->trained_buckets()) f(b);
  }
  template <class F>
  constexpr void each(F f) {
    std::size_t i = 0;
    for_each_bucket([&](auto& b) { f(b, averages_[i++]); });
  }
  /// The master, or the owned values where they are their own.
  constexpr Average weights_of(Bucket<T, D>& b, bool changes = false) {
    if constexpr (std::is_same_v<T, State>)
      return engine_.replicas().owned_values(b);
    else
      return changes ? engine_.state().change(b).master : engine_.state().of(b).master;
  }

  constexpr void require_own_weights() const {
    require_boundary();
    // clang-format off
    require(!broken_, "dspp: WeightAverage needs its averages and the engine's weights whole, but a disk refused a part of them. Load a checkpoint, and make it anew.", ErrorCode::state);
    require(restored_ || engine_.state().loads() == loads_, "dspp: WeightAverage needs the weights that it began with, but others were loaded since. Make it after loading, or call load_average().",
            ErrorCode::state);
    // clang-format on
  }
  constexpr void require_boundary() const {
    // clang-format off
    require(engine_.at_step_boundary(), "dspp: WeightAverage needs a training between two steps, but gradients wait for the next step(). Call it after the step that acts.",
            ErrorCode::state);
    // clang-format on
  }

  constexpr void exchange() {
    require_boundary();
    engine_.replicas().complete_all();
    for (auto* unit : engine_.units()) unit->release(), unit->forget_copies();
    Size done = 0;
    try {
      read_state(engine_, [&] {
        each([&](auto& b, Average& average) { exchange(b, average), ++done; });
        engine_.state().settle();
      });
    } catch (...) {
      broken_ = true;
      read_state(engine_, [&] {
        each([&](auto& b, Average& average) {
          if (done-- > 0) exchange(b, average);
        });
        engine_.state().settle();
      });
      broken_ = false;
      throw;
    }
    refresh_units<T, D>(engine_.units(), engine_.replicas());
  }
  constexpr void exchange(Bucket<T, D>& b, Average& average) {
    engine_.replicas().change_values(b);
    const Average weights = weights_of(b, true);
    ops::exchange(weights, average);
    if constexpr (!std::is_same_v<T, State>)
      launch<kernels::Pointwise<pointwise::Identity, T, State>, D>(
          average.memory(), pointwise::Identity{}, weights.count(), engine_.replicas().owned_values(b).data(),
          static_cast<const State*>(weights.data()));
  }
  constexpr void exchange_back() {
    try {
      exchange();
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  Engine& engine_;
  double decay_;
  Size loads_;             ///< of the engine's weights, at the last update
  bool restored_ = false;  ///< from a file since then: whatever the engine loads
  bool broken_ = false;    ///< a disk refused a part of an update, or the way back
  List<Average> averages_;
};

}  // namespace dspp
