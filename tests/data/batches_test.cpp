// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <laws/sentence_of.hpp>

#include <algorithm>
#include <limits>
#include <map>

#include <dspp/data/batches.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// A text whose byte i is i mod 251.
std::shared_ptr<const data::Text> counting_text(Size bytes, double held_out = 0.1) {
  auto text = std::make_shared<data::Text>();
  for (Size i = 0; i < bytes; ++i) text->bytes.push_back(static_cast<unsigned char>(i % 251));
  text->training_bytes = bytes - static_cast<Size>(static_cast<double>(bytes) * held_out);
  return text;
}

using Row = std::vector<std::int32_t>;

/// The rows of one step's global batch, in the order of their sample numbers.
std::vector<Row> global_batch(int ranks, Size micro_batch, Size accumulate, Size step) {
  std::vector<Row> rows(static_cast<std::size_t>(ranks * micro_batch * accumulate));
  for (int rank = 0; rank < ranks; ++rank) {
    auto range = batches(counting_text(2000), {.micro_batch = micro_batch, .sequence = 5, .accumulate = accumulate},
                         {.steps = step + 1}, {rank, ranks});
    for (const data::TokenBatch& batch : range) {
      if (batch.step != step) continue;
      for (Size b = 0; b < micro_batch; ++b) {
        const Size sample = (batch.micro_step * ranks + rank) * micro_batch + b;
        rows[static_cast<std::size_t>(sample)] =
            Row(&batch.tokens[static_cast<std::size_t>(b * 5)], &batch.tokens[static_cast<std::size_t>(b * 5)] + 5);
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("targets are the next tokens") {
  Size seen = 0;
  for (const data::TokenBatch& batch : batches(counting_text(3000), {.micro_batch = 3, .sequence = 7}, {.steps = 20})) {
    REQUIRE(batch.tokens.size() == 21);
    for (std::size_t i = 0; i < 21; ++i) {
      REQUIRE(batch.targets[i] == (batch.tokens[i] + 1) % 251);
      if (i % 7 != 0) REQUIRE(batch.tokens[i] == batch.targets[i - 1]);
    }
    CHECK(batch.step == seen++);
  }
  CHECK(seen == 20);
}

TEST_CASE("the global batch is the same for every number of ranks and of micro-steps") {
  for (const Size step : {0, 3}) {
    const auto whole = global_batch(1, 12, 1, step);
    CHECK(global_batch(2, 6, 1, step) == whole);
    CHECK(global_batch(3, 4, 1, step) == whole);
    CHECK(global_batch(4, 3, 1, step) == whole);
    CHECK(global_batch(1, 4, 3, step) == whole);
    CHECK(global_batch(2, 2, 3, step) == whole);
    CHECK(global_batch(1, 6, 1, step) == std::vector<Row>(whole.begin(), whole.begin() + 6));
  }
  CHECK(global_batch(1, 12, 1, 0) != global_batch(1, 12, 1, 1));
}

TEST_CASE("a resumed run continues with the same batches") {
  constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 4, .accumulate = 2};
  const data::BatchConfig config{.steps = 10, .seed = 9};
  std::vector<Row> all, resumed;
  for (const data::TokenBatch& batch : batches(counting_text(500), sizes, config)) all.push_back(batch.tokens);
  data::BatchConfig rest = config;
  rest.first_step = 7, rest.steps = 3;
  for (const data::TokenBatch& batch : batches(counting_text(500), sizes, rest)) resumed.push_back(batch.tokens);
  CHECK(all.size() == 20);
  CHECK(resumed == std::vector<Row>(all.begin() + 14, all.end()));
  data::BatchConfig other = config;
  other.seed = 10;
  CHECK((*batches(counting_text(500), sizes, other).begin()).tokens != all[0]);
}

TEST_CASE("positions are uniform over all that leave room for a sequence and its last target") {
  std::map<Size, int> counts;
  for (Size sample = 0; sample < 20000; ++sample) ++counts[data::sample_position(5, 3, sample, 20)];
  REQUIRE(counts.size() == 20);
  CHECK(counts.begin()->first == 0);
  CHECK(counts.rbegin()->first == 19);
  for (const auto& [position, count] : counts) CHECK(std::abs(count - 1000) < 150);  // 4.9 deviations of 30.8
  CHECK(data::sample_position(5, 3, 0, 1) == 0);
  constexpr Size many = Size{1} << 40;
  for (Size sample = 0; sample < 100; ++sample) {
    const Size position = data::sample_position(1, 0, sample, many);
    REQUIRE(position >= 0);
    REQUIRE(position < many);
  }
  static_assert(data::sample_position(1, 0, 0, 1000) == data::sample_position(1, 0, 0, 1000));
}

TEST_CASE("the shortest text that trains has one position") {
  const auto text = counting_text(6, 0);
  for (const data::TokenBatch& batch : batches(text, {.micro_batch = 4, .sequence = 5}, {.steps = 3}))
    for (std::size_t i = 0; i < 20; ++i) CHECK(batch.tokens[i] == static_cast<std::int32_t>(i % 5));
  CHECK(sentence_of([&] { batches(text, {.sequence = 6}); }) ==
        "dspp: batches need at least 7 bytes to train on (one sequence and its last target), but the text has 6. "
        "Shorten the sequence or give more text.");
}

TEST_CASE("windows cover the held-out part in order, without overlap, once over all ranks") {
  const auto text = counting_text(1000, 0.5);  // held out: positions 500 to 999
  for (const int ranks : {1, 2, 3}) {
    std::vector<std::int32_t> first_tokens;
    Size batches_seen = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      auto range = windows(text, {.micro_batch = 2, .sequence = 10}, {}, {rank, ranks});
      CHECK(range.size() == 49 / (2 * ranks));
      CHECK(range.global_tokens() == range.size() * 2 * ranks * 10);
      for (const data::TokenBatch& batch : range) {
        ++batches_seen;
        CHECK(batch.tokens.size() == 20);
        first_tokens.push_back(batch.tokens[0]);
        first_tokens.push_back(batch.tokens[10]);
      }
    }
    std::sort(first_tokens.begin(), first_tokens.end());
    std::vector<std::int32_t> expected;
    for (Size w = 0; w < batches_seen * 2; ++w) expected.push_back(static_cast<std::int32_t>((500 + 10 * w) % 251));
    std::sort(expected.begin(), expected.end());
    CHECK(first_tokens == expected);
  }
}

TEST_CASE("a limited evaluation takes evenly spaced windows, at least as many tokens as asked for") {
  const auto text = counting_text(100000, 0.5);
  auto range = windows(text, {.micro_batch = 4, .sequence = 10}, {.at_least_tokens = 999});
  CHECK(range.global_tokens() == 1000);
  std::vector<std::int32_t> starts;
  for (const data::TokenBatch& batch : range)
    for (std::size_t b = 0; b < 4; ++b) starts.push_back(batch.tokens[10 * b]);
  REQUIRE(starts.size() == 100);
  for (Size w = 0; w < 100; ++w) CHECK(starts[static_cast<std::size_t>(w)] == (50000 + 10 * (w * 4999 / 100)) % 251);
  CHECK(windows(text, {.micro_batch = 4, .sequence = 10}, {.at_least_tokens = 1 << 20}).global_tokens() == 49960);
}

TEST_CASE("with few windows the batches are smaller, and fewer windows than ranks are an error") {
  const auto text = counting_text(100, 0.5);
  auto range = windows(text, {.micro_batch = 8, .sequence = 10}, {}, {1, 2});
  CHECK(range.size() == 1);
  CHECK((*range.begin()).micro_batch == 2);
  CHECK((*range.begin()).tokens[0] == 50 + 20);
  CHECK(sentence_of([&] {
          windows(text, {.sequence = 25}, {}, {0, 2});
        }) ==
        "dspp: windows need at least 51 held-out bytes (one sequence for each data rank and a last target), but the "
        "text has 50. "
        "Shorten the sequence or give more text.");
}

TEST_CASE("a range owns its text and fills memory of the caller") {
  auto range = batches(counting_text(300), {.micro_batch = 2, .sequence = 3}, {.steps = 2});
  std::int32_t tokens[6], targets[6];
  range.fill(1, tokens, targets);
  auto it = range.begin();
  ++it;
  CHECK(std::equal(tokens, tokens + 6, it->tokens.begin()));
  CHECK(std::equal(targets, targets + 6, it->targets.begin()));
  CHECK(batches(counting_text(300), {.sequence = 3}, {.steps = 0}).begin() == std::default_sentinel);
}

TEST_CASE("an impossible batch configuration is an error") {
  const auto text = counting_text(300);
  CHECK_THROWS_WITH_AS(batches(text, {.micro_batch = 0}),
                       "dspp: batches need a micro-batch of at least 1, but it is less. Raise micro_batch.", Error);
  CHECK_THROWS_AS(batches(text, {.sequence = 0}), Error);
  CHECK_THROWS_AS(batches(text, {.sequence = 4, .accumulate = 0}), Error);
  CHECK_THROWS_AS(batches(text, {.sequence = 4}, {.steps = -1}), Error);
  for (const data::DataShare share : {data::DataShare{2, 2}, data::DataShare{-1, 2}, data::DataShare{0, 0}})
    CHECK(sentence_of([&] { batches(text, {.sequence = 4}, {}, share); }) ==
          "dspp: batches need a data rank in [0, ranks), but it is outside. Pass the rank and size of the data axis.");
  for (const data::BatchConfig& config : {data::BatchConfig{.first_step = -1}, data::BatchConfig{.first_sample = -1}})
    CHECK_THROWS_AS(batches(text, {.sequence = 4}, config), Error);
}

TEST_CASE("samples that 63 bits do not count are an error") {
  const auto text = counting_text(300);
  constexpr Size most = std::numeric_limits<Size>::max(), large = Size{1} << 40;
  const auto refused = [&](const BatchSizes& sizes, const data::BatchConfig& config, data::DataShare share) {
    const std::string sentence = sentence_of([&] { batches(text, sizes, config, share); });
    return sentence.starts_with(
        "dspp: batches need samples that 63 bits count, but the last ones are beyond (first_step ");
  };
  CHECK(refused({.micro_batch = large, .sequence = 4, .accumulate = large}, {}, {}));
  CHECK(refused({.micro_batch = large, .sequence = 4}, {}, {0, 1 << 30}));
  CHECK(refused({.micro_batch = 1, .sequence = 4}, {.steps = most, .first_step = 1}, {}));
  CHECK(refused({.micro_batch = 2, .sequence = 4}, {.steps = most}, {}));
  CHECK(refused({.micro_batch = 1, .sequence = 4}, {.steps = most, .first_sample = 1}, {}));
  CHECK(!refused({.micro_batch = 1, .sequence = 4}, {.steps = most}, {}));
}

TEST_CASE("a plan without tokens, or with fewer than a sequence, is refused before it reads anywhere") {
  const auto read = [](Size, Size, std::int32_t*) { FAIL("read"); };
  const BatchSizes sizes{.micro_batch = 1, .sequence = 4};
  for (const Size tokens : {-1, 0, 4}) {
    CAPTURE(tokens);
    CHECK_THROWS_AS(data::BatchRange(read, {.sizes = sizes, .count = 1, .tokens = tokens}), Error);
  }
  CHECK_THROWS_AS(data::BatchRange(read, {.sizes = sizes, .count = -1, .tokens = 9}), Error);
  CHECK_THROWS_AS(data::BatchRange(read, {.sizes = sizes, .share = {1, 1}, .count = 1, .tokens = 9}), Error);
  CHECK_NOTHROW(data::BatchRange(read, {.sizes = sizes, .count = 1, .tokens = 5}));
}
