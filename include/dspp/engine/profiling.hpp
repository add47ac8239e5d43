// SPDX-License-Identifier: Apache-2.0
/// A profile of an engine's steps: where each rank's time goes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/profiler.hpp>
#include <dspp/comm/all_or_none.hpp>
#include <dspp/comm/profiled_communicator.hpp>
#include <dspp/comm/same_facts.hpp>
#include <dspp/engine/known_at_once.hpp>
#include <dspp/launch/world.hpp>
#include <dspp/observe/metrics.hpp>
#include <dspp/observe/profile.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/matmul.hpp>
#include <dspp/tensor/timeline_range.hpp>
#include <dspp/zero/overlap_clock.hpp>

namespace dspp {

/// What the machine gives each rank when all ranks ask for it at once: products of [960, 960] matrices of the
/// policy's elements, and sums of vectors of 16 MiB, the best of a tenth of a second each. On a device whose work goes
/// on by itself, of extents that double until its clock counts a millisecond, or there is no more memory. Call on every
/// rank.
///
/// Memory   44 MiB or less of the host, of a Pool of its own; of such a device, 1.5 GiB or less for a moment
template <class P>
RateLimits measured_limits(World<P>& world);

/// The rates at which a plan's step would take a profile's time: its operations, over the time in kernels, and what
/// collectives read of values and gradients, over the time in them, or of their transfers where the profile has these.
/// Not given where it has none of one.
Rates rates_of(const Profile& profile);

/// Until it is stopped or gone, it times every kernel, copy and collective of an engine's rank; see Engine::profile.
/// The engine's results are the same bits. The engine outlives it.
///
/// On a device whose work goes on by itself, its clock tells when work was done: a kernel's time is from the end of
/// what its stream had before, which has in it the time that the host takes to launch it where the stream has nothing
/// else to do. Steps are not captured into graphs.
///
/// Cost     measured_limits once; two reads of a clock for each kernel, or two moments of the device's
/// Memory   of the host: a row for each operation of each layer, 24 bytes an event, and as many a collective
/// Throws   Error(state) if another profile of the rank is being taken
template <class E>
class Profiling {
 public:
  using P = typename E::P;
  using D = DeviceOf<P>;
  static_assert(detail::known_at_once<D> || HasClock<D>,
                "dspp: a profile needs a clock of a device whose operations go on when their calls return, but that of "
                "this policy has none. Give it clock(memory), as Cuda has.");
  /// Keeps the first `most_events` events for write_trace(). Call on every rank.
  explicit Profiling(E& engine, std::size_t most_events = 0);
  Profiling(const Profiling&) = delete;
  Profiling& operator=(const Profiling&) = delete;
  ~Profiling() { end(); }

  /// Ends it; what it timed stays. Call on every rank.
  void stop();
  /// This rank's, over the steps since it began. Waits for the device.
  Profile profile();
  /// Says what share of this rank's communication a plan hides, for what profile() and write_trace() give from then on:
  /// seconds.hidden() of a plan at rates_of(profile()).
  void set_planned_hidden(double share) { planned_hidden_ = share; }
  /// Writes the events of all ranks, a lane each, in Chrome's trace format: ui.perfetto.dev shows it, with the share of
  /// communication that was beside kernels in each step. A lane of which not all events were kept says so in its name.
  /// `otherData` has the CommunicationTime of each rank. Call on every rank; the first one writes.
  ///
  /// Throws   Error(file)
  void write_trace(const std::string& path);

 private:
  /// Ends it, without asking the engine for its steps, which may throw what failed in the last one.
  void end() noexcept;
  static E& without_profile(E& engine);
  static std::shared_ptr<Profiler> profiler_of(E& engine, std::size_t most_events);
  /// f(communicator) for each group of the world.
  template <class F>
  void for_each_group(F f);
  void exchange_groups(std::vector<AnyCommunicator>& others);
  NameOfParameter names() const;

