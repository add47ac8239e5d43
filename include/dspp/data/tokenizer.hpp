// SPDX-License-Identifier: Apache-2.0
/// Text to tokens and back, by the byte-level BPE of a tokenizer.json.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/added_tokens.hpp>
#include <dspp/data/bpe.hpp>
#include <dspp/data/byte_characters.hpp>
#include <dspp/data/fnv.hpp>
#include <dspp/data/pre_tokenize.hpp>
#include <dspp/data/tokenizer_file.hpp>
#include <dspp/io/text_file.hpp>

namespace dspp::data {

/// Byte-level BPE with a fixed vocabulary. Any bytes can be encoded, and decode(encode(bytes)) returns them (after a
/// space, if the file has add_prefix_space); for valid UTF-8 the ids are those of the `tokenizers` package without its
/// post-processor. Immutable: several threads may use one.
///
/// Memory   some 200 bytes per token and 64 per merge; during reading 32 more per merge, and that of parsing
class Tokenizer {
 public:
  /// The cache and buffers of one encoding thread, reused between texts.
  struct Scratch {
    WordCache words;
    BpeMerger merger;
    std::vector<std::int32_t> word;
  };

  /// Reads a tokenizer.json.
  ///
  /// Throws   Error(file) if it is malformed, contradictory or not supported, naming the field
  static Tokenizer read(const std::string& path);
  /// The same from its text; `who` begins the error's sentence.
  static Tokenizer parse(std::string_view text, const std::string& who);
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Appends the text's tokens. A reused scratch caches the words of earlier texts.
  void encode(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& tokens) const;
  /// Calls take(std::span<const std::int32_t>) for the text's tokens in pieces, so that they are not all in memory.
  template <class Take>
  void encode_each(std::string_view text, Scratch& scratch, Take take) const;
  /// The tokens' bytes, special ones included. Throws Error(usage) for an id without a token.
  std::string decode(std::span<const std::int32_t> tokens) const;

  /// The largest id plus one.
  Size vocabulary_size() const { return std::ssize(bytes_); }
  /// True if the id has a token: ids below the largest may be unused.
  bool is_token(std::int32_t id) const {
    return id >= 0 && id < vocabulary_size() && is_token_[static_cast<std::size_t>(id)];
  }
  /// The id of a token by its bytes, or of an added token by its content.
  std::optional<std::int32_t> id(std::string_view bytes) const;
  /// A hash that differs for tokenizers that can give other tokens (with high probability).
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Tokenizer(const TokenizerFile& file, const std::string& who);
  using Unwritten =
      std::map<std::string, std::int32_t, std::less<>>;  // tokens outside the byte alphabet, as in the file
  /// The id of a token as written in the file.
  std::optional<std::int32_t> written_id(std::string_view token, const Unwritten& unwritten) const;
  static Size ids_end(const TokenizerFile& file, const std::string& who);
  void find_byte_tokens(const std::string& who);
  void read_merges(const TokenizerFile& file, const Unwritten& unwritten, const std::string& who);
  void read_added(const TokenizerFile& file, const Unwritten& unwritten, const std::string& who);
  void place(const std::string& bytes, std::int32_t id, const std::string& written, const std::string& who);
  std::optional<std::int32_t> vocabulary_id(std::string_view bytes) const;
  template <class Take>
  void encode_words(std::string_view text, Scratch& scratch, Take& take) const;
  const std::vector<std::int32_t>& encode_word(std::string_view word, Scratch& scratch) const;

