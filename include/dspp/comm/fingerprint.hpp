// SPDX-License-Identifier: Apache-2.0
/// The fingerprint of a call: what a rank sends the others before any data moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <dspp/comm/posted.hpp>

namespace dspp::detail {

/// A fingerprint as it is sent: collective, purpose, root, the subject's bucket and micro-step, then for every pair the
/// count, the element type and the count received.
using Fingerprint = std::vector<std::int64_t>;

/// The fingerprint of a rank that calls nothing more.
inline Fingerprint last_fingerprint() {
  return {-1};
}
inline bool is_last(const Fingerprint& words) {
  return words.size() == 1;
}

void write_fingerprint(const Posted& posted, Fingerprint& words);

/// The call without its memory.
void read_fingerprint(const Fingerprint& words, Posted& posted);

// --- the call site, after the fingerprint

inline constexpr std::size_t place_words = 2 + 2 * site_name_words;

/// The file names of a call site that another process sent.
struct PlaceNames {
  char outer[longest_site_name + 1] = {}, inner[longest_site_name + 1] = {};
};

void add_place(const CallPlace& at, Fingerprint& words);

/// Removes the call site from `words`; its file names are kept in `names`.
CallPlace take_place(Fingerprint& words, PlaceNames& names);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void write_fingerprint(const Posted& posted, Fingerprint& words) {
  const std::int64_t elsewhere = posted.elsewhere ? 256 : 0;
  words.assign({static_cast<std::int64_t>(posted.collective) + elsewhere, static_cast<std::int64_t>(posted.purpose),
                posted.root, posted.subject.bucket, posted.subject.micro_step});
  for (const PostedPair& p : posted.pairs) {
    words.push_back(p.count);
    words.push_back(static_cast<std::int64_t>(p.type));
    words.push_back(p.received);
  }
}

DSPP_INLINE void read_fingerprint(const Fingerprint& words, Posted& posted) {
  posted.collective = static_cast<Collective>(words[0] % 256);
  posted.elsewhere = words[0] >= 256;
  posted.purpose = static_cast<Purpose>(words[1]);
  posted.root = static_cast<int>(words[2]);
  posted.subject = {static_cast<int>(words[3]), words[4]};
  posted.pairs.clear();
  for (std::size_t i = 5; i + 2 < words.size(); i += 3)
    posted.pairs.push_back({nullptr, nullptr, words[i], static_cast<ElementType>(words[i + 1]), words[i + 2]});
}

DSPP_INLINE void add_place(const CallPlace& at, Fingerprint& words) {
  for (const CallSite& site : {at.outer, at.inner}) {
    const std::string_view name = short_name(site);
    words.push_back(site.line);
    const std::size_t begin = words.size();
    words.resize(begin + site_name_words, 0);
    if (!name.empty()) std::memcpy(words.data() + begin, name.data(), name.size());
  }
}

DSPP_INLINE CallPlace take_place(Fingerprint& words, PlaceNames& names) {
  const std::int64_t* const place = words.data() + words.size() - place_words;
  std::memcpy(names.outer, place + 1, longest_site_name);
  std::memcpy(names.inner, place + 2 + site_name_words, longest_site_name);
  const CallPlace at{{names.outer[0] == 0 ? nullptr : names.outer, static_cast<int>(place[0])},
                     {names.inner[0] == 0 ? nullptr : names.inner, static_cast<int>(place[1 + site_name_words])}};
  words.resize(words.size() - place_words);
  return at;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
