// SPDX-License-Identifier: Apache-2.0
// labels: engine thread
// A blend is one stream for every world: each source in epochs of its own, resumed at the exact sample.
#include <doctest/doctest.h>

#include <laws/sentence_of.hpp>
#include <laws/token_files.hpp>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <dspp/dspp.hpp>
#include <dspp/engine/token_samples.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Sample n of source `mark` is 100 mark + n.
template <bool Printed>
struct Marked {
  template <class P>
  struct Batch {
    Input<P, std::int32_t, 2> number;
    constexpr void visit(auto&& f) { f("number", number); }
  };
  Size samples = 1;
  std::int32_t mark = 0;
  Size width = 1;

  Size size() const { return samples; }
  auto shapes() const { return std::tuple(shape(width)); }
  auto padding() const { return std::tuple(7); }
  std::uint64_t fingerprint() const requires Printed { return static_cast<std::uint64_t>(mark); }
  void fill(Size sample, std::span<std::int32_t> number) const {
    CHECK(number[0] == 7);
    number[0] = 100 * mark + static_cast<std::int32_t>(sample);
  }
};
/// Not shuffled.
struct InOrder : Marked<true> {
  Size sample_at(std::uint64_t, Size position) const { return position % samples; }
};

template <class S>
using Parts = std::vector<typename Blend<S>::Part>;

struct Run {
  std::vector<std::int32_t> numbers;
  Size next = 0;
};

template <class S>
Run taken(const Blend<S>& source, int ranks, const BatchSizes& sizes, const data::BatchConfig& config) {
  const Size global = sizes.micro_batch * sizes.accumulate * ranks;
  Run run{std::vector<std::int32_t>(static_cast<std::size_t>(global * config.steps))};
  std::mutex mutex;
  run_ranks_of<Policy<>>({.ranks = ranks}, [&](World<Policy<>>& world) {
    const auto data = batches(world, source, sizes, config);
    for (Size step = 0; step < config.steps; ++step) {
      Size micro = 0;
      for (const auto& batch : data.step(step)) {
        const Size first = step * global + (micro++ * ranks + world.rank()) * sizes.micro_batch;
        const std::lock_guard lock(mutex);
        batch.number.value().read(
            [&](const std::int32_t* numbers) { std::copy_n(numbers, sizes.micro_batch, run.numbers.begin() + first); });
      }
    }
    const std::lock_guard lock(mutex);
    run.next = data.next_sample(config.steps);
  });
  return run;
}

const Parts<Marked<true>> uneven{{{13, 0}, 5}, {{4, 1}, 3}, {{30, 2}, 2}};

}  // namespace

TEST_CASE("a blend says after how many samples each source was read once, and before which one of them is repeated") {
  const auto check = [](const Parts<Marked<true>>& parts) {
    const Blend<Marked<true>> source(parts);
    const Size epoch = source.epoch(), unrepeated = source.unrepeated();
    std::set<Size> read;
    Size repeated = -1, whole = -1;
    for (Size position = 0; repeated < 0 || whole < 0; ++position) {
      if (!read.insert(source.sample_at(5, position)).second && repeated < 0) repeated = position;
      if (std::ssize(read) == source.size() && whole < 0) whole = position + 1;
    }
    CHECK(epoch == whole);
    CHECK(unrepeated == repeated);
    CHECK(source.epoch() == epoch);  // wherever the stream was
  };
  check(uneven);
  check({{{13, 0}, 13}, {{4, 1}, 4}, {{30, 2}, 30}});  // the weights of the sizes: one epoch of all
  check({{{1, 0}, 1}});
  check({{{1, 0}, 1}, {{1, 1}, 1}, {{9000, 2}, 2}});
  check({{{5000, 0}, 0.9}, {{300, 1}, 0.01}, {{7, 2}, 0.09}});
  const Blend<Marked<true>> rare({{{13, 0}, 1}, {{4, 1}, 1e-12}});
  CHECK(rare.unrepeated() == 13);
  CHECK(sentence_of([&] { rare.epoch(); }) ==
        "dspp: the epoch of a blend needs fewer than 2^36 samples, but for 4 of source 1 its weight takes more. Raise "
        "the weight.");
}

