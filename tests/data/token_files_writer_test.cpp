// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include <dspp/data/token_files_writer.hpp>
#include <dspp/data/token_shards.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("a sequence is cut into files of equal length, and reads back unchanged") {
  std::vector<std::int32_t> tokens(1005);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (const std::size_t piece : {1, 7, 100, 1005}) {
    CAPTURE(piece);
    const Folder folder;
    data::TokenFilesWriter writer(folder.file("a/b"), {2000, 3}, 100);
    for (std::size_t at = 0; at < tokens.size(); at += piece)
      writer.append(std::span(tokens).subspan(at, std::min(piece, tokens.size() - at)));
    writer.finish();
    writer.finish();
    CHECK(writer.tokens() == 1005);
    CHECK(writer.files() == 11);
    const data::TokenShards shards(data::TokenFiles{folder.file("a/b")});
    REQUIRE(shards.size() == 1005);
    REQUIRE(shards.shards().size() == 11);
    for (std::size_t i = 0; i < 11; ++i) CHECK(shards.shards()[i].size() == (i < 10 ? 100 : 5));
    std::vector<std::int32_t> read(1005);
    shards.read(0, 1005, read.data());
    CHECK(read == tokens);
  }
}

TEST_CASE("a folder with token files is refused, and an unfinished file is removed") {
  const Folder folder;
  {
    data::TokenFilesWriter writer(folder.path.string(), {}, 2);
    writer.append(std::vector<std::int32_t>{1, 2, 3});
    CHECK(folder.list() == std::vector<std::string>{"000000.tokens", "000001.tokens.partial", data::TokenIndex::name});
  }
  CHECK(folder.list() == std::vector<std::string>{"000000.tokens", data::TokenIndex::name});
  CHECK_THROWS_WITH_AS(data::TokenFilesWriter(folder.path.string(), {}, 2),
                       ("dspp: TokenFilesWriter needs a folder without token files, but '" + folder.path.string() +
                        "' has '000000.tokens'. Remove them, or name another folder.")
                           .c_str(),
                       Error);
  CHECK_THROWS_AS(data::TokenFilesWriter(folder.file("000000.tokens"), {}, 2), Error);
  CHECK_THROWS_AS(data::TokenFilesWriter(folder.file("c"), {}, 0), Error);
}

namespace {

/// A folder of five files: tokens 0 to 99, twenty in each.
std::string five_files(const Folder& folder) {
  data::TokenFilesWriter writer(folder.file("f"), {1000, 7}, 20);
  std::vector<std::int32_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 0);
  writer.append(tokens);
  writer.finish();
  return folder.file("f");
}

/// True if a file is verified now, since it is not recorded; `meanwhile` runs during the verification.
bool verifies(data::VerifiedFiles& known, const data::TokenShard& shard, std::time_t later, auto meanwhile) {
  bool verified = false;
  const auto verify = [&] {
    verified = true;
    meanwhile();
  };
  known.once(shard.path(), shard.descriptor(), shard.header(), verify, std::time(nullptr) + later);
  return verified;
}
bool verifies(data::VerifiedFiles& known, const data::TokenShard& shard, std::time_t later = 0) {
  return verifies(known, shard, later, [] {});
}

std::string opening(const std::string& path) {
  try {
    const data::TokenShards shards(data::TokenFiles{path});
    return "ok";
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
}

std::string number(int i) {
  return "00000" + std::to_string(i) + ".tokens";
}

}  // namespace

