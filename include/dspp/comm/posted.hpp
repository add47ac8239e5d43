// SPDX-License-Identifier: Apache-2.0
/// What a rank calls, as the others see it: compared before any data moves, and described where two calls differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <dspp/base/element.hpp>
#include <dspp/comm/call_site.hpp>
#include <dspp/comm/traffic.hpp>

namespace dspp::detail {

/// Memory of one operation. `count` is what one rank contributes or receives: x.count, out.count of a reduce-scatter,
/// in.count of an all-gather. In an all-to-all there is a pair for each rank: what goes to it and what comes from it.
struct PostedPair {
  const void* in;
  void* out;
  Size count;
  ElementType type;
  Size received = 0;  ///< of an all-to-all: the elements that come from the pair's rank

  bool agrees_with(const PostedPair& other) const {
    return count == other.count && type == other.type && received == other.received;
  }
};

/// The ranks of a channel, a group of two.
inline constexpr int sender = 0, receiver = 1;

struct Posted {
  Collective collective = Collective::barrier;
  Purpose purpose = Purpose::scalar;
  int root = 0;  ///< of a broadcast; of a send, which end calls it: `sender` or `receiver`
  std::vector<PostedPair> pairs;
  CallPlace at{};  ///< ranks may call the same at different lines
  Subject subject{};
  SumDigest* digest = nullptr;  ///< of this rank's slice of a reduce-scatter; null: not asked for
  bool elsewhere = false;       ///< another transport moves the data, and counts them

