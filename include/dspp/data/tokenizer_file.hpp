// SPDX-License-Identifier: Apache-2.0
/// Parses a tokenizer.json of byte-level BPE as Hugging Face writes it, or throws an error that names what is not
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
#include <dspp/io/json.hpp>

namespace dspp::data {

/// A token that is matched before the text is cut into words.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool normalized = false;  ///< matched after those that are not
};

/// The contents of a tokenizer.json. Tokens are in the alphabet of byte_character. Vocabulary and merges are read from
/// the text, which must outlive this.
struct TokenizerFile {
  io::Json vocabulary, merges;
  Size tokens = 0, merge_count = 0;
  std::vector<AddedToken> added;
  bool add_prefix_space = false;  ///< adds a space to every piece of text that begins without one
  bool use_regex = true;          ///< text is cut into words
  bool ignore_merges = false;     ///< a word that is a token is not merged

  /// Calls f(token, id) for the whole vocabulary.
  template <class F>
  void for_each_token(F f) const;
  /// Calls f(left, right) for all merges in the order of their ranks.
  template <class F>
  void for_each_merge(F f) const;
};

/// Reads the text of a tokenizer.json. Supported: the model BPE, merges as "a b" or ["a", "b"]; the pre-tokenizer and
/// the decoder ByteLevel; no normalizer; the post-processor ByteLevel or none; added tokens without lstrip, rstrip and
/// single_word. `who` begins the error's sentence: "the tokenizer 'tokenizer.json'".
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

class TokenizerFileReader {
 public:
  explicit TokenizerFileReader(const std::string& who) : who_(who) {}

  TokenizerFile read(const io::Json& root) const;

 private:
  [[noreturn]] void refuse(const std::string& needs, const std::string& got) const;

  static bool is_given(const std::optional<io::Json>& value) { return value && !value->is(io::Json::Kind::null); }

  static std::string in_words(const std::optional<io::Json>& value) { return value ? in_words(*value) : "absent"; }
  static std::string in_words(const io::Json& value);
  static std::string type_of(const io::Json& value);
  static std::string found(const std::optional<io::Json>& value);
  void require_absent(const io::Json& object, const char* name) const;

  /// The member named by a dotted name's last word.
  bool truth(const io::Json& object, const std::string& name, std::optional<bool> otherwise) const;
  void check_id(const io::Json& value, const std::string& token) const;
  static std::string number_in_words(const io::Json& value);
  void read_model(const io::Json& model, TokenizerFile& file) const;
  void read_added(const io::Json& list, TokenizerFile& file) const;

  const std::string& who_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TokenizerFile TokenizerFileReader::read(const io::Json& root) const {
  TokenizerFile file;
  if (!root.is(io::Json::Kind::object)) refuse("an object", "it is " + in_words(root));
  for (const char* absent : {"normalizer", "truncation", "padding"}) require_absent(root, absent);
  const std::optional<io::Json> post = root.find("post_processor");
  if (is_given(post) && type_of(*post) != "ByteLevel") refuse("post_processor ByteLevel or null", found(post));
  const std::optional<io::Json> decoder = root.find("decoder");
  if (!is_given(decoder) || type_of(*decoder) != "ByteLevel") refuse("decoder ByteLevel", found(decoder));
  const std::optional<io::Json> words = root.find("pre_tokenizer");
  if (!is_given(words) || type_of(*words) != "ByteLevel") refuse("pre_tokenizer ByteLevel", found(words));
  file.add_prefix_space = truth(*words, "pre_tokenizer.add_prefix_space", {});
  file.use_regex = truth(*words, "pre_tokenizer.use_regex", true);
  const std::optional<io::Json> model = root.find("model");
  if (!model || !model->is(io::Json::Kind::object)) refuse("an object `model`", "it is " + in_words(model));
  read_model(*model, file);
  if (const std::optional<io::Json> added = root.find("added_tokens"); is_given(added)) read_added(*added, file);
  return file;
}

DSPP_INLINE void TokenizerFileReader::refuse(const std::string& needs, const std::string& got) const {
  fail(ErrorCode::file, "dspp: " + who_ + " needs " + needs + ", but " + got +
                            ". Name a byte-level BPE tokenizer.json, such as GPT-2's.");
}

DSPP_INLINE std::string TokenizerFileReader::in_words(const io::Json& value) {
  switch (value.kind) {
    case io::Json::Kind::null: return "null";
    case io::Json::Kind::boolean: return value.boolean ? "true" : "false";
    case io::Json::Kind::string: return io::json_name(value.string, 60);
    case io::Json::Kind::array: return "a list";
    case io::Json::Kind::object: return "an object";
    default: return "a number";
  }
}

DSPP_INLINE std::string TokenizerFileReader::type_of(const io::Json& value) {
  const std::optional<io::Json> type = value.find("type");
  return type && type->is(io::Json::Kind::string) ? type->string : std::string();
}

DSPP_INLINE std::string TokenizerFileReader::found(const std::optional<io::Json>& value) {
  if (!is_given(value)) return "there is none";
  const std::string type = io::shortened(type_of(*value));
  return "it is " + (type.empty() ? in_words(value) : type);
}

DSPP_INLINE void TokenizerFileReader::require_absent(const io::Json& object, const char* name) const {
  if (const std::optional<io::Json> value = object.find(name); is_given(value))
    refuse(std::string(name) + " null", found(value));
}

DSPP_INLINE bool TokenizerFileReader::truth(const io::Json& object, const std::string& name,
                                            std::optional<bool> otherwise) const {
  const std::optional<io::Json> value = object.find(std::string_view(name).substr(name.rfind('.') + 1));
  if (!value && otherwise) return *otherwise;
  if (!value || !value->is(io::Json::Kind::boolean)) refuse(name + " true or false", "it is " + in_words(value));
  return value->boolean;
}

DSPP_INLINE void TokenizerFileReader::check_id(const io::Json& value, const std::string& token) const {
  if (!value.is(io::Json::Kind::integer) || value.integer < 0 || value.integer >= Size{1} << 31)
    refuse("ids in [0, 2^31)", "that of " + io::json_name(token) + " is " + number_in_words(value));
}

DSPP_INLINE std::string TokenizerFileReader::number_in_words(const io::Json& value) {
  return value.is(io::Json::Kind::integer) ? std::to_string(value.integer) : in_words(value);
}

DSPP_INLINE void TokenizerFileReader::read_model(const io::Json& model, TokenizerFile& file) const {
  const std::optional<io::Json> type = model.find("type");  // older files have none
  if (is_given(type) && type_of(model) != "BPE") refuse("model.type BPE", "it is " + in_words(type));
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
  const std::optional<io::Json> vocabulary = model.find("vocab");
  if (!vocabulary || !vocabulary->is(io::Json::Kind::object))
    refuse("an object model.vocab", "it is " + in_words(vocabulary));
  for (const io::Json& id : vocabulary->items()) check_id(id, id.key), ++file.tokens;
  const std::optional<io::Json> merges = model.find("merges");
  if (!merges || !merges->is(io::Json::Kind::array)) refuse("a list model.merges", "it is " + in_words(merges));
  for (const io::Json& merge : merges->items())
    if (!halves_of_merge(merge, [](std::string_view, std::string_view) {}))
      refuse("merges of two tokens, \"a b\" or [\"a\", \"b\"]",
             "model.merges[" + std::to_string(file.merge_count) + "] is " + in_words(merge));
    else
      ++file.merge_count;
  file.vocabulary = *vocabulary, file.merges = *merges;
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
