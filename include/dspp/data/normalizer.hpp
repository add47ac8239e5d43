// SPDX-License-Identifier: Apache-2.0
/// What is done to text before it is cut into words: the normalizer of a tokenizer.json.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include <dspp/base/config.hpp>
#include <dspp/data/bert_text.hpp>
#include <dspp/data/normal_form.hpp>

namespace dspp::data {

/// Leaves the text as it is.
struct NoNormalizer {
  friend bool operator==(const NoNormalizer&, const NoNormalizer&) = default;
};

/// Normal form C.
struct NfcNormalizer {
  void operator()(std::string_view text, std::string& out) const { append_nfc(text, out); }
  friend bool operator==(const NfcNormalizer&, const NfcNormalizer&) = default;
};

/// Puts `prepended` before a text that is not empty, then writes each `replaced` in both as `by`; `replaced` may be
/// empty.
struct ReplacingNormalizer {
  std::string prepended, replaced, by;

  void operator()(std::string_view text, std::string& out) const;
  friend bool operator==(const ReplacingNormalizer&, const ReplacingNormalizer&) = default;
};

using Normalizer = std::variant<NoNormalizer, NfcNormalizer, BertNormalizer, ReplacingNormalizer>;

/// The normalized text: `text` itself, or a new one in `room`, which must outlive it.
std::string_view normalized(const Normalizer& normalizer, std::string_view text, std::string& room);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void ReplacingNormalizer::operator()(std::string_view text, std::string& out) const {
  if (text.empty()) return;
  std::string both;
  if (!prepended.empty()) text = both.append(prepended).append(text);
  while (!text.empty()) {
    const std::size_t at = replaced.empty() ? text.size() : std::min(text.find(replaced), text.size());
    out += text.substr(0, at);
    if (at < text.size()) out += by;
    text.remove_prefix(std::min(at + replaced.size(), text.size()));
  }
}

DSPP_INLINE std::string_view normalized(const Normalizer& normalizer, std::string_view text, std::string& room) {
  if (std::holds_alternative<NoNormalizer>(normalizer)) return text;
  room.clear();
  if (const auto* nfc = std::get_if<NfcNormalizer>(&normalizer)) (*nfc)(text, room);
  if (const auto* bert = std::get_if<BertNormalizer>(&normalizer)) (*bert)(text, room);
  if (const auto* replacing = std::get_if<ReplacingNormalizer>(&normalizer)) (*replacing)(text, room);
  return room;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
