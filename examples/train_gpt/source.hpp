// SPDX-License-Identifier: Apache-2.0
/// The training data: the bytes of a text, or a token folder written by examples/tokenize.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/crc32c.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/data/token_folder.hpp>
#include <dspp/io/json.hpp>

#include "job.hpp"

namespace train_gpt {

/// As checkpoints name what is held out of a text.
inline const char* held_out_name(dspp::data::TextSplit split) {
  return split == dspp::data::TextSplit::blocks ? "every tenth block of 64 KiB" : "the last tenth";
}

/// A training part and a held-out part. The engine's batches() and evaluate() use its two friends.
class Source {
 public:
  explicit Source(const Job& job);

  Size vocabulary() const { return tokens_ ? tokens_->vocabulary_size() : 256; }
  /// "text: 6115468 bytes in 337 files", "tokens: 4460770 tokens of a vocabulary of 6004 in 3 files".
  std::string summary() const;
  /// The data identity that a resumed run must match: "text" for any text, or these token files.
  std::string identity() const;
  /// Facts about the data for checkpoints: "data", the identity; for a text "text", its size and checksum, "text_path",
  /// and "held_out", the rule; for token files "tokens_path".
  const std::map<std::string, std::string>& facts() const { return facts_; }
  /// One of these facts, or nothing.
  std::string fact(const std::string& key) const {
    const auto found = facts_.find(key);
    return found == facts_.end() ? std::string() : found->second;
  }
  /// True if the samples are one stream, whatever the global batch is.
  bool is_stream() const { return tokens_.has_value(); }

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;

  friend auto batches(const std::shared_ptr<const Source>& source, const dspp::BatchSizes& sizes,
                      const dspp::data::BatchConfig& config = {}, dspp::data::DataShare share = {}) {
    return source->tokens_ ? dspp::data::batches(source->tokens_->training(), sizes, config, share)
                           : dspp::data::batches(source->text_, sizes, config, share);
  }
  friend auto windows(const std::shared_ptr<const Source>& source, const dspp::BatchSizes& sizes,
                      const dspp::data::WindowConfig& config = {}, dspp::data::DataShare share = {}) {
    return source->tokens_ ? dspp::data::windows(source->tokens_->held_out(), sizes, config, share)
                           : dspp::data::windows(source->text_, sizes, config, share);
  }

 private:
  std::shared_ptr<const dspp::data::Text> text_;
  std::optional<dspp::data::TokenFolder> tokens_;
  std::map<std::string, std::string> facts_;
};

/// The source of a job.
///
/// Throws   Error(file) if the path has no data, or too few to train and to evaluate on
inline std::shared_ptr<const Source> read_source(const Job& job) {
  auto source = std::make_shared<const Source>(job);
  batches(source, job.sizes());
  windows(source, held_out_sizes(job), held_out_windows());
  return source;
}

// ---------------------------------------------------------------------------------------------------------------------

inline Source::Source(const Job& job) {
  if (job.tokens.empty())
    text_ = std::make_shared<const dspp::data::Text>(dspp::data::read_text({.path = job.data, .split = job.split}));
  else
    tokens_.emplace(job.tokens);
  facts_["data"] = identity();
  const auto as_text = [](const std::string& path) { return dspp::io::first_bad_utf8(path) < 0 ? path : "?"; };
  if (tokens_) facts_["tokens_path"] = as_text(job.tokens);
  if (!text_) return;
  const auto bytes = std::ssize(text_->bytes);
  facts_["text_path"] = as_text(job.data);
  facts_["held_out"] = held_out_name(job.split);
  facts_["text"] =
      std::to_string(bytes) + " bytes with the checksum " + std::to_string(dspp::crc32c(text_->bytes.data(), bytes));
}

inline std::string Source::summary() const {
  return tokens_ ? "tokens: " + tokens_->training()->summary() : "text: " + text_->summary();
}

inline std::string Source::identity() const {
  return tokens_ ? "token files " + std::to_string(tokens_->training()->fingerprint()) : "text";
}

inline std::vector<std::int32_t> Source::encode(std::string_view text) const {
  if (tokens_) return tokens_->encode(text);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  return {bytes, bytes + text.size()};
}

inline std::string Source::decode(const std::vector<std::int32_t>& tokens) const {
  return tokens_ ? tokens_->decode(tokens) : std::string(tokens.begin(), tokens.end());
}

}  // namespace train_gpt
