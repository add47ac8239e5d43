// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <numeric>

#include <dspp/data/shard_writer.hpp>
#include <dspp/data/token_shards.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Tokens = std::vector<std::int32_t>;

Tokens counting(Size from, Size count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), static_cast<std::int32_t>(from));
  return tokens;
}

std::string write_shard(const Folder& folder, const std::string& name, const Tokens& tokens,
                        const data::TokenVocabulary& vocabulary = {1000, 7}) {
  data::TokenShardWriter writer(folder.file(name), vocabulary);
  writer.append(tokens);
  writer.commit();
  return folder.file(name);
}

Tokens read(const auto& shards, Size first, Size count) {
  Tokens tokens(static_cast<std::size_t>(count), -1);
  shards.read(first, count, tokens.data());
  return tokens;
}

/// The error of f, without the folder's path.
std::string sentence_of(const Folder& folder, auto f) {
  try {
    f();
  } catch (const Error& error) {
    std::string sentence = error.what();
    const std::string path = folder.path.string() + "/";
    for (std::size_t at; (at = sentence.find(path)) != std::string::npos;) sentence.erase(at, path.size());
    return sentence;
  }
  return "no error";
}

/// A shard of tokens 0 to 99 in 264 bytes, some of which one test changes.
std::string damaged(const Folder& folder, const std::string& name, auto change) {
  std::string bytes = read_file(write_shard(folder, "whole.tokens", counting(0, 100)));
  change(bytes);
  return folder.write(name, bytes);
}

/// The same with the header's checksum recomputed.
std::string forged(const Folder& folder, const std::string& name, auto change) {
  return damaged(folder, name, [&](std::string& bytes) {
    change(bytes);
    const std::uint64_t sum = data::Fnv1a().add(bytes.substr(0, 56)).value();
    bytes.replace(56, 8, reinterpret_cast<const char*>(&sum), 8);
  });
}

}  // namespace

TEST_CASE("tokens are read as they were written, in two bytes or four") {
  const Folder folder;
  for (const Size vocabulary : {1000, 1 << 16, (1 << 16) + 1, 200000}) {
    CAPTURE(vocabulary);
    const Size last = vocabulary - 300;
    const data::TokenShard shard(write_shard(folder, "a.tokens", counting(last, 300), {vocabulary, 5}));
    CHECK(shard.size() == 300);
    CHECK(shard.header().vocabulary_size == static_cast<std::uint64_t>(vocabulary));
    CHECK(shard.header().tokenizer == 5);
    CHECK(shard.header().token_bytes == (vocabulary <= 65536 ? 2 : 4));
    CHECK(read(shard, 0, 300) == counting(last, 300));
    CHECK(read(shard, 299, 1) == counting(last + 299, 1));
    shard.verify();
  }
}

TEST_CASE("the bytes of a file are those of its format") {
  const Folder folder;
  const std::string bytes = read_file(write_shard(folder, "a.tokens", {1, 258}, {1000, 0x0102030405060708}));
  REQUIRE(bytes.size() == 64 + 4);
  CHECK(bytes.substr(0, 8) == "dspp.tok");
  CHECK(bytes.substr(8, 8) == std::string("\1\0\0\0\2\0\0\0", 8));
  CHECK(bytes.substr(16, 8) == std::string("\2\0\0\0\0\0\0\0", 8));
  CHECK(bytes.substr(24, 8) == std::string("\xe8\3\0\0\0\0\0\0", 8));
  CHECK(bytes.substr(40, 16) == std::string("\10\7\6\5\4\3\2\1\0\0\0\0\0\0\0\0", 16));
  CHECK(bytes.substr(64) == std::string("\1\0\2\1", 4));
}