  std::vector<std::string> bytes_;                     // by id
  std::vector<bool> is_token_;                         // an id may be unused
  std::unordered_map<std::string, std::int32_t> ids_;  // of the vocabulary, by bytes
  std::array<std::int32_t, 256> byte_tokens_{};
  BpeMerges merges_;
  AddedTokens first_, second_;  // those matched first, and the normalized ones after them
  bool add_prefix_space_ = false, use_regex_ = true, ignore_merges_ = false;
  std::uint64_t fingerprint_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
[[noreturn]] void refuse_tokenizer(const std::string& who, const std::string& needs, const std::string& got);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_tokenizer(const std::string& who, const std::string& needs, const std::string& got) {
  fail(ErrorCode::file, "dspp: " + who + " needs " + needs + ", but " + got + ". Write the file again.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

/// The largest id plus one. An id far beyond the number of tokens is an error, since it would waste memory.

/// Assigns the id to the token.

template <class Take>
void Tokenizer::encode_each(std::string_view text, Scratch& scratch, Take take) const {
  const auto found = [&](const std::int32_t& token) { take(std::span(&token, 1)); };
  first_.split(text, found, [&](std::string_view piece) {
    second_.split(piece, found, [&](std::string_view words) { encode_words(words, scratch, take); });
  });
}

/// Encodes a piece of text that is not empty and holds no added token.
template <class Take>
void Tokenizer::encode_words(std::string_view text, Scratch& scratch, Take& take) const {
  std::string spaced;
  if (add_prefix_space_ && text[0] != ' ') {
    spaced.reserve(text.size() + 1);
    spaced.append(1, ' ').append(text);
    text = spaced;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = use_regex_ ? word_end(text, begin) : text.size();
    take(std::span<const std::int32_t>(encode_word(text.substr(begin, end - begin), scratch)));
    begin = end;
  }
}

/// The word's tokens, valid until the next word.

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Tokenizer Tokenizer::read(const std::string& path) {
  return parse(io::read_text_file(path), "the tokenizer '" + path + "'");
}

DSPP_INLINE Tokenizer Tokenizer::parse(std::string_view text, const std::string& who) {
  return Tokenizer(parse_tokenizer_file(text, who), who);
}

DSPP_INLINE Tokenizer::Tokenizer(const TokenizerFile& file, const std::string& who)
    : merges_(file.merge_count),
      add_prefix_space_(file.add_prefix_space),
      use_regex_(file.use_regex),
      ignore_merges_(file.ignore_merges) {
  const auto end = static_cast<std::size_t>(ids_end(file, who));
  bytes_.reserve(end), is_token_.reserve(end), ids_.reserve(static_cast<std::size_t>(file.tokens));
  Unwritten unwritten;
  file.for_each_token([&](const std::string& token, std::int32_t id) {
    const std::optional<std::string> bytes = read_written_bytes(token);
    place(bytes ? *bytes : token, id, token, who);
    if (bytes)
      ids_.emplace(*bytes, id);
    else
      unwritten.emplace(token, id);
  });
  find_byte_tokens(who);
  read_merges(file, unwritten, who);
  read_added(file, unwritten, who);
  Fnv1a sum;
  for (const std::string& bytes : bytes_) sum.add(bytes).add("\xff");
  file.for_each_merge(
      [&](std::string_view left, std::string_view right) { sum.add(left).add(" ").add(right).add(" "); });
  for (const AddedToken& token : file.added)
    sum.add(token.content)
        .add(token.normalized ? "\xff"
                                "a"
                              : "\xff"
                                "b")
        .add(std::to_string(token.id))
        .add("\xff");
  sum.add(add_prefix_space_ ? "p" : "-").add(use_regex_ ? "r" : "-").add(ignore_merges_ ? "m" : "-");
  fingerprint_ = sum.value();
}

DSPP_INLINE Size Tokenizer::ids_end(const TokenizerFile& file, const std::string& who) {
  const Size end = 4 * (file.tokens + std::ssize(file.added)) + 1024;
  Size largest = -1;
  const auto check = [&](const std::string& token, std::int32_t id) {
    if (id >= end)
      detail::refuse_tokenizer(who, "ids below " + std::to_string(end) + " for its number of tokens",
                               "that of " + io::json_name(token) + " is " + std::to_string(id));
    largest = std::max<Size>(largest, id);
  };
  file.for_each_token(check);
  for (const AddedToken& token : file.added) check(token.content, token.id);
  return largest + 1;
}

DSPP_INLINE void Tokenizer::place(const std::string& bytes, std::int32_t id, const std::string& written,
                                  const std::string& who) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= bytes_.size()) bytes_.resize(at + 1), is_token_.resize(at + 1);
  if (is_token_[at])
    detail::refuse_tokenizer(who, "one token for each id",
                             std::to_string(id) + " is that of " + io::json_name(written) + " and of another");
  bytes_[at] = bytes, is_token_[at] = true;
}

DSPP_INLINE std::optional<std::int32_t> Tokenizer::written_id(std::string_view token,
                                                              const Unwritten& unwritten) const {
  if (const std::optional<std::string> bytes = read_written_bytes(token)) return vocabulary_id(*bytes);
  const auto at = unwritten.find(token);
  return at == unwritten.end() ? std::nullopt : std::optional(at->second);
}

DSPP_INLINE void Tokenizer::find_byte_tokens(const std::string& who) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(static_cast<unsigned char>(byte)));
    const std::optional<std::int32_t> id = vocabulary_id(one);
    if (!id)
      detail::refuse_tokenizer(
          who, "a token for each byte in model.vocab",
          io::json_name(written_bytes(one)) + ", which stands for byte " + std::to_string(byte) + ", is absent");
    byte_tokens_[byte] = *id;
  }
}

