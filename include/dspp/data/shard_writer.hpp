// SPDX-License-Identifier: Apache-2.0
/// Writes tokens to disk, in files that appear only when complete.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/shard_header.hpp>
#include <dspp/io/file.hpp>

namespace dspp::data {

/// The size of the vocabulary, and the tokenizer's fingerprint (0: the tokens are bytes).
struct TokenVocabulary {
  Size size = 256;
  std::uint64_t tokenizer = 0;
};

/// Writes one token file, of two bytes per token if the vocabulary has at most 2^16. Data go to `path` + ".partial";
/// commit() syncs it and renames it atomically, and a writer destroyed before commit() removes it.
///
/// Memory   one megabyte
/// Throws   Error(file) from the system; Error(usage) for a token that is not of the vocabulary, before any is taken;
///          Error(state) after commit(), and after an append() that the system failed
class TokenShardWriter {
 public:
  TokenShardWriter(std::string path, const TokenVocabulary& vocabulary);
  ~TokenShardWriter();
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  void append(std::span<const std::int32_t> tokens);
  /// Throws   Error(usage) unless all are of the vocabulary
  static void require_tokens(std::span<const std::int32_t> tokens, Size vocabulary_size);
  Size size() const { return static_cast<Size>(header_.count); }
  /// Complete after commit().
  const ShardHeader& header() const { return header_; }
  void commit();

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
  void flush();
  void require_usable(const char* call) const;

  std::string path_, partial_;
  ShardHeader header_;
  io::File file_;
  std::string buffer_;
  Size written_ = ShardHeader::bytes;
  Fnv1a sum_;
  bool committed_ = false, failed_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TokenShardWriter::TokenShardWriter(std::string path, const TokenVocabulary& vocabulary)
    : path_(std::move(path)), partial_(path_ + ".partial") {
  require(vocabulary.size >= 1 && vocabulary.size <= Size{1} << 31,
          "dspp: TokenShardWriter needs a vocabulary in [1, 2^31], but it is outside. Pass the tokenizer's.");
  header_.vocabulary_size = static_cast<std::uint64_t>(vocabulary.size);
  header_.token_bytes = vocabulary.size <= 1 << 16 ? 2 : 4;
  header_.tokenizer = vocabulary.tokenizer;
  file_ = io::File::create(partial_);
}

DSPP_INLINE TokenShardWriter::~TokenShardWriter() {
  if (!committed_ && file_) ::unlink(partial_.c_str());
}

DSPP_INLINE void TokenShardWriter::require_usable(const char* call) const {
  if (failed_)
    fail(ErrorCode::state, std::string("dspp: TokenShardWriter needs ") + call +
                               " without an error before it, but an append() failed: how many of its tokens are in the "
                               "file is not known. Write the file again.");
  if (committed_)
    fail(ErrorCode::state, std::string("dspp: TokenShardWriter needs ") + call +
                               " before its one commit(), but it was called after it. Make another writer.");
}

DSPP_INLINE void TokenShardWriter::append(std::span<const std::int32_t> tokens) {
  require_usable("append()");
  require_tokens(tokens, static_cast<Size>(header_.vocabulary_size));
  failed_ = true;  // unless it comes to its end
  for (const std::int32_t token : tokens) {
    const auto value = static_cast<std::uint32_t>(token);
    buffer_.append(reinterpret_cast<const char*>(&value), header_.token_bytes);  // little-endian: the low bytes
    ++header_.count;
    if (buffer_.size() >= buffer_bytes) flush();
  }
  failed_ = false;
}

DSPP_INLINE void TokenShardWriter::require_tokens(std::span<const std::int32_t> tokens, Size vocabulary_size) {
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary_size)
      fail(ErrorCode::usage, "dspp: TokenShardWriter needs tokens of its vocabulary of " +
                                 std::to_string(vocabulary_size) + ", but got " + std::to_string(token) +
                                 ". Pass the vocabulary of the tokenizer that made them.");
}

DSPP_INLINE void TokenShardWriter::flush() {
  file_.write_at(written_, buffer_.data(), std::ssize(buffer_));
  written_ += std::ssize(buffer_);
  sum_.add(buffer_);
  buffer_.clear();
}

DSPP_INLINE void TokenShardWriter::commit() {
  require_usable("commit()");
  flush();
  header_.tokens_sum = sum_.value();
  const std::string header = shard_header_bytes(header_);
  file_.write_at(0, header.data(), std::ssize(header));
  file_.share();
  file_.sync();
  io::replace_file(partial_, path_);
  committed_ = true;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