TEST_CASE("a writer's file is complete or absent") {
  const Folder folder;
  {
    data::TokenShardWriter writer(folder.file("a.tokens"), {});
    writer.append(counting(0, 10));
    CHECK(folder.list() == std::vector<std::string>{"a.tokens.partial"});
  }
  CHECK(folder.list().empty());
  write_shard(folder, "a.tokens", counting(0, 10));
  {
    data::TokenShardWriter again(folder.file("a.tokens"), {});
    CHECK(sentence_of(folder,
                      [&] {
                        again.append(Tokens{255, 256});
                      }) ==
          "dspp: TokenShardWriter needs tokens of its vocabulary of 256, but got 256. Pass the vocabulary of the "
          "tokenizer that made them.");
    CHECK_THROWS_AS(again.append(Tokens{-1}), Error);
  }
  CHECK(data::TokenShard(folder.file("a.tokens")).size() == 10);
  CHECK(folder.list() == std::vector<std::string>{"a.tokens"});
}

TEST_CASE("a committed file is final") {
  const Folder folder;
  data::TokenShardWriter writer(folder.file("a.tokens"), {});
  writer.append(counting(0, 10));
  writer.commit();
  const std::string before = folder.read("a.tokens");
  CHECK(sentence_of(folder, [&] { writer.append(counting(0, 1 << 20)); }) ==
        "dspp: TokenShardWriter needs append() before its one commit(), but it was called after it. Make another "
        "writer.");
  CHECK(sentence_of(folder, [&] { writer.commit(); }) ==
        "dspp: TokenShardWriter needs commit() before its one commit(), but it was called after it. Make another "
        "writer.");
  CHECK(writer.size() == 10);
  CHECK(folder.read("a.tokens") == before);
}

TEST_CASE("a vocabulary that no token file can hold is refused before a file is made") {
  const Folder folder;
  for (const Size size : {Size{-1}, Size{0}, (Size{1} << 31) + 1})
    CHECK(sentence_of(folder, [&] { data::TokenShardWriter(folder.file("a.tokens"), {.size = size}); }) ==
          "dspp: TokenShardWriter needs a vocabulary in [1, 2^31], but it is outside. Pass the tokenizer's.");
  CHECK(folder.list().empty());
}

TEST_CASE("a file longer than the writer's buffer") {
  const Folder folder;
  const Tokens tokens = counting(0, 700000);
  const data::TokenShard shard(write_shard(folder, "a.tokens", tokens, {1 << 20, 0}));
  shard.verify();
  CHECK(read(shard, 0, 700000) == tokens);
}

TEST_CASE("shards are one sequence, whatever their lengths") {
  const Folder folder;
  std::vector<std::string> paths;
  for (const auto& [from, count] : std::vector<std::pair<Size, Size>>{{0, 7}, {7, 0}, {7, 1}, {8, 92}})
    paths.push_back(write_shard(folder, "part" + std::to_string(paths.size()) + ".tokens", counting(from, count)));
  folder.write("notes.txt", "no tokens");
  for (const data::TokenShards& shards :
       {data::TokenShards(paths), data::TokenShards(data::TokenFiles{folder.path.string()})}) {
    CHECK(shards.size() == 100);
    CHECK(shards.vocabulary_size() == 1000);
    CHECK(shards.tokenizer() == 7);
    for (Size first = 0; first < 12; ++first) CHECK(read(shards, first, 5) == counting(first, 5));
    CHECK(read(shards, 0, 100) == counting(0, 100));
    CHECK(read(shards, 99, 1) == counting(99, 1));
    CHECK(read(shards, 100, 0).empty());
    CHECK(shards.summary() == "100 tokens of a vocabulary of 1000 in 4 files");
    CHECK_THROWS_AS(read(shards, 99, 2), Error);
    CHECK_THROWS_AS(read(shards, -1, 1), Error);
  }
  CHECK(data::TokenShards(data::TokenFiles{paths[3]}).size() == 92);
}

