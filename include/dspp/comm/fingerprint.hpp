// SPDX-License-Identifier: Apache-2.0
/// The fingerprint of a call: what a rank tells the others before any data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <dspp/comm/posted.hpp>

namespace dspp::detail {

/// A fingerprint as it travels: collective, purpose, root, then of every pair the count, the element type
/// and what is received.
using Fingerprint = std::vector<std::int64_t>;

/// The fingerprint of a rank that calls nothing more.
inline Fingerprint last_fingerprint() {
  return {-1};
}
inline bool is_last(const Fingerprint& words) {
  return words.size() == 1;
}

inline void write_fingerprint(const Posted& posted, Fingerprint& words) {
  words.assign({static_cast<std::int64_t>(posted.collective), static_cast<std::int64_t>(posted.purpose), posted.root});
  for (const PostedPair& p : posted.pairs) {
    words.push_back(p.count);
    words.push_back(static_cast<std::int64_t>(p.type));
    words.push_back(p.received);
  }
}

/// What was called, without its memory.
inline void read_fingerprint(const Fingerprint& words, Posted& posted) {
  posted.collective = static_cast<Collective>(words[0]);
  posted.purpose = static_cast<Purpose>(words[1]);
  posted.root = static_cast<int>(words[2]);
  posted.pairs.clear();
  for (std::size_t i = 3; i + 2 < words.size(); i += 3)
    posted.pairs.push_back({nullptr, nullptr, words[i], static_cast<ElementType>(words[i + 1]), words[i + 2]});
}

}  // namespace dspp::detail
