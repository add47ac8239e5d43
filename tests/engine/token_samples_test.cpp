// SPDX-License-Identifier: Apache-2.0
// labels: engine thread
// Token files as sources: the documents of packed samples.
#include <doctest/doctest.h>

#include <laws/own_source.hpp>
#include <laws/sentence_of.hpp>
#include <laws/small_tokenizer.hpp>
#include <laws/token_files.hpp>

#include <mutex>
#include <string>
#include <vector>

#include <dspp/data/token_files_writer.hpp>
#include <dspp/dspp.hpp>
#include <dspp/engine/token_samples.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Row = std::vector<std::int32_t>;

std::shared_ptr<const data::TokenShards> shards_of(const Folder& folder, const Row& tokens, const char* name = "a") {
  data::TokenShardWriter writer(folder.file(std::string(name) + ".tokens"), {10, 1});
  writer.append(tokens);
  writer.commit();
  return std::make_shared<const data::TokenShards>(std::vector{folder.file(std::string(name) + ".tokens")});
}

struct Packed {
  Row tokens, targets, documents, positions;
};

Packed packed(const DocumentSamples<>& source, Size sample, std::size_t sequence) {
  Packed row{Row(sequence), Row(sequence), Row(sequence), Row(sequence)};
  source.fill(sample, row.tokens, row.targets, row.documents, row.positions);
  return row;
}

}  // namespace

TEST_CASE("a document ends after its end, at any place of a sample") {
  const Folder folder;
  // four samples of 4: no end, the last token, adjacent ends with the first one, the first token
  const auto shards = shards_of(folder, {1, 2, 3, 4, /**/ 5, 6, 7, 0, /**/ 0, 0, 8, 0, /**/ 0, 1, 2, 3, /**/ 4});
  const DocumentSamples source(shards, {.end = 0});
  REQUIRE(source.size({.sequence = 4}) == 4);
  const auto none = packed(source, 0, 4), last = packed(source, 1, 4), both = packed(source, 2, 4),
             first = packed(source, 3, 4);
  CHECK(none.documents == Row{0, 0, 0, 0});
  CHECK(none.positions == Row{0, 1, 2, 3});
  CHECK(none.targets == Row{2, 3, 4, 5});
  CHECK(last.documents == Row{0, 0, 0, 0});
  CHECK(last.positions == Row{0, 1, 2, 3});
  CHECK(last.targets == Row{6, 7, 0, -100});
  CHECK(both.documents == Row{0, 1, 2, 2});
  CHECK(both.positions == Row{0, 0, 0, 1});
  CHECK(both.targets == Row{-100, -100, 0, -100});
  CHECK(first.documents == Row{0, 1, 1, 1});
  CHECK(first.positions == Row{0, 0, 1, 2});
  CHECK(first.targets == Row{-100, 2, 3, 4});
  const DocumentSamples across(shards, {.end = 0, .ignore_across = false});
  CHECK(packed(across, 2, 4).targets == Row{0, 8, 0, 0});
  CHECK(packed(across, 2, 4).documents == both.documents);
  CHECK(across.fingerprint() != source.fingerprint());
  CHECK(DocumentSamples(shards, {.end = 1}).fingerprint() != source.fingerprint());
  for (const std::int32_t end : {-1, 10})
    CHECK(sentence_of([&] { DocumentSamples(shards, {.end = end}); }) ==
          "dspp: DocumentSamples need a token that ends each document, in [0, 10), but got " + std::to_string(end) +
              ". Set DocumentConfig::end.");
  CHECK(sentence_of([&] { source.size({.sequence = 17}); }) ==
        "dspp: batches need at least 18 tokens to train on (one sequence and its last target), but the files have 17. "
        "Shorten the sequence or give more text.");
}

TEST_CASE("the folder names the end of its documents, or the error says what to do") {
  const Folder folder;
  SmallTokenizer file{.added = R"({"id":270,"content":"<|endoftext|>","normalized":false,"special":true})"};
  file.vocabulary += R"(,"<|endoftext|>":270)";
  const data::Tokenizer by = data::Tokenizer::parse(file.json(), "the tokenizer");
  const auto write = [&](const std::string& name, const data::TokenVocabulary& vocabulary, const Row& tokens) {
    for (const char* part : {"/train", "/held_out"}) {
      data::TokenFilesWriter writer(folder.file(name + part), vocabulary, 100);
      writer.append(tokens);
      writer.finish();
    }
  };
  write("tokens", {by.vocabulary_size(), by.fingerprint()}, by.encode("the<|endoftext|>the"));
  folder.write("tokens/tokenizer.json", file.json());
  write("bytes", {256}, {1, 2, 3});
  const data::TokenFolder tokens(folder.file("tokens")), bytes(folder.file("bytes"));
  CHECK(tokens.end_of_text() == 270);
  const auto length = static_cast<std::size_t>(tokens.training()->size()) - 1;
  const auto row = packed(DocumentSamples(tokens), 0, length);
  CHECK(row.documents[length - 1] == (row.tokens[length - 1] == 270 ? 0 : 1));
  CHECK(sentence_of([&] { tokens.end_of_text("<eos>"); }) ==
        "dspp: TokenFolder needs the token '<eos>' after each document, but the tokenizer of '" +
            folder.file("tokens") + "' has none. Name the token that tokenize --end wrote.");
  CHECK(sentence_of([&] { DocumentSamples{bytes}; }) ==
        "dspp: TokenFolder needs the token '<|endoftext|>' after each document, but the tokens of '" +
            folder.file("bytes") + "' are bytes. Name the token that tokenize --end wrote.");
}

