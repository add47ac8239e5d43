// SPDX-License-Identifier: Apache-2.0
/// WordPiece: a word is cut into the longest tokens, from left to right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/vocabulary.hpp>

namespace dspp::data {

/// A token inside a word is written with a prefix. A word that cannot be cut into tokens, or has too many characters,
/// is the unknown token.
struct WordPieceConfig {
  std::string unknown = "[UNK]", prefix = "##";
  Size most_characters = 100;
};

/// Cuts words into the tokens of a vocabulary, whose keys are as in the file.
///
/// Cost     for each token of a word one look-up per character up to the longest token
/// Source   Schuster, Nakajima, Japanese and Korean voice search (2012); Devlin et al., BERT (2019), its code
class WordPiece {
 public:
  /// Throws Error(file) if the unknown token is not in the vocabulary. `longest` is the size of its longest key.
  WordPiece(const WordPieceConfig& config, const Vocabulary& vocabulary, std::size_t longest);

  /// Appends the word's tokens.
  void operator()(std::string_view word, const Vocabulary& vocabulary, std::vector<std::int32_t>& tokens) const;

 private:
  WordPieceConfig config_;
  std::int32_t unknown_ = 0;
  std::size_t longest_ = 0;
};

/// Appends a token to a decoded text as WordPiece's decoder does: without its prefix, or after a space unless it is the
/// first. With `cleanup` the space before a mark such as "." or "'s" is left out.
void append_wordpiece(std::string_view token, std::string_view prefix, bool cleanup, bool is_first, std::string& text);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE WordPiece::WordPiece(const WordPieceConfig& config, const Vocabulary& vocabulary, std::size_t longest)
    : config_(config), longest_(longest) {
  const auto unknown = vocabulary.find(config.unknown);
  if (!unknown)
    detail::refuse_tokenizer(vocabulary.who(), "model.unk_token in model.vocab",
                             io::json_name(config.unknown) + " is absent");
  unknown_ = *unknown;
}

DSPP_INLINE void WordPiece::operator()(std::string_view word, const Vocabulary& vocabulary,
                                       std::vector<std::int32_t>& tokens) const {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; };
  const std::size_t before = tokens.size();
  if (word.size() - static_cast<std::size_t>(std::count_if(word.begin(), word.end(), continues)) >
      static_cast<std::size_t>(config_.most_characters)) {
    tokens.push_back(unknown_);
    return;
  }
  std::string inside;  // the prefix and a part of the word
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t prefix = begin == 0 ? 0 : config_.prefix.size();
    std::string_view part = word.substr(begin, longest_ - std::min(prefix, longest_));
    if (begin > 0) {
      inside.assign(config_.prefix).append(part);
      part = inside;
    }
    if (begin + part.size() - prefix < word.size())
      while (part.size() > prefix && continues(word[begin + part.size() - prefix])) part.remove_suffix(1);
    auto found = vocabulary.find(part);
    while (!found && part.size() > prefix) {
      const bool inner = continues(part.back());
      part.remove_suffix(1);
      if (!inner && part.size() > prefix) found = vocabulary.find(part);
    }
    if (part.size() == prefix) {
      tokens.resize(before);
      tokens.push_back(unknown_);
      return;
    }
    tokens.push_back(*found);
    begin += part.size() - prefix;
  }
}

DSPP_INLINE void append_wordpiece(std::string_view token, std::string_view prefix, bool cleanup, bool is_first,
                                  std::string& text) {
  std::string part(token);
  if (!is_first) {
    if (token.starts_with(prefix))
      part.erase(0, prefix.size());
    else
      part.insert(0, 1, ' ');
  }
  static constexpr std::string_view cleaned[][2] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  if (cleanup)
    for (const auto& [from, to] : cleaned)
      for (std::size_t at = part.find(from); at != std::string::npos; at = part.find(from, at + to.size()))
        part.replace(at, from.size(), to);
  text += part;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