TEST_CASE("every missing, added or exchanged file is named") {
  const Folder folder;
  const std::string at = five_files(folder);
  CHECK(opening(at) == "ok");
  const auto file = [&](int i) { return folder.path / "f" / number(i); };
  for (int i = 0; i < 5; ++i) {
    CAPTURE(i);
    fs::rename(file(i), folder.path / "away");
    CHECK(opening(at).starts_with("dspp: TokenFiles needs the 5 files that were written, but '" + at + "' lacks '" +
                                  number(i) + "'."));
    fs::rename(folder.path / "away", file(i));
    for (int j = 0; j < i; ++j) {
      const auto exchange = [&] {
        fs::rename(file(i), folder.path / "away"), fs::rename(file(j), file(i)),
            fs::rename(folder.path / "away", file(j));
      };
      exchange();
      CHECK(opening(at).starts_with("dspp: TokenFiles needs its files in their places, but '" + at + "' has '" +
                                    number(i) + "' under the name '" + number(j) + "'."));
      exchange();
    }
  }
  fs::copy_file(file(0), file(5));
  CHECK(opening(at).find("' has '000005.tokens', too.") != std::string::npos);
  fs::remove(file(5));
  {
    data::TokenShardWriter writer(file(2).string(), {1000, 7});
    writer.append(std::vector<std::int32_t>(20, 3));
    writer.commit();
  }
  CHECK(opening(at).find("' has a file of another training set under the name '000002.tokens'.") != std::string::npos);
  fs::remove(folder.path / "f" / data::TokenIndex::name);  // as the first version wrote folders
  CHECK(opening(at) == "ok");
  fs::remove(file(1));
  CHECK(opening(at).find("has '000000.tokens' and then '000002.tokens'") != std::string::npos);
}

TEST_CASE("every changed byte of an index is detected, and an unfinished folder is refused") {
  const Folder folder;
  const std::string at = five_files(folder), path = std::string("f/") + data::TokenIndex::name,
                    whole = folder.read(path);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1 << i % 8);
    folder.write(path, changed);
    CHECK(opening(at).find("needs an index that was not changed") != std::string::npos);
    folder.write(path, whole.substr(0, i));
    CHECK(opening(at).find("needs an index that was not changed") != std::string::npos);
  }
  folder.write(path, whole);
  CHECK(opening(at) == "ok");
  {
    data::TokenFilesWriter left(folder.file("left"), {1000, 7}, 20);
    left.append(std::vector<std::int32_t>(50, 1));
  }
  CHECK(opening(folder.file("left")).find("was left before it was finished") != std::string::npos);
  data::TokenFilesWriter more(folder.file("more"), {1000, 7}, 20);
  more.append(std::vector<std::int32_t>(30, 1)), more.finish();
  CHECK(opening(folder.file("more")) == "ok");
  more.append(std::vector<std::int32_t>(30, 1));
  CHECK(opening(folder.file("more")).find("was left before it was finished") != std::string::npos);
  more.finish(), more.finish();
  CHECK(data::TokenShards(data::TokenFiles{folder.file("more")}).size() == 60);
}

TEST_CASE("changed tokens are detected when a file is first opened, and when it was written since") {
  const Folder folder;
  const std::string at = five_files(folder), path = at + "/000003.tokens";
  const auto flip = [&](Size where) {
    const io::File file = io::File::to_write(path);
    unsigned char byte = 0;
    file.read_at(where, &byte, 1);
    byte ^= 1;
    file.write_at(where, &byte, 1);
  };
  for (Size where = 64; where < 104; ++where) {
    flip(where);
    CHECK(opening(at).find("000003.tokens' needs the tokens that were written, but their checksum differs") !=
          std::string::npos);
    flip(where);
  }
  CHECK(opening(at) == "ok");
  // recorded, but neither a file changed within the last two seconds nor one changed after it was recorded
  const data::TokenShard shard(path);
  data::VerifiedFiles known(at);
  CHECK(verifies(known, shard));
  CHECK(verifies(known, shard));
  CHECK(verifies(known, shard, 3));
  CHECK(!verifies(known, shard));
  known.keep();
  data::VerifiedFiles read(at);
  CHECK(!verifies(read, shard));
  flip(70);
  CHECK(verifies(read, shard));
  CHECK(opening(at).find("their checksum differs") != std::string::npos);
  flip(70);
  CHECK(opening(at) == "ok");
  folder.write("f/.verified", "anything");
  CHECK(opening(at) == "ok");
}

