// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/data/tokenizer_file.hpp>
#include <laws/small_tokenizer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The part of the error between "needs" and the advice.
std::string refusal_of_json(const std::string& json) {
  try {
    data::parse_tokenizer_file(json, "a test");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    const std::string sentence = error.what(), begin = "dspp: a test needs ";
    const std::string end = ". Name a byte-level BPE tokenizer.json, such as GPT-2's.";
    REQUIRE(sentence.starts_with(begin));
    REQUIRE(sentence.ends_with(end));
    return sentence.substr(begin.size(), sentence.size() - begin.size() - end.size());
  }
  return "no error";
}

std::vector<std::pair<std::string, std::int32_t>> vocabulary_of(const data::TokenizerFile& file) {
  std::vector<std::pair<std::string, std::int32_t>> all;
  file.for_each_token([&](const std::string& token, std::int32_t id) { all.emplace_back(token, id); });
  return all;
}

std::vector<std::pair<std::string, std::string>> merges_of(const data::TokenizerFile& file) {
  std::vector<std::pair<std::string, std::string>> all;
  file.for_each_merge([&](std::string_view left, std::string_view right) { all.emplace_back(left, right); });
  return all;
}

std::string refusal_of(const SmallTokenizer& file) {
  return refusal_of_json(file.json());
}

}  // namespace

TEST_CASE("the parts of a file") {
  const std::string text = SmallTokenizer{}.json();
  const data::TokenizerFile file = data::parse_tokenizer_file(text, "a test");
  CHECK(file.tokens == 260);
  const auto vocabulary = vocabulary_of(file);
  REQUIRE(vocabulary.size() == 260);
  CHECK(vocabulary.back() == std::pair<std::string, std::int32_t>("Ġthe", 259));
  CHECK(file.merge_count == 4);
  REQUIRE(merges_of(file).size() == 4);
  CHECK(merges_of(file)[1] == std::pair<std::string, std::string>("th", "e"));
  REQUIRE(file.added.size() == 1);
  CHECK(file.added[0].content == "<end>");
  CHECK(file.added[0].id == 260);
  CHECK_FALSE(file.added[0].normalized);
  const std::string other = SmallTokenizer{.added = R"({"id":260,"content":"x"})"}.json();
  CHECK(data::parse_tokenizer_file(other, "a test").added[0].normalized);
  CHECK_FALSE(file.add_prefix_space);
  CHECK(file.use_regex);
  CHECK_FALSE(file.ignore_merges);
}

TEST_CASE("a file as older versions write it") {
  SmallTokenizer old;
  old.model =
      R"("dropout":null,"unk_token":"","continuing_subword_prefix":"","end_of_word_suffix":"","fuse_unk":false,)";
  old.more = R"("version":"1.0","truncation":null,"padding":null,"normalizer":null,)"
             R"("post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false},)";
  old.merges = R"("t h","th e")";
  const std::string text = old.json();
  const data::TokenizerFile file = data::parse_tokenizer_file(text, "a test");
  REQUIRE(merges_of(file).size() == 2);
  CHECK(merges_of(file)[1] == std::pair<std::string, std::string>("th", "e"));
}

