// SPDX-License-Identifier: Apache-2.0
/// Where one rank's time goes: kernels, copies and collectives, each in its place of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/overlap_sweep.hpp>
#include <dspp/base/stream_clock.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// A rank's memory has one while a profile is taken (engine/profiling.hpp); else what would tell it compares with null.
///
/// A place is the range that the program is in, such as the forward of "blocks.3", and the parameter whose layer
/// computes: the one used last, until the layer's operation has its value or the next backward begins.
///
/// Work that goes on after its call is timed by the clock of its device: what is said of time is then known up to the
/// last settle(), and transfers are those that the clock tells of, if it tells of any.
///
/// Cost     a clock and a look-up at the beginning and end of each work
/// Memory   a row for each kind of work in each place; 24 bytes for each event that is kept; with a clock, some 300
///          bytes for each work until it is done
class Profiler {
 public:
  enum class Kind : std::uint8_t { range, kernel, collective, transfer };

  /// All work of one name in one place.
  struct Row {
    Kind kind = Kind::kernel;
    int range = -1;                   ///< that it is in, or is: index in ranges(); -1: in none
    const void* parameter = nullptr;  ///< whose layer it is of; null: of no layer that has parameters
    const char* name = "";            ///< of a kernel: the signature that names its type; of a collective: its name
    const char* purpose = "";         ///< of a collective or transfer
    Size calls = 0;
    std::int64_t nanoseconds = 0;
    double flops = 0;  ///< as plans count them
    Size bytes = 0;    ///< of the operands and results that the work is told of, or read from other ranks
  };
  /// What is under way: "forward", "blocks.3".
  struct Range {
    std::string what, name;
    friend bool operator<(const Range& a, const Range& b) {
      return std::tie(a.what, a.name) < std::tie(b.what, b.name);
    }
  };
  struct Event {
    int row = 0;                      ///< index in rows()
    std::int64_t begin = 0, end = 0;  ///< nanoseconds since the profile began
  };
  /// Nanoseconds, each moment once.
  struct Communication {
    std::int64_t under_way = 0;  ///< from the start of a collective to its completion, or as the clock tells
    std::int64_t hidden = 0;     ///< of it within kernels of this rank
    std::int64_t exposed = 0;    ///< of it within collectives: starts and waits
  };

  /// Keeps the first `most_events` events, and as many flights. `clock`: of a device whose work goes on after its
  /// calls; without, the host's.
  explicit Profiler(std::size_t most_events = 0, std::unique_ptr<StreamClock> clock = nullptr);

  /// Returns a number that is not 0. end_range(number) also ends ranges that began later.
  std::uint64_t begin_range(std::string_view what, std::string_view name);
  void end_range(std::uint64_t range) noexcept;

  /// A layer reads this parameter, or writes its gradient.
  void use(const void* parameter) { parameter_ = parameter; }
  void end_operation() { parameter_ = nullptr; }

  /// Of the kernel that begins next.
  void count_flops(double operations) { flops_ += operations; }
  void count_bytes(Size bytes) { bytes_ += bytes; }
  /// `name` lives as long as the program.
  void begin_kernel(const char* name, Size bytes = 0);
  void end_kernel() noexcept { end(); }
  /// `of_layer`: it is part of what the layer computes; else of the range alone.
  void begin_collective(const char* name, const char* purpose, bool of_layer);
  /// `is_call`: the collective was started, and not waited for.
  void end_collective(Size bytes, bool is_call = true) noexcept { end(bytes, is_call); }
  /// The collective whose start is the work under way is one with other ranks, which is in flight until it is complete.
  /// Returns what end_flight() takes.
  Event begin_flight();
  void end_flight(Event flight) noexcept;

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Range>& ranges() const { return ranges_; }
  const std::vector<Event>& events() const { return events_; }
  /// Collectives with other ranks that are complete: `row` of their start, then from there to their completion; or the
  /// transfers that the clock tells of.
  const std::vector<Event>& flights() const { return flights_; }
  Communication communication() const;
  /// Events that came when most_events were kept.
  Size lost_events() const { return lost_; }
  /// Nanoseconds since the profile began.
  std::int64_t now() const;

