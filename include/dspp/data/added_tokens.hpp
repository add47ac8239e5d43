// SPDX-License-Identifier: Apache-2.0
/// Tokens that are found in the text as they are, such as <|endoftext|>.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>

namespace dspp {

/// A set of strings to find, each with its id. Where two begin at one place, the longer one counts.
class AddedTokens {
  using Token = std::pair<std::string, std::int32_t>;

 public:
  /// A string that is neither empty nor there already.
  void add(const std::string& content, std::int32_t id) {
    auto& same_start = by_first_byte_[static_cast<unsigned char>(content[0])];
    const auto is_shorter = [&](const auto& token) { return token.first.size() < content.size(); };
    same_start.emplace(std::find_if(same_start.begin(), same_start.end(), is_shorter), content, id);
    if (same_start.size() == 1) starts_ += content[0];
  }

  /// The id of the token that is this string.
  std::optional<std::int32_t> find(std::string_view content) const {
    if (content.empty()) return {};
    for (const Token& token : by_first_byte_[static_cast<unsigned char>(content[0])])
      if (token.first == content) return token.second;
    return {};
  }

  /// Calls found(id) and other(piece) from left to right; the pieces are not empty.
  ///
  /// Cost     one search for the first bytes of the tokens, and a comparison with each token where one is found
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
  const Token* token_at(std::string_view text) const {
    for (const Token& token : by_first_byte_[static_cast<unsigned char>(text[0])])
      if (text.substr(0, token.first.size()) == token.first) return &token;
    return nullptr;
  }

  std::array<std::vector<Token>, 256> by_first_byte_;  // the longest first
  std::string starts_;
};

}  // namespace dspp