  /// True if two ranks call the same; the parts of an all-to-all are compared by the next.
  bool agrees_with(const Posted& other) const;
  /// Of what this rank passes in.
  Size bytes() const {
    Size all = 0;
    for (const PostedPair& p : pairs) all += p.count * bytes_of(p.type);
    return all;
  }
  /// True if each of two ranks of an all-to-all receives what the other sends.
  bool fits(int own_rank, const Posted& other, int other_rank) const;
  std::size_t first_difference(const Posted& other) const;
};

inline constexpr std::uint64_t operations_in_flight = 16;

// --- descriptions

std::string ordinal(std::uint64_t operation);

/// "all_reduce(f32 x 100)", "broadcast(f32 x 100, root 1)", "all_gather(7 pairs, the 3rd bf16 x 20)": counts of what a
/// rank passes in.
std::string describe(const Posted& posted, int size, std::size_t pair = 0);

/// " of bucket 3 in micro-step 7"
std::string describe(const Subject& subject);

/// " with 3 to and 5 from rank 1"
std::string describe_parts(const PostedPair& pair, int peer);

/// "dspp: every rank needs all the others, but rank 1 failed: <reason> All ranks stop."
std::string aborted_sentence(int rank, const std::string& reason);

/// The name of the group of two in which one world rank sends to another.
std::string channel_name(int from, int to);

/// "rank 1", "rank 1 and rank 2", "rank 1, rank 2 and rank 5"
std::string list_ranks(const std::vector<int>& ranks);

/// Two ranks whose calls differ, or whose sent and received counts do not match.
struct Disagreement {
  int first = 0, second = 0;
  explicit operator bool() const { return second > 0; }
};

/// The lowest two ranks whose calls differ. `calls(r)` is what rank r of `size` posted.
template <class Calls>
Disagreement first_to_differ(int size, Calls calls) {
  for (int r = 1; r < size; ++r) {
    if (!calls(0).agrees_with(calls(r))) return {0, r};
  }
  if (calls(0).collective != Collective::all_to_all) return {};
  for (int r = 0; r < size; ++r)
    for (int s = r + 1; s < size; ++s)
      if (!calls(r).fits(r, calls(s), s)) return {r, s};
  return {};
}

/// The sentence about such a difference. `members` are the group's world ranks.
template <class Calls>
std::string describe_mismatch(const std::string& group, const std::vector<int>& members, std::uint64_t operation,
                              Calls calls) {
  const auto size = static_cast<int>(members.size());
  const Disagreement at = first_to_differ(size, calls);
  const Posted &first = calls(at.first), &second = calls(at.second);
  const int a_rank = members[static_cast<std::size_t>(at.first)], b_rank = members[static_cast<std::size_t>(at.second)];
  const std::size_t pair = first.first_difference(second);
  std::string a = describe(first, size, pair), b = describe(second, size, pair);
  if (first.agrees_with(second)) {
    a += describe_parts(first.pairs[static_cast<std::size_t>(at.second)], b_rank);
    b += describe_parts(second.pairs[static_cast<std::size_t>(at.first)], a_rank);
  } else if (a == b && first.purpose == second.purpose && first.elsewhere == second.elsewhere) {
    a += describe(first.subject);
    b += describe(second.subject);
  } else if (first.elsewhere != second.elsewhere) {
    a += first.elsewhere ? " on its device" : " through the host";
    b += second.elsewhere ? " on its device" : " through the host";
  } else if (a == b) {
    a += std::string(" for ") + name_of(first.purpose);
    b += std::string(" for ") + name_of(second.purpose);
  }
  a += at_place(first.at), b += at_place(second.at);
  return "dspp: the ranks of " + group + " call different collectives, the " + ordinal(operation) +
         " of this group: rank " + std::to_string(a_rank) + " calls " + a + ", but rank " + std::to_string(b_rank) +
         " calls " + b + ". Make every rank call the same operations in the same order.";
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool Posted::agrees_with(const Posted& other) const {
  if (collective != other.collective || purpose != other.purpose || subject != other.subject) return false;
  if (elsewhere != other.elsewhere) return false;
  if (root != other.root && collective != Collective::send) return false;
  if (pairs.size() != other.pairs.size()) return false;
  if (collective == Collective::all_to_all) return pairs.front().type == other.pairs.front().type;
  return first_difference(other) == pairs.size();
}

DSPP_INLINE bool Posted::fits(int own_rank, const Posted& other, int other_rank) const {
  const PostedPair &to = pairs[static_cast<std::size_t>(other_rank)],
                   &from = other.pairs[static_cast<std::size_t>(own_rank)];
  return to.count == from.received && to.received == from.count;
}

DSPP_INLINE std::size_t Posted::first_difference(const Posted& other) const {
  std::size_t i = 0;
  while (i < pairs.size() && i < other.pairs.size() && pairs[i].agrees_with(other.pairs[i])) ++i;
  return i;
}

DSPP_INLINE std::string ordinal(std::uint64_t operation) {
  const std::uint64_t n = operation + 1;
  const bool teen = n % 100 >= 11 && n % 100 <= 13;
  const char* end = teen || n % 10 > 3 || n % 10 == 0 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : "rd";
  return std::to_string(n) + end;
}

DSPP_INLINE std::string describe(const Posted& posted, int size, std::size_t pair) {
  const bool receives = posted.collective == Collective::send && posted.root == receiver;
  std::string text = receives ? "receive" : name_of(posted.collective);
  if (posted.collective == Collective::barrier) return text;
  text += "(";
  if (posted.collective == Collective::all_to_all) {
    Size count = 0;
    for (const PostedPair& p : posted.pairs) count += p.count;
    return text + name_of(posted.pairs.front().type) + " x " + std::to_string(count) + ")";
  }
  if (posted.pairs.size() != 1) text += std::to_string(posted.pairs.size()) + " pairs";
  if (pair < posted.pairs.size() || posted.pairs.size() == 1) {
    const PostedPair& p = posted.pairs[posted.pairs.size() == 1 ? 0 : pair];
    if (posted.pairs.size() > 1) text += ", the " + ordinal(pair) + " ";
    const Size count = posted.collective == Collective::reduce_scatter ? p.count * size : p.count;
    text += std::string(name_of(p.type)) + " x " + std::to_string(count);
  }
  if (posted.collective == Collective::broadcast) text += ", root " + std::to_string(posted.root);
  return text + ")";
}

DSPP_INLINE std::string describe(const Subject& subject) {
  return subject.bucket == 0
             ? std::string()
             : " of bucket " + std::to_string(subject.bucket) + " in micro-step " + std::to_string(subject.micro_step);
}

DSPP_INLINE std::string describe_parts(const PostedPair& pair, int peer) {
  return " with " + std::to_string(pair.count) + " to and " + std::to_string(pair.received) + " from rank " +
         std::to_string(peer);
}

DSPP_INLINE std::string aborted_sentence(int rank, const std::string& reason) {
  const char* stop = !reason.empty() && reason.back() == '.' ? " " : ". ";
  return "dspp: every rank needs all the others, but rank " + std::to_string(rank) + " failed: " + reason + stop +
         "All ranks stop.";
}

DSPP_INLINE std::string channel_name(int from, int to) {
  return "the channel from rank " + std::to_string(from) + " to rank " + std::to_string(to);
}

DSPP_INLINE std::string list_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += "rank " + std::to_string(ranks[i]);
  }
  return text;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
