// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include <dspp/data/token_batches.hpp>
#include <laws/token_files.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Row = std::vector<std::int32_t>;

/// The samples in the order of the stream, by their first tokens over the sequence, 5.
std::vector<Size> stream(const std::shared_ptr<const data::TokenShards>& shards, int ranks, BatchSizes sizes,
                         const data::BatchConfig& config) {
  sizes.sequence = 5;
  const Size global = sizes.micro_batch * sizes.accumulate * ranks;
  std::vector<Size> samples(static_cast<std::size_t>(config.steps * global), -1);
  for (int rank = 0; rank < ranks; ++rank)
    for (const data::TokenBatch& batch : batches(shards, sizes, config, {rank, ranks}))
      for (Size row = 0; row < sizes.micro_batch; ++row) {
        const std::int32_t first = batch.tokens[static_cast<std::size_t>(row * 5)];
        for (Size i = 0; i < 5; ++i) {
          REQUIRE(batch.tokens[static_cast<std::size_t>(row * 5 + i)] == first + i);
          REQUIRE(batch.targets[static_cast<std::size_t>(row * 5 + i)] == first + i + 1);
        }
        REQUIRE(first % 5 == 0);
        const Size at = batch.step * global + (batch.micro_step * ranks + rank) * sizes.micro_batch + row;
        samples[static_cast<std::size_t>(at)] = first / 5;
      }
  return samples;
}

std::vector<Size> sorted(std::vector<Size> samples, std::ptrdiff_t begin, std::ptrdiff_t end) {
  samples = {samples.begin() + begin, samples.begin() + end};
  std::sort(samples.begin(), samples.end());
  return samples;
}

}  // namespace

TEST_CASE(
    "the stream of samples is the same for every number of ranks, micro-batch, accumulation and cut of the files") {
  const Folder folder;
  const auto shards = counting_shards(folder, 186);  // 37 samples
  const auto whole = stream(shards, 1, {.micro_batch = 12}, {.steps = 10});
  CHECK(stream(shards, 2, {.micro_batch = 6}, {.steps = 10}) == whole);
  CHECK(stream(shards, 3, {.micro_batch = 4}, {.steps = 10}) == whole);
  CHECK(stream(shards, 4, {.micro_batch = 1, .accumulate = 3}, {.steps = 10}) == whole);
  CHECK(stream(shards, 1, {.micro_batch = 5}, {.steps = 24}) == whole);                   // another global batch
  CHECK(stream(shards, 2, {.micro_batch = 2, .accumulate = 2}, {.steps = 15}) == whole);  // and another
  CHECK(stream(counting_shards(folder, 186, 17), 1, {.micro_batch = 12}, {.steps = 10}) == whole);
  CHECK(stream(shards, 1, {.micro_batch = 12}, {.steps = 10, .seed = 2}) != whole);
}

TEST_CASE("every sample comes once per epoch, at 1 to 4 ranks, though the batch does not divide the epoch") {
  const Folder folder;
  const auto shards = counting_shards(folder, 186);
  std::vector<Size> all(37);
  std::iota(all.begin(), all.end(), Size{0});
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const auto samples = stream(shards, ranks, {.micro_batch = 3, .accumulate = 2}, {.steps = 40});
    REQUIRE(samples.size() >= 111);
    for (int epoch = 0; epoch < 3; ++epoch) CHECK(sorted(samples, 37 * epoch, 37 * (epoch + 1)) == all);
    CHECK(sorted(samples, 1, 38) != all);  // epochs begin at multiples of 37 only
  }
  // A sample needs a target after its last token: of 185 tokens, the last five are not a sample.
  all.pop_back();
  CHECK(sorted(stream(counting_shards(folder, 185, 185), 1, {.micro_batch = 36}, {.steps = 1}), 0, 36) == all);
}

