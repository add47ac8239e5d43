// SPDX-License-Identifier: Apache-2.0
/// The parts of a tokenizer.json beside its model: normalizer, pre_tokenizer, post_processor and decoder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/normalizer.hpp>
#include <dspp/io/json.hpp>

namespace dspp::data {

/// Where a piece of text, which holds no added token, is cut into words.
enum class WordRule { whole, gpt2, three_digits, one_digit, marked, bert };

/// A piece of text before it is cut: spaces may become a mark, and one may be added in front.
struct PreTokenizer {
  enum class Added { never, to_first, to_all };  ///< to a piece that begins without one, or if it begins the text

  WordRule rule = WordRule::whole;
  Added added = Added::never;
  std::string mark = " ";  ///< what a space becomes
};

/// How tokens become text.
struct TokenDecoder {
  enum class Kind { bytes, wordpiece };

  Kind kind = Kind::bytes;
  bool strip_first_space = false;
  std::string mark = " ";     ///< of Kind::bytes: read as a space, unless the model is of bytes
  std::string prefix = "##";  ///< of Kind::wordpiece
  bool cleanup = true;        ///< of Kind::wordpiece
};

/// The tokens around one text.
struct TextTemplate {
  std::vector<std::int32_t> before, after;
};

namespace detail {

/// Reads the parts of a file, whose errors begin with `who`.
class TokenizerPartsReader {
 public:
  explicit TokenizerPartsReader(const std::string& who) : who_(who) {}

  Normalizer normalizer(const io::Json& root) const;
  PreTokenizer pre_tokenizer(const io::Json& root) const;
  TokenDecoder decoder(const io::Json& root) const;
  TextTemplate text_template(const io::Json& root) const;

 protected:
  using Part = std::optional<io::Json>;

  [[noreturn]] void refuse(const std::string& needs, const std::string& got) const;

  static bool is_given(const Part& value) { return value && !value->is(io::Json::Kind::null); }
  static std::string in_words(const Part& value) { return value ? in_words(*value) : "absent"; }
  static std::string in_words(const io::Json& value);
  static std::string type_of(const io::Json& value);
  static bool is_type(const Part& value, std::string_view type) { return is_given(value) && type_of(*value) == type; }
  static std::string found(const Part& value);
  void require_absent(const io::Json& object, const char* name) const;

  /// The member named by a dotted name's last word.
  bool truth(const io::Json& object, const std::string& name, std::optional<bool> otherwise) const;
  std::string string(const io::Json& object, const std::string& name) const;
  void check_id(const io::Json& value, const std::string& token) const;
  static std::string number_in_words(const io::Json& value);

 private:
  static std::vector<io::Json> parts_of(const Part& sequence, std::string_view list);
  BertNormalizer bert_normalizer(const io::Json& value) const;
  ReplacingNormalizer replacing_normalizer(const Part& value) const;
  WordRule rule_of(const io::Json& split) const;
  PreTokenizer metaspace(const io::Json& value) const;
  TextTemplate one_template(const io::Json& value) const;
  std::vector<std::int32_t> special_ids(const io::Json& all, const std::string& name) const;