DSPP_INLINE void Tokenizer::read_merges(const TokenizerFile& file, const Unwritten& unwritten, const std::string& who) {
  std::int32_t rank = 0;
  file.for_each_merge([&](std::string_view left, std::string_view right) {
    const auto name = [&] { return "model.merges[" + std::to_string(rank) + "]"; };
    const auto token = [&](std::string_view wanted) {
      const std::optional<std::int32_t> id = written_id(wanted, unwritten);
      if (!id)
        detail::refuse_tokenizer(who, "the tokens of its merges in model.vocab",
                                 io::json_name(wanted) + " of " + name() + " is absent");
      return *id;
    };
    const std::int32_t a = token(left), b = token(right), merged = token(std::string(left).append(right));
    if (!merges_.add(a, b, {rank, merged}))
      detail::refuse_tokenizer(who, "each merge once", name() + " was there before");
    ++rank;
  });
}

DSPP_INLINE void Tokenizer::read_added(const TokenizerFile& file, const Unwritten& unwritten, const std::string& who) {
  for (const AddedToken& token : file.added) {
    const std::optional<std::int32_t> known = written_id(token.content, unwritten);
    const std::string quoted = io::json_name(token.content);
    if (!known)
      place(token.content, token.id, token.content, who);
    else if (*known != token.id)
      detail::refuse_tokenizer(who, "one id for each token",
                               quoted + " has " + std::to_string(*known) + " in model.vocab and " +
                                   std::to_string(token.id) + " in added_tokens");
    else if (bytes_[static_cast<std::size_t>(token.id)] != token.content)
      detail::refuse_tokenizer(who, "added_tokens that stand for themselves",
                               quoted + " stands for other bytes in model.vocab");
    if (first_.find(token.content) || second_.find(token.content))
      detail::refuse_tokenizer(who, "each of added_tokens once", quoted + " is there twice");
    (token.normalized ? second_ : first_).add(token.content, token.id);
  }
}

DSPP_INLINE std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  Scratch scratch;
  std::vector<std::int32_t> tokens;
  encode(text, scratch, tokens);
  return tokens;
}

DSPP_INLINE void Tokenizer::encode(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& tokens) const {
  encode_each(text, scratch,
              [&](std::span<const std::int32_t> some) { tokens.insert(tokens.end(), some.begin(), some.end()); });
}

DSPP_INLINE const std::vector<std::int32_t>& Tokenizer::encode_word(std::string_view word, Scratch& scratch) const {
  if (const auto* known = scratch.words.find(word)) return *known;
  std::vector<std::int32_t>& tokens = scratch.word;
  tokens.clear();
  const auto whole = ignore_merges_ ? vocabulary_id(word) : std::nullopt;
  if (whole) {
    tokens.push_back(*whole);
  } else {
    for (const char c : word) tokens.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
    scratch.merger(merges_, tokens);
  }
  scratch.words.keep(word, tokens);
  return tokens;
}

DSPP_INLINE std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (!is_token(token))
      fail(ErrorCode::usage, "dspp: decode needs ids of the tokenizer's " + std::to_string(bytes_.size()) +
                                 " tokens, but got " + std::to_string(token) +
                                 ". Are they another tokenizer's, or a model's with a larger vocabulary?");
    text += bytes_[static_cast<std::size_t>(token)];
  }
  return text;
}

DSPP_INLINE std::optional<std::int32_t> Tokenizer::id(std::string_view bytes) const {
  for (const AddedTokens* added : {&first_, &second_})
    if (const auto found = added->find(bytes)) return found;
  return vocabulary_id(bytes);
}

DSPP_INLINE std::optional<std::int32_t> Tokenizer::vocabulary_id(std::string_view bytes) const {
  const auto at = ids_.find(std::string(bytes));
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