  /// Waits for what was heard, so that all times are known. Without a clock they are.
  ///
  /// Throws   what failed on the device
  void settle();
  /// What begins later is not heard. Not within a work. An error of the device stays for its next call.
  void stop();
  /// Nanoseconds from its beginning to stop(), or to now.
  std::int64_t elapsed() const { return stopped_ ? length_ : now(); }

 private:
  using Key = std::tuple<Kind, int, const void*, const char*, const char*>;
  /// Nanoseconds, or with a clock the number of a moment.
  using Instant = std::int64_t;
  struct Open {
    std::uint64_t number = 0;
    int row = 0;
    Instant begin = 0;
  };
  struct Done {
    int row = 0;
    Instant begin = 0, end = 0;
    bool is_call = true, is_flight = false;
  };

  int row_of(const Row& row);
  int current_range() const { return open_.empty() ? -1 : rows_[static_cast<std::size_t>(open_.back().row)].range; }
  void begin(Row row);
  void end(Size bytes = 0, bool is_call = true) noexcept;
  Instant instant() { return clock_ ? static_cast<Instant>(clock_->mark()) : now(); }
  void note(int row, Instant begin, Instant end, bool is_call = true) noexcept;
  /// Of times that are known.
  void add(int row, std::int64_t begin, std::int64_t end, bool is_call) noexcept;
  void add_flight(int row, std::int64_t begin, std::int64_t end) noexcept;
  /// Reads the clock, without waiting.
  void collect() noexcept;
  void add_timed(const Done& done) noexcept;
  std::pair<std::int64_t, std::int64_t> taken_times(Instant begin, Instant end) noexcept;

  std::int64_t start_;
  std::size_t most_events_;
  std::vector<Row> rows_;
  std::map<Key, int> places_;
  std::vector<Range> ranges_;
  std::map<Range, int> range_numbers_;
  std::vector<Event> events_, flights_;
  Size lost_ = 0;
  Communication communication_;  // until none was in flight
  Size in_flight_ = 0;
  std::int64_t in_flight_since_ = 0;
  std::vector<Open> open_;  // ranges
  std::uint64_t numbers_ = 0;
  const void* parameter_ = nullptr;
  double flops_ = 0;
  Size bytes_ = 0;
  int working_ = -1;  // the row of the work under way
  Instant begun_ = 0;
  int depth_ = 0;  // work within work belongs to the outer one
  bool stopped_ = false;
  std::int64_t length_ = 0;
  // with a clock:
  std::unique_ptr<StreamClock> clock_;
  std::vector<Done> done_;                        // issued, in the order of their ends
  std::vector<StreamClock::Transfer> transfers_;  // issued
  std::map<std::uint64_t, std::int64_t> times_;   // read, of works that are not done
  std::uint64_t moments_ = 0;                     // read
  std::int64_t last_time_ = 0;
  std::map<Instant, int> open_flights_{};  // with their rows, where the clock tells of no transfers
  detail::OverlapSweep sweep_;
};

/// A kernel, to a profiler that may be null. `bytes` are those that nothing else tells.
class ProfiledKernel {
 public:
  ProfiledKernel(Profiler* profiler, const char* name, Size bytes = 0) : profiler_(profiler) {
    if (profiler_) profiler_->begin_kernel(name, bytes);
  }
  ProfiledKernel(const ProfiledKernel&) = delete;
  ProfiledKernel& operator=(const ProfiledKernel&) = delete;
  ~ProfiledKernel() {
    if (profiler_) profiler_->end_kernel();
  }

 private:
  Profiler* profiler_;
};

namespace detail {

/// The compiler's signature of this function, in which Profiler::Row finds the name of T.
template <class T>
constexpr const char* signature_of() {
  return __PRETTY_FUNCTION__;
}

}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

}  // namespace dspp

#include <algorithm>
#include <chrono>

