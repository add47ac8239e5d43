// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>

#include <dspp/data/tokenizer.hpp>
#include <laws/folder.hpp>
#include <laws/small_tokenizer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Tokens = std::vector<std::int32_t>;

data::Tokenizer small(const SmallTokenizer& file = {}) {
  return data::Tokenizer::parse(file.json(), "a test");
}

std::string sentence_of(const SmallTokenizer& file) {
  try {
    small(file);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("words are merged to tokens, and tokens are their bytes") {
  const data::Tokenizer tokenizer = small();
  CHECK(tokenizer.vocabulary_size() == 261);
  CHECK(tokenizer.encode("the then") == Tokens{257, 259, 'n'});
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.encode("at the\xff") == Tokens{'a', 't', 259, 0xff});
  CHECK(tokenizer.decode(Tokens{257, 259, 'n', 260}) == "the then<end>");
  CHECK(tokenizer.id(" the") == 259);
  CHECK(tokenizer.id("<end>") == 260);
  CHECK(tokenizer.id("x") == 'x');
  CHECK_FALSE(tokenizer.id("xy"));
  CHECK_FALSE(tokenizer.id(""));
}

TEST_CASE("merges may be written as strings") {
  CHECK(small({.merges = R"("t h","th e","Ġ t","Ġ the")"}).encode("the then") == Tokens{257, 259, 'n'});
}

TEST_CASE("added tokens are found first, the longest of them, those that are normalized last") {
  const data::Tokenizer tokenizer = small({.vocabulary = R"(,"th":256,"Ġt":257)",
                                           .merges = R"(["t","h"],["Ġ","t"])",
                                           .added = R"({"id":258,"content":"<end>","normalized":false},
      {"id":259,"content":"<end","normalized":false},{"id":260,"content":"the","normalized":true},
      {"id":261,"content":"e<","normalized":true})"});
  CHECK(tokenizer.encode("a<end><end<en") == Tokens{'a', 258, 259, '<', 'e', 'n'});
  CHECK(tokenizer.encode("<<end>>") == Tokens{'<', 258, '>'});
  CHECK(tokenizer.encode("o the th<end>") == Tokens{'o', ' ', 260, ' ', 256, 258});
  CHECK(tokenizer.encode("e<end>e<") == Tokens{'e', 258, 261});
}

TEST_CASE("decode takes ids that have a token") {
  const data::Tokenizer tokenizer = small({.vocabulary = R"(,"th":256,"the":258,"Ġt":263,"Ġthe":264)"});
  CHECK(tokenizer.vocabulary_size() == 265);
  CHECK_THROWS_WITH_AS(tokenizer.decode(Tokens{262}),
                       "dspp: decode needs ids of the tokenizer's 265 tokens, but got 262. Are they another "
                       "tokenizer's, or a model's with a larger vocabulary?",
                       Error);
  CHECK_THROWS_AS(tokenizer.decode(Tokens{265}), Error);
  CHECK_THROWS_AS(tokenizer.decode(Tokens{-1}), Error);
  CHECK_THROWS_AS(tokenizer.decode(Tokens{static_cast<std::int32_t>(tokenizer.vocabulary_size())}), Error);
}

// The ids are those that tokenizers 0.23.3 gives for the same files.
TEST_CASE("added tokens have the numbers of the tokenizers package, whatever the file says") {
  const auto ids = [](const std::string& added, std::initializer_list<const char*> contents) {
    const data::Tokenizer tokenizer = small({.added = added});
    Tokens all;
    for (const char* content : contents) {
      all.push_back(tokenizer.id(content).value_or(-1));
      CHECK(tokenizer.encode(content) == Tokens{all.back()});
      CHECK(tokenizer.decode(Tokens{all.back()}) == content);
    }
    return all;
  };
  CHECK(ids(R"({"id":270,"content":"<x>"},{"id":265,"content":"<y>"})", {"<x>", "<y>"}) == Tokens{260, 261});
  CHECK(ids(R"({"id":260,"content":"<x>"},{"id":265,"content":"<y>"},{"id":261,"content":"<z>"})",
            {"<x>", "<y>", "<z>"}) == Tokens{260, 261, 262});
  CHECK(ids(R"({"id":5,"content":"the"},{"id":6,"content":"<x>"})", {"the", "<x>"}) == Tokens{257, 260});
  CHECK(ids(R"({"id":65,"content":"<x>"},{"id":2000000000,"content":"<y>"})", {"<x>", "<y>"}) == Tokens{260, 261});
  const data::Tokenizer beyond = small({.vocabulary = R"(,"th":256,"the":257,"Ġt":258,"Ġthe":300)",
                                        .added = R"({"id":1,"content":" the"},{"id":2,"content":"<x>"})"});
  CHECK(beyond.id("<x>") == 261);  // " the" is not how the file writes it
  const data::Tokenizer after = small({.vocabulary = R"(,"th":256,"the":300,"Ġt":258,"Ġthe":259)",
                                       .added = R"({"id":1,"content":"the"},{"id":2,"content":"<x>"})"});
  CHECK(after.id("<x>") == 260);
}

// Pairwise comparisons would take minutes.
TEST_CASE("as many added tokens as a vocabulary has") {
  constexpr std::int32_t count = 200000;
  std::string added;
  for (std::int32_t i = 0; i < count; ++i)
    added += (i == 0 ? "" : ",") + std::string(R"({"id":)") + std::to_string(260 + i) + R"(,"content":"<)" +
             std::to_string(i) + R"(>","normalized":false})";
  const data::Tokenizer tokenizer = small({.added = added});
  std::string text;
  Tokens ids;
  for (std::int32_t i = 0; i < count; i += 7) {
    text += "<" + std::to_string(i) + ">" + (i % 2 == 0 ? "<9" : "");
    ids.push_back(260 + i);
    if (i % 2 == 0) ids.insert(ids.end(), {'<', '9'});
  }
  CHECK(tokenizer.encode(text) == ids);
}

