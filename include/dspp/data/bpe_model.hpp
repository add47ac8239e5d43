// SPDX-License-Identifier: Apache-2.0
/// Words to tokens by byte-pair encoding: of bytes, as in GPT-2, or of characters, as in Llama 2.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/base/printable.hpp>
#include <dspp/data/bpe.hpp>
#include <dspp/data/vocabulary.hpp>

namespace dspp::data {

/// The first tokens of a word are its bytes, or its characters, and the bytes of a character that is no token; then
/// pairs merge.
class BpeModel {
 public:
  enum class Begin { bytes, characters };

  BpeModel(Begin begin, bool ignore_merges, Size merges)
      : merges_(merges), begin_(begin), ignore_merges_(ignore_merges) {}

  /// Throws Error(file) if a byte has no token; `written(byte)` is how the file writes it.
  template <class Written>
  void find_byte_tokens(const Vocabulary& vocabulary, Written written);
  /// Adds the merge of the next rank; false if the pair has one.
  bool add(std::int32_t left, std::int32_t right, std::int32_t merged) {
    return merges_.add(left, right, {rank_++, merged});
  }
  /// Replaces `tokens` by the word's.
  void operator()(std::string_view word, const Vocabulary& vocabulary, BpeMerger& merger,
                  std::vector<std::int32_t>& tokens) const;

 private:
  std::array<std::int32_t, 256> byte_tokens_{};
  BpeMerges merges_;
  std::int32_t rank_ = 0;
  Begin begin_;
  bool ignore_merges_;
};

/// How a vocabulary with byte_fallback writes a byte: <0x0A>.
std::string fallback_byte(unsigned char byte);
/// The byte that such a token stands for.
std::optional<unsigned char> read_fallback_byte(std::string_view token);

// ---------------------------------------------------------------------------------------------------------------------

template <class Written>
void BpeModel::find_byte_tokens(const Vocabulary& vocabulary, Written written) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto [key, name] = written(static_cast<unsigned char>(byte));
    const std::optional<std::int32_t> id = vocabulary.find(key);
    if (!id)
      detail::refuse_tokenizer(vocabulary.who(), "a token for each byte in model.vocab",
                               io::json_name(name) + ", which stands for byte " + std::to_string(byte) + ", is absent");
    byte_tokens_[byte] = *id;
  }
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void BpeModel::operator()(std::string_view word, const Vocabulary& vocabulary, BpeMerger& merger,
                                      std::vector<std::int32_t>& tokens) const {
  tokens.clear();
  if (const auto whole = ignore_merges_ ? vocabulary.find(word) : std::nullopt) {
    tokens.push_back(*whole);
    return;
  }
  const auto add_bytes = [&](std::string_view bytes) {
    for (const char c : bytes) tokens.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
  };
  if (begin_ == Begin::bytes) {
    add_bytes(word);
  } else {
    for (std::size_t at = 0; at < word.size();) {
      const std::string_view character = word.substr(at, dspp::detail::first_character(word.substr(at)).bytes);
      if (const auto id = vocabulary.find(character))
        tokens.push_back(*id);
      else
        add_bytes(character);
      at += character.size();
    }
  }
  merger(merges_, tokens);
}

DSPP_INLINE std::string fallback_byte(unsigned char byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">";
}

DSPP_INLINE std::optional<unsigned char> read_fallback_byte(std::string_view token) {
  const auto digit = [&](std::size_t at) {
    const char c = token[at];
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>' || digit(3) < 0 || digit(4) < 0) return {};
  return static_cast<unsigned char>(16 * digit(3) + digit(4));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