  E& engine_;
  RateLimits limits_;
  Size first_step_;
  std::shared_ptr<Profiler> profiler_;
  std::vector<AnyCommunicator> plain_;  // the groups without a profiler; none: stopped
  Size steps_ = 0;                      // when it was stopped
  std::optional<double> planned_hidden_;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
[[noreturn]] void refuse_second_profile();
/// Seconds of the fastest call of f within a tenth of a second.
template <class F>
double fastest(F f) {
  using Time = std::chrono::steady_clock;
  const Time::time_point begin = Time::now();
  double best = 1e9;
  for (Time::time_point now = begin; now - begin < std::chrono::milliseconds(100);) {
    const Time::time_point start = now;
    f();
    now = Time::now();
    best = std::min(best, std::chrono::duration<double>(now - start).count());
  }
  return best;
}
}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void detail::refuse_second_profile() {
  fail(ErrorCode::state,
       "dspp: Engine::profile needs a rank of which no other profile is being taken, but one is. End that first.");
}

DSPP_INLINE Rates rates_of(const Profile& profile) {
  double flops = 0, computing = 0, bytes = 0, moving = 0;
  const auto add_moved = [&](const ProfileRow& row) {
    const auto is_of = [&](Purpose purpose) { return row.operation.ends_with(std::string(" ") + name_of(purpose)); };
    if (is_of(Purpose::parameter) || is_of(Purpose::gradient))
      bytes += static_cast<double>(row.bytes), moving += row.seconds;
  };
  for (const ProfileRow& row : profile.rows) {
    if (!row.collective)
      flops += row.flops, computing += row.seconds;
    else if (profile.transfers.empty())
      add_moved(row);
  }
  for (const ProfileRow& row : profile.transfers) add_moved(row);
  if (flops <= 0 || computing <= 0 || bytes <= 0 || moving <= 0) return {};
  return {flops / computing, bytes / moving};
}

#endif  // DSPP_HAS_DEFINITIONS()

namespace detail {

/// Seconds of one of `calls` calls of f by the clock.
template <class F>
double seconds_of_call(StreamClock& clock, int calls, F f) {
  const std::uint64_t first = clock.mark();
  for (int call = 0; call < calls; ++call) f();
  const std::uint64_t last = clock.mark();
  clock.wait();
  std::int64_t begin = 0, end = 0;
  while (const auto moment = clock.read()) {
    if (moment->number == first) begin = moment->nanoseconds;
    if (moment->number == last) end = moment->nanoseconds;
  }
  return static_cast<double>(end - begin) * 1e-9 / calls;
}

/// The amount that `make(size)()` does in a second, which is `amount(size)`: of the last of sizes that double until a
/// call takes a millisecond; 0 if the clock counts nothing.
template <class Amount, class Make>
double rate_that_grows(StreamClock& clock, Size size, Size most, Amount amount, Make make) {
  double rate = 0;
  for (; size <= most; size *= 2) {
    try {
      const auto call = make(size);
      call();  // chooses how to compute it
      const double seconds = seconds_of_call(clock, 4, call);
      if (seconds <= 0) break;
      rate = amount(size) / seconds;
      if (seconds > 1e-3) break;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory) throw;
      break;
    }
  }
  return rate;
}

template <class P>
RateLimits limits_by_clock(World<P>& world) {
  using T = dspp::ElementOf<P>;
  using D = DeviceOf<P>;
  Pool pool(0, world.memory().source());
  const std::unique_ptr<StreamClock> clock = D::clock(pool);
  const auto zeros = [&]<int Rank>(const Shape<Rank>& extents) {
    return Tensor<T, Rank, D>::zeros(extents, pool, Category::workspace, "measured limits");
  };
  RateLimits limits;
  world.host().barrier();
  limits.flops = rate_that_grows(
      *clock, 64, 8192, [](Size n) { return 2 * static_cast<double>(n * n * n); },
      [&](Size n) {
        return [a = zeros(shape(n, n)), b = zeros(shape(n, n))] { ops::matmul(a, Transpose::no, b, Transpose::no); };
      });
  world.host().barrier();
  limits.bytes = rate_that_grows(
      *clock, 64_KiB, 256_MiB, [](Size bytes) { return 3.0 * static_cast<double>(bytes); },
      [&](Size bytes) {
        const auto extent = shape(bytes / static_cast<Size>(sizeof(T)));
        return [x = zeros(extent), y = zeros(extent)] { ops::add_into(x, y); };
      });
  world.host().barrier();
  return limits;
}

template <class P>
RateLimits limits_by_calls(World<P>& world) {
  using T = dspp::ElementOf<P>;
  using D = DeviceOf<P>;
  constexpr Size n = 960;  // rows that do not collide in the cache
  constexpr Size count = 16_MiB / static_cast<Size>(sizeof(T));
  Pool pool;
  RateLimits limits;
  {
    const auto a = Tensor<T, 2, D>::zeros(shape(n, n), pool, Category::workspace, "measured limits");
    const auto b = Tensor<T, 2, D>::zeros(shape(n, n), pool, Category::workspace, "measured limits");
    world.host().barrier();
    const double seconds = detail::fastest([&] { ops::matmul(a, Transpose::no, b, Transpose::no); });
    limits.flops = 2.0 * n * n * n / seconds;
  }
  const auto x = Tensor<T, 1, D>::zeros(shape(count), pool, Category::workspace, "measured limits");
  const auto y = Tensor<T, 1, D>::zeros(shape(count), pool, Category::workspace, "measured limits");
  world.host().barrier();
  limits.bytes = 3.0 * static_cast<double>(x.bytes()) / detail::fastest([&] { ops::add_into(x, y); });
  world.host().barrier();
  return limits;
}

}  // namespace detail

