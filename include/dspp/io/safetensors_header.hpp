// SPDX-License-Identifier: Apache-2.0
/// The header of a safetensors file: the position of each tensor. Read strictly, written as Hugging Face writes it.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <dspp/base/element.hpp>
#include <dspp/io/json.hpp>

namespace dspp::io {

/// One tensor: row-major, little-endian, at bytes [begin, end) of the data that follow the header.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< as in the file: "F32"
  std::vector<Size> shape;
  Size begin = 0, end = 0;

  Size count() const;
  /// The element type, unless dspp has none for this dtype (BOOL, I16, ...).
  std::optional<ElementType> type() const;
};

/// A tensor to write.
struct TensorSpec {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<Size> shape;
};

/// The tensors in the order of their bytes, and the file's metadata.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;

  const TensorEntry* find(std::string_view name) const;
  Size data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

/// Reads a header's JSON; the tensors must fill `data_bytes` exactly, without gap or overlap. `who` begins a sentence.
///
/// Memory   the header's, at most 2.1 bytes for each byte of the text, of which a tensor has 50 or more, but 4 if most
///          of it is shapes of one-digit extents; 96 bytes and two strings for each metadata entry, of which 65,536 are
///          read. Rejected JSON takes none
/// Throws   Error(file) on anything else, and on unknown dtypes, duplicate names, and shapes that do not fit 63 bits
SafetensorsHeader parse_safetensors_header(std::string_view json, Size data_bytes, const std::string& who);

/// Places tensors by descending element size, so that each is aligned to its element, then by name: the order, and so
/// the bytes, of the reference implementation.
///
/// Throws   Error(usage) if a name is duplicate, not UTF-8, or "__metadata__"; Error(shape) on a negative extent
SafetensorsHeader lay_out_safetensors(const std::vector<TensorSpec>& tensors,
                                      std::map<std::string, std::string> metadata = {{"format", "pt"}});

/// The bytes before the data: the JSON's length (8 bytes, little-endian), the JSON, spaces up to a multiple of 8.
std::string safetensors_prefix(const SafetensorsHeader& header);

/// The format's name of an element type.
constexpr const char* safetensors_dtype(ElementType type) {
  switch (type) {
    case ElementType::f64: return "F64";
    case ElementType::f32: return "F32";
    case ElementType::bf16: return "BF16";
    case ElementType::f16: return "F16";
    case ElementType::i32: return "I32";
    case ElementType::i64: return "I64";
    case ElementType::u8: return "U8";
  }
  return "?";
}

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr Size safetensors_header_limit = 100'000'000;  // the reference implementation's

/// Bytes per element of every dtype of the format that has whole bytes; 0 for others.
Size dtype_bytes(std::string_view dtype);

/// The position of an element type in a file's order: that of the reference implementation, the widest first.
constexpr int place_of(ElementType type) {
  using enum ElementType;
  constexpr ElementType order[] = {i64, f64, f32, i32, bf16, f16, u8};
  return static_cast<int>(std::find(std::begin(order), std::end(order), type) - std::begin(order));
}

/// Bytes of a shape, or -1 if they do not fit.
Size bytes_of_shape(const std::vector<Size>& shape, Size element_bytes);

/// Reads the JSON of one header.
class HeaderReader {
 public:
  HeaderReader(Size data_bytes, const std::string& who) : data_bytes_(data_bytes), who_(who) {}

  SafetensorsHeader read(std::string_view json) const;

 private:
  [[noreturn]] void refuse(const std::string& needs, const std::string& got) const;

  static constexpr Size most_values = 1 << 16;  ///< in the description of one tensor, or in the metadata

  [[noreturn]] void refuse_twice(std::string_view name) const;
  void check_names(SafetensorsHeader& header) const;
  void read_metadata(const Json& json, SafetensorsHeader& header) const;

  /// The member of a tensor that is an array of non-negative whole numbers.
  std::vector<Size> read_sizes(const Json& json, const char* member) const;
  TensorEntry read_tensor(const Json& json) const;
  void check_contiguous(const SafetensorsHeader& header) const;

