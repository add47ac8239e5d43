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
    const std::string end = ". See docs/tokens.md for what is read of a tokenizer.json.";
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
  CHECK(file.model == data::TokenModel::byte_bpe);
  CHECK(file.words.added == data::PreTokenizer::Added::never);
  CHECK(file.words.rule == data::WordRule::gpt2);
  CHECK(file.normalizer == data::Normalizer(data::NoNormalizer{}));
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

TEST_CASE("what is prepended is replaced, too") {
  const auto normal = [](const data::ReplacingNormalizer& how, std::string_view text) {
    std::string room;
    return std::string(data::normalized(how, text, room));
  };
  CHECK(normal({" ", " ", "_"}, "a b") == "_a_b");
  CHECK(normal({"x", "xa", "yy"}, "a xa") == "yy yy");
  CHECK(normal({"_", " ", "_"}, "") == "");
}

TEST_CASE("unsupported fields are refused by name") {
  const std::string of_bytes = " for a BPE model without byte_fallback", of_bert = " for a WordPiece model";
  const std::string of_characters = " for a model with byte_fallback";
  const std::string bert_words = R"({"type":"BertPreTokenizer"})";
  const std::string bert_decoder = R"({"type":"WordPiece","prefix":"##","cleanup":true})";
  const std::string normalizers =
      "normalizer NFC, BertNormalizer, Prepend and Replace of a String, or null, but it is ";
  CHECK(refusal_of({.more = R"("normalizer":{"type":"NFKC"},)"}) == normalizers + "NFKC");
  CHECK(refusal_of({.more = R"("normalizer":{"type":"Sequence","normalizers":[]},)"}) == normalizers + "Sequence");
  CHECK(refusal_of(
            {.more = R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Lowercase"}]},)"}) ==
        normalizers + "Sequence");
  CHECK(refusal_of({.more = R"("normalizer":{"type":"Replace","pattern":{"Regex":" "},"content":"_"},)"}) ==
        normalizers + "Replace");
  CHECK(refusal_of({.more = R"("normalizer":{"type":"Prepend","prepend":"_"},)"}) ==
        "normalizer NFC or null" + of_bytes + ", but it is Prepend");
  CHECK(refusal_of({.more = R"("normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,
      "strip_accents":1,"lowercase":true},)"}) == "normalizer.strip_accents true or false, but it is a number");
  CHECK(refusal_of({.more = R"("truncation":{"max_length":512},)"}) == "truncation null, but it is an object");
  CHECK(refusal_of({.more = R"("padding":{},)"}) == "padding null, but it is an object");
  CHECK(refusal_of({.more = R"("post_processor":{"type":"Other"},)"}) ==
        "post_processor ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing or null, but it is Other");
  CHECK(refusal_of({.more = R"("post_processor":{"type":"TemplateProcessing","single":[]},)"}) ==
        "post_processor.single with one text, Sequence A, but it has none or another");
  CHECK(refusal_of({.more = R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[C]"}},
      {"Sequence":{"id":"A"}}],"special_tokens":{}},)"}) ==
        "post_processor.special_tokens with ids, but those of \"[C]\" are absent");
  CHECK(refusal_of({.more = R"("post_processor":{"type":"BertProcessing","sep":["[SEP]",3]},)"}) ==
        "post_processor with cls and sep, but cls is absent");
  const std::string words =
      "pre_tokenizer ByteLevel, Split with ByteLevel, BertPreTokenizer, Metaspace or null, but it is ";
  CHECK(refusal_of({.words = R"({"type":"Sequence","pretokenizers":[]})"}) == words + "Sequence");
  CHECK(refusal_of({.words = R"({"type":"Whitespace"})"}) == words + "Whitespace");
  CHECK(refusal_of({.words = "null"}) == "pre_tokenizer ByteLevel" + of_bytes + ", but there is none");
  CHECK(refusal_of({.words = bert_words}) == "pre_tokenizer ByteLevel" + of_bytes + ", but it is BertPreTokenizer");
  CHECK(refusal_of({.words = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"second"})"}) ==
        "pre_tokenizer.prepend_scheme always, first or never, but it is \"second\"");
  CHECK(refusal_of({.decoder = R"({"type":"Metaspace"})"}) ==
        "decoder ByteLevel, WordPiece, or Replace, ByteFallback, Fuse and Strip as Llama 2's, but it is Metaspace");
  CHECK(refusal_of({.decoder = bert_decoder}) == "decoder ByteLevel" + of_bytes + ", but it is WordPiece");
  CHECK(refusal_of({.model = R"("type":"Unigram",)"}) == "model.type BPE or WordPiece, but it is \"Unigram\"");
  CHECK(refusal_of({.model = R"("type":"WordPiece",)"}) ==
        "pre_tokenizer BertPreTokenizer" + of_bert + ", but it is ByteLevel");
  CHECK(refusal_of({.words = bert_words, .model = R"("type":"WordPiece",)"}) ==
        "decoder WordPiece" + of_bert + ", but it is ByteLevel");
  CHECK(refusal_of({.words = bert_words, .decoder = bert_decoder, .model = R"("type":"WordPiece",)"}) ==
        "a number model.max_input_chars_per_word, but it is absent");
  CHECK(refusal_of({.words = bert_words,
                    .decoder = bert_decoder,
                    .model = R"("type":"WordPiece",)",
                    .more = R"("normalizer":{"type":"NFC"},)"}) ==
        "normalizer BertNormalizer or null" + of_bert + ", but it is NFC");
  CHECK(refusal_of({.model = R"("byte_fallback":true,)"}) ==
        "pre_tokenizer Metaspace or null" + of_characters + ", but it is ByteLevel");
  CHECK(refusal_of({.words = "null", .model = R"("byte_fallback":true,)"}) ==
        "decoder Replace, ByteFallback, Fuse and Strip" + of_characters + ", but it is ByteLevel");
  CHECK(refusal_of({.model = R"("dropout":0.1,)"}) == "model.dropout null, but it is a number");
  for (const char* without : {R"("dropout":0,)", R"("dropout":0.0,)", R"("dropout":null,)",
                              R"("continuing_subword_prefix":"",)", R"("end_of_word_suffix":null,)"})
    CHECK(refusal_of({.model = without}) == "no error");
  CHECK(refusal_of({.model = R"("dropout":1,)"}) == "model.dropout null, but it is a number");
  CHECK(refusal_of({.model = R"("end_of_word_suffix":3,)"}) == "model.end_of_word_suffix empty, but it is a number");
  CHECK(refusal_of({.decoder = R"({"type":3})"}).starts_with("decoder ByteLevel, WordPiece, or "));
  CHECK(refusal_of({.decoder = "{}"}).starts_with("decoder ByteLevel, WordPiece, or "));
  CHECK(refusal_of({.model = R"("dropout":"none",)"}) == "model.dropout null, but it is \"none\"");
  CHECK(refusal_of({.model = R"("continuing_subword_prefix":"##",)"}) ==
        "model.continuing_subword_prefix empty, but it is \"##\"");
  CHECK(refusal_of({.model = R"("end_of_word_suffix":"</w>",)"}) ==
        "model.end_of_word_suffix empty, but it is \"</w>\"");
  for (const std::string& flag : {std::string("lstrip"), std::string("rstrip"), std::string("single_word")})
    CHECK(refusal_of({.added = R"({"id":260,"content":"<m>",")" + flag + R"(":true})"}) ==
          "added_tokens without " + flag + ", but \"<m>\" has it");
}

TEST_CASE("a Split is taken with the patterns of Llama 3 and Qwen 2 alone") {
  const auto words = [](const std::string& regex, const std::string& fields, const std::string& bytes) {
    return R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" + regex + R"("},)" + fields +
           R"(},{"type":"ByteLevel",)" + bytes + "}]}";
  };
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N})";
  const std::string tail = R"(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
  const std::string isolated = R"("behavior":"Isolated","invert":false)";
  const std::string bytes = R"("add_prefix_space":false,"trim_offsets":true,"use_regex":false)";
  const auto rule = [&](const std::string& regex) {
    const std::string json = SmallTokenizer{.words = words(regex, isolated, bytes)}.json();
    return data::parse_tokenizer_file(json, "a test").words.rule;
  };
  CHECK(rule(head + "{1,3}" + tail) == data::WordRule::three_digits);
  CHECK(rule(head + tail) == data::WordRule::one_digit);
  const std::string needs = "pre_tokenizer.pattern.Regex of Llama 3 or Qwen 2, but it is ";
  for (const std::string& other :
       {head + "{1,2}" + tail, head + tail + "|x", head, std::string("x"), head + "+" + tail})
    CHECK(refusal_of({.words = words(other, isolated, bytes)}).starts_with(needs));
  const auto refused = [&](const std::string& fields, const std::string& of_bytes) {
    return refusal_of({.words = words(head + tail, fields, of_bytes)});
  };
  CHECK(refused(R"("behavior":"Removed","invert":false)", bytes) ==
        "pre_tokenizer.behavior Isolated, but it is \"Removed\"");
  CHECK(refused(R"("behavior":"Isolated","invert":true)", bytes) == "pre_tokenizer.invert false, but it is true");
  const std::string quiet = "pre_tokenizer Split with ByteLevel that adds no space and has no regex, but ";
  CHECK(refused(isolated, R"("add_prefix_space":true,"use_regex":false)") == quiet + "add_prefix_space is true");
  CHECK(refused(isolated, R"("add_prefix_space":false)") == quiet + "use_regex is true");
}

TEST_CASE("the tokens around a text") {
  const auto around = [](const std::string& post) {
    const std::string json = SmallTokenizer{.more = "\"post_processor\":" + post + ","}.json();
    const data::TextTemplate found = data::parse_tokenizer_file(json, "a test").text_template;
    std::vector<std::int32_t> all = found.before;
    all.push_back(-1);
    all.insert(all.end(), found.after.begin(), found.after.end());
    return all;
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(around("null") == Ids{-1});
  CHECK(around(R"({"type":"BertProcessing","sep":["[SEP]",102],"cls":["[CLS]",101]})") == Ids{101, -1, 102});
  CHECK(around(R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",0],"trim_offsets":true})") ==
        Ids{0, -1, 2});
  CHECK(around(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"<a>"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<b>"}},
      {"SpecialToken":{"id":"<a>"}}],"special_tokens":{"<a>":{"ids":[7,8]},"<b>":{"ids":[9]}}}]})") ==
        Ids{7, 8, -1, 9, 7, 8});
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
