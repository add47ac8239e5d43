// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <string>

#include <dspp/engine/batches.hpp>
#include <dspp/launch/run.hpp>

using namespace dspp;

namespace {

using P = Policy<Zero<1>>;

std::shared_ptr<const data::Text> counting_text(int bytes) {
  auto text = std::make_shared<data::Text>();
  for (int i = 0; i < bytes; ++i) text->bytes.push_back(static_cast<unsigned char>(i * 7 + i / 256));
  text->training_bytes = bytes;
  return text;
}

/// The sequences of every step by global sample index.
using Steps = std::vector<std::map<Size, std::vector<int>>>;

Steps steps_of(int ranks, Size micro_batch, Size accumulate) {
  const auto text = counting_text(3000);
  Steps steps(3);
  std::mutex mutex;
  run_ranks_of<P>(RunOptions{.ranks = ranks}, [&](World<P>& world) {
    const auto data =
        batches(world, text, {.micro_batch = micro_batch, .sequence = 5, .accumulate = accumulate}, {.steps = 3});
    CHECK(data.size() == 3 * accumulate);
    for (Size s = 0; s < 3; ++s) {
      for (const auto& batch : data.step(s)) {
        const std::lock_guard lock(mutex);
        for (Size row = 0; row < micro_batch; ++row) {
          const int* tokens = batch.tokens.data() + 5 * row;
          const bool is_new = steps[static_cast<std::size_t>(s)]
                                  .emplace(batch.first_sample + row, std::vector(tokens, tokens + 5))
                                  .second;
          CHECK(is_new);
        }
      }
    }
  });
  return steps;
}

}  // namespace

TEST_CASE("a global batch is the same however ranks and micro-steps share it") {
  const Steps one = steps_of(1, 12, 1);
  CHECK(one[0].size() == 12);
  CHECK(one[0] != one[1]);
  CHECK(one[0].begin()->first == 0);
  CHECK(one[0].rbegin()->first == 11);
  CHECK(steps_of(2, 6, 1) == one);
  CHECK(steps_of(3, 4, 1) == one);
  CHECK(steps_of(4, 1, 3) == one);
  CHECK(steps_of(1, 4, 3) == one);
}

TEST_CASE("targets are the tokens that follow, and iterating over all batches is iterating step by step") {
  run_ranks_of<P>(RunOptions{}, [&](World<P>& world) {
    const auto data =
        batches(world, counting_text(3000), {.micro_batch = 2, .sequence = 5, .accumulate = 2}, {.steps = 4});
    Size count = 0;
    for (auto batch : data) {
      CHECK(batch.tokens.shape() == shape(2, 5));
      for (int i = 0; i < 4; ++i) CHECK(batch.targets.data()[i] == batch.tokens.data()[i + 1]);
      const auto again = *data.step(count / 2).begin();
      if (count % 2 == 0) CHECK(std::equal(again.tokens.data(), again.tokens.data() + 10, batch.tokens.data()));
      ++count;
    }
    CHECK(count == 8);
  });
}

TEST_CASE("a step of a temporary RankBatches owns it") {
  run_ranks_of<P>(RunOptions{}, [](World<P>& world) {
    auto text = counting_text(3000);
    const std::weak_ptr<const data::Text> watch = text;
    constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 5, .accumulate = 2};
    const auto kept = batches(world, counting_text(3000), sizes, {.steps = 3});
    auto expected = kept.step(1).begin();
    Size count = 0;
    auto step = batches(world, std::move(text), sizes, {.steps = 3}).step(1);
    CHECK(!watch.expired());
    if (watch.expired()) return;
    for (auto batch : step) {
      CHECK(std::equal(batch.tokens.data(), batch.tokens.data() + 10, (*expected).tokens.data()));
      ++expected, ++count;
    }
    CHECK(count == 2);
  });
}

TEST_CASE("a batch takes the memory of its tokens and targets, and is freed at the end of its scope") {
  run_ranks_of<P>(RunOptions{}, [&](World<P>& world) {
    for (const auto& batch : batches(world, counting_text(3000), {.micro_batch = 4, .sequence = 16}, {.steps = 3})) {
      CHECK(batch.first_sample == 0);
      CHECK(world.memory().live_by_category()[Category::data] == 2 * 4 * 16 * 4);
    }
    CHECK(world.memory().live() == 0);
    CHECK(world.memory().peak() == 2 * 4 * 16 * 4);
  });
}

TEST_CASE("a resumed run continues where the first one stopped") {
  run_ranks_of<P>(RunOptions{}, [&](World<P>& world) {
    const auto text = counting_text(3000);
    const auto whole = batches(world, text, {.micro_batch = 2, .sequence = 5}, {.steps = 4});
    const auto rest = batches(world, text, {.micro_batch = 2, .sequence = 5}, {.steps = 1, .first_step = 3});
    const auto last = whole[3], first = rest[0];
    CHECK(std::equal(last.tokens.data(), last.tokens.data() + 10, first.tokens.data()));
  });
}

TEST_CASE("ranks along Tp get the same batch") {
  using TwoByTwo = Policy<Tp<2>>;
  std::vector<std::vector<int>> tokens(4);
  run_ranks_of<TwoByTwo>(RunOptions{.ranks = 4}, [&](World<TwoByTwo>& world) {
    const auto batch = batches(world, counting_text(3000), {.micro_batch = 2, .sequence = 5}, {.steps = 1})[0];
    tokens[static_cast<std::size_t>(world.rank())].assign(batch.tokens.data(), batch.tokens.data() + 10);
  });
  CHECK(tokens[0] == tokens[1]);
  CHECK(tokens[2] == tokens[3]);
  CHECK(tokens[0] != tokens[2]);
}

TEST_CASE("a step that is not among these is an error, not data from elsewhere") {
  run_ranks_of<P>(RunOptions{.ranks = 1}, [&](World<P>& world) {
    const BatchSizes sizes{.micro_batch = 2, .sequence = 5, .accumulate = 2};
    for (const Size first : {0, 3}) {
      const auto data = batches(world, counting_text(3000), sizes, {.steps = 3, .first_step = first});
      CHECK_NOTHROW(data.step(0));
      CHECK_NOTHROW(data.step(2));
      for (const Size bad : {-1, 3, 99})
        CHECK_THROWS_WITH_AS(data.step(bad),
                             ("dspp: step(number) needs one of these 3 steps, counted from 0 whatever first_step is, "
                              "but got " +
                              std::to_string(bad) + ". Subtract first_step.")
                                 .c_str(),
                             Error);
    }
  });
}
