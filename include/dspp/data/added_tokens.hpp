// SPDX-License-Identifier: Apache-2.0
/// Added tokens, which match their literal text, such as <|endoftext|>.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp::data {

/// A set of strings to find, each with its id. Of two that begin at one position, the longer one matches.
class AddedTokens {
  using Tokens = std::map<std::string, std::int32_t, std::less<>>;

 public:
  /// Adds a string that is not empty; one that is in the set keeps its id.
  void add(const std::string& content, std::int32_t id);

  bool empty() const { return tokens_.empty(); }

  /// Calls found(id) and other(piece) from left to right; the pieces are not empty.
  ///
  /// Cost     one scan for the first bytes of the tokens, and at each match one look-up per length of the tokens with
  ///          that first byte
  void split(std::string_view text, auto&& found, auto&& other) const {
    std::size_t begin = 0;
    for (std::size_t at = text.find_first_of(starts_); at != std::string_view::npos;) {
      const auto* token = token_at(text.substr(at));
      if (token) {
        if (begin < at) other(text.substr(begin, at - begin));
        found(token->second);
        begin = at + token->first.size();
      }
      at = text.find_first_of(starts_, token ? begin : at + 1);
    }
    if (begin < text.size()) other(text.substr(begin));
  }

 private:
  const Tokens::value_type* token_at(std::string_view text) const;

  Tokens tokens_;
  std::array<std::vector<std::size_t>, 256> lengths_;  // of the tokens that begin with a byte, the longest first
  std::string starts_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void AddedTokens::add(const std::string& content, std::int32_t id) {
  auto& lengths = lengths_[static_cast<unsigned char>(content[0])];
  if (lengths.empty()) starts_ += content[0];
  const auto place = std::lower_bound(lengths.begin(), lengths.end(), content.size(), std::greater<>());
  if (place == lengths.end() || *place != content.size()) lengths.insert(place, content.size());
  tokens_.emplace(content, id);
}

DSPP_INLINE const AddedTokens::Tokens::value_type* AddedTokens::token_at(std::string_view text) const {
  for (const std::size_t length : lengths_[static_cast<unsigned char>(text[0])])
    if (length <= text.size())
      if (const auto token = tokens_.find(text.substr(0, length)); token != tokens_.end()) return &*token;
  return nullptr;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
