// SPDX-License-Identifier: Apache-2.0
// Parsing any external text takes at most four times its bytes beside the result. The heap is counted by heap_test.cpp.
// labels: engine
#include <doctest/doctest.h>

#include <any>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/data/token_index.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/safetensors_index.hpp>
#include <laws/folder.hpp>
#include <laws/heap_meter.hpp>
#include <laws/small_tokenizer.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr std::int64_t constant = 100'000;

/// Parses a text to its result.
using Parse = std::function<std::any(const std::string& text)>;

struct Measured {
  bool accepted = false;
  std::int64_t peak = 0;  ///< while it parsed
  std::int64_t kept = 0;  ///< by the result
};

Measured measured(const Parse& parse, const std::string& text) {
  Measured is;
  const std::int64_t before = heap_of_this_thread().bytes;
  reset_heap_peak_of_this_thread();
  try {
    const std::any kept = parse(text);
    is.accepted = true;
    is.peak = heap_peak_of_this_thread() - before;
    is.kept = heap_of_this_thread().bytes - before;
  } catch (const Error& error) {
    is.peak = heap_peak_of_this_thread() - before;
    CHECK(error.code() == ErrorCode::file);
  }
  return is;
}

std::string repeated(Size count, const std::function<std::string(Size)>& one) {
  std::string text;
  for (Size i = 0; i < count; ++i) text += (i ? "," : "") + one(i);
  return text;
}

std::string repeated(Size count, const char* one) {
  return repeated(count, [&](Size) { return std::string(one); });
}

std::string quoted_number(Size i) {
  return "\"" + std::to_string(i) + "\"";
}

struct Filling {
  const char* name;
  std::string text;
};

