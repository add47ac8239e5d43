// SPDX-License-Identifier: Apache-2.0
/// Locates the first value of a step that is not finite; runs only after such a step, with the same result on every
/// rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/engine/batch.hpp>
#include <dspp/engine/known_at_once.hpp>
#include <dspp/ops/finite.hpp>
#include <dspp/ops/flat_range.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/sharded_state.hpp>

namespace dspp {

/// The first value that is not finite: a parameter, else a field of the batch, a module's output, a parameter's
/// gradient.
struct NonFinite {
  enum class Kind { parameter, input, output, gradient };
  Kind kind = Kind::gradient;
  std::string_view
      name{};     ///< of the parameter, field or module, "blocks.0.mlp.up"; empty: none found; owned by the engine
  int rank = -1;  ///< the first whose loss is not finite; -1: all losses are finite
  bool infinite = false;  ///< that loss is infinite, not NaN

  /// The error sentence of step `step`, counted from 1, after `skipped` skipped steps.
  std::string sentence(Size step, Size skipped) const;
};

/// Throws unless every parameter, and with `moments` every moment of the optimizer, is finite. Call on every rank.
///
/// Cost     reads this rank's primary values, masters and moments; gathers 16 bytes per rank
/// Throws   Error(state), the same on every rank, with the first parameter that is not
template <class Engine>
void require_finite_parameters(Engine& engine, std::string_view who, bool moments = false);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// True if elements [begin, end) of a bucket are finite; the storage begins with element `first`.
template <class D, class T>
bool finite_part(Memory<D>& memory, const T* data, Size first, Size begin, Size end) {
  return begin >= end || ops::all_finite<T, D>(memory, end - begin, data + (begin - first));
}

/// True if this rank's values and masters of a piece of a parameter are finite.
template <class T, Device D>
bool holds_finite(ShardedState<T, D>& state, const ParameterBase<D>& p, const Bucket<T, D>& b) {
  Replicas<T, D>& replicas = state.replicas();
  const Range own = replicas.owned(b);
  const Range held = replicas.held(b);
  const auto part = [&](const auto& tensor, Range range) {
    return finite_part<D>(replicas.memory(), tensor.data(), range.begin, std::max(range.begin, p.offset),
                          std::min(range.end, p.offset + p.count()));
  };
  if (!part(replicas.held_values(b), held)) return false;
  if constexpr (std::is_same_v<T, Compute<T>>) return true;  // no master: nothing is fetched
  const auto& master = state.of(b).master;
  return !master || part(master, own);
}

/// True if the reduced gradient of this rank's range of a piece is finite.
template <class T, Device D>
bool has_finite_gradient(const Replicas<T, D>& replicas, const ParameterBase<D>& p, const Bucket<T, D>& b) {
  const Range own = replicas.owned(b);
  const auto part = [&]<class G>(const G*) {
    return finite_part<D>(replicas.memory(), reinterpret_cast<const G*>(b.reduced.data()), own.begin,
                          std::max(own.begin, p.offset), std::min(own.end, p.offset + p.count()));
  };
  if (!b.reduced) return true;
  return replicas.config().wide_gradients ? part(static_cast<const Compute<T>*>(nullptr))
                                          : part(static_cast<const T*>(nullptr));
}

/// Indices in model order: the first non-finite parameter, and the last parameter with a non-finite gradient (backward
/// computes it first). If none: the number of parameters, and -1.
struct NonFiniteParameters {
  Size parameter = 0, gradient = -1;
};

template <class T, Device D>
NonFiniteParameters nonfinite_parameters(const Inventory<T, D>& inventory, ShardedState<T, D>& state) {
  NonFiniteParameters found{std::ssize(inventory.parameters), -1};
  for (Size i = 0; i < std::ssize(inventory.parameters); ++i)
    for_each_piece(inventory.parameters[static_cast<std::size_t>(i)], [&](const auto& p, auto& b) {
      if (!holds_finite(state, p, b)) found.parameter = std::min(found.parameter, i);
      if (!has_finite_gradient(state.replicas(), p, b)) found.gradient = i;
    });
  return found;
}

/// The layer of a parameter: blocks.0.mlp.up of blocks.0.mlp.up.weight.
std::string_view module_of(std::string_view parameter);

/// Moments per parameter of a bucket: 0 for Weights.
template <class Engine, class B>
constexpr int moments_held(Engine& engine, const B& b) {
  if constexpr (requires { engine.state(); })
    return engine.state().moments(b);
  else
    return 0;
}

/// The numbers of every rank, in rank order.
template <class C>
std::vector<double> gather_numbers(C& ranks, const std::vector<double>& own) {
  std::vector<double> all(own.size() * static_cast<std::size_t>(ranks.size()));
  all_gather(ranks, buffer(own.data(), std::ssize(own)), buffer(all.data(), std::ssize(all)), Purpose::scalar);
  return all;
}

/// A batch of this step whose loss was not finite on this rank, or whose loss is not known yet; may be empty.
template <class B>
struct Suspect {
  B batch{};
  bool known = false;  ///< batch is set
  RandomPosition position{};
  Size micro_step = 0;  ///< counted from 1
  double loss = 0;      ///< the first of this step that is not finite; 0: all are
};

/// The number of the first field of a batch that has a value that is not finite; -1: none has.
template <class B>
Size nonfinite_field(const B& batch) {
  Size found = -1, number = 0;
  for_each_tensor(batch, [&](const char*, const auto& tensor) {
    if (found < 0 && tensor && !ops::all_finite(tensor)) found = number;
    ++number;
  });
  return found;
}
template <class B>
std::string_view name_of_field(const B& batch, Size number) {
  std::string_view found;
  for_each_field(batch, [&](const char* name, const auto&) {
    if (number-- == 0) found = name;
  });
  return found;
}

/// Runs `repeat(batch, position)`, the forward of a batch without a tape, under a FiniteProbe.
template <class Engine, class Repeat>
FiniteProbe watch(Engine& engine, Context<typename Engine::D>& context, const typename Engine::B& batch,
                  const RandomPosition& position, Repeat repeat) {
  FiniteProbe probe;
  const auto set = [&](FiniteProbe* with) {
    context.probe = with;
    for (auto* unit : engine.units()) unit->probe = with;
  };
  struct Unset {
    const decltype(set)& with;
    ~Unset() { with(nullptr); }
  } unset{set};
  for (auto* unit : engine.units()) unit->drop_gradients();  // frees memory for the activations
  set(&probe);
  repeat(batch, position);
  return probe;
}

/// One rank's numbers on a step that is not finite, which all ranks gather.
struct NonFiniteReport {
  Size parameters = 0;  ///< of the model
  NonFiniteParameters found{};
  double loss = 0;     ///< of the suspect
  Size field = -1;     ///< as of nonfinite_field()
  List<Size> extents;  ///< of the suspect

