// SPDX-License-Identifier: Apache-2.0
/// What a step reports: known at once, or when the device has finished it.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/error.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/known_at_once.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/step_targets.hpp>

namespace dspp {

/// The result of a step.
struct StepReport {
  bool acted = false;        ///< false between accumulation boundaries
  double loss = 0;           ///< mean over the counted targets of the global batch, the same on every rank (or over
                             ///< its samples: mean_over_samples)
  bool skipped = false;      ///< a loss or gradient was not finite on some rank, or too large: no rank updated anything
  double gradient_norm = 0;  ///< loss scale taken out
  double loss_scale = 1;     ///< of this step; engine.loss_scale() is that of the next
  double targets = 0;      ///< what the loss is a mean over: the targets of the global batch that are not ignored, with
                           ///< target_weights the sum of their weights, or its samples
  NonFinite nonfinite{};   ///< where, if it was not finite; `name` is valid as long as the engine
  List<Metric> metrics{};  ///< what the forwards reported, as the mean over the counted targets

  /// The value of that name.
  ///
  /// Throws   Error(usage) if no forward reported one
  double metric(std::string_view name) const { return value_of(metrics, name); }
};

namespace detail {
/// What an engine and the PendingReport of its step share.
struct SharedReport {
  void* engine = nullptr;  ///< of a step in flight; else null
  void (*finish)(void* engine) = nullptr;
  StepReport report{};
  std::exception_ptr error{};

  const StepReport& get();
  /// A step in flight will not be finished, because of `reason`.
  void discard(const char* reason);
};
}  // namespace detail

/// The report of a step that a device may still be computing; converts to it.
///
///   const StepReport done = engine.step();   // waits for the device
///   auto step = engine.step();               // does not: the host may prepare the next batch
///   std::printf("%.3f\n", step->loss);       // waits
///
/// On the Cpu it is known, and what it throws is thrown by step(). On a device that is not synchronous, reading it
/// finishes the step (Engine::finish_step), which is a collective: read it on every rank, on that rank's thread. Its
/// error is thrown then, and at the latest when the engine begins the next step or is read or saved; read the last one
/// of a training, or its error is lost.
class PendingReport {
 public:
  constexpr PendingReport(const StepReport& report = {}) : known_(report) {}
  explicit PendingReport(std::shared_ptr<detail::SharedReport> step) : known_{.acted = true} {
    step_.get_or_make() = std::move(step);
  }

  /// Waits for the step.
  ///
  /// Throws   as Engine::step; Error(state) if its engine was destroyed before the step was finished
  constexpr const StepReport& get() const& { return value(); }
  constexpr StepReport get() && { return value(); }
  constexpr operator StepReport() const { return value(); }
  constexpr const StepReport* operator->() const { return &value(); }
  /// Whether the step was at an accumulation boundary. Does not wait.
  constexpr bool acted() const { return known_.acted; }

 private:
  constexpr const StepReport& value() const {
    if (step_) return (*step_)->get();
    return known_;
  }

  StepReport known_;
  AtRunTime<std::shared_ptr<detail::SharedReport>> step_;
};

namespace detail {

/// An engine's step between its issue and the reading of its verdict; empty otherwise.
template <Device D>
class StepInFlight {
 public:
  using Scalars = Tensor<double, 1, D>;  ///< StepScalars

  constexpr StepInFlight() = default;
  StepInFlight(const StepInFlight&) = delete;
  StepInFlight& operator=(const StepInFlight&) = delete;
  constexpr ~StepInFlight() {
    if (shared_) (*shared_)->discard("the engine was destroyed. Read the report before");
  }

  constexpr explicit operator bool() const { return static_cast<bool>(scalars_); }
  constexpr const Scalars& scalars() const { return scalars_; }
  /// Allocates, before a step is issued, what it needs in flight. finish_step(engine) is called where its report is
  /// read.
  constexpr void prepare([[maybe_unused]] void (*finish_step)(void* engine)) {
    if constexpr (!known_at_once<D>) {
      auto& shared = shared_.get_or_make();
      shared = std::make_shared<SharedReport>();
      shared->finish = finish_step;
    }
  }
  constexpr void begin([[maybe_unused]] void* engine, Scalars scalars, double loss_scale) {
    scalars_ = std::move(scalars);
    report_ = {.acted = true, .loss_scale = loss_scale};
    if constexpr (!known_at_once<D>) (*shared_)->engine = engine;
  }
  constexpr void discard() {
    scalars_ = {};
    if constexpr (!known_at_once<D>)
      if (shared_) (*shared_)->discard("a later error discarded the step. Load a checkpoint");
  }
  /// read(scalars, report), which may throw; `report` is then the step's. Empty when it is called.
  template <class Read>
  constexpr void finish(Read read) {
    const Scalars scalars = std::exchange(scalars_, {});
    if constexpr (known_at_once<D>)
      read(scalars, report_);
    else
      finish_late(scalars, read);
  }
  constexpr PendingReport report() const {
    if constexpr (known_at_once<D>)
      return report_;
    else
      return PendingReport(*shared_);
  }

 private:
  template <class Read>
  void finish_late(const Scalars& scalars, Read read) {
    const std::shared_ptr<SharedReport> shared = *shared_;
    shared->engine = nullptr;
    try {
      with_sentence("step", [&] { read(scalars, report_); });
      shared->report = report_;
    } catch (...) {
      shared->error = std::current_exception();
      throw;
    }
  }

  Scalars scalars_;
  StepReport report_{};
  AtRunTime<std::shared_ptr<SharedReport>> shared_;
};

}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE const StepReport& detail::SharedReport::get() {
  if (engine != nullptr) finish(engine);
  if (error) std::rethrow_exception(error);
  return report;
}

DSPP_INLINE void detail::SharedReport::discard(const char* reason) {
  if (std::exchange(engine, nullptr) == nullptr) return;
  error = std::make_exception_ptr(
      Error(ErrorCode::state,
            std::string("dspp: a step's report needs its engine until the step is finished, but ") + reason + "."));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