TEST_CASE("a blend is the same for every world, each source in its own epochs") {
  const Blend<Marked<true>> source(uneven);
  CHECK(source.size() == 47);
  const auto one = taken(source, 1, {.micro_batch = 12}, {.steps = 15}).numbers;
  for (std::int32_t mark = 0; mark < 3; ++mark) {
    CAPTURE(mark);
    std::vector<std::int32_t> own;
    for (const auto number : one)
      if (number / 100 == mark) own.push_back(number % 100);
    const auto& [part, weight] = uneven[static_cast<std::size_t>(mark)];
    CHECK(std::ssize(own) == static_cast<Size>(weight) * 18);
    std::vector<std::vector<std::int32_t>> orders;
    for (Size begin = 0; begin + part.samples <= std::ssize(own); begin += part.samples) {
      auto& epoch = orders.emplace_back(own.begin() + begin, own.begin() + begin + part.samples);
      if (orders.size() > 1) CHECK(epoch != orders[0]);
      auto sorted = epoch;
      std::sort(sorted.begin(), sorted.end());
      std::vector<std::int32_t> all(sorted.size());
      std::iota(all.begin(), all.end(), 0);
      CHECK(sorted == all);
    }
  }
  CHECK(taken(source, 2, {.micro_batch = 6}, {.steps = 15, .prefetch = 2}).numbers == one);
  CHECK(taken(source, 3, {.micro_batch = 2, .accumulate = 2}, {.steps = 15}).numbers == one);
  CHECK(taken(source, 4, {.micro_batch = 1, .accumulate = 3}, {.steps = 15, .prefetch = 1}).numbers == one);
  CHECK(taken(source, 1, {.micro_batch = 12}, {.steps = 15, .seed = 2}).numbers != one);
  CHECK(taken(Blend<Marked<false>>({{{13, 0}, 5}, {{4, 1}, 3}, {{30, 2}, 2}}), 1, {.micro_batch = 12}, {.steps = 15})
            .numbers == one);
}

TEST_CASE("a stopped blend resumes at the exact sample, with other ranks and another batch") {
  const Blend<Marked<true>> source(uneven);
  const auto whole = taken(source, 1, {.micro_batch = 1}, {.steps = 60}).numbers;
  for (const Size stop : {1, 7, 13, 40}) {
    CAPTURE(stop);
    auto run = taken(source, 1, {.micro_batch = 1}, {.steps = stop});
    CHECK(run.next == stop);
    const auto rest =
        taken(Blend<Marked<true>>(uneven), 2, {.micro_batch = 3}, {.steps = 3, .first_sample = run.next}).numbers;
    run.numbers.insert(run.numbers.end(), rest.begin(), rest.end());
    CHECK(run.numbers == std::vector<std::int32_t>(whole.begin(), whole.begin() + stop + 18));
  }
}

TEST_CASE("a blend of one source is that source, and a source's own order stays") {
  const auto alone = taken(Blend<Marked<true>>({{{13, 0}, 0.5}}), 1, {.micro_batch = 1}, {.steps = 30}).numbers;
  for (Size i = 0; i < 30; ++i) CHECK(alone[static_cast<std::size_t>(i)] == data::sample_at(1, i, 13));
  const Blend<InOrder> ordered({{InOrder{{3, 0}}, 1}, {InOrder{{2, 1}}, 1}});
  CHECK(taken(ordered, 1, {.micro_batch = 4}, {.steps = 2}).numbers ==
        std::vector<std::int32_t>{0, 100, 1, 101, 2, 100, 0, 101});
}