  std::vector<double> numbers() const;
};

/// The first value that is not finite, by the reports of all ranks.
struct NonFiniteVerdict {
  NonFinite::Kind kind = NonFinite::Kind::gradient;
  Size number = -1;  ///< of the parameter or field; -1: none
  int rank = -1;     ///< as in NonFinite
  bool infinite = false;
  List<Size> extents{};  ///< of that rank's suspect

  NonFiniteVerdict(const NonFiniteReport& own, const std::vector<double>& of_ranks);
};

/// Each rank gives two numbers: how many values its forward computed before the first that is not finite, and the
/// number of the parameter read there. Returns the parameter of the rank with the fewest; -1: none found one.
Size first_reached(const std::vector<double>& of_ranks);
inline constexpr double never_reached = 1e300;

/// Finds the first value that is not finite, after a step whose gradient or loss is not on some rank. `repeat` reruns
/// the forward of a batch on all ranks. Discards all gradients.
///
/// Cost     reads all parameters and gradients; gathers 6 numbers and the extents of the batch per rank; if a loss was
///          not finite and the batch is still there, a forward
template <class Engine, class Repeat>
NonFinite find_nonfinite(Engine& engine, Context<typename Engine::D>& context,
                         const Suspect<typename Engine::B>& suspect, Repeat repeat) {
  const auto& parameters = engine.inventory().parameters;
  auto& ranks = engine.world().host();
  NonFiniteParameters found{};
  const auto look = [&] { found = nonfinite_parameters(engine.inventory(), engine.state()); };
  // Under ZenFlow a step that is skipped changes nothing, nor the rounds.
  engine.replicas().config().selects_rows ? read_state_as_it_is(engine, look) : read_state(engine, look);
  const NonFiniteReport own{std::ssize(parameters), found, suspect.loss, nonfinite_field(suspect.batch),
                            extents_of(suspect.batch)};
  const NonFiniteVerdict verdict(own, gather_numbers(ranks, own.numbers()));
  NonFinite result{.kind = verdict.kind, .rank = verdict.rank, .infinite = verdict.infinite};
  const auto name_of_number = [&](Size number) -> std::string_view {
    return parameters[static_cast<std::size_t>(number)].name->text;
  };
  const List<Size>& extents = verdict.extents;
  if (verdict.kind == NonFinite::Kind::input) {
    result.name = name_of_field(suspect.batch, verdict.number);
  } else if (verdict.kind != NonFinite::Kind::output) {
    if (verdict.number >= 0) result.name = name_of_number(verdict.number);
  } else if (!std::all_of(extents.begin(), extents.end(), [](Size extent) { return extent == 0; })) {
    // All ranks run the same shapes: ranks of Cp and Tp exchange parts of it.
    const bool repeats_own = suspect.known && std::equal(extents.begin(), extents.end(), own.extents.begin());
    const auto batch = repeats_own ? suspect.batch : zeros_of<typename Engine::B>(extents, engine.world().memory());
    RandomPosition position = suspect.position;
    if (!repeats_own) position = {context.random.key, engine.steps(), 0, rows_of(batch)};
    const FiniteProbe probe = watch(engine, context, batch, position, repeat);
    double number = -1;
    for (Size i = 0; i < std::ssize(parameters); ++i)
      if (parameters[static_cast<std::size_t>(i)].parameter == probe.parameter()) number = static_cast<double>(i);
    const bool located = repeats_own && probe.found() && number >= 0;
    const Size reached =
        first_reached(gather_numbers(ranks, {located ? static_cast<double>(probe.values()) : never_reached, number}));
    if (reached >= 0) result.name = module_of(name_of_number(reached));
  }
  return result;
}

/// What an optimizer's moments of type S can hold.
template <class S>
inline constexpr double largest_square = static_cast<double>(std::numeric_limits<S>::max());

[[noreturn]] void fail_spike(Size step, double norm, double largest);
[[noreturn]] void fail_square(Size step, double norm, double most);
[[noreturn]] void fail_zero_gradient(Size step);
[[noreturn]] void fail_nonfinite(std::string_view who, bool of_moment, const std::string& name);

/// Keeps a batch whose loss is not finite and decides whether its step is skipped.
template <Device D, class B>
class FiniteGuard {
 public:
  /// If the loss of the kept batch is not known yet, the next batch replaces it.
  constexpr void before_forward() {
    if (keeps_last_batch<D>) step_ = {};
  }
  /// The batch, if its loss is not finite: known at once only where operations are done when they return.
  template <class C>
  static constexpr Suspect<B> after_forward(const B& batch, const RandomPosition& position, const Scalar<C, D>& loss) {
    if constexpr (!keeps_last_batch<D>) {
      const C mean = loss.item();
      if (mean - mean == 0) return {};
    }
    return {batch, true, position};
  }
  /// Keeps the first such batch or, where it is not known to be one, the last batch.
  constexpr void before_backward(Suspect<B>& forward, Size micro_step) {
    if (!forward.known) return;
    if (keeps_last_batch<D> || !step_.known) step_ = std::move(forward), step_.micro_step = micro_step;
    forward = {};
  }
  constexpr void drop_step() { step_ = {}; }
  /// Restarts the count of skipped steps.
  constexpr void reset() { skipped_ = 0; }