/// Values of some 150,000 bytes, all valid JSON but the last.
std::vector<Filling> large_values() {
  std::string deep, end;
  for (int level = 0; level < 50; ++level)
    deep += level % 2 ? "[0," : "{\"a\":0,\"b\":", end = (level % 2 ? "]" : "}") + end;
  return {
      {"zeros", "[" + repeated(75'000, "0") + "]"},
      {"reals", "[" + repeated(30'000, "0.5") + "]"},
      {"words", "[" + repeated(30'000, "null") + "]"},
      {"empty strings", "[" + repeated(50'000, "\"\"") + "]"},
      {"short strings", "[" + repeated(15'000, quoted_number) + "]"},
      {"long strings", "[" + repeated(15, ("\"" + std::string(10'000, 'x') + "\"").c_str()) + "]"},
      {"one string", "\"" + std::string(150'000, 'x') + "\""},
      {"one string of escapes", "\"" + repeated(50'000, "\\n") + "\""},
      {"lists", "[" + repeated(50'000, "[]") + "]"},
      {"objects", "[" + repeated(50'000, "{}") + "]"},
      {"small objects", "[" + repeated(17'000, "{\"a\":0}") + "]"},
      {"objects of two", "[" + repeated(10'000, "{\"a\":0,\"b\":[]}") + "]"},
      {"members", "{" + repeated(17'000, [](Size i) { return quoted_number(i) + ":0"; }) + "}"},
      {"members by escapes", "{" + repeated(12'000, [](Size i) { return "\"\\n" + std::to_string(i) + "\":0"; }) + "}"},
      {"deep", deep + "[" + repeated(75'000, "0") + "]" + end},
      {"keys that come twice", "{" + repeated(30'000, "\"\":0") + "}"}};
}

struct Parser {
  const char* name;
  Parse parse;
  std::vector<std::string> texts;  ///< valid with the right value in place of @
};

std::string in_place(const std::string& text, const std::string& value) {
  const std::size_t at = text.find('@');
  return text.substr(0, at) + value + text.substr(at + 1);
}

template <class Config>
std::vector<std::string> config_texts(const Config& config, std::initializer_list<const char*> known) {
  const std::string whole = hub::hugging_face_config(config), begin = whole.substr(0, whole.rfind("\n}"));
  std::vector<std::string> texts{begin + ",\"x\":@}", begin + ",\"rope_scaling\":{\"x\":@}}"};
  for (const char* field : known) texts.push_back("{" + json_quoted(field) + ":@}");
  return texts;
}

std::vector<std::string> tokenizer_texts() {
  std::vector<std::string> texts;
  for (std::string SmallTokenizer::*field :
       {&SmallTokenizer::merges, &SmallTokenizer::added, &SmallTokenizer::words, &SmallTokenizer::decoder}) {
    SmallTokenizer file;
    file.*field = "@";
    texts.push_back(file.json());
  }
  for (const char* more : {R"("x":@,)", R"("post_processor":@,)", R"("padding":@,)", R"("normalizer":{"type":@},)"})
    texts.push_back(SmallTokenizer{.more = more}.json());
  for (const char* model : {R"("x":@,)", R"("type":@,)", R"("dropout":@,)", R"("end_of_word_suffix":@,)"})
    texts.push_back(SmallTokenizer{.model = model}.json());
  texts.push_back(SmallTokenizer{.vocabulary = R"(,"th":@)"}.json());
  texts.push_back(SmallTokenizer{.vocabulary = R"(,@:-1)"}.json());
  texts.push_back(SmallTokenizer{.vocabulary = R"(,@:1)"}.json());
  texts.push_back(SmallTokenizer{.vocabulary = R"(,@:300)"}.json());
  texts.push_back(SmallTokenizer{.merges = R"(["t",@])"}.json());
  texts.push_back(SmallTokenizer{.added = R"({"id":260,"content":"x","x":@})"}.json());
  texts.push_back(SmallTokenizer{.added = R"({"id":260,"content":@})"}.json());
  texts.push_back(SmallTokenizer{.added = R"({"id":@,"content":"x"})"}.json());
  return texts;
}

/// Reads it as a file of a folder: its text is part of the peak.
Parse from_file(const char* name, const std::function<std::any(const Folder& folder)>& read) {
  return [name, read](const std::string& text) {
    static const Folder folder;
    {
      const std::string sealed = io::sealed_text(text);
      folder.write(name, sealed);
    }
    reset_heap_peak_of_this_thread();
    return read(folder);
  };
}

const std::vector<Parser>& parsers() {
  static const std::string who = "a text";
  static const Parse manifest = from_file("state.json", [](const Folder& folder) {
    const io::CheckpointManifest read = io::read_checkpoint_manifest(folder.file("state.json"));
    return std::any(std::pair(read.files, dspp::detail::facts_of_manifest(read)));
  });
  static const std::vector<Parser> all{
      {"JSON", [](const auto& text) { return std::any(io::parse_json(text, who)); }, {"@", "{\"x\":@}", "[@]"}},
      {"header",
       [](const auto& text) { return std::any(io::parse_safetensors_header(text, 0, who)); },
       {R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":@}})",
        R"({"t":{"dtype":"U8","shape":@,"data_offsets":[0,0]}})",
        R"({"t":{"dtype":"U8","shape":[0],"data_offsets":@}})", R"({"t":{"dtype":@,"shape":[0],"data_offsets":[0,0]}})",
        R"({"t":@})", R"({@:{"dtype":"?","shape":[],"data_offsets":[0,0]}})", R"({"__metadata__":@})",
        R"({"__metadata__":{"a":@}})"}},
      {"index",
       [](const auto& text) { return std::any(io::parse_safetensors_index(text, who)); },
       {R"({"weight_map":{"w":"a.safetensors"},"x":@})", R"({"x":@,"weight_map":{"w":"a.safetensors"}})",
        R"({"metadata":{"x":@},"weight_map":{"w":"a.safetensors"}})",
        R"({"metadata":{"total_size":@},"weight_map":{"w":"a.safetensors"}})",
        R"({"metadata":@,"weight_map":{"w":"a.safetensors"}})", R"({"weight_map":@})", R"({"weight_map":{"w":@}})",
        R"({"weight_map":{@:3}})"}},
      {"GPT-2", [](const auto& text) { return std::any(hub::parse_gpt2_config(text, who)); },
       config_texts(GptConfig{}, {"architectures", "activation_function", "n_layer", "n_inner", "resid_pdrop"})},
      {"Llama", [](const auto& text) { return std::any(hub::parse_llama_config(text, who)); },
       config_texts(LlamaConfig{}, {"architectures", "model_type", "hidden_size", "rope_scaling", "sliding_window"})},
      {"tokens", [](const auto& text) { return std::any(hub::parse_hugging_face_tokens(text, who)); },
       config_texts(LlamaConfig{}, {"eos_token_id", "bos_token_id", "model_type"})},
      {"tokenizer", [](const auto& text) { return std::any(data::Tokenizer::parse(text, who)); }, tokenizer_texts()},
      {"manifest",
       manifest,
       {R"({"format":"dspp training state","version":1,"training":{},"chunk_bytes":1048576,"files":{},"x":@})",
        R"({"format":"dspp training state","version":1,"training":{"x":@},"chunk_bytes":1048576,"files":{}})",
        R"({"format":"dspp training state","version":1,"training":@,"chunk_bytes":1048576,"files":{}})",
        R"({"format":"dspp training state","version":1,"training":{},"chunk_bytes":1048576,"files":@})",
        R"({"format":"dspp training state","version":1,"training":{},"chunk_bytes":1048576,"files":{"f":@}})",
        R"({"format":"dspp training state","version":1,"training":{},"chunk_bytes":1048576,"files":{@:{}}})",
        R"({"format":"dspp training state","version":1,"training":{@:1},"chunk_bytes":1048576,"files":{}})",
        R"({"format":"dspp training state","version":1,"training":{},"chunk_bytes":1048576,)"
        R"("files":{"f":{"bytes":1,"crc32c":@}}})",
        R"({"format":@})", R"({"format":"dspp training state","version":@})"}}};
  return all;
}

}  // namespace

TEST_CASE("any value anywhere in any parser's text takes at most four times the text and 0.1 MB") {
  const std::vector<Filling> fillings = large_values();
  for (const Filling& filling : fillings) {
    CAPTURE(std::string(filling.name));
    CHECK(measured(parsers()[0].parse, filling.text).accepted == (&filling != &fillings.back()));
  }
  for (const Parser& parser : parsers())
    for (const std::string& place : parser.texts)
      for (const Filling& filling : fillings) {
        CAPTURE(std::string(parser.name));
        CAPTURE(place.substr(0, 200));
        CAPTURE(std::string(filling.name));
        const std::string text = in_place(place, filling.text);
        const Measured is = measured(parser.parse, text);
        CAPTURE(static_cast<double>(is.peak) / static_cast<double>(text.size()));
        CHECK(is.peak <= 4 * std::ssize(text) + constant);
      }
}

TEST_CASE("long content takes four times the text and 0.1 MB at most beside what is kept of it") {
  const auto by_name = [](const char* name) {
    for (const Parser& parser : parsers())
      if (std::string(parser.name) == name) return parser.parse;
    return Parse();
  };
  const auto index_of = [](Size count, const std::string& name, const std::string& file) {
    const auto entry = [&](Size i) { return "\"" + std::to_string(i) + name + "\":\"" + file + "\""; };
    return "{\"weight_map\":{" + repeated(count, entry) + "}}";
  };
  const auto manifest_of = [](const std::string& training, const std::string& files) {
    return R"({"format":"dspp training state","version":1,"training":{)" + training +
           R"(},"chunk_bytes":1048576,"files":{)" + files + "}}";
  };
  const auto empty_file = [](Size i) { return quoted_number(i) + R"(:{"bytes":0,"crc32c":""})"; };
  // of all words of two and three letters, each made of its first letter and the rest
  const std::string letters = "abcdefghijklmnopqrst";
  SmallTokenizer many{.vocabulary = "", .merges = "", .added = R"({"id":9000,"content":"<end>"})"};
  Size tokens = 256, merges = 0;
  std::vector<std::string> ends(letters.size());
  for (std::size_t i = 0; i < letters.size(); ++i) ends[i] = letters[i];
  for (int length = 2; length <= 3; ++length) {
    std::vector<std::string> words;
    for (const char first : letters)
      for (const std::string& rest : ends) {
        words.push_back(first + rest);
        many.vocabulary += ",\"" + words.back() + "\":" + std::to_string(tokens++);
        many.merges += (merges++ ? ",\"" : "\"") + std::string(1, first) + " " + rest + "\"";
      }
    ends = words;
  }
  SmallTokenizer last_twice = many, again = many;
  last_twice.merges += R"(,"a b")";
  again.merges = repeated(80'000, R"("a b")");
  struct Long {
    const char* name;
    Parse parse;
    std::string text;
    bool accepted;
    std::int64_t kept;  ///< at most
  };
  const std::int64_t tokenizer = 200 * tokens + 64 * merges;
  const std::vector<Long> texts{
      {"an index", by_name("index"),
       index_of(3'000, ".layers.attention.query.weight", "model-00001-of-00005.safetensors"), true, 3'000 * 162},
      {"an index of short names", by_name("index"), index_of(10'000, "", "a.safetensors"), true, 10'000 * 96},
      {"a tokenizer", by_name("tokenizer"), many.json(), true, tokenizer},
      {"a tokenizer with a merge twice", by_name("tokenizer"), last_twice.json(), false, tokenizer},
      {"a tokenizer of one merge", by_name("tokenizer"), again.json(), false, tokenizer},
      {"a manifest of 50 GB", by_name("manifest"),
       manifest_of("", R"("f":{"bytes":52428800000,"crc32c":")" + std::string(400'000, '1') + "\"}"), true, 200'000},
      {"a manifest of many files", by_name("manifest"), manifest_of("", repeated(10'000, empty_file)), true, 0},
      {"a manifest of many words", by_name("manifest"),
       manifest_of(repeated(30'000, [](Size i) { return quoted_number(i) + ":\"\""; }), ""), true, 0}};
  for (const Long& one : texts) {
    CAPTURE(std::string(one.name));
    const Measured is = measured(one.parse, one.text);
    CHECK(is.accepted == one.accepted);
    CAPTURE(is.kept);
    CAPTURE(is.peak);
    CAPTURE(one.text.size());
    if (one.kept > 0) CHECK(is.kept <= one.kept + constant);
    CHECK(is.peak <= 4 * std::ssize(one.text) + constant + (one.accepted ? is.kept : one.kept));
  }
}

TEST_CASE("the index of a folder of tokens takes at most four times its text and 0.1 MB") {
  const data::ShardHeader header{.token_bytes = 2, .count = 3, .vocabulary_size = 9, .tokens_sum = 1, .tokenizer = 2};
  const std::string begin = "dspp token files 1\n";
  const auto lines = [](Size count, const std::string& line) {
    std::string text;
    for (Size i = 0; i < count; ++i) text += line + "\n";
    return text;
  };
  std::string distinct;
  for (Size i = 100'000; i < 110'000; ++i) distinct += "a.tokens 1 1 1 1 1 1 1 1 " + std::to_string(i) + "\n";
  const Parse index = from_file(data::TokenIndex::name, [&](const Folder& folder) {
    data::require_indexed(folder.path.string(), {{"a.tokens", header}, {"b.tokens", header}});
    return std::any();
  });
  const Parse verified = from_file(".verified", [](const Folder& folder) {
    const data::VerifiedFiles read(folder.path.string());
    return std::any();
  });
  for (const auto& input : {std::pair(index, begin + lines(300'000, "")),
                            {index, begin + lines(20'000, "a.tokens 1")},
                            {index, begin + lines(300'000, "x").append("b.tokens 1\n")},
                            {verified, lines(300'000, "")},
                            {verified, distinct}}) {
    const std::string& text = input.second;
    CAPTURE(text.substr(0, 60));
    const Measured is = measured(input.first, text);
    CAPTURE(is.peak);
    CHECK(is.peak <= 4 * std::ssize(text) + constant);
  }
}
