// SPDX-License-Identifier: Apache-2.0
/// Parses a tokenizer.json of BPE or WordPiece as Hugging Face writes it, or throws an error that names what is not
/// supported.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/tokenizer_parts.hpp>
#include <dspp/data/wordpiece.hpp>
#include <dspp/io/json.hpp>

namespace dspp::data {

/// A token that is matched before the text is cut into words.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool normalized = false;  ///< matched after those that are not
};

/// What makes tokens of words: BPE of bytes in the alphabet of byte_character, BPE of characters with a token for each
/// byte, or WordPiece.
enum class TokenModel { byte_bpe, character_bpe, wordpiece };

/// The contents of a tokenizer.json. Vocabulary and merges are read from the text, which must outlive this.
struct TokenizerFile {
  TokenModel model = TokenModel::byte_bpe;
  io::Json vocabulary, merges;
  Size tokens = 0, merge_count = 0;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer words;
  TokenDecoder decoder;
  TextTemplate text_template;
  WordPieceConfig wordpiece;
  bool ignore_merges = false;  ///< a word that is a token is not merged

  /// Calls f(token, id) for the whole vocabulary.
  template <class F>
  void for_each_token(F f) const;
  /// Calls f(left, right) for all merges in the order of their ranks.
  template <class F>
  void for_each_merge(F f) const;
};

/// Reads the text of a tokenizer.json. Supported:
///   BPE, merges as "a b" or ["a", "b"], with the pre-tokenizer and the decoder ByteLevel, the pattern of GPT-2,
///     Llama 3 or Qwen 2, and the normalizer NFC or none; or with byte_fallback, Metaspace or Prepend and Replace, as
///     Llama 2's
///   WordPiece with BertPreTokenizer, and BertNormalizer or no normalizer
///   the post-processors ByteLevel, TemplateProcessing, BertProcessing and RobertaProcessing of one text, or none
///   added tokens without lstrip, rstrip and single_word
/// `who` begins the error's sentence: "the tokenizer 'tokenizer.json'".
///
/// Memory   of parse_json, then 40 bytes and the string of each added token, and one token or merge at a time
/// Throws   Error(file) for what is malformed or not supported, naming the field
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& who);
template <std::same_as<std::string> Temporary>
TokenizerFile parse_tokenizer_file(Temporary&& text, const std::string& who) = delete;

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Calls f(left, right) for "a b" or ["a", "b"]; false if it is neither.
template <class F>
bool halves_of_merge(const io::Json& merge, F f) {
  if (merge.is(io::Json::Kind::array)) {
    std::array<std::string, 2> halves;
    std::size_t count = 0;
    for (const io::Json& half : merge.items()) {
      if (count == 2 || !half.is(io::Json::Kind::string) || half.string.empty()) return false;
      halves[count++] = half.string;
    }
    if (count == 2) f(std::string_view(halves[0]), std::string_view(halves[1]));
    return count == 2;
  }
  const std::string_view both = merge.string;
  const std::size_t space = both.find(' ');
  const bool two = space != std::string_view::npos && space > 0 && space + 1 < both.size() &&
                   both.find(' ', space + 1) == std::string_view::npos;
  if (two) f(both.substr(0, space), both.substr(space + 1));
  return two;
}

class TokenizerFileReader : TokenizerPartsReader {
 public:
  using TokenizerPartsReader::TokenizerPartsReader;

  TokenizerFile read(const io::Json& root) const;

