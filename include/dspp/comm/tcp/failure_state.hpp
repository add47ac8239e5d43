// SPDX-License-Identifier: Apache-2.0
/// What all groups of one world of TCP ranks share: their links, the first failure, and which ranks have ended. A rank
/// that receives a failure forwards it to all, so that no rank receives an end before its reason: at most 16 KB between
/// any two ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/comm/fingerprint.hpp>
#include <dspp/comm/progress_thread.hpp>
#include <dspp/comm/tcp/failure.hpp>
#include <dspp/comm/tcp/links.hpp>

namespace dspp::detail {

/// One rank's end of a group, or of its messages in one direction.
class TcpLine {
 public:
  /// Where data of a world rank go; null if none of that size are awaited.
  virtual std::byte* room(int world_rank, Size bytes) = 0;
  virtual void arrived(int world_rank) = 0;
  /// "all_reduce(f32 x 100), the 2nd operation of the world": the oldest under way.
  virtual std::string where() = 0;
  virtual void advance() = 0;
  virtual bool is_under_way() const = 0;
  /// Fails the world if a rank has yet to call the oldest operation.
  virtual void expire_oldest() = 0;

 protected:
  ~TcpLine() = default;
};

std::string encoded(const TcpFailure& failure);
/// False for what encoded() does not write.
bool decode(std::span<const std::byte> text, TcpFailure& failure);
/// True if read_fingerprint() reads it: words of another rank, with or without its call site.
bool is_fingerprint(const Fingerprint& words);

/// One rank's view of its world.
class TcpFailureState final : TcpInbox {
 public:
  TcpFailureState(int rank, std::vector<Socket> sockets, double timeout_seconds_)
      : timeout_seconds(timeout_seconds_),
        rank_(rank),
        ended_(sockets.size(), false),
        closed_(sockets.size(), false),
        links_(*this, std::move(sockets)) {}
  TcpFailureState(const TcpFailureState&) = delete;
  TcpFailureState& operator=(const TcpFailureState&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(ended_.size()); }
  bool failed() const { return failed_; }
  const TcpFailure& failure() const { return failure_; }
  [[noreturn]] void rethrow() const { throw Error(failure_.code, failure_.sentence); }

  /// Records the first failure and sends it to every rank. False if another one came first.
  bool fail(TcpFailure failure);
  bool fail(ErrorCode code, const std::string& sentence, int culprit = -1) {
    return fail({code, sentence, culprit, true, code, sentence});
  }

  /// For a ProgressThread: advances what can be advanced.
  ProgressThread::Found advance_all();
  /// Sends and receives what can be; waits at most that long for the first. True if anything moved.
  bool poll(int milliseconds = 0) { return links_.poll(milliseconds); }
  /// Sends every rank that this one calls nothing more.
  void end();
  bool has_ended(int rank) const { return ended_[static_cast<std::size_t>(rank)]; }
  /// True if every rank has ended or is gone, and this one's messages are sent.
  bool all_ended() const;

  // --- of a line: a group, or its messages in one direction

  TcpLinks& links() { return links_; }
  /// `end` receives what that rank sends on the line.
  void connect(int line, int rank, TcpLine& end) { lines_[{line, rank}] = &end; }
  void disconnect(int line, int rank) { lines_.erase({line, rank}); }
  /// The oldest call of another rank that was not taken yet; false if there is none.
  bool take_call(int line, int rank, Fingerprint& words);
  /// True if that rank awaits data that were not sent yet; they are now.
  bool take_ready(int line, int rank);

  std::vector<TcpLine*> active;  ///< those with operations under way
  std::uint64_t steps = 0;       ///< counts all progress; a change restarts the wait
  const double timeout_seconds;

 private:
  static constexpr std::size_t most_calls = 64;  // of one rank that another has not taken: 16 are in flight

  std::byte* room(int rank, int line, Size bytes) override;
  void arrived(int rank, const TcpHead& head, std::vector<std::byte>& payload) override;
  void closed(int rank, const std::string& why) override;
  void lose(int rank, const std::string& why);
  void record(TcpFailure failure);

  int rank_;
  bool failed_ = false;
  TcpFailure failure_;
  std::vector<bool> ended_, closed_;
  std::map<std::pair<int, int>, TcpLine*> lines_;  // by line and rank, as the next two
  std::map<std::pair<int, int>, std::deque<Fingerprint>> calls_;
  std::map<std::pair<int, int>, int> ready_;
  TcpLinks links_;

