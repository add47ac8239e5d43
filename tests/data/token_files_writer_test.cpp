// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <numeric>

#include <dspp/data/token_files_writer.hpp>
#include <dspp/data/token_shards.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("a sequence is cut into files of equal length, and is the same sequence when it is read") {
  std::vector<std::int32_t> tokens(1005);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (const std::size_t piece : {1, 7, 100, 1005}) {
    CAPTURE(piece);
    const Folder folder;
    TokenFilesWriter writer(folder.file("a/b"), {2000, 3}, 100);
    for (std::size_t at = 0; at < tokens.size(); at += piece)
      writer.append(std::span(tokens).subspan(at, std::min(piece, tokens.size() - at)));
    writer.finish();
    writer.finish();
    CHECK(writer.tokens() == 1005);
    CHECK(writer.files() == 11);
    const TokenShards shards(TokenFiles{folder.file("a/b")});
    REQUIRE(shards.size() == 1005);
    REQUIRE(shards.shards().size() == 11);
    for (std::size_t i = 0; i < 11; ++i) CHECK(shards.shards()[i].size() == (i < 10 ? 100 : 5));
    std::vector<std::int32_t> read(1005);
    shards.read(0, 1005, read.data());
    CHECK(read == tokens);
  }
}

TEST_CASE("files of before are not mixed in, and a file that was not ended does not stay") {
  const Folder folder;
  {
    TokenFilesWriter writer(folder.path.string(), {}, 2);
    writer.append(std::vector<std::int32_t>{1, 2, 3});
    CHECK(folder.list() == std::vector<std::string>{"000000.tokens", "000001.tokens.partial"});
  }
  CHECK(folder.list() == std::vector<std::string>{"000000.tokens"});
  CHECK_THROWS_WITH_AS(TokenFilesWriter(folder.path.string(), {}, 2),
                       ("dspp: TokenFilesWriter needs a folder without token files, but '" + folder.path.string() +
                        "' has '000000.tokens'. Remove them, or name another folder.")
                           .c_str(),
                       Error);
  CHECK_THROWS_AS(TokenFilesWriter(folder.file("000000.tokens"), {}, 2), Error);
  CHECK_THROWS_AS(TokenFilesWriter(folder.file("c"), {}, 0), Error);
}
