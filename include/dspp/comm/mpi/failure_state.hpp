// SPDX-License-Identifier: Apache-2.0
/// What all groups of one world of MPI ranks share: the first failure, and which ranks have ended. A rank that receives
/// a failure forwards it to all, so that no rank receives an end before its reason: at most 3 KB between any two ranks.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()  // the CMake target dspp::mpi sets it

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/comm/mpi/flights.hpp>
#include <dspp/comm/progress_thread.hpp>

namespace dspp::detail {

class MpiRank;

/// The first failure that a rank received: what its collectives throw, and what the failing rank itself threw.
struct MpiFailure {
  ErrorCode code = ErrorCode::aborted;
  std::string sentence;
  int culprit = -1;       ///< the world rank to blame; -1 if there is none
  bool own_error = true;  ///< the culprit threw a dspp::Error; else `reason` is all that is known
  ErrorCode own_code = ErrorCode::aborted;
  std::string reason;
  bool reported = false;  ///< printed on standard error, by the rank that saw a process disappear
  bool late = false;      ///< a rank waited too long
};

/// The text of an MPI error code.
inline std::string mpi_words(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return std::string(text, static_cast<std::size_t>(length));
}

/// One rank's view of its world's failures. Failures and ends are sent on a separate communicator.
class MpiFailureState {
 public:
  using Clock = std::chrono::steady_clock;

  /// Collective over `parent`.
  MpiFailureState(MPI_Comm parent, double timeout_seconds_) : timeout_seconds(timeout_seconds_) {
    if (!(timeout_seconds > 0)) {
      dspp::fail(ErrorCode::usage, "dspp: a world of MPI ranks needs a timeout above 0 seconds, but got " +
                                       std::to_string(timeout_seconds) + ". Leave timeout_seconds out for 600.");
    }
    MPI_Comm_dup(parent, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &ranks_);
    ended_.resize(static_cast<std::size_t>(ranks_), false);
    flights_.emplace(comm_);
  }
  MpiFailureState(const MpiFailureState&) = delete;
  MpiFailureState& operator=(const MpiFailureState&) = delete;
  ~MpiFailureState() {
    progress.stop();
    free(comm_);
  }

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool failed() const { return failed_; }
  const MpiFailure& failure() const { return failure_; }
  [[noreturn]] void rethrow() const { throw Error(failure_.code, failure_.sentence); }

  /// Records the first failure and sends it to every rank. False if another one came first.
  bool fail(MpiFailure failure) {
    // MPI delivers a failure sent long ago only after some polling.
    for (const auto soon = Clock::now() + std::chrono::milliseconds(5); !failed_ && Clock::now() < soon;) poll();
    if (failed_) return false;
    record(std::move(failure));
    return true;
  }

  bool fail(ErrorCode code, const std::string& sentence, int culprit = -1) {
    return fail({code, sentence, culprit, true, code, sentence, false});
  }

  /// The same for a rank that timed out; every rank can then list each rank's last operations.
  void fail_timeout(const std::string& sentence) {
    fail({ErrorCode::peer_lost, sentence, -1, true, ErrorCode::peer_lost, sentence, false, true});
  }
  std::string last_operations() const { return failed_ && failure_.late ? flights_->list() : std::string(); }
  FlightRecorder& flights() { return flights_->own(); }

  /// For another thread, once: what this rank waits for, "all_reduce(...), the 2nd operation of the world". Empty if
  /// the rank's own thread does not answer within some milliseconds because it computes.
  std::string ask() {
    asked_.store(true);
    for (int i = 0; i < 60; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex_);
      if (!waiting_.empty()) return waiting_;
    }
    return {};
  }
  bool is_asked() const { return asked_.load(std::memory_order_relaxed); }
  void answer(std::string what) {
    asked_.store(false);
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(what);
  }

  /// For another thread: the process of a rank is gone. The next poll() makes it the failure.
  void lose(int rank, std::string sentence) {
    const std::lock_guard lock(mutex_);
    lost_sentence_ = std::move(sentence);
    lost_.store(rank);
  }

  /// True for MPI_SUCCESS; else the world has failed. `what` is what MPI was to do, `peer` the other rank, if any.
  bool good(int code, const char* what, int peer = -1) {
    if (code == MPI_SUCCESS) return true;
    transport_failed_ = true;  // MPI is not called again
    const std::string other = peer < 0 ? "" : " rank " + std::to_string(peer);
    fail(ErrorCode::peer_lost,
         "dspp: rank " + std::to_string(rank_) + " needs MPI to " + what + other + ", but it says: " + mpi_words(code) +
             ". Look for a rank or a machine that was lost.",
         peer);
    return false;
  }

