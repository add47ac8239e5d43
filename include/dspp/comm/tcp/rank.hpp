// SPDX-License-Identifier: Apache-2.0
/// One rank's end of a group of TCP ranks: sends its calls, advances them in order, waits, and detects failures.
#pragma once

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dspp/comm/fingerprint.hpp>
#include <dspp/comm/pending.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/comm/tcp/failure_state.hpp>
#include <dspp/comm/tcp/share.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <cstdio>
#include <thread>
#endif

namespace dspp::detail {

/// Operations run in the order of issue: every rank must have sent an equal fingerprint, this rank's is sent at issue;
/// then it does its share. While a rank waits in one group it also advances its operations in the other groups of the
/// world, so the order of waits across groups cannot deadlock. Used by one thread, which takes turns with the world's
/// ProgressThread, if it has one.
class TcpRank final : public TcpLine, public std::enable_shared_from_this<TcpRank> {
 public:
  /// Group `number` of the world, the same on all its ranks; `members` are its world ranks.
  TcpRank(std::shared_ptr<TcpFailureState> failures, int number, std::string group, std::vector<int> members);
  TcpRank(const TcpRank&) = delete;
  TcpRank& operator=(const TcpRank&) = delete;
  ~TcpRank() {
    for (const int member : members_) failures_->disconnect(line_, member);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  SumOrder sum_order() const { return SumOrder::rank; }
  const Traffic& traffic() const { return failures_->progress.read(*traffic_, seen_traffic_); }
  bool async_progress(Size bytes) const { return failures_->progress.wakes_for(bytes); }
  double timeout_seconds() const { return failures_->timeout_seconds; }

  /// This rank's end of the channel on which rank `from` sends to rank `to`; it is one of the two.
  TcpRank& channel(int from, int to);
  /// The slot of the next operation, without pairs. Completes the oldest operation if every slot is taken.
  Posted& open(Collective collective, PurposeAt purpose, int root = 0);
  /// Sends the slot's fingerprint to the other ranks.
  Pending<> publish();
  /// Advances what can be advanced. Throws the failure of the world, if there is one.
  void poll();
  /// Fails the world, and throws, if a rank has yet to call what this one waits for in any of its groups.
  void expire();
  void abort(const Error& error);

 private:
  struct Slot {
    Posted posted;
    int exceptions = 0;  // std::uncaught_exceptions() at issue
  };
  enum class Stage { called, moved };

  TcpRank(std::shared_ptr<TcpFailureState> failures, int line, std::string group, std::vector<int> members,
          std::shared_ptr<Traffic> traffic);

  Slot& slot(std::uint64_t operation) { return slots_[operation % operations_in_flight]; }
  int world_rank(int r) const { return members_[static_cast<std::size_t>(r)]; }
  std::string name() const { return "rank " + std::to_string(failures_->rank()); }
  std::string where(std::uint64_t operation);

  std::byte* room(int world_rank, Size bytes) override { return share_.room(world_rank, bytes); }
  void arrived(int world_rank) override { share_.arrived(world_rank); }
  std::string where() override { return completed_ < issued_ ? where(completed_) : std::string(); }
  void advance() override;
  bool is_under_way() const override { return completed_ < issued_; }
  void expire_oldest() override;

  bool progress();
  bool all_called(const Posted& mine);
  bool has_called(int r);
  void await(std::uint64_t operation);
  void wait(std::uint64_t ticket);
  void drop(std::uint64_t ticket) noexcept;
  /// Of the last Pending; returns what may be the last owner of this.
  [[nodiscard]] std::shared_ptr<TcpRank> release();
  [[noreturn]] void stop();
  void fail_gone(int r);
  void fail_timeout();

  std::shared_ptr<TcpFailureState> failures_;
  int line_;
  std::string group_;  // "axis Data", "the world"
  std::vector<int> members_;
  int rank_;
  TcpShare share_;
  std::shared_ptr<Traffic> traffic_;
  mutable Traffic seen_traffic_;  // what traffic() returned last
  std::array<Slot, operations_in_flight> slots_;
  std::vector<Posted> calls_;       // of the other ranks, as their oldest operation
  std::vector<PlaceNames> places_;  // their call sites
  std::vector<bool> received_;
  Stage stage_ = Stage::called;  // of the operation completed_
  std::uint64_t issued_ = 0, completed_ = 0;
  int pendings_ = 0;
  std::map<std::pair<int, int>, std::shared_ptr<TcpRank>> channels_;
  std::shared_ptr<TcpRank> keep_alive_;  // while there are Pendings
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

/// Lines of a group: its collectives, its messages to higher ranks, and those to lower ranks.
inline constexpr int tcp_lines = 3;

DSPP_INLINE TcpRank::TcpRank(std::shared_ptr<TcpFailureState> failures, int number, std::string group,
                             std::vector<int> members)
    : TcpRank(std::move(failures), tcp_lines * number, std::move(group), std::move(members),
              std::make_shared<Traffic>()) {}

DSPP_INLINE TcpRank::TcpRank(std::shared_ptr<TcpFailureState> failures, int line, std::string group,
                             std::vector<int> members, std::shared_ptr<Traffic> traffic)
    : failures_(std::move(failures)),
      line_(line),
      group_(std::move(group)),
      members_(std::move(members)),
      rank_(static_cast<int>(std::find(members_.begin(), members_.end(), failures_->rank()) - members_.begin())),
      share_(*failures_, line_, members_, rank_),
      traffic_(std::move(traffic)),
      calls_(members_.size()),
      places_(members_.size()),
      received_(members_.size(), false) {
  for (const int member : members_) failures_->connect(line_, member, *this);
}

DSPP_INLINE TcpRank& TcpRank::channel(int from, int to) {
  const auto turn = failures_->progress.turn();
  std::shared_ptr<TcpRank>& end = channels_[{from, to}];
  if (!end)
    end.reset(new TcpRank(failures_, line_ + (from < to ? 1 : 2), channel_name(world_rank(from), world_rank(to)),
                          {world_rank(from), world_rank(to)}, traffic_));
  return *end;
}

DSPP_INLINE Posted& TcpRank::open(Collective collective, PurposeAt purpose, int root) {
  const auto turn = failures_->progress.turn();
  failures_->progress.rethrow();
  if (failures_->failed()) failures_->rethrow();
  if (issued_ >= operations_in_flight) await(issued_ - operations_in_flight);
  Posted& posted = slot(issued_).posted;
  posted.collective = collective;
  posted.purpose = purpose;
  posted.root = root;
  posted.subject = purpose.subject;
  posted.digest = purpose.digest;
  posted.at = place_of(purpose.site);
  posted.elsewhere = false;
  posted.pairs.clear();
  return posted;
}

DSPP_INLINE Pending<> TcpRank::publish() {
  const auto turn = failures_->progress.turn();
  Slot& mine = slot(issued_);
  Fingerprint words;
  write_fingerprint(mine.posted, words);
  add_place(mine.posted.at, words);
  if (std::ssize(words) > TcpLinks::most_payload_bytes / 8)
    fail(ErrorCode::usage, "dspp: an operation of TCP ranks needs at most 2 million pairs, but got more. Split it.");
  failures_->active.reserve(failures_->active.size() + 1);  // may throw: before anything is sent
  for (int r = 0; r < size(); ++r)
    if (r != rank_)
      failures_->links().send(world_rank(r), TcpKind::call, line_,
                              std::as_bytes(std::span(words.data(), words.size())));
  mine.exceptions = std::uncaught_exceptions();
  ++issued_;
  if (pendings_++ == 0) {
    keep_alive_ = shared_from_this();
    failures_->active.push_back(this);
  }
  if (failures_->progress.is_running()) failures_->progress.begin(mine.posted.bytes());
  static constexpr Completion completion = {
      [](void* who, std::uint64_t ticket) { static_cast<TcpRank*>(who)->wait(ticket); },
      [](void* who, std::uint64_t ticket) noexcept { static_cast<TcpRank*>(who)->drop(ticket); },
      [](const void* who, std::uint64_t ticket) {
        const auto* const rank = static_cast<const TcpRank*>(who);
        const auto its_turn = rank->failures_->progress.turn();
        return rank->completed_ > ticket;
      }};
  return Pending<>(&completion, this, issued_ - 1);
}

DSPP_INLINE void TcpRank::poll() {
  const auto turn = failures_->progress.turn();
  failures_->progress.rethrow();
  failures_->poll();
  if (!failures_->failed()) progress();
  if (failures_->failed()) stop();
}

DSPP_INLINE void TcpRank::expire() {
  const auto turn = failures_->progress.turn();
  for (TcpLine* line : failures_->active) line->expire_oldest();
  if (failures_->failed()) stop();
}

DSPP_INLINE void TcpRank::expire_oldest() {
  if (completed_ < issued_ && stage_ == Stage::called && !failures_->failed()) fail_timeout();
}

DSPP_INLINE void TcpRank::abort(const Error& error) {
  const auto turn = failures_->progress.turn();
  const std::string reason = error.what();
  failures_->fail(
      {ErrorCode::aborted, aborted_sentence(failures_->rank(), reason), failures_->rank(), true, error.code(), reason});
}

DSPP_INLINE std::string TcpRank::where(std::uint64_t operation) {
  return describe(slot(operation).posted, size()) + ", the " + ordinal(operation) + " operation of " + group_;
}

// --- progress: no waiting, no throwing

DSPP_INLINE bool TcpRank::progress() {
  const std::uint64_t before = failures_->steps;
  advance();
  for (TcpLine* other : failures_->active)
    if (other != this) other->advance();
  return failures_->steps != before;
}

/// Advances the oldest operation.
DSPP_INLINE void TcpRank::advance() {
  if (completed_ == issued_ || failures_->failed()) return;
  const Posted& mine = slot(completed_).posted;
  if (stage_ == Stage::called) {
    if (!all_called(mine)) return;
    stage_ = Stage::moved;
  }
  if (!mine.elsewhere) {
    if (!share_.run(mine)) return;
    traffic_->count(mine.collective, mine.purpose, share_.finish());
  }
  received_.assign(received_.size(), false);
  stage_ = Stage::called;
  ++completed_;
  ++failures_->steps;
}

DSPP_INLINE bool TcpRank::all_called(const Posted& mine) {
  bool all = true;
  for (int r = 0; r < size(); ++r) all = (r == rank_ || has_called(r)) && all;
  if (!all || failures_->failed()) return false;
  const auto calls = [&](int r) -> const Posted& { return r == rank_ ? mine : calls_[static_cast<std::size_t>(r)]; };
  if (!first_to_differ(size(), calls)) return true;
  failures_->fail(ErrorCode::mismatch, describe_mismatch(group_, members_, completed_, calls));
  return false;
}

/// True if rank r has sent its fingerprint of the oldest operation.
DSPP_INLINE bool TcpRank::has_called(int r) {
  const auto i = static_cast<std::size_t>(r);
  if (received_[i]) return true;
  Fingerprint words;
  if (!failures_->take_call(line_, world_rank(r), words)) {
    if (failures_->has_ended(world_rank(r))) fail_gone(r);
    return false;
  }
  ++failures_->steps;
  calls_[i].at = take_place(words, places_[i]);
  read_fingerprint(words, calls_[i]);
  received_[i] = true;
  return true;
}

// --- waiting: all of it is in await()

DSPP_INLINE void TcpRank::await(std::uint64_t operation) {
  constexpr int spins = 50;
  auto since = TcpClock::now();
  for (int idle = 0; completed_ <= operation; ++idle) {
    if (failures_->failed()) stop();
    if (progress()) {
      since = TcpClock::now();
      idle = 0;
      continue;
    }
    const double left = failures_->timeout_seconds - std::chrono::duration<double>(TcpClock::now() - since).count();
    const int milliseconds = idle < spins ? 0 : 1 + static_cast<int>(1000 * std::clamp(left, 0.0, 0.1));
    if (!failures_->poll(milliseconds) && left <= 0 && !progress()) fail_timeout();
  }
}

DSPP_INLINE void TcpRank::wait(std::uint64_t ticket) {
  std::shared_ptr<TcpRank> last;  // destroyed after the turn
  const auto turn = failures_->progress.turn();
  struct Release {
    TcpRank& rank;
    std::shared_ptr<TcpRank>& last;
    ~Release() { last = rank.release(); }
  } on_exit{*this, last};
  failures_->progress.rethrow();
  await(ticket);
}

DSPP_INLINE void TcpRank::drop(std::uint64_t ticket) noexcept {
  std::shared_ptr<TcpRank> last;
  const auto turn = failures_->progress.turn();
  const bool unwinds = std::uncaught_exceptions() > slot(ticket).exceptions;
  if (completed_ <= ticket && (unwinds || failures_->progress.has_thrown())) {
    failures_->fail(ErrorCode::peer_lost,
                    "dspp: the other ranks need " + name() + " in " + where(ticket) +
                        ", but it gave up after an exception. See the error of " + name() + ".",
                    failures_->rank());
    share_.withdraw();
  } else {
    try {
      await(ticket);
    } catch (const Error&) {  // the world keeps the error and throws it to every later caller
    }
  }
  last = release();
}

DSPP_INLINE std::shared_ptr<TcpRank> TcpRank::release() {
  if (--pendings_ > 0) return {};
  std::erase(failures_->active, static_cast<TcpLine*>(this));
  return std::exchange(keep_alive_, {});
}

DSPP_INLINE void TcpRank::stop() {
  share_.withdraw();
  failures_->rethrow();
}

// --- failures

DSPP_INLINE void TcpRank::fail_gone(int r) {
  const std::string other = "rank " + std::to_string(world_rank(r));
  failures_->fail(ErrorCode::peer_lost,
                  "dspp: " + name() + " needs " + other + " in " + where(completed_) + ", but " + other +
                      " has ended. Make every rank call the same operations.",
                  world_rank(r));
}

DSPP_INLINE void TcpRank::fail_timeout() {
  std::vector<int> ranks;
  const bool came = stage_ != Stage::called;
  if (came) ranks = share_.awaited();
  for (int r = 0; !came && r < size(); ++r)
    if (r != rank_ && !received_[static_cast<std::size_t>(r)]) ranks.push_back(r);
  for (int& r : ranks) r = world_rank(r);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", failures_->timeout_seconds);
  failures_->fail(ErrorCode::peer_lost,
                  "dspp: " + name() + " needs " + (ranks.empty() ? "the other ranks" : list_ranks(ranks)) + " in " +
                      where(completed_) + ", but waited " + seconds + " s and " + (ranks.size() == 1 ? "it" : "they") +
                      " did not " + (came ? "finish it" : "come") +
                      ". Look for what keeps them, or raise timeout_seconds.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