TEST_CASE("with add_prefix_space a space is added to every piece that begins without one") {
  const data::Tokenizer tokenizer = small({.words = R"({"type":"ByteLevel","add_prefix_space":true})"});
  CHECK(tokenizer.encode("the<end>the<end> the") == Tokens{259, 260, 259, 260, 259});
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("without the pattern the whole text is one word, and a word may be a token before it is merged") {
  const data::Tokenizer whole = small({.vocabulary = R"(,"aĠ":256,"Ġb":257)",
                                       .merges = R"(["a","Ġ"],["Ġ","b"])",
                                       .words = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"});
  CHECK(whole.encode("a b") == Tokens{256, 'b'});
  SmallTokenizer file{.vocabulary = R"(,"xyz":256)", .merges = ""};
  CHECK(small(file).encode("xyz") == Tokens{'x', 'y', 'z'});
  file.model += R"("ignore_merges":true,)";
  CHECK(small(file).encode("xyz") == Tokens{256});
  CHECK(small(file).encode("xyzz") == Tokens{'x', 'y', 'z', 'z'});
}

TEST_CASE("any bytes are decoded unchanged, whatever a thread encoded before") {
  const data::Tokenizer tokenizer = data::Tokenizer::read(DSPP_TESTS_DIRECTORY "/golden/tokenizer.json");
  std::mt19937 random(3);
  data::Tokenizer::Scratch scratch;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 80, ' ');
    const unsigned alphabet = round % 2 ? 256 : 16;  // also many short words
    for (char& c : bytes) c = static_cast<char>(static_cast<unsigned char>(0x20 + random() % alphabet));
    Tokens tokens{7};
    tokenizer.encode(bytes, scratch, tokens);
    REQUIRE(tokens[0] == 7);
    tokens.erase(tokens.begin());
    CHECK(tokenizer.decode(tokens) == bytes);
    CHECK(tokenizer.encode(bytes) == tokens);
  }
}

TEST_CASE("a damaged file is refused, or read as a tokenizer that decodes any bytes unchanged") {
  SmallTokenizer file;
  file.vocabulary += R"(,"ab":260)";
  file.added = R"({"id":261,"content":"<end>","normalized":false,"special":true})";
  file.merges += R"(,"a b")";
  const std::string whole = file.json();
  std::mt19937 random(8);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string json = whole;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % 2 ? random() % json.size() : json.size() - 1 - random() % 200;
      const char now = random() % 2 ? whole[random() % whole.size()] : static_cast<char>(random() % 256);
      if (random() % 3)
        json[at] = now;
      else
        json.erase(at, random() % 9);
    }
    try {
      const data::Tokenizer tokenizer = data::Tokenizer::parse(json, "a test");
      std::string text = "the ab<end> then\xff";
      text += static_cast<char>(random() % 256);
      CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::file);
      ++refused;
    }
  }
  CHECK(refused > 500);
  CHECK(refused < 1000);
}