 private:
  void read_model(const io::Json& model, TokenizerFile& file) const;
  void read_kind(const io::Json& model, TokenizerFile& file) const;
  void read_vocabulary(const io::Json& model, TokenizerFile& file) const;
  void read_merges(const io::Json& model, TokenizerFile& file) const;
  void check_parts(const io::Json& root, const TokenizerFile& file) const;
  void read_added(const io::Json& list, TokenizerFile& file) const;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TokenizerFile TokenizerFileReader::read(const io::Json& root) const {
  TokenizerFile file;
  if (!root.is(io::Json::Kind::object)) refuse("an object", "it is " + in_words(root));
  for (const char* absent : {"truncation", "padding"}) require_absent(root, absent);
  file.normalizer = normalizer(root), file.text_template = text_template(root);
  file.decoder = decoder(root), file.words = pre_tokenizer(root);
  const std::optional<io::Json> model = root.find("model");
  if (!model || !model->is(io::Json::Kind::object)) refuse("an object `model`", "it is " + in_words(model));
  read_kind(*model, file);
  check_parts(root, file);
  read_model(*model, file);
  if (const std::optional<io::Json> added = root.find("added_tokens"); is_given(added)) read_added(*added, file);
  return file;
}

DSPP_INLINE void TokenizerFileReader::read_kind(const io::Json& model, TokenizerFile& file) const {
  const std::optional<io::Json> type = model.find("type");  // older files have none
  const bool is_wordpiece =
      is_given(type) ? type_of(model) == "WordPiece" : !model.find("merges") && model.find("max_input_chars_per_word");
  if (!is_wordpiece && is_given(type) && type_of(model) != "BPE")
    refuse("model.type BPE or WordPiece", "it is " + in_words(type));
  const bool fallback = !is_wordpiece && truth(model, "model.byte_fallback", false);
  file.model = is_wordpiece ? TokenModel::wordpiece : fallback ? TokenModel::character_bpe : TokenModel::byte_bpe;
}

/// The parts must be those of the model.
DSPP_INLINE void TokenizerFileReader::check_parts(const io::Json& root, const TokenizerFile& file) const {
  const std::string of = file.model == TokenModel::wordpiece       ? " for a WordPiece model"
                         : file.model == TokenModel::character_bpe ? " for a model with byte_fallback"
                                                                   : " for a BPE model without byte_fallback";
  const std::optional<io::Json> words = root.find("pre_tokenizer"), decoder = root.find("decoder");
  const std::string decodes = is_given(decoder) ? type_of(*decoder) : std::string();
  const bool no_normalizer = std::holds_alternative<NoNormalizer>(file.normalizer);
  const auto check = [&](bool agrees, const std::string& needs, const char* part) {
    if (!agrees) refuse(needs + of, found(root.find(part)));
  };
  if (file.model == TokenModel::byte_bpe) {
    check(no_normalizer || std::holds_alternative<NfcNormalizer>(file.normalizer), "normalizer NFC or null",
          "normalizer");
    check(is_type(words, "ByteLevel") || is_type(words, "Sequence"), "pre_tokenizer ByteLevel", "pre_tokenizer");
    check(decodes == "ByteLevel", "decoder ByteLevel", "decoder");
  } else if (file.model == TokenModel::character_bpe) {
    check(no_normalizer || std::holds_alternative<ReplacingNormalizer>(file.normalizer),
          "normalizer Prepend and Replace, or null", "normalizer");
    check(!is_given(words) || is_type(words, "Metaspace"), "pre_tokenizer Metaspace or null", "pre_tokenizer");
    check(decodes == "Sequence", "decoder Replace, ByteFallback, Fuse and Strip", "decoder");
  } else {
    check(no_normalizer || std::holds_alternative<BertNormalizer>(file.normalizer), "normalizer BertNormalizer or null",
          "normalizer");
    check(is_type(words, "BertPreTokenizer"), "pre_tokenizer BertPreTokenizer", "pre_tokenizer");
    check(decodes == "WordPiece", "decoder WordPiece", "decoder");
  }
}

DSPP_INLINE void TokenizerFileReader::read_model(const io::Json& model, TokenizerFile& file) const {
  if (file.model == TokenModel::wordpiece) {
    const std::optional<io::Json> most = model.find("max_input_chars_per_word");
    if (!most || !most->is(io::Json::Kind::integer) || most->integer < 0)
      refuse("a number model.max_input_chars_per_word", "it is " + in_words(most));
    file.wordpiece = {string(model, "model.unk_token"), string(model, "model.continuing_subword_prefix"),
                      most->integer};
    return read_vocabulary(model, file);
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<io::Json> value = model.find(name);
    if (is_given(value) && !(value->is(io::Json::Kind::string) && value->string.empty()))
      refuse("model." + std::string(name) + " empty", "it is " + in_words(value));
  }
  const std::optional<io::Json> dropout = model.find("dropout");
  const bool numeric = dropout && (dropout->is(io::Json::Kind::real) || dropout->is(io::Json::Kind::integer));
  if (is_given(dropout) && !(numeric && dropout->real == 0.0))
    refuse("model.dropout null", "it is " + in_words(dropout));
  file.ignore_merges = truth(model, "model.ignore_merges", false);
  read_vocabulary(model, file);
  read_merges(model, file);
}

DSPP_INLINE void TokenizerFileReader::read_vocabulary(const io::Json& model, TokenizerFile& file) const {
  const std::optional<io::Json> vocabulary = model.find("vocab");
  if (!vocabulary || !vocabulary->is(io::Json::Kind::object))
    refuse("an object model.vocab", "it is " + in_words(vocabulary));
  for (const io::Json& id : vocabulary->items()) check_id(id, id.key), ++file.tokens;
  file.vocabulary = *vocabulary;
}

DSPP_INLINE void TokenizerFileReader::read_merges(const io::Json& model, TokenizerFile& file) const {
  const std::optional<io::Json> merges = model.find("merges");
  if (!merges || !merges->is(io::Json::Kind::array)) refuse("a list model.merges", "it is " + in_words(merges));
  for (const io::Json& merge : merges->items())
    if (!halves_of_merge(merge, [](std::string_view, std::string_view) {}))
      refuse("merges of two tokens, \"a b\" or [\"a\", \"b\"]",
             "model.merges[" + std::to_string(file.merge_count) + "] is " + in_words(merge));
    else
      ++file.merge_count;
  file.merges = *merges;
}

DSPP_INLINE void TokenizerFileReader::read_added(const io::Json& list, TokenizerFile& file) const {
  if (!list.is(io::Json::Kind::array)) refuse("a list added_tokens", "it is " + in_words(list));
  file.added.reserve(static_cast<std::size_t>(list.count()));
  for (const io::Json& item : list.items()) {
    const std::optional<io::Json> content = item.find("content"), id = item.find("id");
    if (!content || !content->is(io::Json::Kind::string) || content->string.empty() || !id)
      refuse("added_tokens with content and id", "one has none");
    for (const char* name : {"single_word", "lstrip", "rstrip"})
      if (truth(item, name, false))
        refuse("added_tokens without " + std::string(name), io::json_name(content->string) + " has it");
    check_id(*id, content->string);
    file.added.push_back({content->string, static_cast<std::int32_t>(id->integer), truth(item, "normalized", true)});
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

template <class F>
void TokenizerFile::for_each_token(F f) const {
  for (const io::Json& id : vocabulary.items()) f(id.key, static_cast<std::int32_t>(id.integer));
}

template <class F>
void TokenizerFile::for_each_merge(F f) const {
  for (const io::Json& merge : merges.items()) detail::halves_of_merge(merge, f);
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& who) {
  return detail::TokenizerFileReader(who).read(io::parse_json(text, who));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