namespace {
/// The sums of the numbers of the documents and of the positions, over the ranks of Cp.
template <class P>
std::vector<std::pair<Row, Row>> batches_of_documents(const DocumentSamples<>& source, int ranks, Size micro_batch) {
  std::vector<std::pair<Row, Row>> rows(12);
  std::mutex mutex;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    const BatchSizes sizes{.micro_batch = micro_batch, .sequence = 4};
    Size step = 0;
    for (const auto& batch : batches(world, source, sizes, {.steps = 3, .prefetch = 1})) {
      const std::lock_guard lock(mutex);
      REQUIRE(batch.documents.shape() == shape(micro_batch, Size{4} / P::cp));
      CHECK(batch.first_sample == world.data_rank() * micro_batch);
      batch.documents.value().read([&](const std::int32_t* documents) {
        batch.positions.value().read([&](const std::int32_t* positions) {
          for (Size i = 0; i < micro_batch * 4 / P::cp; ++i) {
            const Size row = 4 * step + world.data_rank() * micro_batch + i / (4 / P::cp);
            auto& [all_documents, all_positions] = rows[static_cast<std::size_t>(row)];
            all_documents.resize(4), all_positions.resize(4);
            const auto at = static_cast<std::size_t>(world.cp_rank() * (4 / P::cp) + i % (4 / P::cp));
            all_documents[at] = documents[i], all_positions[at] = positions[i];
          }
        });
      });
      ++step;
    }
  });
  return rows;
}
}  // namespace

TEST_CASE("documents come in the order of the files' samples, whatever shares and cuts them") {
  const Folder folder;
  Row tokens;
  for (std::int32_t i = 0; i < 29; ++i) tokens.push_back(i * i % 5);
  const DocumentSamples source(shards_of(folder, tokens), {.end = 0});
  const auto one = batches_of_documents<Policy<>>(source, 1, 4);
  for (Size i = 0; i < 12; ++i) {
    const auto row = packed(source, data::sample_at(1, i, 7), 4);
    CHECK(one[static_cast<std::size_t>(i)] == std::pair(row.documents, row.positions));
  }
  CHECK(batches_of_documents<Policy<>>(source, 2, 2) == one);
  CHECK(batches_of_documents<Policy<Cp<2>>>(source, 4, 2) == one);
}

namespace {
template <class P>
struct Reader : Layer<P> {
  Embedding<P> tokens, positions;
  SelfAttention<P> attention;
  ColumnParallel<Linear, P> head;
  constexpr explicit Reader(Size width)
      : tokens(10, width), positions(8, width), attention({.width = width, .heads = 2}), head(width, 10) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens), f("positions", positions), f("attention", attention), f("head", head);
  }
  constexpr Loss<P> loss(const DocumentBatch<P>& batch) const {
    const auto x = tokens(batch.tokens) + positions(batch.positions);
    return cross_entropy<P>(head(x + attention(x, Documents{batch.documents})), batch.targets, 10);
  }
};

/// The losses of steps on the same tokens, in rows of `sequence`.
template <class P>
std::vector<double> losses(const std::shared_ptr<const data::TokenShards>& shards, int ranks, const BatchSizes& sizes) {
  std::vector<double> all;
  run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
    const Plan paper = plan<Reader<P>>(Size{8}, sizes, {.data = world.data_size(), .rank = world.place()});
    Engine engine{world, Reader<P>(8), AdamW{.lr = 1e-2}, sizes};
    const auto data = batches(world, DocumentSamples(shards, {.end = 0}), sizes, {.steps = 4});
    for (Size step = 0; step < 4; ++step) {
      const auto report = engine.train_batch(data.step(step));
      if (world.is_first()) all.push_back(report->loss);
    }
    CHECK(world.memory().peak() == paper.peak);
  });
  return all;
}
}  // namespace

TEST_CASE("documents packed in one row train as in rows of their own, cut over Cp, too, at their plans' memory") {
  const Folder folder;
  const auto shards = shards_of(folder, {1, 2, 3, 0, 4, 5, 6, 7, 8});
  const auto packed = losses<Policy<F64>>(shards, 1, {.micro_batch = 1, .sequence = 8});
  REQUIRE(packed.size() == 4);
  CHECK(packed[3] < packed[0]);
  const auto close = [&](const std::vector<double>& other) {
    REQUIRE(other.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(other[i] - packed[i]) < 1e-12);
  };
  close(losses<Policy<F64>>(shards, 1, {.micro_batch = 2, .sequence = 4}));
  close(losses<Policy<F64>>(shards, 2, {.micro_batch = 1, .sequence = 4}));
  close(losses<Policy<F64, Cp<2>>>(shards, 2, {.micro_batch = 1, .sequence = 8}));
}