TEST_CASE("a file of another format, truncated or damaged, is refused") {
  const Folder folder;
  const auto open = [&](const std::string& path) { return sentence_of(folder, [&] { data::TokenShard shard(path); }); };
  const auto needs = [](const std::string& what) {
    return "dspp: the token file 'x' needs " + what + ". Make it again.";
  };
  const auto put = [](std::size_t at, std::string_view value) {
    return [=](std::string& bytes) { bytes.replace(at, value.size(), value); };
  };
  CHECK(open(folder.write("x", "short")) == needs("a header of 64 bytes, but it has 5 bytes in all"));
  CHECK(open(folder.write("x", "")) == needs("a header of 64 bytes, but it has 0 bytes in all"));
  CHECK(open(folder.write("x", std::string(100, 'y'))) ==
        needs("\"dspp.tok\" at its beginning, but it is another kind of file"));
  CHECK(open(damaged(folder, "x", [](std::string& b) { b.pop_back(); })) ==
        needs("264 bytes for its 100 tokens, but it has 263"));
  CHECK(open(damaged(folder, "x", [](std::string& b) { b += 'z'; })) ==
        needs("264 bytes for its 100 tokens, but it has 265"));
  CHECK(open(damaged(folder, "x", put(16, "\1"))) == needs("the header that was written, but its checksum differs"));
  CHECK(open(forged(folder, "x", put(8, "\2"))) == needs("version 1, but it is of version 2"));
  CHECK(open(forged(folder, "x", put(12, "\3"))) == needs("2 or 4 bytes a token, but it has 3"));
  CHECK(open(forged(folder, "x", put(24, std::string(8, '\0')))) == needs("a vocabulary in [1, 2^31], but it has 0"));
  CHECK(open(forged(folder, "x", put(24, std::string("\1\0\0\x80\0\0\0\0", 8)))) ==
        needs("a vocabulary in [1, 2^31], but it has 2147483649"));
  CHECK(open(forged(folder, "x", put(24, std::string("\0\0\0\x80\0\0\0\0", 8)))) == "no error");
  CHECK(open(forged(folder, "x", put(16, "\xff\xff\xff\xff\xff\xff\xff\x7f"))) ==
        needs("less than 2^60 tokens, but it has more"));
  CHECK(open(folder.file("absent")).find("No such file or directory") != std::string::npos);
}

TEST_CASE("every damaged byte of a header is found, and every damaged token by verify") {
  const Folder folder;
  const std::string whole = read_file(write_shard(folder, "whole.tokens", counting(0, 100)));
  REQUIRE(whole.size() == 264);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    CAPTURE(at);
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    const std::string path = folder.write("x", bytes);
    CHECK_THROWS_AS(data::TokenShard(path).verify(), Error);
    if (at < 64) CHECK_THROWS_AS(data::TokenShard{path}, Error);
  }
}

TEST_CASE("a token beyond the vocabulary is refused when it is read") {
  const Folder folder;
  const data::TokenShard shard(
      damaged(folder, "x", [](std::string& bytes) { bytes.replace(64 + 2 * 50, 2, "\xe8\3"); }));
  CHECK(read(shard, 0, 50) == counting(0, 50));
  CHECK(
      sentence_of(folder, [&] { read(shard, 48, 5); }) ==
      "dspp: the token file 'x' needs tokens below its vocabulary of 1000, but 1000 is among tokens 48 to 52. Make it "
      "again.");
}

TEST_CASE("shards of two tokenizers are refused together") {
  const Folder folder;
  const std::string a = write_shard(folder, "a", {1}), b = write_shard(folder, "b", {1}, {2000, 7}),
                    c = write_shard(folder, "c", {1}, {1000, 8});
  CHECK(sentence_of(folder, [&] {
          data::TokenShards({a, b});
        }) == "dspp: the token file 'b' needs a vocabulary of 1000, as 'a' has, but it has 2000. Make it again.");
  CHECK(sentence_of(folder, [&] {
          data::TokenShards({a, c});
        }) == "dspp: the token file 'c' needs tokens of the tokenizer 7, as 'a' has, but it has 8. Make it again.");
  CHECK(sentence_of(folder, [&] {
          data::TokenShards(data::TokenFiles{folder.path.string()});
        }).ends_with("holds none. Make some with ./dspp tokenize."));
  fs::create_directory(folder.path / "train");
  CHECK(sentence_of(folder, [&] {
          data::TokenShards(data::TokenFiles{folder.path.string()});
        }).ends_with("holds none. Name 'train', or open a TokenFolder."));
  CHECK_THROWS_AS(data::TokenShards(std::vector<std::string>{}), Error);
}