  /// True if a step of these StepScalars, on the host, is skipped; sets `where`. Throws if the step may not be skipped
  /// and no smaller loss scale can help.
  template <class Engine, class Repeat>
  bool skips(Engine& engine, Context<D>& context, const double* scalars, NonFinite& where, Repeat repeat) {
    const auto verdict = static_cast<StepVerdict>(static_cast<int>(scalars[StepScalars::verdict]));
    const double norm = scalars[StepScalars::gradient_norm];
    Suspect<B> suspect = std::exchange(step_, {});
    if (verdict == StepVerdict::update) return skipped_ = 0, false;
    // clang-format off
    require(verdict != StepVerdict::no_targets, "dspp: step needs a target that counts, but all of the global batch are ignored or weigh 0. Leave it out.");
    // clang-format on
    const auto& config = engine.config();
    const Size step = engine.steps() + 1;
    Size most = config.skip_nonfinite;
    if (verdict == StepVerdict::nonfinite) {
      suspect.loss = scalars[StepScalars::bad_loss];
      if (scalars[StepScalars::bad_micro_step] != static_cast<double>(suspect.micro_step))
        suspect.batch = {}, suspect.known = false;
      where = find_nonfinite(engine, context, suspect, repeat);
      const bool scaled = needs_loss_scale<typename Engine::T> && where.kind == NonFinite::Kind::gradient;
      if (scaled && engine.progress().dynamic_loss_scale) return true;  // LossScale::update throws at the minimum
      if (scaled) most = std::max(most, most_under_fixed_scale);
      if (where.kind == NonFinite::Kind::parameter) most = 0;
    }
    if (skipped_ < most && verdict != StepVerdict::zero_gradient) return ++skipped_, true;
    switch (verdict) {
      case StepVerdict::spike: fail_spike(step, norm, config.largest_norm);
      case StepVerdict::overflowing_square:
        fail_square(step, norm, std::sqrt(largest_square<Compute<typename Engine::T>>));
      case StepVerdict::zero_gradient: fail_zero_gradient(step);
      default: fail(ErrorCode::state, where.sentence(step, skipped_));
    }
  }

