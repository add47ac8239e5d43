// SPDX-License-Identifier: Apache-2.0
/// One rank's end of a group of MPI ranks: sends its calls, advances them in order, waits, and detects failures.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/comm/fingerprint.hpp>
#include <dspp/comm/mpi/collectives.hpp>
#include <dspp/comm/mpi/failure_state.hpp>
#include <dspp/comm/mpi/share.hpp>
#include <dspp/comm/pending.hpp>
#include <dspp/comm/sum_order.hpp>

namespace dspp::detail {

/// Operations run in the order of issue, each through three stages:
///
///   called   every rank must have sent an equal fingerprint; this rank's is sent at issue
///   moved    this rank does its share (MpiShare, or MpiCollectives for SumOrder::transport)
///   sent     the other ranks have received this rank's fingerprint
///
/// While a rank waits in one group it also advances its operations in the other groups of the world, so the order of
/// waits across groups cannot deadlock. Used by one thread, which takes turns with the world's ProgressThread, if it
/// has one.
class MpiRank : public std::enable_shared_from_this<MpiRank> {
 public:
  /// Owns `comm`; `members` are the world ranks of its ranks.
  MpiRank(std::shared_ptr<MpiFailureState> failures, MPI_Comm comm, std::string group, std::vector<int> members,
          SumOrder sum_order = SumOrder::rank)
      : MpiRank(std::move(failures), MpiLine{comm, ranks_of(comm), tag_group}, std::move(group), std::move(members),
                rank_in(comm), std::make_shared<Traffic>()) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    sum_order_ = sum_order;
  }
  MpiRank(const MpiRank&) = delete;
  MpiRank& operator=(const MpiRank&) = delete;
  ~MpiRank() {
    if (line_.tag == tag_group) failures_->free(line_.comm);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  SumOrder sum_order() const { return sum_order_; }
  const Traffic& traffic() const { return failures_->progress.read(*traffic_, seen_traffic_); }
  bool async_progress(Size bytes) const { return failures_->progress.wakes_for(bytes); }
  double timeout_seconds() const { return failures_->timeout_seconds; }

  /// This rank's end of the channel on which rank `from` sends to rank `to`; it is one of the two. The channel uses the
  /// group's communicator with separate tags.
  MpiRank& channel(int from, int to) {
    std::shared_ptr<MpiRank>& end = channels_[{from, to}];
    if (!end) {
      end.reset(new MpiRank(failures_, MpiLine{line_.comm, {from, to}, from < to ? tag_upwards : tag_downwards},
                            channel_name(world_rank(from), world_rank(to)), {world_rank(from), world_rank(to)},
                            rank_ == from ? sender : receiver, traffic_));
      end->owner_ = weak_from_this();
    }
    return *end;
  }

  /// The slot of the next operation, without pairs. Completes the oldest operation if every slot is taken.
  Posted& open(Collective collective, PurposeAt purpose, int root = 0) {
    const auto turn = failures_->progress.turn();
    failures_->progress.rethrow();
    if (failures_->failed()) failures_->rethrow();
    if (issued_ >= operations_in_flight) await([&] { return completed_ > issued_ - operations_in_flight; });
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

  /// Sends the slot's fingerprint to the other ranks.
  Pending<> publish() {
    const auto turn = failures_->progress.turn();
    Slot& mine = slot(issued_);
    write_fingerprint(mine.posted, mine.words);
    add_place(mine.posted.at, mine.words);
    failures_->active.reserve(failures_->active.size() + 1);  // may throw: before anything is sent
    send(mine);
    mine.exceptions = std::uncaught_exceptions();
    mine.flight = failures_->flights().enter(mine.posted, size(), issued_, group_words_);
    ++issued_;
    if (pendings_++ == 0) {
      keep_alive_ = {shared_from_this(), owner_.lock()};
      failures_->active.push_back(this);
    }
    if (failures_->progress.is_running()) failures_->progress.begin(mine.posted.bytes());
    static constexpr Completion completion = {
        [](void* who, std::uint64_t ticket) { static_cast<MpiRank*>(who)->wait(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<MpiRank*>(who)->drop(ticket); },
        [](const void* who, std::uint64_t ticket) {
          const auto* const rank = static_cast<const MpiRank*>(who);
          const auto its_turn = rank->failures_->progress.turn();
          return rank->completed_ > ticket;
        }};
    return Pending<>(&completion, this, issued_ - 1);
  }

  /// Advances what can be advanced. Throws the failure of the world, if there is one.
  void poll() {
    const auto turn = failures_->progress.turn();
    failures_->progress.rethrow();
    if (!failures_->failed()) progress();
    failures_->poll();
    if (failures_->is_asked() && completed_ < issued_) failures_->answer(where(completed_));
    if (failures_->failed()) stop();
  }
  void abort(const Error& error) {
    const auto turn = failures_->progress.turn();
    const std::string reason = error.what();
    failures_->fail({ErrorCode::aborted, aborted_sentence(failures_->rank(), reason), failures_->rank(), true,
                     error.code(), reason, false});
  }
  /// The same, of ranks that have yet to call what this one waits for.
  void expire() {
    const auto turn = failures_->progress.turn();
    for (MpiRank* end : failures_->active)
      if (end->completed_ < end->issued_ && end->stage_ == Stage::called && !failures_->failed()) end->fail_timeout();
    if (failures_->failed()) stop();
  }

  /// For a ProgressThread: advances what can be advanced of this rank.
  static ProgressThread::Found advance_all(MpiFailureState& failures) {
    using Found = ProgressThread::Found;
    const std::uint64_t before = failures.steps;
    failures.poll();
    if (failures.failed()) return Found::nothing;
    Found found = Found::nothing;
    for (MpiRank* end : failures.active) {
      end->advance();
      if (end->completed_ < end->issued_) found = Found::waits;
    }
    return failures.steps != before ? Found::moved : found;
  }

  /// Sends the group that this rank calls nothing more: a rank that waits for it, now or later, gets an
  /// Error(peer_lost).
  void leave() {
    if (left_) return;
    left_ = true;
    end_.words = last_fingerprint();
    send(end_);
  }

  /// Receives the others' last messages, once all have left and none has failed: MPI may reuse the communicator's
  /// number, and the next one must not receive them.
  void drain() {
    for (int r = 0; r < size(); ++r) {
      while (r != rank_ && !gone_[static_cast<std::size_t>(r)]) {
        MPI_Status status;
        if (!failures_->good(MPI_Probe(reach(r), line_.tag + tag_call, line_.comm, &status), "wait for a call of",
                             world_rank(r)))
          return;
        if (!receive(r, status)) return;
        gone_[static_cast<std::size_t>(r)] = is_last(words_);
      }
    }
  }

 private:
  enum class Stage { called, moved, sent };
  using KeepAlive = std::array<std::shared_ptr<MpiRank>, 2>;

  struct Slot {
    Posted posted;
    Fingerprint words;
    std::vector<MPI_Request> requests;
    int exceptions = 0;        // std::uncaught_exceptions() at issue
    std::uint64_t flight = 0;  // its number in the flight recorder
  };

  /// The first tags of a group, of its channels to higher ranks, and of those to lower ranks.
  static constexpr int tag_group = 10, tag_upwards = 20, tag_downwards = 30;
  static constexpr int tag_call = 0;  // added to the first tag, as are those of MpiShare

  MpiRank(std::shared_ptr<MpiFailureState> failures, MpiLine line, std::string group, std::vector<int> members,
          int rank, std::shared_ptr<Traffic> traffic)
      : failures_(std::move(failures)),
        line_(std::move(line)),
        group_(std::move(group)),
        group_words_(words_of_name(group_)),
        members_(std::move(members)),
        rank_(rank),
        share_(*failures_, line_, rank_),
        collectives_(*failures_, line_, rank_),
        traffic_(std::move(traffic)),
        calls_(members_.size()),
        places_(members_.size()),
        received_(members_.size(), false),
        gone_(members_.size(), false) {}

  static std::vector<int> ranks_of(MPI_Comm comm) {
    int size = 0;
    MPI_Comm_size(comm, &size);
    std::vector<int> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back(r);
    return ranks;
  }

  static int rank_in(MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    return rank;
  }

  Slot& slot(std::uint64_t operation) { return slots_[operation % operations_in_flight]; }
  int reach(int r) const { return line_.ranks[static_cast<std::size_t>(r)]; }
  int world_rank(int r) const { return members_[static_cast<std::size_t>(r)]; }

  void send(Slot& s) {
    s.requests.assign(members_.size(), MPI_REQUEST_NULL);
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      failures_->good(MPI_Isend(s.words.data(), static_cast<int>(s.words.size()), MPI_INT64_T, reach(r),
                                line_.tag + tag_call, line_.comm, &s.requests[static_cast<std::size_t>(r)]),
                      "send a call to", world_rank(r));
    }
  }

  bool is_by_mpi(const Posted& mine) const { return sum_order_ == SumOrder::transport && collectives_.takes(mine); }

  // --- progress: no waiting, no throwing

  bool progress() {
    const std::uint64_t before = failures_->steps;
    advance();
    for (MpiRank* other : failures_->active) {
      if (other != this) other->advance();
    }
    return failures_->steps != before;
  }

  /// Advances the oldest operation.
  void advance() {
    if (completed_ == issued_ || failures_->failed()) return;
    Slot& mine = slot(completed_);
    if (stage_ == Stage::called) {
      if (!all_called(mine.posted)) return;
      stage_ = Stage::moved;
    }
    if (stage_ == Stage::moved) {
      const bool elsewhere = mine.posted.elsewhere;
      if (!elsewhere && !(is_by_mpi(mine.posted) ? collectives_.run(mine.posted) : share_.run(mine.posted))) return;
      stage_ = Stage::sent;
    }
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(mine.requests.size()), mine.requests.data(), &done, MPI_STATUSES_IGNORE);
    if (!failures_->good(code, "finish sending a call") || done == 0) return;
    if (!mine.posted.elsewhere)
      traffic_->count(mine.posted.collective, mine.posted.purpose,
                      is_by_mpi(mine.posted) ? collectives_.finish() : share_.finish());
    failures_->flights().leave(mine.flight);
    received_.assign(received_.size(), false);
    ++completed_;
    ++failures_->steps;
    stage_ = Stage::called;
  }

  bool all_called(const Posted& mine) {
    bool all = true;
    for (int r = 0; r < size(); ++r) all = (r == rank_ || poll(r)) && all;
    if (!all || failures_->failed()) return false;
    const auto calls = [&](int r) -> const Posted& { return r == rank_ ? mine : calls_[static_cast<std::size_t>(r)]; };
    if (!first_to_differ(size(), calls)) return true;
    failures_->fail(ErrorCode::mismatch, describe_mismatch(group_, members_, completed_, calls));
    return false;
  }

  /// True if rank r has sent its fingerprint of the oldest operation.
  bool poll(int r) {
    const auto i = static_cast<std::size_t>(r);
    if (received_[i]) return true;
    if (gone_[i]) return fail_gone(r), false;
    int there = 0;
    MPI_Status status;
    const int probed = MPI_Iprobe(reach(r), line_.tag + tag_call, line_.comm, &there, &status);
    if (!failures_->good(probed, "look for a call of", world_rank(r))) return false;
    if (there == 0 && has_ended(r)) fail_gone(r);
    if (there == 0 || !receive(r, status)) return false;
    ++failures_->steps;
    if (is_last(words_)) {
      gone_[i] = true;
      return fail_gone(r), false;
    }
    if (words_.size() <= place_words)
      return failures_->fail(ErrorCode::mismatch,
                             "dspp: rank " + std::to_string(world_rank(r)) + " needs the dspp of rank " +
                                 std::to_string(world_rank(rank_)) +
                                 ", but its call format differs. Build all ranks' programs from one version."),
             false;
    calls_[i].at = take_place(words_, places_[i]);
    read_fingerprint(words_, calls_[i]);
    received_[i] = true;
    return true;
  }

  /// True if the other rank of a channel, which sends no end there, ended in its world over a second ago: its messages
  /// may arrive a little later than its end.
  bool has_ended(int r) {
    if (line_.tag == tag_group || !failures_->has_ended(world_rank(r))) return false;
    const auto now = MpiFailureState::Clock::now();
    if (ended_since_ == MpiFailureState::Clock::time_point::max()) ended_since_ = now;
    return now - ended_since_ > std::chrono::seconds(1);
  }

  /// Receives the probed fingerprint into words_.
  bool receive(int r, const MPI_Status& status) {
    int words = 0;
    MPI_Get_count(&status, MPI_INT64_T, &words);
    words_.resize(static_cast<std::size_t>(words));
    const int code =
        MPI_Recv(words_.data(), words, MPI_INT64_T, reach(r), line_.tag + tag_call, line_.comm, MPI_STATUS_IGNORE);
    return failures_->good(code, "receive a call of", world_rank(r));
  }

  // --- waiting: all of it is in await()

  template <class Ready>
  void await(Ready ready) {
    auto since = MpiFailureState::Clock::now();
    for (int idle = 0; !ready(); ++idle) {
      if (failures_->failed()) stop();
      if (progress()) {
        idle = 0;
        continue;
      }
      if (failures_->is_asked() && completed_ < issued_) failures_->answer(where(completed_));
      if (idle % 16 == 0) failures_->poll();
      if (idle < spins) continue;
      const auto now = MpiFailureState::Clock::now();
      if (idle == spins) since = now;
      const std::chrono::duration<double> waited = now - since;
      if (idle < spins + yields &&
          waited.count() <= failures_->timeout_seconds) {  // on a busy machine each yield may take long
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (idle % 64 == 0 || waited.count() > failures_->timeout_seconds) failures_->poll();
      if (waited.count() > failures_->timeout_seconds && !ready()) fail_timeout();
    }
  }

  void wait(std::uint64_t ticket) {
    KeepAlive last;  // destroyed after the turn
    const auto turn = failures_->progress.turn();
    struct Release {
      MpiRank& rank;
      KeepAlive& last;
      ~Release() { last = rank.release(); }
    } on_exit{*this, last};
    failures_->progress.rethrow();
    await([&] { return completed_ > ticket; });
  }

  void drop(std::uint64_t ticket) noexcept {
    KeepAlive last;
    const auto turn = failures_->progress.turn();
    const bool unwinds = std::uncaught_exceptions() > slot(ticket).exceptions;
    if (completed_ <= ticket && (unwinds || failures_->progress.has_thrown())) {
      failures_->fail(ErrorCode::peer_lost,
                      "dspp: the other ranks need " + name() + " in " + where(ticket) +
                          ", but it gave up after an exception. See the error of " + name() + ".",
                      failures_->rank());
      withdraw();
    } else {
      try {
        await([&] { return completed_ > ticket; });
      } catch (const Error&) {  // the world keeps the error and throws it to every later caller
      }
    }
    last = release();
  }

  /// Of the last Pending; returns what may be the last owners of this.
  [[nodiscard]] KeepAlive release() {
    if (--pendings_ > 0) return {};
    std::erase(failures_->active, this);
    return std::exchange(keep_alive_, {});
  }

  /// A rank whose process is gone receives nothing, and the others are about to end.
  void withdraw() {
    share_.withdraw(std::chrono::milliseconds(failures_->failed() && failures_->failure().reported ? 200 : 1000));
    collectives_.withdraw();
  }

  [[noreturn]] void stop() {
    withdraw();
    failures_->rethrow();
  }

  // --- failures

  std::string name() const { return "rank " + std::to_string(failures_->rank()); }

  std::string where(std::uint64_t operation) {
    return describe(slot(operation).posted, size()) + ", the " + ordinal(operation) + " operation of " + group_;
  }

  void fail_gone(int r) {
    const std::string other = "rank " + std::to_string(world_rank(r));
    failures_->fail(ErrorCode::peer_lost,
                    "dspp: " + name() + " needs " + other + " in " + where(completed_) + ", but " + other +
                        " has ended. Make every rank call the same operations.",
                    world_rank(r));
  }

  void fail_timeout() {
    std::vector<int> ranks;
    const bool came = stage_ != Stage::called;
    if (came) ranks = share_.awaited();
    for (int r = 0; !came && r < size(); ++r) {
      if (r != rank_ && !received_[static_cast<std::size_t>(r)]) ranks.push_back(r);
    }
    for (int& r : ranks) r = world_rank(r);
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", failures_->timeout_seconds);
    failures_->fail_timeout("dspp: " + name() + " needs " + (ranks.empty() ? "the other ranks" : list_ranks(ranks)) +
                            " in " + where(completed_) + ", but waited " + seconds + " s and " +
                            (ranks.size() == 1 ? "it" : "they") + " did not " + (came ? "finish it" : "come") +
                            ". Look for what keeps them, or raise timeout_seconds.");
  }

  static constexpr int spins = 400;
  static constexpr int yields = 2000;

  std::shared_ptr<MpiFailureState> failures_;
  MpiLine line_;
  std::string group_;  // "axis Data", "the world"
  NameWords group_words_;
  std::vector<int> members_;  // world ranks
  int rank_;
  MpiShare share_;
  MpiCollectives collectives_;
  SumOrder sum_order_ = SumOrder::rank;
  std::shared_ptr<Traffic> traffic_;
  mutable Traffic seen_traffic_;  // what traffic() returned last
  std::array<Slot, operations_in_flight> slots_;
  Slot end_;
  std::vector<Posted> calls_;       // of the other ranks, as their oldest operation
  std::vector<PlaceNames> places_;  // their call sites
  std::vector<bool> received_;
  std::vector<bool> gone_;
  Fingerprint words_;
  Stage stage_ = Stage::called;  // of the operation completed_
  std::uint64_t issued_ = 0;
  std::uint64_t completed_ = 0;
  bool left_ = false;
  int pendings_ = 0;
  std::map<std::pair<int, int>, std::shared_ptr<MpiRank>> channels_;
  std::weak_ptr<MpiRank> owner_;  // of a channel: owns the communicator
  KeepAlive keep_alive_;          // while there are Pendings
  MpiFailureState::Clock::time_point ended_since_ = MpiFailureState::Clock::time_point::max();
};

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