TEST_CASE("a file that changes during its verification is not recorded, nor is one that replaces it") {
  const Folder folder;
  const std::string at = five_files(folder), path = at + "/000003.tokens";
  data::VerifiedFiles known(at);
  {
    const data::TokenShard shard(path);
    CHECK(verifies(known, shard, 3, [&] {
      const io::File file = io::File::to_write(path);
      unsigned char byte = 0;
      file.read_at(70, &byte, 1);
      byte ^= 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the file system's clock advances
      file.write_at(70, &byte, 1);
    }));
    CHECK(verifies(known, shard));
  }
  const data::TokenShard before(path);
  fs::copy_file(path, at + "/other");
  fs::rename(at + "/other", path);
  CHECK(verifies(known, before, 3));  // the open file is recorded, which no longer has that name
  CHECK(!verifies(known, before));
  CHECK(verifies(known, data::TokenShard(path)));
}

namespace {

std::vector<std::int32_t> tokens_in(const std::string& folder) {
  const data::TokenShards shards(data::TokenFiles{folder});
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shards.size()));
  shards.read(0, shards.size(), tokens.data());
  return tokens;
}

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::aborted;
}

}  // namespace

TEST_CASE("a token that is not of the vocabulary leaves a writer as it was") {
  const Folder folder;
  data::TokenFilesWriter writer(folder.file("f"), {.size = 10}, 4);
  const std::vector<std::int32_t> bad{1, 2, 3, 4, 5, 77, 6}, good{1, 2, 3, 4, 5, 6};
  CHECK(code_of([&] { writer.append(bad); }) == ErrorCode::usage);
  CHECK(writer.tokens() == 0);
  writer.append(good);
  CHECK(writer.tokens() == 6);
  writer.finish();
  CHECK(tokens_in(folder.file("f")) == good);
}

TEST_CASE("tokens that the system does not take are never written twice: the writer refuses to go on") {
  const Folder folder;
  data::TokenFilesWriter writer(folder.file("f"), {.size = 10}, 3);
  writer.append(std::vector<std::int32_t>{1, 2, 3});
  fs::create_directories(folder.file("f/000001.tokens.partial/in it"));
  const std::vector<std::int32_t> more{4, 5, 6};
  CHECK(code_of([&] { writer.append(more); }) == ErrorCode::file);
  fs::remove_all(folder.file("f/000001.tokens.partial"));
  CHECK(code_of([&] { writer.append(more); }) == ErrorCode::state);
  CHECK(code_of([&] { writer.finish(); }) == ErrorCode::state);
  CHECK_THROWS_AS(tokens_in(folder.file("f")), Error);

  const std::string path = folder.file("one.tokens");
  data::TokenShardWriter shard(path, {.size = 10});
  shard.append(more);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit no_room{1 << 16, before.rlim_max};
  const std::vector<std::int32_t> many(1 << 20, 7);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &no_room) == 0);
  const ErrorCode code = code_of([&] { shard.append(many); });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(code == ErrorCode::file);
  CHECK(code_of([&] { shard.append(many); }) == ErrorCode::state);
  CHECK(code_of([&] { shard.commit(); }) == ErrorCode::state);
}

TEST_CASE("an index that cannot be written is written by the next finish()") {
  const Folder folder;
  data::TokenFilesWriter writer(folder.file("f"), {.size = 10}, 3);
  const std::vector<std::int32_t> tokens{1, 2, 3, 4};
  writer.append(tokens);
  const std::string partial = folder.file("f/tokens.index.partial");
  fs::create_directories(partial + "/in it");
  CHECK(code_of([&] { writer.finish(); }) == ErrorCode::file);
  CHECK_THROWS_AS(tokens_in(folder.file("f")), Error);
  fs::remove_all(partial);
  writer.finish();
  CHECK(tokens_in(folder.file("f")) == tokens);
}