 private:
  /// Consecutive overflows allowed under a fixed loss scale, which never shrinks.
  static constexpr Size most_under_fixed_scale = 1000;

  Suspect<B> step_;   ///< of a backward of this step
  Size skipped_ = 0;  ///< in a row
};

}  // namespace detail

template <class Engine>
void require_finite_parameters(Engine& engine, std::string_view who, bool moments) {
  if constexpr (requires { engine.finish_step(); }) engine.finish_step();
  const auto& parameters = engine.inventory().parameters;
  auto& replicas = engine.replicas();
  const auto none = static_cast<double>(parameters.size());
  std::vector<double> first{none, none};  // index of the first parameter, and of the first with such a moment
  const auto look_at = [&](std::size_t i) {
    detail::for_each_owned(engine, parameters[i], [&](auto& b, Size at, Size, Size count) {
      const auto finite = [&](const auto& tensor) {
        auto& memory = engine.world().memory();
        return detail::finite_part<typename Engine::D>(memory, tensor.data(), 0, at, at + count);
      };
      auto* const state = optimizer_state(engine, b);
      if (!finite(replicas.owned_values(b)) || (state && state->master && !finite(state->master)))
        first[0] = static_cast<double>(i);
      for (int m = 0; moments && m < detail::moments_held(engine, b); ++m)
        if (!finite(state->moments[m])) first[1] = static_cast<double>(i);
    });
  };
  read_state(engine, [&] {
    for (std::size_t i = parameters.size(); i-- > 0;) look_at(i);
  });
  const auto all = detail::gather_numbers(engine.world().host(), first);
  for (std::size_t i = 0; i < all.size(); ++i) first[i % 2] = std::min(first[i % 2], all[i]);
  const bool of_moment = first[0] == none;
  if (of_moment && first[1] == none) return;
  detail::fail_nonfinite(who, of_moment,
                         parameters[static_cast<std::size_t>(of_moment ? first[1] : first[0])].name->text);
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string_view detail::module_of(std::string_view parameter) {
  return parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
}

DSPP_INLINE std::vector<double> detail::NonFiniteReport::numbers() const {
  std::vector<double> all{static_cast<double>(found.parameter), static_cast<double>(found.gradient), loss,
                          static_cast<double>(field)};
  for (const Size extent : extents) all.push_back(static_cast<double>(extent));
  return all;
}

DSPP_INLINE detail::NonFiniteVerdict::NonFiniteVerdict(const NonFiniteReport& own,
                                                       const std::vector<double>& of_ranks) {
  constexpr std::size_t first_extent = 4;
  const std::size_t width = first_extent + own.extents.size();
  const auto none = static_cast<double>(own.parameters);
  double parameter = none, gradient = -1, field = -1;
  for (std::size_t at = 0; at < of_ranks.size(); at += width) {
    parameter = std::min(parameter, of_ranks[at]);
    gradient = std::max(gradient, of_ranks[at + 1]);
    if (rank >= 0 || std::isfinite(of_ranks[at + 2])) continue;
    rank = static_cast<int>(at / width), infinite = std::isinf(of_ranks[at + 2]);
    field = of_ranks[at + 3];
    for (std::size_t i = first_extent; i < width; ++i) extents.push_back(static_cast<Size>(of_ranks[at + i]));
  }
  if (parameter < none)
    kind = NonFinite::Kind::parameter, number = static_cast<Size>(parameter);
  else if (field >= 0)
    kind = NonFinite::Kind::input, number = static_cast<Size>(field);
  else if (rank >= 0)
    kind = NonFinite::Kind::output;
  else
    number = static_cast<Size>(gradient);
}

DSPP_INLINE Size detail::first_reached(const std::vector<double>& of_ranks) {
  double earliest = never_reached, parameter = -1;
  for (std::size_t at = 0; at < of_ranks.size(); at += 2)
    if (of_ranks[at] < earliest) earliest = of_ranks[at], parameter = of_ranks[at + 1];
  return static_cast<Size>(parameter);
}

DSPP_INLINE void detail::fail_spike(Size step, double norm, double largest) {
  fail(ErrorCode::state, "dspp: training needs gradient norms of at most EngineConfig::largest_norm, " +
                             std::to_string(largest) + ", but in step " + std::to_string(step) + " it is " +
                             std::to_string(norm) +
                             ". No rank has updated anything. Look at that batch, lower the learning rate, or let "
                             "EngineConfig::skip_nonfinite leave some such steps out.");
}
DSPP_INLINE void detail::fail_square(Size step, double norm, double most) {
  fail(ErrorCode::state,
       "dspp: training needs gradients whose squares an optimizer's moments can hold, so a norm of at most " +
           std::to_string(most) + ", but in step " + std::to_string(step) + " it is " + std::to_string(norm) +
           ". No rank has updated anything. Look at that batch, set EngineConfig::clip_norm, or let "
           "EngineConfig::skip_nonfinite leave some such steps out.");
}
DSPP_INLINE void detail::fail_zero_gradient(Size step) {
  fail(ErrorCode::state,
       "dspp: training needs a gradient, but in step " + std::to_string(step) +
           " that of every parameter is zero in all elements, under every rank's loss. No rank has updated anything. "
           "Let the loss depend on the parameters, raise a loss scale under which gradients vanish, or set "
           "EngineConfig::zero_gradients where such steps are meant.");
}

DSPP_INLINE void detail::fail_nonfinite(std::string_view who, bool of_moment, const std::string& name) {
  fail(ErrorCode::state, "dspp: " + std::string(who) + " needs parameters" + (of_moment ? " and moments" : "") +
                             " that are finite, but " + (of_moment ? "a moment of '" : "'") + name +
                             "' holds a value that is not. Go on from a checkpoint that was saved before, with a lower "
                             "learning rate.");
}

DSPP_INLINE std::string NonFinite::sentence(Size step, Size skipped) const {
  const std::string number = std::to_string(step), quoted = "'" + std::string(name) + "'";
  const std::string before = skipped > 0 ? ", after " + std::to_string(skipped) + " skipped before it," : "";
  const std::string remedy =
      "No rank has updated anything. Look at that batch, lower the learning rate, or let EngineConfig::skip_nonfinite "
      "leave some such steps out.";
  switch (kind) {
    case Kind::parameter:
      return "dspp: training needs parameters that are finite, but in step " + number + before + " " + quoted +
             " holds a value that is not. No rank has updated anything. Go on from a checkpoint that was saved before, "
             "with "
             "a lower learning rate.";
    case Kind::input:
      return "dspp: training needs batches that are finite, but in step " + number + before + " a value of " + quoted +
             " on rank " + std::to_string(rank) +
             " is not. No rank has updated anything. Leave such samples out, or let EngineConfig::skip_nonfinite leave "
             "some such steps out.";
    case Kind::output:
      return "dspp: training needs losses that are finite, but in step " + number + before + " that of rank " +
             std::to_string(rank) + " is " + (infinite ? "infinite" : "NaN") +
             (name.empty() ? std::string()
                           : ", and the first value that is not finite comes from " + quoted + " or what follows it") +
             ". " + remedy;
    case Kind::gradient: break;
  }
  return "dspp: training needs gradients that are finite, but in step " + number + before +
         " all losses are and gradients are not" +
         (name.empty() ? std::string() : ", first in backward that of " + quoted) + ". " + remedy;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
