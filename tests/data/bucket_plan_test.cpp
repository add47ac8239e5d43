// SPDX-License-Identifier: Apache-2.0
// Buckets: every sample once an epoch, within the bound of tokens, in steps that a resumed run finds.
#include <doctest/doctest.h>

#include <laws/sentence_of.hpp>

#include <map>
#include <string>
#include <vector>

#include <dspp/data/bucket_range.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// From 1 to 20, most of them short.
const auto length_of = [](Size sample) -> Size { return 1 + (sample % 3 == 0 ? sample * 7 % 20 : 0) + sample % 4; };
const data::BucketSizes sizes{.lengths = {3, 4, 12, 40}, .tokens = 41};

std::string refusal(const data::BucketSizes& wrong, Size samples = 10, Size length = 2) {
  return sentence_of([&] {
    data::BucketPlan(
        samples, [&](Size) { return length; }, wrong);
  });
}

}  // namespace

TEST_CASE("each epoch takes every sample once, in steps of one bucket within the bound of tokens") {
  for (const Size samples : {1, 2, 50, 137}) {
    CAPTURE(samples);
    const data::BucketPlan plan(samples, length_of, sizes);
    std::vector<std::vector<std::size_t>> orders;
    for (Size epoch = 0; epoch < 3; ++epoch) {
      std::map<Size, Size> times;
      auto& order = orders.emplace_back();
      std::map<std::size_t, std::pair<Size, Size>> sizes_of_steps;
      for (Size number = epoch * plan.steps(); number < (epoch + 1) * plan.steps(); ++number) {
        const auto step = plan.step(5, number);
        const auto& bucket = plan.buckets()[step.bucket];
        order.push_back(step.bucket);
        REQUIRE(step.samples >= 1);
        CHECK(step.samples * bucket.length <= sizes.tokens);
        CHECK(step.samples <= bucket.largest);
        CHECK(step.samples >= bucket.largest - 1);  // evenly
        for (Size i = 0; i < step.samples; ++i) {
          const Size sample = plan.sample(5, step, i);
          ++times[sample];
          CHECK(length_of(sample) <= bucket.length);
          if (step.bucket > 0) CHECK(length_of(sample) > plan.buckets()[step.bucket - 1].length);
        }
      }
      CHECK(std::ssize(times) == samples);
      for (const auto& [sample, count] : times) CHECK(count == 1);
    }
    if (samples == 137) CHECK(orders[0] != orders[1]);
    for (const auto& bucket : plan.buckets()) CHECK(bucket.largest * bucket.length <= sizes.tokens);
  }
}

TEST_CASE("a bucket may be empty, and all sizes of batches are within those of the engine") {
  const data::BucketPlan plan(
      37, [](Size sample) { return sample == 30 ? 9 : 3; }, sizes);
  REQUIRE(plan.buckets().size() == 4);
  CHECK(plan.buckets()[1].steps == 0);
  CHECK(plan.buckets()[3].steps == 0);
  CHECK(plan.steps() == 4);  // 36 by 12, since at most 13 of them fit, and one
  CHECK(plan.buckets()[0].largest == 12);
  CHECK(plan.sizes_of(plan.buckets()[0], 5).micro_batch == 3);
  CHECK(plan.engine_sizes(1).micro_batch == 12);
  CHECK(plan.engine_sizes(1).sequence == 12);
  CHECK(plan.engine_sizes(16).micro_batch == 1);
  const data::BucketPlan halves(37, [](Size) { return 3; }, {.lengths = {3}, .tokens = 41, .accumulate = 2});
  CHECK(halves.engine_sizes(3).micro_batch == 3);  // of 13 samples
  CHECK(halves.engine_sizes(3).accumulate == 2);
}

TEST_CASE("a position of the stream is a step, and another one is an error") {
  const data::BucketPlan plan(50, length_of, sizes);
  Size before = 0;
  for (Size number = 0; number < 2 * plan.steps() + 3; ++number) {
    CHECK(plan.samples_before(9, number) == before);
    CHECK(plan.step_at(9, before) == number);
    const Size samples = plan.step(9, number).samples;
    for (Size inside = 1; inside < samples; ++inside) CHECK_THROWS_AS(plan.step_at(9, before + inside), Error);
    before += samples;
  }
  CHECK(plan.samples_before(9, plan.steps()) == 50);
  const data::BucketPlan pairs(4, [](Size) { return 2; }, {.lengths = {2}, .tokens = 4});
  CHECK(sentence_of([&] { pairs.step_at(1, 7); }) ==
        "dspp: batches in buckets need a first_sample at which a step begins, but none begins at 7. Take it from "
        "next_sample, and keep the buckets and the seed.");
}

TEST_CASE("lengths, bounds and samples that no buckets hold are refused") {
  const std::string ascend =
      "dspp: buckets need lengths of at least 1 that ascend, but got others. Sort BucketSizes::lengths.";
  CHECK(refusal({.lengths = {}, .tokens = 10}) == ascend);
  CHECK(refusal({.lengths = {0, 3}, .tokens = 10}) == ascend);
  CHECK(refusal({.lengths = {4, 3}, .tokens = 10}) == ascend);
  CHECK(refusal({.lengths = {3, 3}, .tokens = 10}) == ascend);
  CHECK(refusal({.lengths = {3, 8}, .tokens = 7}) ==
        "dspp: buckets need a bound of tokens that a sample of the longest fits in, but it is less (tokens 7, longest "
        "8). Raise BucketSizes::tokens.");
  CHECK(refusal({.lengths = {3}, .tokens = 7, .accumulate = 0}) ==
        "dspp: buckets need accumulate of at least 1, but it is less. Raise accumulate.");
  CHECK(refusal({.lengths = {3}, .tokens = 7}, 0) ==
        "dspp: batches need a source with at least one sample, but its size is less (size 0). Give it samples.");
  for (const Size length : {-1, 0, 9})
    CHECK(refusal({.lengths = {3, 8}, .tokens = 8}, 4, length) ==
          "dspp: buckets need samples of 1 to 8 tokens, but sample 0 has " + std::to_string(length) +
              ". Leave it out, cut it, or add a longer bucket.");
}