  Size data_bytes_;
  const std::string& who_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE SafetensorsHeader HeaderReader::read(std::string_view json) const {
  SafetensorsHeader header;
  bool described = false;
  const auto begin = [&](Size members) {  // reserves the list; no tensor has fewer bytes of text
    const Size shortest = 50;
    header.tensors.reserve(static_cast<std::size_t>(std::min(members, std::ssize(json) / shortest)));
  };
  for_each_json_member(json, who_, most_values, begin, [&](const Json& member) {
    if (member.key != "__metadata__") return header.tensors.push_back(read_tensor(member));
    if (std::exchange(described, true)) refuse_twice(member.key);
    read_metadata(member, header);
  });
  check_names(header);
  std::ranges::sort(header.tensors, {}, [](const TensorEntry& t) { return std::tie(t.begin, t.end, t.name); });
  check_contiguous(header);
  return header;
}

DSPP_INLINE void HeaderReader::refuse(const std::string& needs, const std::string& got) const {
  fail(ErrorCode::file, "dspp: " + who_ + " needs " + needs + ", but " + got + ". Write the file again.");
}

DSPP_INLINE void HeaderReader::refuse_twice(std::string_view name) const {
  fail(ErrorCode::file, "dspp: " + who_ + " needs valid JSON, but byte 0 opens an object that names " +
                            json_name(name) + " twice. Write the file again.");
}

DSPP_INLINE void HeaderReader::check_names(SafetensorsHeader& header) const {  // in place, without a second list
  std::ranges::sort(header.tensors, {}, &TensorEntry::name);
  const auto twice = std::ranges::adjacent_find(header.tensors, {}, &TensorEntry::name);
  if (twice != header.tensors.end()) refuse_twice(twice->name);
}

DSPP_INLINE void HeaderReader::read_metadata(const Json& json, SafetensorsHeader& header) const {
  if (!json.is(Json::Kind::object)) refuse("__metadata__ that is an object", "it is another value");
  for (const Json& word : json.items()) {
    if (!word.is(Json::Kind::string)) refuse("strings in __metadata__", json_name(word.key) + " is none");
    header.metadata[word.key] = word.string;
  }
}

DSPP_INLINE std::vector<Size> HeaderReader::read_sizes(const Json& json, const char* member) const {
  const std::string& tensor = json.key;
  const std::optional<Json> list = json.find(member);
  const std::string needs = std::string(member) + " of whole numbers";
  if (!list || !list->is(Json::Kind::array)) refuse(needs, json_name(tensor) + " has none");
  std::vector<Size> sizes;
  sizes.reserve(static_cast<std::size_t>(list->count()));
  for (const Json& item : list->items()) {
    if (!item.is(Json::Kind::integer) || item.integer < 0)
      refuse(needs, "those of " + json_name(tensor) + " are not, or too large");
    sizes.push_back(item.integer);
  }
  return sizes;
}

DSPP_INLINE TensorEntry HeaderReader::read_tensor(const Json& json) const {
  const std::string quoted = json_name(json.key);
  if (!json.is(Json::Kind::object)) refuse("an object for every tensor", quoted + " has another value");
  TensorEntry tensor{.name = {}, .dtype = {}, .shape = read_sizes(json, "shape")};
  const std::vector<Size> offsets = read_sizes(json, "data_offsets");
  tensor.name = json.key;
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    refuse("data_offsets [begin, end]", "those of " + quoted + " are not in order");
  tensor.begin = offsets[0], tensor.end = offsets[1];
  const std::optional<Json> dtype = json.find("dtype");
  if (!dtype || !dtype->is(Json::Kind::string)) refuse("a dtype for every tensor", quoted + " has none");
  tensor.dtype = dtype->string;
  const Size element_bytes = dtype_bytes(tensor.dtype);
  if (element_bytes == 0) refuse("a dtype that the format knows", quoted + " has " + json_in_words(*dtype));
  const Size bytes = bytes_of_shape(tensor.shape, element_bytes);
  if (bytes < 0) refuse("shapes that fit 63 bits", "that of " + quoted + " does not");
  if (bytes != tensor.end - tensor.begin)
    refuse("data_offsets that fit the shape", quoted + " has " + std::to_string(tensor.end - tensor.begin) +
                                                  " bytes for a shape of " + std::to_string(bytes));
  return tensor;
}

DSPP_INLINE void HeaderReader::check_contiguous(const SafetensorsHeader& header) const {
  Size end = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != end)
      refuse("tensors without gap or overlap", json_name(tensor.name) + " begins at byte " +
                                                   std::to_string(tensor.begin) + " and the one before it ends at " +
                                                   std::to_string(end));
    end = tensor.end;
  }
  if (end != data_bytes_)
    refuse(std::to_string(end) + " bytes of data",
           "the file has " + std::to_string(data_bytes_) + (data_bytes_ < end ? ": it is cut off" : ""));
}

