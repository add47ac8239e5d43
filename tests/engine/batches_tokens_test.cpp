// SPDX-License-Identifier: Apache-2.0
// Token files as batches: one stream of samples for every number of ranks.
#include <doctest/doctest.h>

#include <mutex>

#include <dspp/data/token_batches.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/launch/run.hpp>
#include <laws/token_files.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<Zero<1>>;

/// The first tokens of the samples that a run takes, in stream order, and the next sample.
struct Taken {
  std::vector<std::int32_t> firsts;
  Size next = 0;
};

/// Also checks that every rank of Cp has its slice of its replica's sequences, with the following tokens as targets,
/// also beyond the slice's end.
template <class Q = P>
Taken taken(const std::shared_ptr<const data::TokenShards>& shards, int ranks, const BatchSizes& sizes,
            const data::BatchConfig& config) {
  const Size global = sizes.micro_batch * sizes.accumulate * ranks / Q::cp, own = sizes.sequence / Q::cp;
  Taken run{.firsts = std::vector<std::int32_t>(static_cast<std::size_t>(config.steps * global), -1)};
  std::vector<int> seen(run.firsts.size());
  std::mutex mutex;
  run_ranks_of<Q>(RunOptions{.ranks = ranks}, [&](World<Q>& world) {
    const auto data = batches(world, shards, sizes, config);
    const Size begin = own * world.cp_rank();
    for (Size step = 0; step < config.steps; ++step)
      for (const auto& batch : data.step(step)) {
        const std::lock_guard lock(mutex);
        for (Size row = 0; row < sizes.micro_batch; ++row) {
          const auto sample = static_cast<std::size_t>(step * global + batch.first_sample + row);
          const std::int32_t* const tokens = batch.tokens.data() + row * own;
          const std::int32_t first = tokens[0] - static_cast<std::int32_t>(begin);
          if (++seen[sample] > 1) CHECK(run.firsts[sample] == first);
          run.firsts[sample] = first;
          for (Size i = 0; i < own; ++i) {
            CHECK(tokens[i] == first + begin + i);
            CHECK(batch.targets.data()[row * own + i] == first + begin + i + 1);
          }
        }
      }
    const std::lock_guard lock(mutex);
    run.next = data.next_sample(config.steps);
  });
  for (const int times : seen) CHECK(times == Q::cp);
  return run;
}

}  // namespace

TEST_CASE("a run resumed with another number of ranks takes the samples of an uninterrupted one") {
  const Folder folder;
  const auto shards = counting_shards(folder, 301, 50);  // 60 samples of 5 tokens
  const Taken whole = taken(shards, 1, {.micro_batch = 12, .sequence = 5}, {.steps = 12});
  for (const int before : {1, 2, 3, 4}) {
    for (const int after : {1, 2, 3, 4}) {
      CAPTURE(before);
      CAPTURE(after);
      Taken run = taken(shards, before, {.micro_batch = 12 / before, .sequence = 5}, {.steps = 4});
      CHECK(run.next == 48);
      const Taken rest =
          taken(shards, after, {.micro_batch = 1, .sequence = 5}, {.steps = 96 / after, .first_sample = run.next});
      CHECK(rest.next == 144);
      run.firsts.insert(run.firsts.end(), rest.firsts.begin(), rest.firsts.end());
      CHECK(run.firsts == whole.firsts);
    }
  }
}

TEST_CASE("ranks along Cp have slices of the samples that one rank takes") {
  using C = Policy<Cp<2>>;
  const Folder folder;
  const auto shards = counting_shards(folder, 241, 50);  // 40 samples of 6 tokens
  const Taken whole = taken(shards, 1, {.micro_batch = 12, .sequence = 6}, {.steps = 5});
  for (const int ranks : {2, 4, 6}) {
    CAPTURE(ranks);
    const Taken run =
        taken<C>(shards, ranks, {.micro_batch = 12 / ranks, .sequence = 6, .accumulate = 2}, {.steps = 5});
    CHECK(run.firsts == whole.firsts);
    CHECK(run.next == 60);
  }
}

TEST_CASE("ranks along Tp get the same batch, from files that each rank maps") {
  using TwoByTwo = Policy<Tp<2>>;
  const Folder folder;
  counting_shards(folder, 301);
  std::vector<std::vector<int>> tokens(4);
  run_ranks_of<TwoByTwo>(RunOptions{.ranks = 4}, [&](World<TwoByTwo>& world) {
    const auto data = batches(world, data::TokenFiles{folder.path.string()}, {.micro_batch = 2, .sequence = 5});
    const auto batch = data[0];
    tokens[static_cast<std::size_t>(world.rank())].assign(batch.tokens.data(), batch.tokens.data() + 10);
  });
  CHECK(tokens[0] == tokens[1]);
  CHECK(tokens[2] == tokens[3]);
  CHECK(tokens[0] != tokens[2]);
}
