// SPDX-License-Identifier: Apache-2.0
// examples/tokenize.cpp as its user sees it.
#include <examples/program.hpp>

#include <dspp/data/token_shards.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/io/text_file.hpp>

using namespace dspp;
using namespace dspp::examples;
using laws::read_file;

namespace {

const std::string tokenizer = DSPP_TESTS_DIRECTORY "/golden/tokenizer.json";

Result tokenize(const Folder& folder, const std::string& options) {
  return Process(DSPP_TOKENIZE, words(options), folder).wait();
}

std::vector<std::int32_t> tokens_in(const Folder& folder, const std::string& name) {
  const data::TokenShards shards(data::TokenFiles{folder.file(name)});
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shards.size()));
  shards.read(0, shards.size(), tokens.data());
  for (const data::TokenShard& shard : shards.shards()) shard.verify();
  return tokens;
}

}  // namespace

TEST_CASE("a folder of text becomes token files, whose tokens are the text again") {
  const Folder folder;
  std::string text;
  for (int i = 0; text.size() < 50000; ++i) text += "line " + std::to_string(i * i) + ", für dich — it's all\n";
  folder.write("in/a.txt", text);
  folder.write("in/b.txt", "the end");
  folder.write("in/c.bin", std::string(100, '\0'));
  const Result result =
      tokenize(folder, "--input in --output out --tokenizer " + tokenizer + " --tokens 3000 --held-out 0.2");
  CAPTURE(result.err);
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  const auto train = tokens_in(folder, "out/train"), held_out = tokens_in(folder, "out/held_out");
  const data::Tokenizer by = data::Tokenizer::read(tokenizer);
  const std::string first = by.decode(train), rest = by.decode(held_out);
  CHECK(first + rest == text + "<|endoftext|>the end<|endoftext|>");
  const Size bytes = std::ssize(text) + 7;
  CHECK(std::ssize(first) <= bytes - bytes / 5);  // the cut moves to the start of a character
  CHECK(std::ssize(first) > bytes - bytes / 5 - 4);
  const data::TokenShards shards(data::TokenFiles{folder.file("out/train")});
  CHECK(shards.tokenizer() == by.fingerprint());
  CHECK(shards.vocabulary_size() == by.vocabulary_size());
  CHECK(shards.shards()[0].size() == 3000);
  CHECK(folder.read("out/tokenizer.json") == read_file(tokenizer));
  const std::string said =
      std::to_string(train.size() + held_out.size()) + " tokens of a vocabulary of 6004 from " + std::to_string(bytes) +
      " bytes in 2 files (1 binary files left out): " + std::to_string(train.size()) + " to train on";
  CHECK(result.out.substr(0, said.size()) == said);
}

TEST_CASE("without a tokenizer bytes are tokens") {
  const Folder folder;
  folder.write("a.txt", std::string(100000, 'a') + std::string(1, '\xff'));
  CHECK(tokenize(folder, "--input a.txt --output out --held-out 0").status == 0);
  CHECK(folder.list() == std::vector<std::string>{"a.txt", "out", "out/held_out", "out/held_out/tokens.index",
                                                  "out/train", "out/train/000000.tokens", "out/train/tokens.index"});
  const auto tokens = tokens_in(folder, "out/train");
  REQUIRE(tokens.size() == 100001);
  CHECK(std::count(tokens.begin(), tokens.end(), 'a') == 100000);
  CHECK(tokens.back() == 0xff);
}

TEST_CASE("mistakes are one sentence and status 2") {
  const Folder folder;
  folder.write("a.txt", "text");
  folder.write("cut.json", "{\"model\":");
  folder.write("taken/train/000000.tokens", "");
  folder.write("other/tokenizer.json", "{}");
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "needs --input"},
      {"--input a.txt", "needs --output"},
      {"--input absent --output out", "'absent' does not exist"},
      {"--input a.txt --output out --tokenizer cut.json", "the tokenizer 'cut.json' needs valid JSON"},
      {"--input a.txt --output out --end <x> --tokenizer " + tokenizer, "--end needs a token of the tokenizer"},
      {"--input a.txt --output other --tokenizer " + tokenizer, "'other/tokenizer.json' is another than --tokenizer"},
      {"--input a.txt --output taken", "has '000000.tokens'"},
      {"--input a.txt --output a.txt/out", "cannot be made"},
      {"--input a.txt --output out --tokens 0", "--tokens needs a whole number from 1"}};
  for (const auto& mistake : mistakes) {
    const auto& options = mistake.first;
    const auto& expected = mistake.second;
    CAPTURE(options);
    const Result result = tokenize(folder, options);
    CAPTURE(result.err);
    CHECK(result.status == 2);
    CHECK(lines_of(result.err).size() == 1);
    CHECK(result.err.find(expected) != std::string::npos);
  }
  const std::string help = tokenize(folder, "--help").out;
  CHECK(help.find("--tokenizer") != std::string::npos);
  CHECK(help == io::read_text_file(DSPP_TESTS_DIRECTORY "/../examples/help/tokenize.txt"));  // ./dspp tokenize --help
}

TEST_CASE("a full disk is an error, and leaves no incomplete token file") {
  const Folder folder;
  folder.write("a.txt", std::string(3000000, 'a'));
  const Result result = Process(DSPP_TOKENIZE, words("--input a.txt --output out"), folder, 1 << 20).wait();
  CHECK(result.status == 2);
  CHECK(lines_of(result.err).size() == 1);
  CHECK(folder.list() == std::vector<std::string>{"a.txt", "out", "out/held_out", "out/held_out/tokens.index",
                                                  "out/train", "out/train/tokens.index"});
}
