// SPDX-License-Identifier: Apache-2.0
/// model.safetensors.index.json: the file of each tensor of a folder, as Hugging Face shards large models.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/io/safetensors_header.hpp>

namespace dspp::io {

inline constexpr const char* safetensors_file_name = "model.safetensors";
inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";

/// The file of every tensor, by name, and the total size that the index gives (0: none), which is not used.
struct SafetensorsIndex {
  std::map<std::string, std::string> file_of;
  Size total_bytes = 0;

  bool operator==(const SafetensorsIndex&) const = default;
};

/// Reads an index. File names must stay within the index's own folder. `who` begins a sentence.
///
/// Memory   of parse_json; the index itself takes 96 bytes and two names per tensor
/// Throws   Error(file)
SafetensorsIndex parse_safetensors_index(std::string_view json, const std::string& who);

/// The file's text in the format of transformers.
std::string safetensors_index_text(const SafetensorsIndex& index, Size parameters);

/// Tensors that share a file.
struct SafetensorsShard {
  std::string file;
  std::vector<TensorSpec> tensors;
};

/// Shards a list of tensors, in its order, into files of at most `most_bytes` of data; a larger tensor gets its own
/// file. One file is model.safetensors, several are model-00001-of-00003.safetensors and so on.
///
/// Throws   Error(usage) unless most_bytes is positive
std::vector<SafetensorsShard> cut_into_shards(const std::vector<TensorSpec>& tensors, Size most_bytes);

/// True for shard names.
bool is_shard_name(std::string_view file);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// True for the name of a safetensors file in the same folder.
bool stays_in_folder(std::string_view file);

/// 7 -> "00007".
std::string five_digits(std::size_t number);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool stays_in_folder(std::string_view file) {
  return file.ends_with(".safetensors") && file.front() != '.' && file.find_first_of("/\\") == std::string_view::npos &&
         file.find('\0') == std::string_view::npos;
}

DSPP_INLINE std::string five_digits(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE SafetensorsIndex parse_safetensors_index(std::string_view text, const std::string& who) {
  const auto refuse = [&](const std::string& needs, const std::string& got) {
    fail(ErrorCode::file,
         "dspp: " + who + " needs " + needs + ", but " + got + ". Download or write the folder again.");
  };
  const Json json = parse_json(text, who);
  SafetensorsIndex index;
  if (!json.is(Json::Kind::object)) refuse("an object", "it is another value");
  const std::optional<Json> map = json.find("weight_map");
  if (!map || !map->is(Json::Kind::object)) refuse("a weight_map from tensors to files", "it has none");
  for (const Json& file : map->items()) {
    const auto got = [&] { return json_name(file.key) + " has " + json_in_words(file); };
    if (!file.is(Json::Kind::string)) refuse("names of files in weight_map", got());
    if (!detail::stays_in_folder(file.string)) refuse("safetensors files of its own folder in weight_map", got());
    index.file_of[file.key] = file.string;
  }
  if (index.file_of.empty()) refuse("tensors in weight_map", "there are none");
  const std::optional<Json> metadata = json.find("metadata");
  if (!metadata || metadata->is(Json::Kind::null)) return index;
  if (!metadata->is(Json::Kind::object)) refuse("metadata that is an object", "it is " + json_in_words(*metadata));
  if (const std::optional<Json> total = metadata->find("total_size")) {
    const bool number = total->is(Json::Kind::integer) || total->is(Json::Kind::real);
    if (!number || total->real < 0 || total->real > 0x1p62)
      refuse("a total_size in bytes", "it is " + json_in_words(*total));
    index.total_bytes = static_cast<Size>(total->real);
    if (total->is(Json::Kind::integer)) index.total_bytes = total->integer;
  }
  return index;
}

DSPP_INLINE std::string safetensors_index_text(const SafetensorsIndex& index, Size parameters) {
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index.file_of) files[tensor] = json_quoted(file);
  return json_lines({{"metadata", json_lines({{"total_parameters", std::to_string(parameters)},
                                              {"total_size", std::to_string(index.total_bytes)}},
                                             1)},
                     {"weight_map", json_lines(files, 1)}}) +
         "\n";
}

DSPP_INLINE std::vector<SafetensorsShard> cut_into_shards(const std::vector<TensorSpec>& tensors, Size most_bytes) {
  if (most_bytes <= 0)
    fail(ErrorCode::usage, "dspp: shards need max_shard_bytes of at least 1, but got " + std::to_string(most_bytes) +
                               ". Give it in bytes, for example 5_GiB.");
  std::vector<SafetensorsShard> shards(1);
  Size bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    const Size own = std::max<Size>(0, detail::bytes_of_shape(tensor.shape, bytes_of(tensor.type)));
    if (!shards.back().tensors.empty() && own > most_bytes - bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().tensors.push_back(tensor);
    bytes += own;
  }
  const std::string of = "-of-" + detail::five_digits(shards.size()) + ".safetensors";
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].file = shards.size() == 1 ? safetensors_file_name : "model-" + detail::five_digits(i + 1) + of;
  return shards;
}

DSPP_INLINE bool is_shard_name(std::string_view file) {
  constexpr std::string_view pattern = "model-#####-of-#####.safetensors";
  return file.size() == pattern.size() && std::equal(file.begin(), file.end(), pattern.begin(), [](char c, char like) {
           return like == '#' ? c >= '0' && c <= '9' : c == like;
         });
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