TEST_CASE("different tokenizers have different fingerprints") {
  const std::uint64_t one = small().fingerprint();
  CHECK(small().fingerprint() == one);
  CHECK(small({.merges = R"(["th","e"],["t","h"],["Ġ","t"],["Ġ","the"])"}).fingerprint() != one);
  CHECK(small({.added = R"({"id":260,"content":"<End>"})"}).fingerprint() != one);
  CHECK(small({.added = R"({"id":260,"content":"<end>","normalized":true,"special":true})"}).fingerprint() != one);
  const auto words = [](const char* prefix, const char* regex) {
    const std::string fields = std::string(R"("add_prefix_space":)") + prefix + R"(,"use_regex":)" + regex;
    return small({.words = R"({"type":"ByteLevel",)" + fields + "}"}).fingerprint();
  };
  CHECK(words("false", "true") == one);
  CHECK(words("true", "true") != one);
  CHECK(words("false", "false") != one);
  CHECK(small({.model = R"("type":"BPE","ignore_merges":true,)"}).fingerprint() != one);
}

TEST_CASE("a vocabulary that contradicts itself is refused") {
  const auto expect = [](const SmallTokenizer& file, const std::string& what) {
    CHECK(sentence_of(file) == "dspp: a test needs " + what + ". Write the file again.");
  };
  expect({.vocabulary = R"(,"th":256,"the":256,"Ġt":258,"Ġthe":259)"},
         "one token for each id, but 256 is that of \"the\" and of another");
  expect({.vocabulary = R"(,"the":257,"Ġt":258,"Ġthe":259)"},
         "the tokens of its merges in model.vocab, but \"th\" of model.merges[0] is absent");
  expect({.vocabulary = R"(,"th":256,"Ġt":258,"Ġthe":259)"},
         "the tokens of its merges in model.vocab, but \"the\" of model.merges[1] is absent");
  expect({.merges = R"(["t","h"],["t","h"])"}, "each merge once, but model.merges[1] was there before");
  expect({.added = R"({"id":260,"content":"x1"},{"id":261,"content":"x1"})"},
         "each of added_tokens once, but \"x1\" is there twice");
  expect({.added = R"({"id":233,"content":"é"})"},
         "added_tokens that stand for themselves, but \"é\" stands for other bytes in model.vocab");
  expect(
      {.vocabulary = R"(,"th":256,"the":257,"Ġt":258,"Ġthe":259,"zz":261)", .added = R"({"id":261,"content":"<x>"})"},
      "one token for each id, but 261 is that of \"<x>\" and of another");
  expect({.vocabulary = R"(,"th":256,"the":257,"Ġt":258,"Ġthe":2000000000)"},
         "ids below 2068 for its number of tokens, but that of \"Ġthe\" is 2000000000");
  expect({.vocabulary = R"(,"th":256,"the":257,"Ġt":258,"Ġthe":2068)"},
         "ids below 2068 for its number of tokens, but that of \"Ġthe\" is 2068");
  CHECK(sentence_of({.vocabulary = R"(,"th":256,"the":257,"Ġt":258,"Ġthe":2067)"}) == "no error");
  expect({.more = R"("post_processor":{"type":"BertProcessing","sep":["<s>",261],"cls":["<end>",260]},)"},
         "tokens in its post_processor, but id 261 has none");
  CHECK(sentence_of({.more = R"("post_processor":{"type":"BertProcessing","sep":["t",7],"cls":["<end>",260]},)"}) ==
        "no error");
  std::string json = SmallTokenizer{}.json();
  json.replace(json.find("\"A\":65"), 6, "\"AA\":65");
  CHECK_THROWS_WITH_AS(data::Tokenizer::parse(json, "a test"),
                       "dspp: a test needs a token for each byte in model.vocab, but \"A\", which stands for byte 65, "
                       "is absent. Write the file again.",
                       Error);
}

TEST_CASE("an absent or truncated file is refused") {
  const Folder folder;
  const std::string json = SmallTokenizer{}.json();
  const std::string cut = folder.write("cut.json", json.substr(0, json.size() - 1));
  CHECK_THROWS_WITH_AS(data::Tokenizer::read(cut),
                       ("dspp: the tokenizer '" + cut + "' needs valid JSON, but byte " +
                        std::to_string(json.size() - 1) + " is past the end. Write the file again.")
                           .c_str(),
                       Error);
  CHECK_THROWS_AS(data::Tokenizer::read(folder.file("absent.json")), Error);
  CHECK(data::Tokenizer::read(folder.write("whole.json", json)).vocabulary_size() == 261);
}
