// SPDX-License-Identifier: Apache-2.0
// A run that resumes with other data, or in another order, is refused; with other ranks and batches it is not.
// labels: thread
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/data/text.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/data/token_files_writer.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/blend.hpp>
#include <dspp/engine/bucket_batches.hpp>
#include <dspp/launch/run.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<>;

template <class Q>
struct Rows {
  Input<Q, std::int32_t, 2> tokens;
  void visit(auto&& f) { f("tokens", tokens); }
  void visit(auto&& f) const { f("tokens", tokens); }
};

struct Plain {  // 40 samples, of which the digest reads three
  template <class Q>
  using Batch = Rows<Q>;
  Size samples = 40;
  std::int32_t first = 0;
  Size size() const { return samples; }
  Size length(Size sample) const { return 1 + sample % 6; }
  auto padding() const { return std::tuple(-1); }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence)); }
  void fill(Size sample, std::span<std::int32_t> tokens) const {
    tokens[0] = static_cast<std::int32_t>(sample) + first;
  }
};
struct Ordered : Plain {  // in an order of its own
  Size stride = 3;
  Size sample_at(std::uint64_t seed, Size position) const {
    return (static_cast<Size>(seed) + position * stride) % samples;
  }
};
struct Printed : Plain {
  std::uint64_t print = 1;
  std::uint64_t fingerprint() const { return print; }
};

/// The digest of a world's batches, which resume those of `before`.
using DigestOf = std::function<std::uint64_t(int ranks, Size micro_batch, std::uint64_t seed, std::uint64_t before)>;

template <class Batches>
DigestOf digest_of(Batches batches_of) {
  return [batches_of](int ranks, Size micro_batch, std::uint64_t seed, std::uint64_t before) {
    std::uint64_t digest = 0;
    run_ranks_of<P>({.ranks = ranks}, [&](World<P>& world) {
      const BatchSizes sizes{.micro_batch = micro_batch, .sequence = 6, .accumulate = ranks};
      const auto data = batches_of(world, sizes, data::BatchConfig{.steps = 2, .seed = seed, .data_digest = before});
      if (world.is_first()) digest = data.data_digest();
    });
    return digest;
  };
}
template <class Source>
DigestOf of_source(const Source& source, Size sequence = 6) {
  return digest_of([=](World<P>& world, BatchSizes sizes, const data::BatchConfig& config) {
    sizes.sequence = sequence;
    return batches(world, source, sizes, config);
  });
}
DigestOf of_buckets(const Plain& source, const data::BucketSizes& sizes) {
  return digest_of([=](World<P>& world, const BatchSizes& like, const data::BatchConfig& config) {
    data::BucketSizes own = sizes;
    own.accumulate = like.accumulate;
    return batches(world, source, bucket_plan(source, own), config);
  });
}

/// Token files of `tokens` ids that begin with `first`.
data::TokenFiles token_files(const std::string& folder, Size tokens, std::int32_t first) {
  data::TokenFilesWriter writer(folder, {.size = 300, .tokenizer = 1}, 70);
  for (Size i = 0; i < tokens; ++i) writer.append(std::vector{static_cast<std::int32_t>(i % 100) + first});
  writer.finish();
  return data::TokenFiles{folder};
}

}  // namespace

TEST_CASE("batches resume those of the same data and order, whatever the ranks and batches, and no others") {
  const Folder folder;
  const auto blend = [](double weight, Size samples = 40) {
    return Blend<Plain>({{Plain{}, weight}, {Plain{.samples = samples, .first = 100}, 1 - weight}}, {.sequence = 6});
  };
  const std::map<std::string, DigestOf> all{
      {"samples", of_source(Plain{})},
      {"fewer samples", of_source(Plain{.samples = 39})},
      {"other samples", of_source(Plain{.first = 1})},
      {"an own order", of_source(Ordered{})},
      {"another own order", of_source(Ordered{{}, 7})},
      {"a fingerprint", of_source(Printed{})},
      {"another fingerprint", of_source(Printed{{}, 2})},
      {"a blend", of_source(blend(0.75))},
      {"other weights", of_source(blend(0.76))},
      {"another source in the blend", of_source(blend(0.75, 41))},
      {"buckets", of_buckets(Plain{}, {.lengths = {3, 6}, .tokens = 36})},
      {"other buckets", of_buckets(Plain{}, {.lengths = {4, 6}, .tokens = 36})},
      {"larger buckets", of_buckets(Plain{}, {.lengths = {3, 6}, .tokens = 72})},
      {"buckets of others", of_buckets(Plain{.first = 1}, {.lengths = {3, 6}, .tokens = 36})},
      {"tokens", of_source(token_files(folder.file("a"), 199, 0))},
      {"more tokens", of_source(token_files(folder.file("b"), 211, 0))},
      {"tokens in samples of another length", of_source(token_files(folder.file("d"), 199, 0), 5)},
      {"other tokens", of_source(token_files(folder.file("c"), 199, 1))},
  };
  std::map<std::uint64_t, std::string> digests;
  for (const auto& named : all) {
    const std::string& name = named.first;
    const DigestOf& digest = named.second;
    for (const std::uint64_t seed : {1, 2}) {
      CAPTURE(name);
      CAPTURE(seed);
      const std::uint64_t one = digest(1, 6, seed, 0);
      CHECK(digests.emplace(one, name).second);
      for (const int ranks : {1, 2, 3}) CHECK(digest(ranks, 2, seed, one) == one);
      const std::string refused = sentence_of([&] { digest(2, 2, seed, one + 1); });
      CHECK(refused.find("needs the data of the run that it resumes, of digest " + digest_text(one + 1)) !=
            std::string::npos);
    }
  }
}

TEST_CASE("ranks that resume from different digests are told so") {
  const std::string said = sentence_of([] {
    run_ranks_of<P>({.ranks = 2}, [](World<P>& world) {
      const auto other = static_cast<std::uint64_t>(world.rank() + 1);
      batches(world, Plain{}, {.sequence = 6}, {.data_digest = other});
    });
  });
  CHECK(said.find("data_digest") != std::string::npos);
  CHECK(said.find("0000000000000002") != std::string::npos);
}

TEST_CASE("batches without a world compare the digest, too, and an own order is asked for one alone") {
  const auto text = std::make_shared<data::Text>();
  text->bytes.assign(500, 7);
  text->training_bytes = 400;
  const BatchSizes sizes{.micro_batch = 2, .sequence = 8};
  const std::uint64_t digest = data::batches(text, sizes).data_digest();
  const auto first_of = [&](std::uint64_t before) {
    return sentence_of([&] { data::batches(text, sizes, {.data_digest = before}).begin(); });
  };
  CHECK(first_of(digest) == "no error");
  CHECK(first_of(digest + 1).find("needs the data of the run that it resumes") != std::string::npos);

  struct Short : Plain {  // knows ten positions
    Size sample_at(std::uint64_t, Size position) const { return position < 10 ? position : samples; }
  };
  run_ranks_of<P>({}, [](World<P>& world) {
    const auto data = batches(world, Short{}, {.micro_batch = 2, .sequence = 6}, {.steps = 5});
    CHECK(data[4].tokens.shape()[0] == 2);
    CHECK(sentence_of([&] { data.data_digest(); }).find("sample_at needs to give samples in [0, 40)") !=
          std::string::npos);
  });
}
