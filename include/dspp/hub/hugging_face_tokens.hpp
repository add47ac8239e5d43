// SPDX-License-Identifier: Apache-2.0
/// The begin, end and padding tokens of a Hugging Face config.json.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/hub/hugging_face_fields.hpp>
#include <dspp/io/text_file.hpp>

namespace dspp::hub {

/// Token ids; -1 and an empty list are null. Models do not use them; generation and tokenizers in transformers do.
struct HuggingFaceTokens {
  Size begin = -1;
  std::vector<Size> end{};  ///< each of them ends a text
  Size pad = -1;

  friend bool operator==(const HuggingFaceTokens&, const HuggingFaceTokens&) = default;
};

/// Reads the tokens of directory/config.json, to copy them to another folder:
///
///   load_hugging_face(engine, folder);
///   save_hugging_face(engine, other, {.tokens = read_hugging_face_tokens(folder)});
///
/// A missing token has transformers' default for a GPT-2 (50256 both), a Llama and a Mistral (1 and 2),
/// none for other models.
///
/// Throws   Error(file), which names the field, its value and what is supported
HuggingFaceTokens read_hugging_face_tokens(const std::string& directory);

/// The same from the file's text. `who` begins a sentence.
HuggingFaceTokens parse_hugging_face_tokens(std::string_view json, const std::string& who);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Writes the tokens as members; an absent token is null if transformers has a default for it, else left out.
inline void add_token_members(std::map<std::string, std::string>& members, const HuggingFaceTokens& tokens) {
  const auto token_or_null = [](Size token) { return token < 0 ? "null" : std::to_string(token); };
  members["bos_token_id"] = token_or_null(tokens.begin);
  std::vector<std::string> list;
  for (const Size token : tokens.end) list.push_back(std::to_string(token));
  members["eos_token_id"] =
      list.size() > 1 ? json_list_lines(list, 1) : token_or_null(tokens.end.empty() ? -1 : tokens.end[0]);
  if (tokens.pad >= 0) members["pad_token_id"] = std::to_string(tokens.pad);
}

}  // namespace detail

inline HuggingFaceTokens parse_hugging_face_tokens(std::string_view text, const std::string& who) {
  const io::Json json = io::parse_json(text, who);
  const detail::ConfigFields fields(json, who);
  HuggingFaceTokens missing;
  if (fields.is_word("model_type", "gpt2")) missing = {.begin = 50256, .end = {50256}};
  if (fields.is_word("model_type", "llama") || fields.is_word("model_type", "mistral"))
    missing = {.begin = 1, .end = {2}};
  const auto one = [&](const char* name, Size otherwise) {
    if (!fields.has(name)) return otherwise;
    const std::vector<Size> tokens = fields.tokens(name);
    if (tokens.size() > 1) fields.refuse(json_quoted(name) + " that is one token or null", "it is a list");
    return tokens.empty() ? Size{-1} : tokens[0];
  };
  return {.begin = one("bos_token_id", missing.begin),
          .end = fields.has("eos_token_id") ? fields.tokens("eos_token_id") : missing.end,
          .pad = one("pad_token_id", missing.pad)};
}

inline HuggingFaceTokens read_hugging_face_tokens(const std::string& directory) {
  const std::string path = detail::config_path(directory);
  return parse_hugging_face_tokens(io::read_text_file(path, detail::config_bytes_limit), "'" + path + "'");
}

}  // namespace dspp::hub