TEST_CASE("a blend of token files trains a model of tokens") {
  const Folder folder;
  using Mine = Policy<F64>;
  constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 5};
  const auto part = [&](Size tokens) { return TokenSamples(counting_shards(folder, tokens, tokens)); };
  const Blend<TokenSamples> source({{part(21), 1}, {part(31), 3}}, sizes);
  CHECK(source.size() == 10);
  run_ranks_of<Mine>({.ranks = 2}, [&](World<Mine>& world) {
    constexpr GptConfig config{.layers = 1, .width = 8, .heads = 2, .vocabulary = 32, .sequence = 5};
    Engine engine{world, Gpt<Mine>(config), AdamW{.lr = 1e-2}, sizes};
    const auto data = batches(world, source, sizes, {.steps = 8});
    const double first = engine.train_batch(data.step(0))->loss;
    for (Size step = 1; step < 7; ++step) engine.train_batch(data.step(step));
    CHECK(engine.train_batch(data.step(7))->loss < first);
  });
}

namespace {
/// Rows that hold `rest` beyond their sample.
struct Padded : Marked<true> {
  int rest = 0;
  auto padding() const { return std::tuple(rest); }
};
}  // namespace

TEST_CASE("a blend refuses other tokenizers, paddings and sizes") {
  const Folder folder;
  const auto part = [&](Size tokens, Size vocabulary) {
    return TokenSamples(counting_shards(folder, tokens, tokens, vocabulary));
  };
  constexpr BatchSizes sizes{.micro_batch = 1, .sequence = 5};
  CHECK(sentence_of([&] {
          Blend<TokenSamples>({{part(21, 32), 1}, {part(31, 64), 1}}, sizes);
        }) ==
        "dspp: a blend needs sources of the same tokenizer, but that of source 1 differs from that of source 0. Write "
        "the tokens again with one.");
  CHECK(sentence_of([] {
          Blend<Padded>({{Padded{{1, 0}, 7}, 1}, {Padded{{1, 1}, 9}, 1}});
        }) ==
        "dspp: a blend needs sources of the same padding, but that of source 1 differs from that of source 0. Give all "
        "the same padding().");
  CHECK(sentence_of([&] {
          const Blend<TokenSamples> blend({{part(21, 32), 1}}, sizes);
          run_ranks_of<Policy<>>(
              {}, [&](World<Policy<>>& world) { batches(world, blend, {.micro_batch = 1, .sequence = 10}); });
        }).find("dspp: a blend needs the sizes of its batches, but was made for others") == 0);
}

TEST_CASE("sources that do not blend are refused, and so are ranks with other weights") {
  using S = Marked<true>;
  CHECK(sentence_of([] { Blend<S>({}); }) == "dspp: a blend needs a source at least, but got none. Name one.");
  CHECK(sentence_of([] {
          Blend<S>({{{1, 0}, 1}, {{1, 1}, 0}});
        }) ==
        "dspp: a blend needs weights that are positive numbers, but that of source 1 is 0.000000. Leave the source "
        "out, or change it.");
  CHECK(sentence_of([] {
          Blend<S>({{{1, 0}, 1}, {{0, 1}, 1}});
        }) == "dspp: a blend needs sources with at least one sample, but source 1 has 0. Leave it out.");
  CHECK(sentence_of([] {
          Blend<S>({{{1, 0}, 1}, {{1, 1, 2}, 1}});
        }) ==
        "dspp: a blend needs sources whose samples have the same shapes, but those of source 1 differ from those of "
        "source 0. Cut or pad them.");
  CHECK(sentence_of([] {
          taken(Blend<InOrder>({{InOrder{{3, 0}}, 1}}), 1, {.micro_batch = 1}, {.first_sample = -1});
        }) == "dspp: batches need steps that are not negative, but they are. Change steps.");
  for (const bool second : {false, true})
    CHECK(sentence_of([&] {
            run_ranks_of<Policy<>>({.ranks = 2}, [&](World<Policy<>>& world) {
              const double weight = second && world.rank() == 1 ? 2 : 1;
              batches(world, Blend<Marked<false>>({{{3, 0}, 1}, {{3, second ? 1 : world.rank()}, weight}}), {});
            });
          }).find("'digest of the data' is ") != std::string::npos);
}
