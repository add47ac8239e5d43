// SPDX-License-Identifier: Apache-2.0
/// Bytes of text to tokens, and tokens on disk to batches, on one thread.
///
/// The text is this repository's headers, repeated with numbers inserted, so that the word cache does not hold all; the
/// tokenizer is tests/golden/tokenizer.json.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <dspp/data/shard_writer.hpp>
#include <dspp/data/text.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/data/tokenizer.hpp>

namespace {

using namespace dspp;

const std::string& text() {
  static const std::string all = [] {
    const data::Text headers = data::read_text({DSPP_SOURCE_DIRECTORY "/include", 0});
    std::string grown;
    for (std::uint32_t line = 1; grown.size() < 16'000'000;)
      for (const unsigned char c : headers.bytes) {
        grown += static_cast<char>(c);
        if (c == '\n') grown += std::to_string(line++ * 2654435761u) + " ";
      }
    return grown;
  }();
  return all;
}

const data::Tokenizer& tokenizer() {
  static const data::Tokenizer read = data::Tokenizer::read(DSPP_SOURCE_DIRECTORY "/tests/golden/tokenizer.json");
  return read;
}

void encode(benchmark::State& state) {
  std::vector<std::int32_t> tokens;
  for (auto _ : state) {
    data::Tokenizer::Scratch scratch;
    tokens.clear();
    tokenizer().encode(text(), scratch, tokens);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text().size()));
  state.counters["bytes_per_token"] = static_cast<double>(text().size()) / static_cast<double>(tokens.size());
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const auto tokens = tokenizer().encode(text());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().decode(tokens));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text().size()));
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

/// Batches of 8 sequences of 1024 tokens, in the order of an epoch, from a file of 32 million tokens in the page cache.
void batches_from_file(benchmark::State& state) {
  const auto path = std::filesystem::temp_directory_path() / ("dspp_bench_" + std::to_string(getpid()) + ".tokens");
  data::TokenShardWriter writer(path.string(), {50257, 1});
  std::vector<std::int32_t> tokens(1 << 20);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 50257);
  for (int i = 0; i < 32; ++i) writer.append(tokens);
  writer.commit();
  const auto shards = std::make_shared<const data::TokenShards>(std::vector{path.string()});
  std::filesystem::remove(path);  // stays mapped
  const auto data = data::batches(shards, {.micro_batch = 8, .sequence = 1024}, {.steps = 1'000'000'000});
  std::vector<std::int32_t> targets(8 * 1024);
  tokens.resize(targets.size());
  Size number = 0;
  for (auto _ : state) data.fill(number++, tokens.data(), targets.data());
  state.SetItemsProcessed(state.iterations());
  state.counters["tokens_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 8 * 1024, benchmark::Counter::kIsRate);
}
BENCHMARK(batches_from_file)->Unit(benchmark::kMicrosecond);

}  // namespace