  const std::string& who_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void TokenizerPartsReader::refuse(const std::string& needs, const std::string& got) const {
  fail(ErrorCode::file, "dspp: " + who_ + " needs " + needs + ", but " + got +
                            ". See docs/tokens.md for what is read of a tokenizer.json.");
}

DSPP_INLINE std::string TokenizerPartsReader::in_words(const io::Json& value) {
  switch (value.kind) {
    case io::Json::Kind::null: return "null";
    case io::Json::Kind::boolean: return value.boolean ? "true" : "false";
    case io::Json::Kind::string: return io::json_name(value.string, 60);
    case io::Json::Kind::array: return "a list";
    case io::Json::Kind::object: return "an object";
    default: return "a number";
  }
}

DSPP_INLINE std::string TokenizerPartsReader::type_of(const io::Json& value) {
  const Part type = value.find("type");
  return type && type->is(io::Json::Kind::string) ? type->string : std::string();
}

DSPP_INLINE std::string TokenizerPartsReader::found(const Part& value) {
  if (!is_given(value)) return "there is none";
  const std::string type = io::shortened(type_of(*value));
  return "it is " + (type.empty() ? in_words(value) : type);
}

DSPP_INLINE void TokenizerPartsReader::require_absent(const io::Json& object, const char* name) const {
  if (const Part value = object.find(name); is_given(value)) refuse(std::string(name) + " null", found(value));
}

DSPP_INLINE bool TokenizerPartsReader::truth(const io::Json& object, const std::string& name,
                                             std::optional<bool> otherwise) const {
  const Part value = object.find(std::string_view(name).substr(name.rfind('.') + 1));
  if (!value && otherwise) return *otherwise;
  if (!value || !value->is(io::Json::Kind::boolean)) refuse(name + " true or false", "it is " + in_words(value));
  return value->boolean;
}

DSPP_INLINE std::string TokenizerPartsReader::string(const io::Json& object, const std::string& name) const {
  const Part value = object.find(std::string_view(name).substr(name.rfind('.') + 1));
  if (!value || !value->is(io::Json::Kind::string)) refuse("a string " + name, "it is " + in_words(value));
  return value->string;
}

DSPP_INLINE void TokenizerPartsReader::check_id(const io::Json& value, const std::string& token) const {
  if (!value.is(io::Json::Kind::integer) || value.integer < 0 || value.integer >= Size{1} << 31)
    refuse("ids in [0, 2^31)", "that of " + io::json_name(token) + " is " + number_in_words(value));
}

DSPP_INLINE std::string TokenizerPartsReader::number_in_words(const io::Json& value) {
  return value.is(io::Json::Kind::integer) ? std::to_string(value.integer) : in_words(value);
}

/// The parts of a Sequence, or the value itself; none if it is null.
DSPP_INLINE std::vector<io::Json> TokenizerPartsReader::parts_of(const Part& value, std::string_view list) {
  if (!is_given(value)) return {};
  if (type_of(*value) != "Sequence") return {*value};
  std::vector<io::Json> parts;
  if (const Part all = value->find(list); is_given(all))
    for (const io::Json& part : all->items()) parts.push_back(part);
  return parts;
}

DSPP_INLINE Normalizer TokenizerPartsReader::normalizer(const io::Json& root) const {
  const Part value = root.find("normalizer");
  if (!is_given(value)) return NoNormalizer{};
  if (is_type(value, "NFC")) return NfcNormalizer{};
  if (is_type(value, "BertNormalizer")) return bert_normalizer(*value);
  return replacing_normalizer(value);
}

DSPP_INLINE BertNormalizer TokenizerPartsReader::bert_normalizer(const io::Json& value) const {
  BertNormalizer how{.clean_text = truth(value, "normalizer.clean_text", {}),
                     .chinese_characters = truth(value, "normalizer.handle_chinese_chars", {}),
                     .lower_case = truth(value, "normalizer.lowercase", {})};
  const bool as_case = !is_given(value.find("strip_accents"));
  how.strip_accents = as_case ? how.lower_case : truth(value, "normalizer.strip_accents", {});
  return how;
}

DSPP_INLINE ReplacingNormalizer TokenizerPartsReader::replacing_normalizer(const Part& value) const {
  ReplacingNormalizer how;
  std::string before;
  for (const io::Json& part : parts_of(value, "normalizers")) {
    const std::string type = type_of(part);
    const Part pattern = part.find("pattern");
    if (type == "Prepend" && before.empty()) {
      how.prepended = string(part, "normalizer.prepend");
    } else if (type == "Replace" && before != "Replace" && pattern && is_given(pattern->find("String"))) {
      how.replaced = string(*pattern, "normalizer.pattern.String"), how.by = string(part, "normalizer.content");
    } else {
      before.clear();
      break;
    }
    before = type;
  }
  if (before.empty()) refuse("normalizer NFC, BertNormalizer, Prepend and Replace of a String, or null", found(value));
  return how;
}

DSPP_INLINE PreTokenizer TokenizerPartsReader::pre_tokenizer(const io::Json& root) const {
  const Part value = root.find("pre_tokenizer");
  const char* const known = "pre_tokenizer ByteLevel, Split with ByteLevel, BertPreTokenizer, Metaspace or null";
  if (!value || value->is(io::Json::Kind::null)) return {};
  if (is_type(value, "BertPreTokenizer")) return {.rule = WordRule::bert};
  if (is_type(value, "Metaspace")) return metaspace(*value);
  const std::vector<io::Json> parts = parts_of(value, "pretokenizers");
  if (parts.empty() || parts.size() > 2 || type_of(parts.back()) != "ByteLevel" ||
      (parts.size() == 2 && type_of(parts[0]) != "Split"))
    refuse(known, found(value));
  const bool prefix = truth(parts.back(), "pre_tokenizer.add_prefix_space", {});
  const bool regex = truth(parts.back(), "pre_tokenizer.use_regex", true);
  const auto added = prefix ? PreTokenizer::Added::to_all : PreTokenizer::Added::never;
  if (parts.size() == 1) return {.rule = regex ? WordRule::gpt2 : WordRule::whole, .added = added};
  if (prefix || regex)
    refuse("pre_tokenizer Split with ByteLevel that adds no space and has no regex",
           std::string(prefix ? "add_prefix_space" : "use_regex") + " is true");
  return {.rule = rule_of(parts[0])};
}

/// The rule of a Split, whose pattern must be one of two, letter by letter.
DSPP_INLINE WordRule TokenizerPartsReader::rule_of(const io::Json& split) const {
  static constexpr std::string_view begin = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  static constexpr std::string_view digits = "{1,3}";
  static constexpr std::string_view end = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Part pattern = split.find("pattern");
  if (!pattern || !is_given(pattern->find("Regex")))
    refuse("pre_tokenizer Split with a pattern Regex", "it is " + in_words(pattern));
  if (const std::string how = string(split, "pre_tokenizer.behavior"); how != "Isolated")
    refuse("pre_tokenizer.behavior Isolated", "it is " + io::json_name(how, 60));
  if (truth(split, "pre_tokenizer.invert", false)) refuse("pre_tokenizer.invert false", "it is true");
  const std::string regex = string(*pattern, "pre_tokenizer.pattern.Regex");
  std::string_view rest = regex;
  const bool begins = rest.starts_with(begin);
  if (begins) rest.remove_prefix(begin.size());
  const bool three = rest.starts_with(digits);
  if (three) rest.remove_prefix(digits.size());
  if (!begins || rest != end)
    refuse("pre_tokenizer.pattern.Regex of Llama 3 or Qwen 2", "it is " + io::json_name(regex, 60));
  return three ? WordRule::three_digits : WordRule::one_digit;
}

DSPP_INLINE PreTokenizer TokenizerPartsReader::metaspace(const io::Json& value) const {
  PreTokenizer how{.rule = truth(value, "pre_tokenizer.split", true) ? WordRule::marked : WordRule::whole,
                   .mark = string(value, "pre_tokenizer.replacement")};
  if (how.mark.empty()) refuse("a pre_tokenizer.replacement", "it is empty");
  const std::string scheme = is_given(value.find("prepend_scheme")) ? string(value, "pre_tokenizer.prepend_scheme")
                             : truth(value, "pre_tokenizer.add_prefix_space", true) ? "always"
                                                                                    : "never";
  if (scheme == "always")
    how.added = PreTokenizer::Added::to_all;
  else if (scheme == "first")
    how.added = PreTokenizer::Added::to_first;
  else if (scheme != "never")
    refuse("pre_tokenizer.prepend_scheme always, first or never", "it is " + io::json_name(scheme, 60));
  return how;
}

DSPP_INLINE TokenDecoder TokenizerPartsReader::decoder(const io::Json& root) const {
  const Part value = root.find("decoder");
  if (is_type(value, "ByteLevel")) return {};
  if (is_type(value, "WordPiece"))
    return {.kind = TokenDecoder::Kind::wordpiece,
            .prefix = string(*value, "decoder.prefix"),
            .cleanup = truth(*value, "decoder.cleanup", {})};
  TokenDecoder how;
  std::string types;
  for (const io::Json& part : is_type(value, "Sequence") ? parts_of(value, "decoders") : std::vector<io::Json>()) {
    const std::string type = type_of(part);
    types += type + " ";
    const Part pattern = part.find("pattern"), start = part.find("start"), stop = part.find("stop");
    if (type == "Replace" && pattern && string(part, "decoder.content") == " ")
      how.mark = string(*pattern, "decoder.pattern.String");
    else if (type == "Strip" && start && stop && start->integer == 1 && stop->integer == 0 &&
             string(part, "decoder.content") == " ")
      how.strip_first_space = true;
    else if (type != "ByteFallback" && type != "Fuse")
      types += "of another kind ";
  }
  if (types != "Replace ByteFallback Fuse " && types != "Replace ByteFallback Fuse Strip ")
    refuse("decoder ByteLevel, WordPiece, or Replace, ByteFallback, Fuse and Strip as Llama 2's", found(value));
  return how;
}

DSPP_INLINE TextTemplate TokenizerPartsReader::text_template(const io::Json& root) const {
  TextTemplate whole;
  const Part value = root.find("post_processor");
  for (const io::Json& part : parts_of(value, "processors")) {
    const std::string type = type_of(part);
    if (type == "ByteLevel") continue;
    const bool known = type == "TemplateProcessing" || type == "BertProcessing" || type == "RobertaProcessing";
    if (!known || !whole.before.empty() || !whole.after.empty())
      refuse("post_processor ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing or null", found(value));
    whole = one_template(part);
  }
  return whole;
}

DSPP_INLINE TextTemplate TokenizerPartsReader::one_template(const io::Json& value) const {
  TextTemplate tokens;
  if (type_of(value) != "TemplateProcessing") {
    for (const char* name : {"cls", "sep"}) {
      Part id;
      if (const Part pair = value.find(name))
        for (const io::Json& item : pair->items()) id = item;
      if (!id) refuse("post_processor with cls and sep", std::string(name) + " is absent");
      check_id(*id, name);
      (name[0] == 'c' ? tokens.before : tokens.after).push_back(static_cast<std::int32_t>(id->integer));
    }
    return tokens;
  }
  const Part single = value.find("single"), special = value.find("special_tokens");
  int texts = 0;
  if (single)
    for (const io::Json& item : single->items()) {
      const Part token = item.find("SpecialToken");
      if (!token) {
        const Part text = item.find("Sequence");
        texts += text && string(*text, "post_processor.single.Sequence.id") == "A" ? 1 : 2;
        continue;
      }
      const std::string name = string(*token, "post_processor.single.SpecialToken.id");
      const auto ids = special ? special_ids(*special, name) : std::vector<std::int32_t>();
      auto& side = texts == 0 ? tokens.before : tokens.after;
      side.insert(side.end(), ids.begin(), ids.end());
    }
  if (texts != 1) refuse("post_processor.single with one text, Sequence A", "it has none or another");
  return tokens;
}

DSPP_INLINE std::vector<std::int32_t> TokenizerPartsReader::special_ids(const io::Json& all,
                                                                        const std::string& name) const {
  std::vector<std::int32_t> ids;
  if (const Part token = all.find(name))
    if (const Part list = token->find("ids"))
      for (const io::Json& id : list->items()) {
        check_id(id, name);
        ids.push_back(static_cast<std::int32_t>(id.integer));
      }
  if (ids.empty()) refuse("post_processor.special_tokens with ids", "those of " + io::json_name(name) + " are absent");
  return ids;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

}  // namespace dspp::data
