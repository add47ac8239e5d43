// SPDX-License-Identifier: Apache-2.0
/// The tokens of a tokenizer by id, and their ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/io/json_text.hpp>

namespace dspp::data {

/// Tokens and ids, one to one; ids may be unused. A token has the bytes that it stands for, and the model finds it by a
/// key: those bytes, or how the file writes it.
///
/// Memory   some 120 bytes for each token
class Vocabulary {
 public:
  /// `who` begins the sentence of an error: "the tokenizer 'tokenizer.json'".
  explicit Vocabulary(std::string who = "a tokenizer") : who_(std::move(who)) {}

  void reserve(Size tokens, Size ids);
  /// Gives a token its id; `written` names it in an error. Throws Error(file) if the id has a token.
  void place(const std::string& bytes, std::int32_t id, const std::string& written);
  /// Other bytes for a token that has an id.
  void rewrite(const std::string& bytes, std::int32_t id) { bytes_[static_cast<std::size_t>(id)] = bytes; }
  /// Lets the model find the token.
  void add_key(const std::string& key, std::int32_t id) { ids_.emplace(key, id); }
  /// The id of a key.
  std::optional<std::int32_t> find(std::string_view key) const;

  /// The largest id plus one.
  Size size() const { return std::ssize(bytes_); }
  bool is_token(std::int32_t id) const { return id >= 0 && id < size() && is_token_[static_cast<std::size_t>(id)]; }
  /// The bytes that a token stands for.
  const std::string& bytes(std::int32_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
  const std::string& who() const { return who_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };

  std::string who_;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> is_token_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
[[noreturn]] void refuse_tokenizer(const std::string& who, const std::string& needs, const std::string& got);

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_tokenizer(const std::string& who, const std::string& needs, const std::string& got) {
  fail(ErrorCode::file, "dspp: " + who + " needs " + needs + ", but " + got + ". Write the file again.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void Vocabulary::reserve(Size tokens, Size ids) {
  bytes_.reserve(static_cast<std::size_t>(ids)), is_token_.reserve(static_cast<std::size_t>(ids));
  ids_.reserve(static_cast<std::size_t>(tokens));
}

DSPP_INLINE void Vocabulary::place(const std::string& bytes, std::int32_t id, const std::string& written) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= bytes_.size()) bytes_.resize(at + 1), is_token_.resize(at + 1);
  if (is_token_[at])
    detail::refuse_tokenizer(who_, "one token for each id",
                             std::to_string(id) + " is that of " + io::json_name(written) + " and of another");
  bytes_[at] = bytes, is_token_[at] = true;
}

DSPP_INLINE std::optional<std::int32_t> Vocabulary::find(std::string_view key) const {
  const auto at = ids_.find(key);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
