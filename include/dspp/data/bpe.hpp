// SPDX-License-Identifier: Apache-2.0
/// Byte-pair encoding of one word: neighbours are merged, the pair of least rank first, until no pair has a merge.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp::data {

/// The pairs of tokens that merge, each with its rank and the merged token.
class BpeMerges {
 public:
  struct Merge {
    std::int32_t rank = -1, merged = -1;
  };

  /// Capacity for `count` pairs.
  ///
  /// Memory   16 bytes, then 32 to 64 per added pair; half as much again while it grows
  explicit BpeMerges(Size count = 0);

  /// False if the pair exists. Throws Error(usage) beyond the capacity.
  bool add(std::int32_t left, std::int32_t right, Merge merge);
  /// The pair's merge; its rank is negative if the pair does not merge.
  Merge find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};
    Merge merge{};
  };
  std::size_t slot_of(std::uint64_t pair) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::size_t taken_ = 0;
  Size room_ = 0;
};

/// Merges a word's tokens in place; of equal ranks the leftmost pair merges first.
///
/// Cost     n log n for n tokens, by a heap over a linked list
/// Memory   28 n bytes, reused for the next word
/// Source   Sennrich, Haddow, Birch, Neural machine translation of rare words with subword units (2016), section 3.2
class BpeMerger {
 public:
  void operator()(const BpeMerges& merges, std::vector<std::int32_t>& tokens);

 private:
  struct Node {
    std::int32_t token, before, next;
  };
  struct Candidate {
    std::int32_t rank, at, left, right, merged;
    friend bool operator<(const Candidate& a, const Candidate& b) {  // the heap's top is its greatest
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
  };
  void consider(const BpeMerges& merges, std::int32_t at);

  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

/// A cache of the tokens of words. A full cache does not change.
class WordCache {
 public:
  static constexpr Size word_limit = Size{1} << 17;
  static constexpr std::size_t longest_word = 64;

  /// The word's tokens, or null.
  const std::vector<std::int32_t>* find(std::string_view word) const;
  void keep(std::string_view word, const std::vector<std::int32_t>& tokens);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>> words_;
};

// ---------------------------------------------------------------------------------------------------------------------

/// The slot of the pair, or the free slot for it.

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE const std::vector<std::int32_t>* WordCache::find(std::string_view word) const {
  const auto at = words_.find(word);
  return at == words_.end() ? nullptr : &at->second;
}

DSPP_INLINE void WordCache::keep(std::string_view word, const std::vector<std::int32_t>& tokens) {
  if (std::ssize(words_) < word_limit && word.size() <= longest_word) words_.emplace(word, tokens);
}

DSPP_INLINE BpeMerges::BpeMerges(Size count) : room_(count) {
  slots_.resize(2);
}

DSPP_INLINE std::size_t BpeMerges::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t hash = pair * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  std::size_t slot = static_cast<std::size_t>(hash) & mask;
  while (slots_[slot].pair != pair && slots_[slot].pair != Slot{}.pair) slot = (slot + 1) & mask;
  return slot;
}

DSPP_INLINE bool BpeMerges::add(std::int32_t left, std::int32_t right, Merge merge) {
  require(--room_ >= 0,
          "dspp: BpeMerges needs no more pairs than it was made for, but got one more. Count them first.");
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  if (2 * (taken_ + 1) > slots_.size()) grow();
  Slot& slot = slots_[slot_of(pair)];
  if (slot.pair == pair) return false;
  slot = {pair, merge};
  ++taken_;
  return true;
}

DSPP_INLINE void BpeMerges::grow() {
  const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : before)
    if (slot.pair != Slot{}.pair) slots_[slot_of(slot.pair)] = slot;
}

DSPP_INLINE BpeMerges::Merge BpeMerges::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  return slots_[slot_of(pair)].merge;
}

DSPP_INLINE void BpeMerger::consider(const BpeMerges& merges, std::int32_t at) {
  const Node& node = nodes_[static_cast<std::size_t>(at)];
  if (node.next == -1) return;
  const std::int32_t right = nodes_[static_cast<std::size_t>(node.next)].token;
  const BpeMerges::Merge merge = merges.find(node.token, right);
  if (merge.rank < 0) return;
  heap_.push_back({merge.rank, at, node.token, right, merge.merged});
  std::push_heap(heap_.begin(), heap_.end());
}

DSPP_INLINE void BpeMerger::operator()(const BpeMerges& merges, std::vector<std::int32_t>& tokens) {
  require(std::ssize(tokens) < Size{1} << 31,
          "dspp: BPE needs words of less than 2 GiB, but got a longer one. Cut it.");
  const auto count = static_cast<std::int32_t>(tokens.size());
  nodes_.clear(), heap_.clear();
  for (std::int32_t i = 0; i < count; ++i)
    nodes_.push_back({tokens[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  for (std::int32_t i = 0; i < count; ++i) consider(merges, i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate top = heap_.back();
    heap_.pop_back();
    Node& node = nodes_[static_cast<std::size_t>(top.at)];
    if (node.token != top.left || node.next == -1) continue;  // merged with a neighbour since it was queued
    Node& gone = nodes_[static_cast<std::size_t>(node.next)];
    if (gone.token != top.right) continue;
    node.token = top.merged;
    node.next = gone.next;
    gone.token = -1;
    if (node.next != -1) nodes_[static_cast<std::size_t>(node.next)].before = top.at;
    if (node.before >= 0) consider(merges, node.before);
    consider(merges, top.at);
  }
  tokens.clear();
  for (std::int32_t at = count > 0 ? 0 : -1; at >= 0; at = nodes_[static_cast<std::size_t>(at)].next)
    tokens.push_back(nodes_[static_cast<std::size_t>(at)].token);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
