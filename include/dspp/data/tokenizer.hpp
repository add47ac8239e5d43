// SPDX-License-Identifier: Apache-2.0
/// Text to tokens and back, by the BPE or the WordPiece of a tokenizer.json.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/added_tokens.hpp>
#include <dspp/data/bpe.hpp>
#include <dspp/data/bpe_model.hpp>
#include <dspp/data/byte_characters.hpp>
#include <dspp/data/fnv.hpp>
#include <dspp/data/normalizer.hpp>
#include <dspp/data/pre_tokenize.hpp>
#include <dspp/data/tokenizer_file.hpp>
#include <dspp/data/vocabulary.hpp>
#include <dspp/data/wordpiece.hpp>
#include <dspp/io/text_file.hpp>

namespace dspp::data {

/// The tokenizer of a tokenizer.json: text is normalized, cut into words and each word made tokens of a fixed
/// vocabulary, after the added tokens in it are found. For valid UTF-8 the ids are those of the `tokenizers` package
/// without its post-processor. Byte-level BPE without a normalizer encodes any bytes, and decode(encode(bytes)) returns
/// them (after a space, if the file has add_prefix_space). Immutable: several threads may use one.
///
/// Memory   some 200 bytes per token and 64 per merge; during reading 32 more per merge, and that of parsing
class Tokenizer {
 public:
  /// The cache and buffers of one encoding thread, reused between texts.
  struct Scratch {
    WordCache words;
    BpeMerger merger;
    std::vector<std::int32_t> word;
    std::string normal, spaced;
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
  /// The tokens' text, special ones included: their bytes, or the words of WordPiece with a space between them, as the
  /// decoder of `tokenizers` writes them. Throws Error(usage) for an id without a token.
  std::string decode(std::span<const std::int32_t> tokens) const;

  /// The tokens that the post-processor puts before and after one text, such as [CLS] and [SEP]; encode adds none.
  const TextTemplate& text_template() const { return template_; }
  /// The largest id plus one.
  Size vocabulary_size() const { return vocabulary_.size(); }
  /// True if the id has a token: ids below the largest may be unused.
  bool is_token(std::int32_t id) const { return vocabulary_.is_token(id); }
  /// The id of a token by its bytes (by how the file writes it, if the tokenizer is no byte-level BPE), or of an added
  /// token by its content.
  std::optional<std::int32_t> id(std::string_view bytes) const;
  /// A hash that differs for tokenizers that can give other tokens (with high probability).
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// True if decode(encode(bytes)) returns any bytes as they are.
  bool is_lossless() const;

 private:
  using Unwritten =
      std::map<std::string, std::int32_t, std::less<>>;  // tokens outside the byte alphabet, as in the file
  Tokenizer(const TokenizerFile& file, const std::string& who);
  void read_vocabulary(const TokenizerFile& file, Unwritten& unwritten);
  std::variant<BpeModel, WordPiece> model_of(const TokenizerFile& file) const;
  /// The id of a token as written in the file.
  std::optional<std::int32_t> written_id(std::string_view token, const Unwritten& unwritten) const;
  /// A token with spaces for the decoder's marks.
  std::string spaced(std::string_view token) const;
  static Size ids_end(const TokenizerFile& file, const std::string& who);
  void read_merges(const TokenizerFile& file, const Unwritten& unwritten);
  void read_added(const TokenizerFile& file, const Unwritten& unwritten);
  bool merges_stop_at_marks(const TokenizerFile& file) const;
  std::uint64_t fingerprint_of(const TokenizerFile& file) const;
  std::size_t block_end(std::string_view text) const;
  template <class Take>
  void encode_words(std::string_view text, bool is_first, Scratch& scratch, Take& take) const;
  std::string_view with_spaces(std::string_view text, bool is_first, std::string& room) const;
  std::size_t end_of_word(std::string_view text, std::size_t begin) const;
  const std::vector<std::int32_t>& encode_word(std::string_view word, Scratch& scratch) const;