 public:
  ProgressThread progress;  ///< this rank uses all of it in its turns; last, since it uses the others
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string encoded(const TcpFailure& f) {
  constexpr std::size_t most_bytes = 8000;
  const std::string sentence = f.sentence.substr(0, most_bytes), reason = f.reason.substr(0, most_bytes);
  const std::int64_t head[] = {static_cast<std::int64_t>(f.code), f.culprit, f.own_error ? 1 : 0,
                               static_cast<std::int64_t>(f.own_code), std::ssize(sentence)};
  std::string text(sizeof head, '\0');
  std::memcpy(text.data(), head, sizeof head);
  return text + sentence + reason;
}

DSPP_INLINE bool decode(std::span<const std::byte> text, TcpFailure& failure) {
  std::int64_t head[5] = {};
  if (text.size() < sizeof head) return false;
  std::memcpy(head, text.data(), sizeof head);
  const std::string words(reinterpret_cast<const char*>(text.data()) + sizeof head, text.size() - sizeof head);
  const auto is_code = [](std::int64_t code) { return code >= 0 && code <= static_cast<int>(ErrorCode::state); };
  if (!is_code(head[0]) || !is_code(head[3]) || head[4] < 0 || head[4] > std::ssize(words)) return false;
  const auto length = static_cast<std::size_t>(head[4]);
  failure = {static_cast<ErrorCode>(head[0]), words.substr(0, length), static_cast<int>(head[1]), head[2] != 0,
             static_cast<ErrorCode>(head[3]), words.substr(length)};
  return true;
}

DSPP_INLINE bool is_fingerprint(const Fingerprint& words) {
  constexpr std::size_t head_words = 5;
  if (words.size() < head_words + place_words || (words.size() - head_words - place_words) % 3 != 0) return false;
  const std::int64_t called = words[0] % 256;
  if (words[0] < 0 || words[0] >= 512 || called >= collective_count) return false;
  if (words[1] < 0 || words[1] >= purpose_count) return false;
  for (std::size_t i = head_words; i + place_words < words.size(); i += 3)
    if (words[i] < 0 || words[i + 1] < 0 || words[i + 1] > static_cast<int>(ElementType::u8) || words[i + 2] < 0)
      return false;
  return called != static_cast<int>(Collective::all_to_all) || words.size() > head_words + place_words;
}

DSPP_INLINE bool TcpFailureState::fail(TcpFailure failure) {
  poll();  // another may have come first
  if (failed_) return false;
  record(std::move(failure));
  return true;
}

DSPP_INLINE void TcpFailureState::record(TcpFailure failure) {
  failed_ = true;
  failure_ = std::move(failure);
  const std::string text = encoded(failure_);
  for (int r = 0; r < ranks(); ++r)
    links_.send(r, TcpKind::failure, 0, std::as_bytes(std::span(text.data(), text.size())));
}

DSPP_INLINE ProgressThread::Found TcpFailureState::advance_all() {
  using Found = ProgressThread::Found;
  const std::uint64_t before = steps;
  const bool moved = poll();
  if (failed_) return Found::nothing;
  Found found = Found::nothing;
  for (TcpLine* line : active) {
    line->advance();
    if (line->is_under_way()) found = Found::waits;
  }
  return found == Found::waits && (moved || steps != before) ? Found::moved : found;
}

DSPP_INLINE void TcpFailureState::end() {
  if (has_ended(rank_)) return;
  ended_[static_cast<std::size_t>(rank_)] = true;
  for (int r = 0; r < ranks(); ++r) links_.send(r, TcpKind::end, 0);
}

DSPP_INLINE bool TcpFailureState::all_ended() const {
  for (int r = 0; r < ranks(); ++r)
    if (!has_ended(r) && !closed_[static_cast<std::size_t>(r)]) return false;
  return links_.is_empty();
}

DSPP_INLINE bool TcpFailureState::take_call(int line, int rank, Fingerprint& words) {
  std::deque<Fingerprint>& all = calls_[{line, rank}];
  if (all.empty()) return false;
  words = std::move(all.front());
  all.pop_front();
  return true;
}

DSPP_INLINE bool TcpFailureState::take_ready(int line, int rank) {
  int& count = ready_[{line, rank}];
  if (count == 0) return false;
  --count;
  return true;
}

DSPP_INLINE std::byte* TcpFailureState::room(int rank, int line, Size bytes) {
  const auto found = lines_.find({line, rank});
  return failed_ || found == lines_.end() ? nullptr : found->second->room(rank, bytes);
}

DSPP_INLINE void TcpFailureState::arrived(int rank, const TcpHead& head, std::vector<std::byte>& payload) {
  if (head.kind == TcpKind::end) {
    ended_[static_cast<std::size_t>(rank)] = true;
    return;
  }
  if (failed_) return;
  bool is_known = true;
  if (head.kind == TcpKind::failure) {
    TcpFailure its;
    is_known = decode(payload, its);
    if (is_known) record(std::move(its));
  } else if (head.kind == TcpKind::data) {
    const auto found = lines_.find({head.line, rank});
    is_known = payload.empty() && found != lines_.end();
    if (is_known) found->second->arrived(rank);
  } else if (head.kind == TcpKind::ready) {
    is_known = ++ready_[{head.line, rank}] == 1;
  } else {
    Fingerprint words(payload.size() / sizeof(std::int64_t));
    if (!words.empty()) std::memcpy(words.data(), payload.data(), words.size() * sizeof(std::int64_t));
    std::deque<Fingerprint>& all = calls_[{head.line, rank}];
    is_known = payload.size() % sizeof(std::int64_t) == 0 && is_fingerprint(words) && all.size() < most_calls;
    if (is_known) all.push_back(std::move(words));
  }
  if (!is_known) lose(rank, "sent what dspp does not send there");
}

DSPP_INLINE void TcpFailureState::closed(int rank, const std::string& why) {
  closed_[static_cast<std::size_t>(rank)] = true;
  if (!has_ended(rank)) lose(rank, why);
}

DSPP_INLINE void TcpFailureState::lose(int rank, const std::string& why) {
  if (failed_) return;
  const std::string other = "rank " + std::to_string(rank);
  std::string in;
  for (TcpLine* line : active)
    if (in.empty()) in = line->where();
  const std::string sentence = "dspp: rank " + std::to_string(rank_) + " needs " + other +
                               (in.empty() ? "" : " in " + in) + ", but " + other + " " + why +
                               ". Look for what ended it, such as the system for want of memory.";
  record({ErrorCode::peer_lost, sentence, rank, true, ErrorCode::peer_lost, sentence});
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
