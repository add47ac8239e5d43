// SPDX-License-Identifier: Apache-2.0
/// Training tokens, held-out tokens and their tokenizer, in one folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/token_shards.hpp>
#include <dspp/data/tokenizer.hpp>

namespace dspp::data {

/// A folder written by examples/tokenize.cpp: train/*.tokens, held_out/*.tokens, and their tokenizer.json, which is
/// absent if tokens are bytes. Immutable: several threads may use one.
///
/// Memory   the tokenizer's; the tokens stay on disk
/// Throws   Error(file) if a part is absent, or has another vocabulary or tokenizer than the training files
class TokenFolder {
 public:
  explicit TokenFolder(std::string path);

  const std::string& path() const { return path_; }
  const std::shared_ptr<const TokenShards>& training() const { return training_; }
  const std::shared_ptr<const TokenShards>& held_out() const { return held_out_; }
  Size vocabulary_size() const { return training_->vocabulary_size(); }

  /// The id of the token after each document, as `tokenize --end` names it.
  ///
  /// Throws   Error(file) if the folder's tokenizer has no such token, or tokens are bytes
  std::int32_t end_of_text(std::string_view token = "<|endoftext|>") const;

  /// Encodes by the folder's tokenizer, or returns the bytes.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The tokens' bytes. An id of the vocabulary without a token, which a model may generate, has none.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  static std::shared_ptr<const TokenShards> open(const std::string& path, const char* part);
  void read_tokenizer();
  [[noreturn]] static void refuse(const std::string& needs, const std::string& got, const char* advice);

  std::string path_;
  std::shared_ptr<const TokenShards> training_, held_out_;
  std::optional<Tokenizer> tokenizer_;  // none if tokens are bytes
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TokenFolder::TokenFolder(std::string path)
    : path_(std::move(path)), training_(open(path_, "train")), held_out_(open(path_, "held_out")) {
  if (held_out_->vocabulary_size() != training_->vocabulary_size() || held_out_->tokenizer() != training_->tokenizer())
    refuse("tokens of one tokenizer",
           "those in '" + path_ + "/held_out' are of another, or of another vocabulary, than those in '" + path_ +
               "/train'",
           "Write both again with ./dspp tokenize.");
  read_tokenizer();
}

DSPP_INLINE void TokenFolder::refuse(const std::string& needs, const std::string& got, const char* advice) {
  fail(ErrorCode::file, "dspp: TokenFolder needs " + needs + ", but " + got + ". " + advice);
}

DSPP_INLINE std::shared_ptr<const TokenShards> TokenFolder::open(const std::string& path, const char* part) {
  std::error_code error;
  const auto require_folder = [&](const std::string& wanted) {
    if (!std::filesystem::is_directory(wanted, error))
      refuse("a folder with train/*.tokens and held_out/*.tokens",
             "'" + wanted + "' " + (std::filesystem::exists(wanted, error) ? "is no folder" : "does not exist"),
             "Make one with ./dspp tokenize.");
  };
  const std::string folder = path + "/" + part;
  require_folder(path), require_folder(folder);
  return std::make_shared<const TokenShards>(TokenFiles{folder});
}

DSPP_INLINE void TokenFolder::read_tokenizer() {
  if (training_->tokenizer() == 0) {
    if (vocabulary_size() != 256)
      refuse("a tokenizer for its tokens, or bytes",
             "those in '" + path_ + "' have a vocabulary of " + std::to_string(vocabulary_size()) + " and no tokenizer",
             "Make a folder with ./dspp tokenize.");
    return;
  }
  const std::string file = path_ + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    refuse("the tokenizer that made its tokens", "'" + file + "' does not exist", "Copy it there.");
  tokenizer_.emplace(Tokenizer::read(file));
  if (tokenizer_->fingerprint() != training_->tokenizer() || tokenizer_->vocabulary_size() != vocabulary_size())
    refuse("the tokenizer that made its tokens", "'" + file + "' is another", "Copy the right one there.");
}

DSPP_INLINE std::int32_t TokenFolder::end_of_text(std::string_view token) const {
  const auto id = tokenizer_ ? tokenizer_->id(token) : std::nullopt;
  if (!id)
    refuse("the token '" + std::string(token) + "' after each document",
           tokenizer_ ? "the tokenizer of '" + path_ + "' has none" : "the tokens of '" + path_ + "' are bytes",
           "Name the token that tokenize --end wrote.");
  return *id;
}

DSPP_INLINE std::vector<std::int32_t> TokenFolder::encode(std::string_view text) const {
  if (tokenizer_) return tokenizer_->encode(text);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  return {bytes, bytes + text.size()};
}

DSPP_INLINE std::string TokenFolder::decode(std::span<const std::int32_t> tokens) const {
  if (!tokenizer_) return {tokens.begin(), tokens.end()};
  std::vector<std::int32_t> known;
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(known),
               [&](std::int32_t token) { return tokenizer_->is_token(token); });
  return tokenizer_->decode(known);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