  TokenModel kind_;
  Vocabulary vocabulary_;
  std::variant<BpeModel, WordPiece> model_;
  Normalizer normalizer_;
  PreTokenizer words_;
  TokenDecoder decoder_;
  TextTemplate template_;
  AddedTokens first_, second_;  // those matched before the text is normalized, and after
  std::map<std::string, std::int32_t, std::less<>> added_;
  bool cuts_at_marks_ = false;  // a whole text may be encoded in parts, each from marks to the next ones
  std::uint64_t fingerprint_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class Take>
void Tokenizer::encode_each(std::string_view text, Scratch& scratch, Take take) const {
  const auto found = [&](const std::int32_t& token) { take(std::span(&token, 1)); };
  first_.split(text, found, [&](std::string_view piece) {
    while (!piece.empty()) {
      const std::string_view block = piece.substr(0, block_end(piece));
      const std::string_view normal = normalized(normalizer_, block, scratch.normal);
      second_.split(normal, found, [&](std::string_view words) {
        encode_words(words, block.data() == text.data() && words.data() == normal.data(), scratch, take);
      });
      piece.remove_prefix(block.size());
    }
  });
}

/// Encodes a piece of text that is not empty and holds no added token.
template <class Take>
void Tokenizer::encode_words(std::string_view text, bool is_first, Scratch& scratch, Take& take) const {
  text = with_spaces(text, is_first, scratch.spaced);
  const auto take_word = [&](std::size_t begin, std::size_t end) {
    take(std::span<const std::int32_t>(encode_word(text.substr(begin, end - begin), scratch)));
  };
  if (words_.rule == WordRule::bert) {
    for (auto [begin, end] = bert_word(text, 0); begin < end; std::tie(begin, end) = bert_word(text, end))
      take_word(begin, end);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_word(text, begin);
    take_word(begin, end);
    begin = end;
  }
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Tokenizer Tokenizer::read(const std::string& path) {
  return parse(io::read_text_file(path), "the tokenizer '" + path + "'");
}

DSPP_INLINE Tokenizer Tokenizer::parse(std::string_view text, const std::string& who) {
  return Tokenizer(parse_tokenizer_file(text, who), who);
}

DSPP_INLINE Tokenizer::Tokenizer(const TokenizerFile& file, const std::string& who)
    : kind_(file.model),
      vocabulary_(who),
      model_(BpeModel(BpeModel::Begin::bytes, false, 0)),
      normalizer_(file.normalizer),
      words_(file.words),
      decoder_(file.decoder),
      template_(file.text_template) {
  vocabulary_.reserve(file.tokens, ids_end(file, who));
  Unwritten unwritten;
  read_vocabulary(file, unwritten);
  model_ = model_of(file);
  read_merges(file, unwritten);
  if (words_.rule == WordRule::whole && merges_stop_at_marks(file)) cuts_at_marks_ = true;
  read_added(file, unwritten);
  for (const auto* side : {&template_.before, &template_.after})
    for (const std::int32_t id : *side)
      if (!is_token(id))
        detail::refuse_tokenizer(who, "tokens in its post_processor", "id " + std::to_string(id) + " has none");
  fingerprint_ = fingerprint_of(file);
}

/// Places the tokens. Those outside the byte alphabet, which no word gives, are put in `unwritten`.
DSPP_INLINE void Tokenizer::read_vocabulary(const TokenizerFile& file, Unwritten& unwritten) {
  file.for_each_token([&](const std::string& token, std::int32_t id) {
    if (kind_ == TokenModel::byte_bpe) {
      const std::optional<std::string> bytes = read_written_bytes(token);
      vocabulary_.place(bytes ? *bytes : token, id, token);
      if (bytes)
        vocabulary_.add_key(*bytes, id);
      else
        unwritten.emplace(token, id);
      return;
    }
    std::string bytes = token;
    if (kind_ == TokenModel::character_bpe) {
      if (const auto byte = read_fallback_byte(token))
        bytes.assign(1, static_cast<char>(*byte));
      else
        bytes = spaced(token);
    }
    vocabulary_.place(bytes, id, token);
    vocabulary_.add_key(token, id);
  });
}

DSPP_INLINE std::variant<BpeModel, WordPiece> Tokenizer::model_of(const TokenizerFile& file) const {
  if (kind_ == TokenModel::wordpiece) {
    std::size_t longest = 0;
    file.for_each_token([&](const std::string& token, std::int32_t) { longest = std::max(longest, token.size()); });
    return WordPiece(file.wordpiece, vocabulary_, longest);
  }
  const bool of_bytes = kind_ == TokenModel::byte_bpe;
  BpeModel model(of_bytes ? BpeModel::Begin::bytes : BpeModel::Begin::characters, file.ignore_merges, file.merge_count);
  model.find_byte_tokens(vocabulary_, [of_bytes](unsigned char byte) {
    const std::string one(1, static_cast<char>(byte)), name = of_bytes ? written_bytes(one) : fallback_byte(byte);
    return std::pair(of_bytes ? one : name, name);
  });
  return model;
}

/// The largest id of the vocabulary plus one. An id far beyond the number of tokens is an error, since it would waste
/// memory.
DSPP_INLINE Size Tokenizer::ids_end(const TokenizerFile& file, const std::string& who) {
  const Size end = 4 * (file.tokens + std::ssize(file.added)) + 1024;
  Size largest = -1;
  file.for_each_token([&](const std::string& token, std::int32_t id) {
    if (id >= end)
      detail::refuse_tokenizer(who, "ids below " + std::to_string(end) + " for its number of tokens",
                               "that of " + io::json_name(token) + " is " + std::to_string(id));
    largest = std::max<Size>(largest, id);
  });
  return largest + 1 + std::ssize(file.added);
}

DSPP_INLINE std::optional<std::int32_t> Tokenizer::written_id(std::string_view token,
                                                              const Unwritten& unwritten) const {
  if (kind_ != TokenModel::byte_bpe) return vocabulary_.find(token);
  if (const std::optional<std::string> bytes = read_written_bytes(token)) return vocabulary_.find(*bytes);
  const auto at = unwritten.find(token);
  return at == unwritten.end() ? std::nullopt : std::optional(at->second);
}

DSPP_INLINE std::string Tokenizer::spaced(std::string_view token) const {
  std::string bytes;
  ReplacingNormalizer{"", decoder_.mark, " "}(token, bytes);
  return bytes;
}

DSPP_INLINE void Tokenizer::read_merges(const TokenizerFile& file, const Unwritten& unwritten) {
  auto* const model = std::get_if<BpeModel>(&model_);
  if (!model) return;
  std::int32_t rank = 0;
  file.for_each_merge([&](std::string_view left, std::string_view right) {
    const auto name = [&] { return "model.merges[" + std::to_string(rank) + "]"; };
    const auto token = [&](std::string_view wanted) {
      const std::optional<std::int32_t> id = written_id(wanted, unwritten);
      if (!id)
        detail::refuse_tokenizer(vocabulary_.who(), "the tokens of its merges in model.vocab",
                                 io::json_name(wanted) + " of " + name() + " is absent");
      return *id;
    };
    const std::int32_t a = token(left), b = token(right), merged = token(std::string(left).append(right));
    if (!model->add(a, b, merged))
      detail::refuse_tokenizer(vocabulary_.who(), "each merge once", name() + " was there before");
    ++rank;
  });
}

/// Added tokens are numbered as `tokenizers` does, whatever ids the file gives them: one of the vocabulary keeps its
/// id, the others go on from the number of tokens in the vocabulary. A normalized one is decoded as it is found.
DSPP_INLINE void Tokenizer::read_added(const TokenizerFile& file, const Unwritten& unwritten) {
  auto next = static_cast<std::int32_t>(file.tokens);
  for (const AddedToken& token : file.added) {
    const auto quoted = [&] { return io::json_name(token.content); };
    if (added_.contains(token.content))
      detail::refuse_tokenizer(vocabulary_.who(), "each of added_tokens once", quoted() + " is there twice");
    const std::optional<std::int32_t> known = written_id(token.content, unwritten);
    const std::int32_t id = known ? *known : next++;
    std::string room, changed;
    const std::string_view text = token.normalized ? normalized(normalizer_, token.content, room) : token.content;
    if (text != token.content) changed = text;
    const std::string& content = text == token.content ? token.content : changed;
    if (kind_ == TokenModel::character_bpe) room = spaced(content);
    const std::string& bytes = kind_ == TokenModel::character_bpe ? room : content;
    if (known && token.normalized && kind_ != TokenModel::byte_bpe) vocabulary_.rewrite(bytes, id);
    if (!known)
      vocabulary_.place(bytes, id, token.content);
    else if (kind_ == TokenModel::byte_bpe && vocabulary_.bytes(id) != token.content)
      detail::refuse_tokenizer(vocabulary_.who(), "added_tokens that stand for themselves",
                               quoted() + " stands for other bytes in model.vocab");
    added_.emplace(token.content, id);
    if (!content.empty()) (token.normalized ? second_ : first_).add(content, id);
  }
}

/// True if no merge joins what is before a mark, which stands for a space, to the mark: then the tokens of a text are
/// those of its parts from marks to the next ones.
DSPP_INLINE bool Tokenizer::merges_stop_at_marks(const TokenizerFile& file) const {
  const std::string& mark = decoder_.mark;
  bool stop = kind_ == TokenModel::character_bpe && !file.ignore_merges && mark != " " && !mark.empty();
  file.for_each_merge([&](std::string_view left, std::string_view right) {
    std::string_view behind = left;
    while (behind.starts_with(mark)) behind.remove_prefix(mark.size());
    stop = stop && (behind.empty() || !right.starts_with(mark)) && behind.find(mark) == std::string_view::npos;
  });
  return stop;
}

/// Tokenizers of bytes without a normalizer have the fingerprint that they had before there were others.
DSPP_INLINE std::uint64_t Tokenizer::fingerprint_of(const TokenizerFile& file) const {
  Fnv1a sum;
  const auto flag = [&](bool is, const char* yes) { sum.add(is ? yes : "-"); };
  for (std::int32_t id = 0; id < vocabulary_.size(); ++id) sum.add(vocabulary_.bytes(id)).add("\xff");
  if (kind_ != TokenModel::wordpiece)
    file.for_each_merge(
        [&](std::string_view left, std::string_view right) { sum.add(left).add(" ").add(right).add(" "); });
  for (const AddedToken& token : file.added)
    sum.add(token.content)
        .add("\xff")
        .add(token.normalized ? "a" : "b")
        .add(std::to_string(added_.find(token.content)->second))
        .add("\xff");
  const bool of_bytes = kind_ == TokenModel::byte_bpe, is_gpt2 = words_.rule == WordRule::gpt2;
  flag(of_bytes && words_.added != PreTokenizer::Added::never, "p");
  flag(is_gpt2, "r"), flag(file.ignore_merges, "m");
  if (of_bytes && std::holds_alternative<NoNormalizer>(normalizer_) && (is_gpt2 || words_.rule == WordRule::whole))
    return sum.value();
  if (kind_ == TokenModel::character_bpe)  // whose tokens can stand for the same bytes
    file.for_each_token([&](const std::string& token, std::int32_t id) {
      if (token != vocabulary_.bytes(id)) sum.add(token).add("\xff").add(std::to_string(id)).add("\xff");
    });
  sum.add(std::to_string(static_cast<int>(kind_))).add(std::to_string(static_cast<int>(words_.rule)));
  sum.add(std::to_string(static_cast<int>(words_.added))).add(words_.mark).add("\xff");
  sum.add(std::to_string(normalizer_.index()));
  if (const auto* bert = std::get_if<BertNormalizer>(&normalizer_))
    for (const bool is : {bert->clean_text, bert->chinese_characters, bert->strip_accents, bert->lower_case})
      flag(is, "y");
  if (const auto* replacing = std::get_if<ReplacingNormalizer>(&normalizer_))
    for (const std::string* text : {&replacing->prepended, &replacing->replaced, &replacing->by})
      sum.add(*text).add("\xff");
  const WordPieceConfig& wordpiece = file.wordpiece;
  if (kind_ == TokenModel::wordpiece)
    sum.add(wordpiece.unknown)
        .add("\xff")
        .add(wordpiece.prefix)
        .add("\xff")
        .add(std::to_string(wordpiece.most_characters));
  return sum.value();
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

/// Where a long text may be cut before it is normalized: between a line end after a visible ASCII character and an
/// ASCII letter, where a word ends by every rule, and no character joins another. (Of several line ends GPT-2's rule
/// takes the last one by itself, since a letter follows.)
DSPP_INLINE std::size_t Tokenizer::block_end(std::string_view text) const {
  constexpr std::size_t block = 1 << 16;
  const bool cuts =
      std::holds_alternative<NfcNormalizer>(normalizer_) || std::holds_alternative<BertNormalizer>(normalizer_);
  const bool by_words = words_.rule != WordRule::whole && words_.added == PreTokenizer::Added::never;
  if (!cuts || !by_words || !second_.empty()) return text.size();
  for (std::size_t end = block; end < text.size(); ++end)
    if (text[end - 1] == '\n' && static_cast<unsigned char>(text[end - 2] - '!') < 94 &&
        static_cast<unsigned char>((text[end] | 0x20) - 'a') < 26)
      return end;
  return text.size();
}

/// The text with its spaces as marks and one added in front, if the pre-tokenizer does so.
DSPP_INLINE std::string_view Tokenizer::with_spaces(std::string_view text, bool is_first, std::string& room) const {
  const bool marks = words_.mark != " ";
  const bool adds =
      words_.added == PreTokenizer::Added::to_all || (words_.added == PreTokenizer::Added::to_first && is_first);
  const bool has_one = text[0] == ' ' || text.starts_with(words_.mark);
  if (!marks && (!adds || has_one)) return text;
  room.clear();
  ReplacingNormalizer{adds && !has_one ? words_.mark : "", marks ? " " : "", words_.mark}(text, room);
  return room;
}

DSPP_INLINE std::size_t Tokenizer::end_of_word(std::string_view text, std::size_t begin) const {
  switch (words_.rule) {
    case WordRule::gpt2: return word_end(text, begin);
    case WordRule::three_digits: return llama_word_end(text, begin, 3);
    case WordRule::one_digit: return llama_word_end(text, begin, 1);
    case WordRule::marked: return marked_word_end(text, begin, words_.mark);
    default: break;
  }
  if (!cuts_at_marks_) return text.size();
  std::size_t end = begin;
  while (text.substr(end).starts_with(decoder_.mark)) end += decoder_.mark.size();
  return std::min(text.find(decoder_.mark, end), text.size());
}

/// The word's tokens, valid until the next word.
DSPP_INLINE const std::vector<std::int32_t>& Tokenizer::encode_word(std::string_view word, Scratch& scratch) const {
  if (const auto* known = scratch.words.find(word)) return *known;
  scratch.word.clear();
  if (const auto* bpe = std::get_if<BpeModel>(&model_))
    (*bpe)(word, vocabulary_, scratch.merger, scratch.word);
  else
    std::get<WordPiece>(model_)(word, vocabulary_, scratch.word);
  scratch.words.keep(word, scratch.word);
  return scratch.word;
}

DSPP_INLINE std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!is_token(tokens[i]))
      fail(ErrorCode::usage, "dspp: decode needs ids of the tokenizer's " + std::to_string(vocabulary_.size()) +
                                 " tokens, but got " + std::to_string(tokens[i]) +
                                 ". Are they another tokenizer's, or a model's with a larger vocabulary?");
    if (decoder_.kind == TokenDecoder::Kind::wordpiece)
      append_wordpiece(vocabulary_.bytes(tokens[i]), decoder_.prefix, decoder_.cleanup, i == 0, text);
    else
      text += vocabulary_.bytes(tokens[i]);
  }
  if (decoder_.strip_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

DSPP_INLINE std::optional<std::int32_t> Tokenizer::id(std::string_view bytes) const {
  const auto added = added_.find(bytes);
  return added != added_.end() ? added->second : vocabulary_.find(bytes);
}

DSPP_INLINE bool Tokenizer::is_lossless() const {
  return kind_ == TokenModel::byte_bpe && std::holds_alternative<NoNormalizer>(normalizer_) &&
         words_.added == PreTokenizer::Added::never;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