  /// Receives what other ranks have sent. Cost: one MPI_Iprobe.
  void poll() {
    if (lost_.load() >= 0 && !failed_) {
      const std::lock_guard lock(mutex_);
      const int rank = lost_.load();
      record({ErrorCode::peer_lost, lost_sentence_, rank, true, ErrorCode::peer_lost, lost_sentence_, true});
    }
    while (!transport_failed_) {
      int there = 0;
      MPI_Status status;
      if (!good(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, &status), "look for messages") || there == 0)
        return;
      int bytes = 0;
      MPI_Get_count(&status, MPI_CHAR, &bytes);
      std::string text(static_cast<std::size_t>(bytes), '\0');
      if (!good(MPI_Recv(text.data(), bytes, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, comm_, MPI_STATUS_IGNORE),
                "receive a message from", status.MPI_SOURCE))
        return;
      if (status.MPI_TAG == tag_end) {
        ended_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
      } else if (!failed_) {
        record(decoded(text));
      }
    }
  }

  /// Sends every rank that this one calls nothing more.
  void end() {
    if (ended_[static_cast<std::size_t>(rank_)]) return;
    ended_[static_cast<std::size_t>(rank_)] = true;
    send(tag_end, "");
  }

  bool has_ended(int rank) const { return ended_[static_cast<std::size_t>(rank)]; }
  bool all_ended() const {
    for (int r = 0; r < ranks_; ++r) {
      if (!has_ended(r)) return false;
    }
    return true;
  }

  /// Frees a communicator, unless the world has failed: messages may still be under way.
  void free(MPI_Comm& comm) const {
    int over = 0;
    MPI_Finalized(&over);
    if (!failed_ && over == 0 && comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }

  std::vector<MpiRank*> active;  ///< this rank's ends of groups with operations under way
  std::uint64_t steps = 0;       ///< counts all progress; a change restarts the wait policy
  const double timeout_seconds;
  ProgressThread progress;  ///< this rank uses all of it in its turns

 private:
  static constexpr int tag_failure = 1, tag_end = 2;
  static constexpr std::size_t most_bytes = 1500;  // of a sentence: small enough for MPI's eager protocol

  void record(MpiFailure failure) {
    failed_ = true;
    failure_ = std::move(failure);
    send(tag_failure, encoded(failure_));
  }

  void send(int tag, const std::string& text) {
    outbox_.push_back(text);
    for (int r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(outbox_.back().data(), static_cast<int>(text.size()), MPI_CHAR, r, tag, comm_, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);  // outbox_ keeps the text
    }
  }

  static std::string encoded(const MpiFailure& f) {
    const std::string sentence = f.sentence.substr(0, most_bytes), reason = f.reason.substr(0, most_bytes);
    const std::int64_t head[] = {static_cast<std::int64_t>(f.code), f.culprit,
                                 (f.own_error ? 1 : 0) + (f.reported ? 2 : 0) + (f.late ? 4 : 0),
                                 static_cast<std::int64_t>(f.own_code), static_cast<std::int64_t>(sentence.size())};
    std::string text(sizeof head, '\0');
    std::memcpy(text.data(), head, sizeof head);
    return text + sentence + reason;
  }

  static MpiFailure decoded(const std::string& text) {
    std::int64_t head[5] = {};
    std::memcpy(head, text.data(), sizeof head);
    const auto length = static_cast<std::size_t>(head[4]);
    return {static_cast<ErrorCode>(head[0]),
            text.substr(sizeof head, length),
            static_cast<int>(head[1]),
            (head[2] & 1) != 0,
            static_cast<ErrorCode>(head[3]),
            text.substr(sizeof head + length),
            (head[2] & 2) != 0,
            (head[2] & 4) != 0};
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int ranks_ = 1;
  bool failed_ = false;
  bool transport_failed_ = false;
  MpiFailure failure_;
  std::optional<MpiFlights> flights_;
  std::vector<bool> ended_;
  mutable std::mutex mutex_;
  std::string waiting_, lost_sentence_;
  std::atomic<bool> asked_{false};
  std::atomic<int> lost_{-1};
  std::list<std::string> outbox_;
};

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
