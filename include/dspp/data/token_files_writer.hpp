// SPDX-License-Identifier: Apache-2.0
/// Writes a folder of token files of equal length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/shard_writer.hpp>
#include <dspp/data/token_index.hpp>

namespace dspp::data {

/// Writes a sequence of tokens as files 000000.tokens, 000001.tokens, ... of `each` tokens, the last one shorter, and
/// at the end an index of all files, without which TokenFiles{folder} refuses the folder. Files appear only when
/// complete.
///
/// Memory   one megabyte
/// Throws   Error(file) if the folder, which is created if absent, has token files already; Error(usage) for a token
///          that is not of the vocabulary, before any is taken; Error(state) after an append() that the system failed
class TokenFilesWriter {
 public:
  TokenFilesWriter(std::string folder, const TokenVocabulary& vocabulary, Size each);
  void append(std::span<const std::int32_t> tokens);
  /// Ends the last file, and writes the index.
  void finish();

  Size tokens() const { return tokens_; }
  Size files() const { return files_; }

 private:
  void begin_file();
  void end_file();
  void require_usable(const char* call) const;

  std::string folder_;
  TokenVocabulary vocabulary_;
  Size each_, tokens_ = 0, files_ = 0;
  std::optional<TokenShardWriter> file_;
  TokenIndex index_;
  bool failed_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TokenFilesWriter::TokenFilesWriter(std::string folder, const TokenVocabulary& vocabulary, Size each)
    : folder_(std::move(folder)), vocabulary_(vocabulary), each_(each) {
  require(each >= 1, "dspp: TokenFilesWriter needs files of at least 1 token, but they have less. Raise their length.");
  namespace fs = std::filesystem;
  std::error_code error;
  const auto refuse = [&](const std::string& got, const char* advice) {
    fail(ErrorCode::file,
         "dspp: TokenFilesWriter needs a folder without token files, but '" + folder_ + "' " + got + ". " + advice);
  };
  fs::create_directories(folder_, error);
  if (error) refuse("cannot be made: " + error.message(), "Check the path and its permissions.");
  fs::directory_iterator entry(folder_, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (entry->path().extension() == ".tokens")
      refuse("has '" + entry->path().filename().string() + "'", "Remove them, or name another folder.");
  if (error) refuse("cannot be searched: " + error.message(), "Check its permissions.");
  TokenIndex{}.write(folder_);
}

DSPP_INLINE void TokenFilesWriter::require_usable(const char* call) const {
  if (failed_)
    fail(ErrorCode::state, std::string("dspp: TokenFilesWriter needs ") + call +
                               " without an error before it, but an append() failed: how many of its tokens are in '" +
                               folder_ + "' is not known. Write the folder again.");
}

DSPP_INLINE void TokenFilesWriter::append(std::span<const std::int32_t> tokens) {
  require_usable("append()");
  TokenShardWriter::require_tokens(tokens, vocabulary_.size);
  failed_ = true;  // unless it comes to its end
  while (!tokens.empty()) {
    if (!file_) begin_file();
    const auto here = static_cast<std::size_t>(std::min(std::ssize(tokens), each_ - file_->size()));
    file_->append(tokens.first(here));
    tokens_ += static_cast<Size>(here);
    tokens = tokens.subspan(here);
    if (file_->size() == each_) end_file();
  }
  failed_ = false;
}

DSPP_INLINE void TokenFilesWriter::begin_file() {
  if (files_ == 1'000'000)
    fail(ErrorCode::usage, "dspp: TokenFilesWriter needs at most a million files, but '" + folder_ +
                               "' would have more. Give each more tokens.");
  char name[32];
  std::snprintf(name, sizeof name, "/%06lld.tokens", static_cast<long long>(files_));
  if (index_.finished) TokenIndex{}.write(folder_);
  index_.finished = false;
  file_.emplace(folder_ + name, vocabulary_);
  index_.files.emplace_back(name + 1, 0);
  ++files_;
}

DSPP_INLINE void TokenFilesWriter::end_file() {
  file_->commit();
  index_.files.back().second = header_sum(file_->header());
  file_.reset();
}

DSPP_INLINE void TokenFilesWriter::finish() {
  require_usable("finish()");
  if (file_) end_file();
  if (index_.finished) return;
  TokenIndex whole = index_;
  whole.finished = true;
  whole.write(folder_);
  index_ = std::move(whole);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
