// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <functional>

#include <dspp/data/token_files_writer.hpp>
#include <dspp/data/token_folder.hpp>
#include <laws/folder.hpp>
#include <laws/small_tokenizer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// "<end>" has id 270: 260 to 269 are unused.
std::string tokenizer_with_a_gap() {
  SmallTokenizer file{.added = R"({"id":270,"content":"<end>","normalized":false,"special":true})"};
  file.vocabulary += R"(,"<end>":270)";
  return file.json();
}

void write(const Folder& folder, const std::string& part, const data::TokenVocabulary& vocabulary,
           const std::vector<std::int32_t>& tokens) {
  data::TokenFilesWriter writer(folder.file("tokens/" + part), vocabulary, 4);
  writer.append(tokens);
  writer.finish();
}

/// A folder like that of examples/tokenize.cpp.
void write_folder(const Folder& folder, const std::string& json) {
  const data::Tokenizer by = data::Tokenizer::parse(json, "the tokenizer");
  const data::TokenVocabulary vocabulary{by.vocabulary_size(), by.fingerprint()};
  write(folder, "train", vocabulary, by.encode("the then<end>"));
  write(folder, "held_out", vocabulary, by.encode("that"));
  folder.write("tokens/tokenizer.json", json);
}

/// The error of opening a folder after `change`.
std::string refusal(const std::function<void(const Folder&)>& change) {
  const Folder folder;
  write_folder(folder, tokenizer_with_a_gap());
  change(folder);
  try {
    data::TokenFolder(folder.file("tokens"));
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "it was accepted";
}

}  // namespace

TEST_CASE("a folder has its two parts, and its tokenizer encodes and decodes text") {
  const Folder folder;
  write_folder(folder, tokenizer_with_a_gap());
  const data::TokenFolder tokens(folder.file("tokens"));
  CHECK(tokens.vocabulary_size() == 271);
  CHECK(tokens.encode("the then<end>") == std::vector<std::int32_t>{257, 259, 'n', 270});
  std::vector<std::int32_t> training(4), held_out(3);
  REQUIRE(tokens.training()->size() == 4);
  REQUIRE(tokens.held_out()->size() == 3);
  tokens.training()->read(0, 4, training.data());
  tokens.held_out()->read(0, 3, held_out.data());
  CHECK(tokens.decode(training) == "the then<end>");
  CHECK(tokens.decode(held_out) == "that");
}

TEST_CASE("an id of the vocabulary without a token has no bytes") {
  const Folder folder;
  write_folder(folder, tokenizer_with_a_gap());
  CHECK(data::TokenFolder(folder.file("tokens")).decode(std::vector<std::int32_t>{257, 265, 269, 270}) == "the<end>");
}

TEST_CASE("without a tokenizer bytes are tokens, and any tokenizer.json in the folder is ignored") {
  const Folder folder;
  write(folder, "train", {}, {'a', 0xff, 'b'});
  write(folder, "held_out", {}, {'c'});
  folder.write("tokens/tokenizer.json", "not that");
  const data::TokenFolder tokens(folder.file("tokens"));
  CHECK(tokens.vocabulary_size() == 256);
  CHECK(tokens.encode("a\xff") == std::vector<std::int32_t>{'a', 0xff});
  CHECK(tokens.decode(std::vector<std::int32_t>{'a', 0xff}) == "a\xff");
}

TEST_CASE("a part that is absent or has another tokenizer is refused") {
  const auto path = [](const Folder& folder, const std::string& name) { return folder.path / "tokens" / name; };
  const std::vector<std::pair<std::string, std::function<void(const Folder&)>>> changes = {
      {"/tokens' does not exist. Make one", [&](const Folder& f) { fs::remove_all(path(f, "")); }},
      {"/tokens/train' does not exist. Make one", [&](const Folder& f) { fs::remove_all(path(f, "train")); }},
      {"/tokens/held_out' does not exist. Make one", [&](const Folder& f) { fs::remove_all(path(f, "held_out")); }},
      {"/tokens/held_out' is no folder",
       [&](const Folder& f) {
         fs::remove_all(path(f, "held_out"));
         f.write("tokens/held_out", "");
       }},
      {"/tokens/held_out' holds none", [&](const Folder& f) { fs::remove(path(f, "held_out/000000.tokens")); }},
      {"/tokens/tokenizer.json' does not exist", [&](const Folder& f) { fs::remove(path(f, "tokenizer.json")); }},
      {"/tokens/tokenizer.json' is another",
       [&](const Folder& f) { f.write("tokens/tokenizer.json", SmallTokenizer{}.json()); }},
      {"held_out' are of another, or of another vocabulary, than those in '",
       [&](const Folder& f) {
         fs::remove_all(path(f, "held_out"));
         write(f, "held_out", {271, 1}, {1, 2, 3});
       }},
      {"have a vocabulary of 300 and no tokenizer",
       [&](const Folder& f) {
         for (const char* part : {"train", "held_out"}) {
           fs::remove_all(path(f, part));
           write(f, part, {300, 0}, {1, 2, 3});
         }
       }},
  };
  for (const auto& [expected, change] : changes) {
    const std::string sentence = refusal(change);
    CHECK_MESSAGE(sentence.find(expected) != std::string::npos, sentence);
  }
}

TEST_CASE("the fingerprint of token files depends on their tokens and their tokenizer") {
  const Folder folder;
  write(folder, "a", {300, 7}, {1, 2, 3, 4, 5});
  write(folder, "same", {300, 7}, {1, 2, 3, 4, 5});
  write(folder, "other_token", {300, 7}, {1, 2, 3, 4, 6});
  write(folder, "shorter", {300, 7}, {1, 2, 3, 4});
  write(folder, "other_tokenizer", {300, 8}, {1, 2, 3, 4, 5});
  const auto print = [&](const char* part) {
    return data::TokenShards(data::TokenFiles{folder.file(std::string("tokens/") + part)}).fingerprint();
  };
  CHECK(print("same") == print("a"));
  for (const char* other : {"other_token", "shorter", "other_tokenizer"})
    CHECK_MESSAGE(print(other) != print("a"), other);
}

TEST_CASE("a token file's name is its number in six digits") {
  CHECK(data::detail::file_number("000000.tokens") == 0);
  CHECK(data::detail::file_number("000120.tokens") == 120);
  for (const char* other : {"", "00120.tokens", "0000120.tokens", "000120.tokenz", "abcdef.tokens", "00012a.tokens"})
    CHECK(data::detail::file_number(other) == -1);
}