DSPP_INLINE Size dtype_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, Size> known[] = {
      {"F64", 8},  {"I64", 8}, {"U64", 8}, {"C64", 8},  {"F32", 4}, {"I32", 4}, {"U32", 4},     {"F16", 2},
      {"BF16", 2}, {"I16", 2}, {"U16", 2}, {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : known)
    if (name == dtype) return bytes;
  return 0;
}

DSPP_INLINE Size bytes_of_shape(const std::vector<Size>& shape, Size element_bytes) {
  Size bytes = element_bytes;
  for (const Size extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return -1;
  return bytes;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size TensorEntry::count() const {
  Size n = 1;
  for (const Size extent : shape) n *= extent;
  return n;
}

DSPP_INLINE std::optional<ElementType> TensorEntry::type() const {
  using enum ElementType;
  for (const ElementType type : {f64, f32, bf16, f16, i32, i64, u8})
    if (dtype == safetensors_dtype(type)) return type;
  return std::nullopt;
}

DSPP_INLINE const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const TensorEntry& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

DSPP_INLINE SafetensorsHeader parse_safetensors_header(std::string_view json, Size data_bytes, const std::string& who) {
  if (json.empty() || json.front() != '{')
    fail(ErrorCode::file, "dspp: " + who + " needs to begin with '{', but it does not. Name a safetensors file.");
  return detail::HeaderReader(data_bytes, who).read(json);
}

DSPP_INLINE SafetensorsHeader lay_out_safetensors(const std::vector<TensorSpec>& tensors,
                                                  std::map<std::string, std::string> metadata) {
  std::vector<const TensorSpec*> order;
  for (const TensorSpec& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const TensorSpec* tensor) {
    return std::pair(detail::place_of(tensor->type), std::string_view(tensor->name));
  });
  const auto refuse = [](const std::string& name, const char* needs, const char* got) {
    fail(ErrorCode::usage,
         "dspp: a safetensors file needs " + std::string(needs) + ", but " + json_quoted(name) + " " + got + ".");
  };
  SafetensorsHeader header{.tensors = {}, .metadata = std::move(metadata)};
  std::vector<std::string_view> names;
  for (const TensorSpec* tensor : order) {
    if (tensor->name == "__metadata__" || first_bad_utf8(tensor->name) >= 0)
      refuse(tensor->name, "names in UTF-8 other than __metadata__", "is none");
    names.push_back(tensor->name);
    const bool negative =
        std::any_of(tensor->shape.begin(), tensor->shape.end(), [](Size extent) { return extent < 0; });
    const Size bytes = detail::bytes_of_shape(tensor->shape, bytes_of(tensor->type));
    const Size begin = header.data_bytes();
    if (negative || bytes < 0 || bytes > std::numeric_limits<Size>::max() - begin)
      refuse(tensor->name, "shapes that are not negative and fit 63 bits", "has another");
    header.tensors.push_back({tensor->name, safetensors_dtype(tensor->type), tensor->shape, begin, begin + bytes});
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse(std::string(*twice), "every name once", "comes twice");
  return header;
}

DSPP_INLINE std::string safetensors_prefix(const SafetensorsHeader& header) {
  JsonObject all(JsonEscapes::demanded), metadata(JsonEscapes::demanded);
  for (const auto& [key, value] : header.metadata) metadata.add(key, value);
  if (!header.metadata.empty()) all.add("__metadata__", metadata);
  for (const TensorEntry& tensor : header.tensors)
    all.add(tensor.name, JsonObject()
                             .add("dtype", tensor.dtype)
                             .add_json("shape", json_list(tensor.shape))
                             .add_json("data_offsets", json_list(std::array{tensor.begin, tensor.end})));
  std::string json = all.text();
  json.resize(static_cast<std::size_t>(round_up(std::ssize(json), 8)), ' ');
  std::string prefix;
  for (int byte = 0; byte < 8; ++byte)
    prefix += static_cast<char>(static_cast<unsigned char>(json.size() >> (8 * byte)));
  return prefix + json;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
