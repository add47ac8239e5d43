// SPDX-License-Identifier: Apache-2.0
/// The words of thread groups: operations, ranks and disagreements as parts of sentences.
#pragma once

#include <string>
#include <vector>

#include <dspp/comm/thread_table.hpp>

namespace dspp::detail {

inline std::string ordinal(std::uint64_t operation) {
  const std::uint64_t n = operation + 1;
  const bool teen = n % 100 >= 11 && n % 100 <= 13;
  const char* end = teen || n % 10 > 3 || n % 10 == 0 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : "rd";
  return std::to_string(n) + end;
}

/// "all_reduce(f32 x 100)", "broadcast(f32 x 100, root 1)", "all_gather(7 pairs, the 3rd bf16 x 20)": counts are those
/// of what a rank passes in.
inline std::string describe(const Posted& posted, int size, std::size_t pair = 0) {
  std::string text = name_of(posted.collective);
  if (posted.collective == Collective::barrier) return text;
  text += "(";
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

/// "rank 1", "rank 1 and rank 2", "rank 1, rank 2 and rank 5"
inline std::string list_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += "rank " + std::to_string(ranks[i]);
  }
  return text;
}

/// The sentence about the lowest rank whose operation differs from rank 0's.
inline std::string describe_mismatch(ThreadTable& table, std::uint64_t operation) {
  const Posted& first = table.slot(0, operation);
  int other = 1;
  while (other + 1 < table.size() && first.agrees_with(table.slot(other, operation))) ++other;
  const Posted& second = table.slot(other, operation);
  const std::size_t pair = first.first_difference(second);
  return "dspp: the ranks of " + table.name + " call different collectives, the " + ordinal(operation) +
         " of this group: rank " + std::to_string(table.world_rank(0)) + " calls " +
         describe(first, table.size(), pair) + ", but rank " + std::to_string(table.world_rank(other)) + " calls " +
         describe(second, table.size(), pair) + ". Make every rank call the same operations in the same order.";
}

}  // namespace dspp::detail