namespace dspp {

DSPP_INLINE Profiler::Profiler(std::size_t most_events, std::unique_ptr<StreamClock> clock)
    : start_(0), most_events_(most_events), clock_(std::move(clock)) {
  if (clock_)
    clock_->mark();  // moment 0, from which all are counted
  else
    start_ = now();
}

DSPP_INLINE std::int64_t Profiler::now() const {
  if (clock_) return last_time_;
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count() - start_;
}

DSPP_INLINE int Profiler::row_of(const Row& row) {
  const auto [place, is_new] = places_.try_emplace(Key(row.kind, row.range, row.parameter, row.name, row.purpose),
                                                   static_cast<int>(rows_.size()));
  if (is_new) rows_.push_back(row);
  return place->second;
}

DSPP_INLINE std::uint64_t Profiler::begin_range(std::string_view what, std::string_view name) {
  if (stopped_) return ++numbers_;
  const auto [place, is_new] =
      range_numbers_.try_emplace(Range{std::string(what), std::string(name)}, static_cast<int>(ranges_.size()));
  if (is_new) ranges_.push_back(place->first);
  open_.push_back({++numbers_, row_of({.kind = Kind::range, .range = place->second}), instant()});
  end_operation();
  return numbers_;
}

DSPP_INLINE void Profiler::end_range(std::uint64_t range) noexcept {
  const auto is_it = [&](const auto& open) { return open.number == range; };
  if (range != 0 && std::none_of(open_.begin(), open_.end(), is_it)) return;  // an error ended it with one around it
  while (!open_.empty() && open_.back().number >= range) {
    note(open_.back().row, open_.back().begin, instant());
    open_.pop_back();
  }
  if (open_.empty()) collect();
  end_operation();
  flops_ = 0, bytes_ = 0;  // of a kernel that an error kept from its launch
}

DSPP_INLINE void Profiler::settle() {
  if (!clock_ || stopped_) return;
  try {
    clock_->wait();
  } catch (...) {
    collect();
    throw;
  }
  collect();
}

DSPP_INLINE void Profiler::stop() {
  if (stopped_) return;
  end_range(0);  // all
  while (!open_flights_.empty()) end_flight({open_flights_.begin()->second, open_flights_.begin()->first, 0});
  try {
    settle();
  } catch (...) {  // what is known stays
  }
  length_ = now();
  stopped_ = true;
  communication_ = communication();
  in_flight_ = 0;
  clock_.reset();
}

DSPP_INLINE Profiler::Communication Profiler::communication() const {
  if (clock_) return {sweep_.moving(), sweep_.hidden(), sweep_.exposed()};
  Communication sum = communication_;
  if (in_flight_ > 0) sum.under_way += elapsed() - in_flight_since_;
  return sum;
}

DSPP_INLINE Profiler::Event Profiler::begin_flight() {
  if (!stopped_ && clock_) {
    const Event flight{working_, clock_->tells_transfers() ? 0 : instant(), 0};
    if (flight.begin != 0) open_flights_[flight.begin] = flight.row;
    return flight;
  }
  if (!stopped_ && in_flight_++ == 0) in_flight_since_ = begun_;
  return {working_, begun_, begun_};
}

DSPP_INLINE void Profiler::end_flight(Event flight) noexcept {
  if (stopped_) return;
  if (clock_) {
    if (open_flights_.erase(flight.begin) > 0) done_.push_back({flight.row, flight.begin, instant(), false, true});
    return;
  }
  flight.end = now();
  if (--in_flight_ == 0) communication_.under_way += flight.end - in_flight_since_;
  add_flight(flight.row, flight.begin, flight.end);
}

DSPP_INLINE void Profiler::add_flight(int row, std::int64_t begin, std::int64_t end) noexcept {
  if (flights_.size() < most_events_) flights_.push_back({row, begin, end});
  if (clock_) sweep_.add(detail::OverlapSweep::transfer, begin, end);
}

DSPP_INLINE void Profiler::begin(Row row) {
  if (stopped_) return;
  if (depth_ > 0) {
    ++depth_;
    return;
  }
  row.range = current_range();
  const Size told = std::exchange(row.bytes, 0);
  working_ = row_of(row);
  Row& sum = rows_[static_cast<std::size_t>(working_)];
  sum.flops += std::exchange(flops_, 0);
  sum.bytes += std::exchange(bytes_, 0) + told;
  begun_ = instant();
  ++depth_;
}

DSPP_INLINE void Profiler::end(Size bytes, bool is_call) noexcept {
  if (stopped_) return;
  if (--depth_ > 0) return;
  Row& sum = rows_[static_cast<std::size_t>(working_)];
  sum.bytes += bytes;
  const Instant time = instant();
  if (in_flight_ > 0) (sum.kind == Kind::kernel ? communication_.hidden : communication_.exposed) += time - begun_;
  note(working_, begun_, time, is_call);
}

DSPP_INLINE void Profiler::begin_kernel(const char* name, Size bytes) {
  begin({.kind = Kind::kernel, .parameter = parameter_, .name = name, .bytes = bytes});
}

DSPP_INLINE void Profiler::begin_collective(const char* name, const char* purpose, bool of_layer) {
  begin({.kind = Kind::collective, .parameter = of_layer ? parameter_ : nullptr, .name = name, .purpose = purpose});
}

DSPP_INLINE void Profiler::note(int row, Instant begin, Instant end, bool is_call) noexcept {
  if (clock_)
    done_.push_back({row, begin, end, is_call});
  else
    add(row, begin, end, is_call);
}

DSPP_INLINE void Profiler::add(int row, std::int64_t begin, std::int64_t end, bool is_call) noexcept {
  Row& sum = rows_[static_cast<std::size_t>(row)];
  sum.calls += is_call ? 1 : 0;
  sum.nanoseconds += end - begin;
  if (events_.size() < most_events_)
    events_.push_back({row, begin, end});
  else
    ++lost_;
}

DSPP_INLINE void Profiler::collect() noexcept {
  if (!clock_) return;
  while (const std::optional<StreamClock::Moment> moment = clock_->read()) {
    moments_ = moment->number + 1;
    if (moment->number > 0) times_[moment->number] = moment->nanoseconds;
    last_time_ = std::max(last_time_, moment->nanoseconds);
  }
  for (const StreamClock::Transfer& transfer : clock_->take_transfers()) transfers_.push_back(transfer);
  const auto first_left = std::find_if(
      done_.begin(), done_.end(), [&](const Done& done) { return static_cast<std::uint64_t>(done.end) >= moments_; });
  std::for_each(done_.begin(), first_left, [&](const Done& done) { add_timed(done); });
  done_.erase(done_.begin(), first_left);
  std::erase_if(transfers_, [&](const StreamClock::Transfer& one) {
    if (one.end >= moments_) return false;
    const auto [begin, end] = taken_times(static_cast<Instant>(one.begin), static_cast<Instant>(one.end));
    const int row = row_of({.kind = Kind::transfer, .name = one.name, .purpose = one.purpose});
    add_flight(row, begin, end);
    Row& sum = rows_[static_cast<std::size_t>(row)];
    ++sum.calls, sum.nanoseconds += end - begin;
    return true;
  });
  std::int64_t until = clock_->known_until();
  const auto hold_back = [&](Instant begin) {
    const auto read = times_.find(static_cast<std::uint64_t>(begin));
    if (read != times_.end()) until = std::min(until, read->second);
  };
  for (const Done& done : done_)
    if (rows_[static_cast<std::size_t>(done.row)].kind != Kind::range) hold_back(done.begin);
  for (const StreamClock::Transfer& transfer : transfers_) hold_back(static_cast<Instant>(transfer.begin));
  for (const auto& [begin, row] : open_flights_) hold_back(begin);
  if (depth_ > 0) hold_back(begun_);
  sweep_.advance(until);
}

DSPP_INLINE std::pair<std::int64_t, std::int64_t> Profiler::taken_times(Instant begin, Instant end) noexcept {
  const auto taken = [&](Instant moment) {
    const auto at = times_.find(static_cast<std::uint64_t>(moment));
    const std::int64_t time = at->second;
    times_.erase(at);
    return time;
  };
  const std::int64_t from = taken(begin);
  return {from, std::max(from, taken(end))};
}

DSPP_INLINE void Profiler::add_timed(const Done& done) noexcept {
  const auto [begin, end] = taken_times(done.begin, done.end);
  if (done.is_flight) return add_flight(done.row, begin, end);
  add(done.row, begin, end, done.is_call);
  const Kind kind = rows_[static_cast<std::size_t>(done.row)].kind;
  using Sweep = detail::OverlapSweep;
  if (kind != Kind::range) sweep_.add(kind == Kind::kernel ? Sweep::kernel : Sweep::wait, begin, end);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
