// SPDX-License-Identifier: Apache-2.0
/// Samples of token files as sources: plain, or with the documents that are packed in them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <dspp/base/digest.hpp>
#include <dspp/base/error.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/data/token_folder.hpp>
#include <dspp/engine/batch.hpp>
#include <dspp/nn/layer.hpp>

namespace dspp {

/// The samples that batches() takes of token files (data/token_batches.hpp) as a SampleSource, for a Blend.
class TokenSamples {
 public:
  template <class P>
  using Batch = dspp::Batch<DeviceOf<P>>;

  explicit TokenSamples(std::shared_ptr<const data::TokenShards> shards) : shards_(std::move(shards)) {}

  /// Throws   Error(file) if the files have less than one sequence and its last target
  Size size(const BatchSizes& sizes) const;
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape(sizes.sequence)); }
  std::uint64_t fingerprint() const { return shards_->fingerprint(); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

  /// What blended sources need alike.
  std::pair<Size, std::uint64_t> vocabulary() const { return {shards_->vocabulary_size(), shards_->tokenizer()}; }
  const data::TokenShards& shards() const { return *shards_; }

 private:
  std::shared_ptr<const data::TokenShards> shards_;
};

/// Tokens of several documents in each row. Equal ids next to each other are one document; positions count in the
/// document, from its first token in the row. All are [samples, sequence], and Cp cuts the sequence.
template <class P>
struct DocumentBatch {
  Tokens<P> tokens, targets, documents, positions;
  Size first_sample = 0, accumulate = 0;

  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("targets", targets), f("documents", documents), f("positions", positions);
  }
  /// A batch of these sizes, whose elements are uninitialised: for plan, and for batches that a program fills.
  static constexpr DocumentBatch new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory);
};

/// Numbers the documents of a row, each of which ends with the token `end`: documents[i] is the number of ends before
/// token i, positions[i] the number of tokens between the last of them and i.
void number_documents(std::span<const std::int32_t> tokens, std::int32_t end, std::span<std::int32_t> documents,
                      std::span<std::int32_t> positions);

struct DocumentConfig {
  std::int32_t end = -1;      ///< the token after each document; of a TokenFolder, "<|endoftext|>"
  bool ignore_across = true;  ///< no target after an end: it is of the next document
};

/// The samples of token files with the documents in them, in batches B: those of TokenSamples, so that a document may
/// begin in one sample and go on in another, as a document of its own.
///
/// Throws   Error(usage) for an end outside of the vocabulary; Error(file) for a folder that does not name its end
/// Example  batches(world, DocumentSamples(data::TokenFolder("tokens")), sizes)
template <template <class> class B = DocumentBatch>
class DocumentSamples : TokenSamples {
 public:
  template <class P>
  using Batch = B<P>;

  DocumentSamples(std::shared_ptr<const data::TokenShards> shards, const DocumentConfig& config);
  explicit DocumentSamples(const data::TokenFolder& folder, DocumentConfig config = {})
      : DocumentSamples(folder.training(), with_end(folder, config)) {}

  using TokenSamples::size, TokenSamples::vocabulary;
  auto shapes(const BatchSizes& sizes) const {
    const auto row = shape(sizes.sequence);
    return std::tuple(row, row, row, row);
  }
  std::uint64_t fingerprint() const {
    return Digest()
        .add(TokenSamples::fingerprint())
        .add(static_cast<std::uint64_t>(config_.end))
        .add(std::uint64_t{config_.ignore_across})
        .value();
  }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> documents, std::span<std::int32_t> positions) const;

 private:
  static DocumentConfig with_end(const data::TokenFolder& folder, DocumentConfig config) {
    if (config.end < 0) config.end = folder.end_of_text();
    return config;
  }

  DocumentConfig config_;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
constexpr DocumentBatch<P> DocumentBatch<P>::new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) {
  DocumentBatch batch;
  batch.visit([&](const char* name, Tokens<P>& field) {
    field = Tensor<std::int32_t, 2, DeviceOf<P>>::uninitialized(shape(sizes.micro_batch, sizes.sequence / P::cp),
                                                                memory, Category::data, name);
  });
  return batch;
}

namespace detail {
void check_document_end(std::int32_t end, Size vocabulary);
}

template <template <class> class B>
DocumentSamples<B>::DocumentSamples(std::shared_ptr<const data::TokenShards> shards, const DocumentConfig& config)
    : TokenSamples(std::move(shards)), config_(config) {
  detail::check_document_end(config.end, this->shards().vocabulary_size());
}

template <template <class> class B>
void DocumentSamples<B>::fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                              std::span<std::int32_t> documents, std::span<std::int32_t> positions) const {
  TokenSamples::fill(sample, tokens, targets);
  number_documents(tokens, config_.end, documents, positions);
  for (std::size_t i = 0; config_.ignore_across && i < tokens.size(); ++i)
    if (tokens[i] == config_.end) targets[i] = ignored_target;
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size TokenSamples::size(const BatchSizes& sizes) const {
  require(sizes.sequence >= 1, "dspp: batches need a sequence of at least 1, but it is less. Raise sequence.");
  data::detail::check_length(shards_->size(), sizes.sequence, data::detail::shards_source);
  return (shards_->size() - 1) / sizes.sequence;
}

DSPP_INLINE void TokenSamples::fill(Size sample, std::span<std::int32_t> tokens,
                                    std::span<std::int32_t> targets) const {
  const auto sequence = static_cast<Size>(tokens.size());
  shards_->read(sample * sequence, sequence, tokens.data());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  shards_->read((sample + 1) * sequence, 1, &targets.back());
}

DSPP_INLINE void number_documents(std::span<const std::int32_t> tokens, std::int32_t end,
                                  std::span<std::int32_t> documents, std::span<std::int32_t> positions) {
  std::int32_t document = 0, position = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    documents[i] = document, positions[i] = position++;
    if (tokens[i] == end) ++document, position = 0;
  }
}

DSPP_INLINE void detail::check_document_end(std::int32_t end, Size vocabulary) {
  if (end < 0 || end >= vocabulary)
    fail(ErrorCode::usage, "dspp: DocumentSamples need a token that ends each document, in [0, " +
                               std::to_string(vocabulary) + "), but got " + std::to_string(end) +
                               ". Set DocumentConfig::end.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