TEST_CASE("a stopped run resumes at the exact sample, with other ranks and another batch") {
  const Folder folder;
  const auto shards = counting_shards(folder, 186);
  const auto whole = stream(shards, 1, {.micro_batch = 6}, {.steps = 20});
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    constexpr BatchSizes before{.micro_batch = 2, .sequence = 5, .accumulate = 3};
    auto samples = stream(shards, 1, before, {.steps = 7});
    const Size next = batches(shards, before, {.steps = 7}).next_sample(7);
    CHECK(next == 42);
    const auto rest = stream(shards, ranks, {.micro_batch = 3}, {.steps = 5, .first_sample = next});
    samples.insert(samples.end(), rest.begin(), rest.end());
    CHECK(samples == std::vector<Size>(whole.begin(), whole.begin() + std::ssize(samples)));
    CHECK(batches(shards, {.micro_batch = 3, .sequence = 5}, {.first_sample = next}, {0, ranks}).next_sample(5) ==
          42 + 15 * ranks);
  }
  constexpr BatchSizes sizes{.micro_batch = 6, .sequence = 5};
  const data::BatchConfig later{.steps = 2, .first_step = 3};
  CHECK((*batches(shards, sizes, later).begin()).tokens[0] == 5 * whole[18]);
  CHECK(batches(shards, sizes, later).next_sample(2) == 30);
}

TEST_CASE("batches of a text resume at a sample that their global batch divides") {
  auto text = std::make_shared<data::Text>();
  for (int i = 0; i < 500; ++i) text->bytes.push_back(static_cast<unsigned char>(i % 251));
  text->training_bytes = 500;
  constexpr BatchSizes sizes{.micro_batch = 4, .sequence = 5, .accumulate = 2};
  const data::BatchConfig steps{.steps = 1, .first_step = 3};
  data::BatchConfig samples = steps;
  samples.first_step = 0, samples.first_sample = 48;
  auto by_steps = batches(text, sizes, steps, {1, 2}), by_samples = batches(text, sizes, samples, {1, 2});
  CHECK((*by_samples.begin()).tokens == (*by_steps.begin()).tokens);
  CHECK((*by_samples.begin()).step == 3);
  CHECK(by_samples.next_sample(2) == 80);
  CHECK(by_steps.next_sample(2) == 80);
  CHECK_THROWS_WITH_AS(batches(text, sizes, samples, {0, 5}),
                       "dspp: batches of a text need a first_sample that the global batch divides, but 48 is not a "
                       "multiple of 40. Keep the global batch of the run before.",
                       Error);
  samples.first_step = 1;
  CHECK_THROWS_WITH_AS(batches(text, sizes, samples),
                       "dspp: batches need first_step or first_sample, but got both. Leave out one.", Error);
}

TEST_CASE("the fewest tokens to train on are one sample, which repeats") {
  const Folder folder;
  CHECK(stream(counting_shards(folder, 6), 1, {.micro_batch = 2}, {.steps = 2}) == std::vector<Size>{0, 0, 0, 0});
  CHECK_THROWS_WITH_AS(batches(counting_shards(folder, 5), {.sequence = 5}),
                       "dspp: batches need at least 6 tokens to train on (one sequence and its last target), but the "
                       "files have 5. Shorten the sequence or give more text.",
                       Error);
  CHECK_THROWS_WITH_AS(windows(counting_shards(folder, 10), {.sequence = 5}, {}, {0, 2}),
                       "dspp: windows need at least 11 held-out tokens (one sequence for each data rank and a last "
                       "target), but the files have 10. Shorten the sequence or give more text.",
                       Error);
}

TEST_CASE("windows cover token files in order") {
  const Folder folder;
  const auto shards = counting_shards(folder, 61, 13);
  std::vector<std::int32_t> firsts;
  for (int rank = 0; rank < 2; ++rank)
    for (const data::TokenBatch& batch : windows(shards, {.micro_batch = 3, .sequence = 5}, {}, {rank, 2}))
      for (std::size_t row = 0; row < 3; ++row) firsts.push_back(batch.tokens[5 * row]);
  CHECK(firsts == Row{0, 5, 10, 30, 35, 40, 15, 20, 25, 45, 50, 55});
}