template <class P>
RateLimits measured_limits(World<P>& world) {
  if constexpr (detail::known_at_once<DeviceOf<P>>)
    return detail::limits_by_calls(world);
  else
    return detail::limits_by_clock(world);
}

template <class E>
Profiling<E>::Profiling(E& engine, std::size_t most_events)
    : engine_(without_profile(engine)),
      limits_(measured_limits(engine.world())),
      first_step_(engine.steps() + engine.skipped_steps()),
      profiler_(profiler_of(engine, most_events)) {
  steps_ = first_step_;
  engine.replicas().complete_all();
  std::vector<AnyCommunicator> profiled;
  for_each_group([&](const AnyCommunicator& group) {
    plain_.push_back(group);
    profiled.emplace_back(ProfiledCommunicator(group, profiler_));
  });
  exchange_groups(profiled);
  engine.world().memory().set_profiler(profiler_.get());
}

template <class E>
void Profiling<E>::stop() {
  if (plain_.empty()) return;
  end();
  steps_ = engine_.steps() + engine_.skipped_steps();
}

template <class E>
void Profiling<E>::end() noexcept {
  if (plain_.empty()) return;
  engine_.world().memory().set_profiler(nullptr);
  try {
    engine_.replicas().complete_all();
  } catch (...) {  // the groups keep the error for their next call
    engine_.replicas().abandon();
  }
  exchange_groups(plain_);
  plain_.clear();
  profiler_->stop();
}

template <class E>
E& Profiling<E>::without_profile(E& engine) {
  if (engine.world().memory().profiler()) detail::refuse_second_profile();
  return engine;
}

template <class E>
std::shared_ptr<Profiler> Profiling<E>::profiler_of([[maybe_unused]] E& engine, std::size_t most_events) {
  if constexpr (detail::known_at_once<D>)
    return std::make_shared<Profiler>(most_events);
  else
    return std::make_shared<Profiler>(most_events, D::clock(engine.world().memory()));
}

template <class E>
void Profiling<E>::exchange_groups(std::vector<AnyCommunicator>& others) {
  std::size_t next = 0;
  for_each_group([&](AnyCommunicator& group) { std::swap(group, others[next++]); });
}

template <class E>
template <class F>
void Profiling<E>::for_each_group(F f) {
  World<P>& world = engine_.world();
  f(world.all());
  f(world.replicas());
  if (world.nodes() > 1) f(world.node_replicas());  // else they are the replicas
  f(world.across_nodes());
  for (const Axis axis : all_axes) f(world.along(axis));
}

template <class E>
NameOfParameter Profiling<E>::names() const {
  return [this](const void* parameter) {
    for (const auto& named : engine_.inventory().parameters)
      if (named.parameter == parameter) return named.name->text;
    return std::string();
  };
}

template <class E>
Profile Profiling<E>::profile() {
  const Size steps = plain_.empty() ? steps_ : engine_.steps() + engine_.skipped_steps();
  profiler_->settle();
  Profile profile = profile_of(*profiler_, names(), steps - first_step_, limits_);
  profile.rank = engine_.world().host().rank();
  if (!profile.communication.is_none()) profile.communication.planned_hidden = planned_hidden_;
  return profile;
}

template <class E>
void Profiling<E>::write_trace(const std::string& path) {
  auto& ranks = engine_.world().host();
  const Profile summary = profile();
  const std::string events = trace_lines(*profiler_, names(), ranks.rank());
  const std::string times = JsonObject()
                                .add("rank", summary.rank)
                                .add("steps", summary.steps)
                                .add("communication", summary.communication.json())
                                .text();
  std::string lanes, list;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string of_rank = detail::text_of(ranks, events, rank),
                      times_of_rank = detail::text_of(ranks, times, rank);
    if (ranks.rank() == 0) lanes += of_rank, list += (rank > 0 ? ",\n" : "") + times_of_rank;
  }
  const std::string all = "{\"traceEvents\":[\n" + lanes +
                          R"({"ph":"M","name":"process_name","pid":0,"args":{"name":"dspp"}}],)" +
                          "\n\"otherData\":{\"ranks\":[" + list + "]}}\n";
  all_or_none(ranks, [&] {
    if (ranks.rank() == 0) write_text_file(path, all);
  });
}

}  // namespace dspp