TEST_CASE("unsupported fields are refused by name") {
  CHECK(refusal_of({.more = R"("normalizer":{"type":"NFC"},)"}) == "normalizer null, but it is NFC");
  CHECK(refusal_of({.more = R"("truncation":{"max_length":512},)"}) == "truncation null, but it is an object");
  CHECK(refusal_of({.more = R"("padding":{},)"}) == "padding null, but it is an object");
  CHECK(refusal_of({.more = R"("post_processor":{"type":"TemplateProcessing"},)"}) ==
        "post_processor ByteLevel or null, but it is TemplateProcessing");
  CHECK(refusal_of({.words = R"({"type":"Sequence","pretokenizers":[]})"}) ==
        "pre_tokenizer ByteLevel, but it is Sequence");
  CHECK(refusal_of({.words = "null"}) == "pre_tokenizer ByteLevel, but there is none");
  CHECK(refusal_of({.decoder = R"({"type":"Metaspace"})"}) == "decoder ByteLevel, but it is Metaspace");
  CHECK(refusal_of({.model = R"("type":"Unigram",)"}) == "model.type BPE, but it is \"Unigram\"");
  CHECK(refusal_of({.model = R"("dropout":0.1,)"}) == "model.dropout null, but it is a number");
  for (const char* without : {R"("dropout":0,)", R"("dropout":0.0,)", R"("dropout":null,)",
                              R"("continuing_subword_prefix":"",)", R"("end_of_word_suffix":null,)"})
    CHECK(refusal_of({.model = without}) == "no error");
  CHECK(refusal_of({.model = R"("dropout":1,)"}) == "model.dropout null, but it is a number");
  CHECK(refusal_of({.model = R"("end_of_word_suffix":3,)"}) == "model.end_of_word_suffix empty, but it is a number");
  CHECK(refusal_of({.decoder = R"({"type":3})"}).starts_with("decoder ByteLevel, but it is "));
  CHECK(refusal_of({.decoder = "{}"}).starts_with("decoder ByteLevel, but it is "));
  CHECK(refusal_of({.model = R"("dropout":"none",)"}) == "model.dropout null, but it is \"none\"");
  CHECK(refusal_of({.model = R"("continuing_subword_prefix":"##",)"}) ==
        "model.continuing_subword_prefix empty, but it is \"##\"");
  CHECK(refusal_of({.model = R"("end_of_word_suffix":"</w>",)"}) ==
        "model.end_of_word_suffix empty, but it is \"</w>\"");
  for (const std::string& flag : {std::string("lstrip"), std::string("rstrip"), std::string("single_word")})
    CHECK(refusal_of({.added = R"({"id":260,"content":"<m>",")" + flag + R"(":true})"}) ==
          "added_tokens without " + flag + ", but \"<m>\" has it");
}

TEST_CASE("malformed fields are refused by name") {
  CHECK(refusal_of_json("[]") == "an object, but it is a list");
  CHECK(refusal_of({.merges = R"("t h","the")"}) ==
        "merges of two tokens, \"a b\" or [\"a\", \"b\"], but model.merges[1] is \"the\"");
  CHECK(refusal_of({.merges = R"("a b c")"}) ==
        "merges of two tokens, \"a b\" or [\"a\", \"b\"], but model.merges[0] is \"a b c\"");
  for (const std::string& merge : {std::string("\" b\""), std::string("\"a \""), std::string("\"a  b\"")})
    CHECK(refusal_of({.merges = merge}) ==
          "merges of two tokens, \"a b\" or [\"a\", \"b\"], but model.merges[0] is " + merge);
  CHECK(refusal_of({.merges = R"(["a"])"}) ==
        "merges of two tokens, \"a b\" or [\"a\", \"b\"], but model.merges[0] is a list");
  CHECK(refusal_of({.merges = R"(["a",3])"}) ==
        "merges of two tokens, \"a b\" or [\"a\", \"b\"], but model.merges[0] is a list");
  for (const std::string& merge : {std::string("null"), std::string("true"), std::string("false")})
    CHECK(refusal_of({.merges = merge}).ends_with("model.merges[0] is " + merge));
  for (const std::string& merge : {std::string(R"(["","b"])"), std::string(R"(["a",""])"), std::string(R"([1,"b"])")})
    CHECK(refusal_of({.merges = merge}).ends_with("model.merges[0] is a list"));
  CHECK(refusal_of({.merges = "7"}) ==
        "merges of two tokens, \"a b\" or [\"a\", \"b\"], but model.merges[0] is a number");
  CHECK(refusal_of({.vocabulary = R"(,"th":-1)"}) == "ids in [0, 2^31), but that of \"th\" is -1");
  CHECK(refusal_of({.vocabulary = R"(,"th":2147483648)"}) == "ids in [0, 2^31), but that of \"th\" is 2147483648");
  CHECK(refusal_of({.vocabulary = R"(,"th":"x")"}) == "ids in [0, 2^31), but that of \"th\" is \"x\"");
  CHECK(refusal_of({.added = R"({"id":260})"}) == "added_tokens with content and id, but one has none");
  CHECK(refusal_of({.added = R"({"content":"x"})"}) == "added_tokens with content and id, but one has none");
  CHECK(refusal_of({.added = R"({"id":260,"content":3})"}) == "added_tokens with content and id, but one has none");
  CHECK(refusal_of({.added = R"({"id":260,"content":""})"}) == "added_tokens with content and id, but one has none");
  CHECK(refusal_of({.added = "3"}) == "added_tokens with content and id, but one has none");
  CHECK(refusal_of({.words = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":1})"}) ==
        "pre_tokenizer.use_regex true or false, but it is a number");
  CHECK(refusal_of({.words = R"({"type":"ByteLevel"})"}) ==
        "pre_tokenizer.add_prefix_space true or false, but it is absent");
  const std::string head =
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"})";
  CHECK(refusal_of_json(head + "}") == "an object `model`, but it is absent");
  CHECK(refusal_of_json(head + R"(,"model":3})") == "an object `model`, but it is a number");
  CHECK(refusal_of_json(head + R"(,"model":{"vocab":[]}})") == "an object model.vocab, but it is a list");
  CHECK(refusal_of_json(head + R"(,"added_tokens":{},"model":{"vocab":{},"merges":[]}})") ==
        "a list added_tokens, but it is an object");
  CHECK(refusal_of_json(head + R"(,"model":{}})") == "an object model.vocab, but it is absent");
  CHECK(refusal_of_json(head + R"(,"model":{"vocab":{},"merges":{}}})") == "a list model.merges, but it is an object");
}
