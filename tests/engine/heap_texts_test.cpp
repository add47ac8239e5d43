// SPDX-License-Identifier: Apache-2.0
// Row D5: reading external text takes a second at most and, if it is refused, hardly any memory: deep, long, bad
// numbers, bad UTF-8, byte order marks. The heap is counted by heap_test.cpp.
// labels: engine
#include <doctest/doctest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/data/tokenizer.hpp>
#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/safetensors_folder.hpp>
#include <laws/folder.hpp>
#include <laws/heap_meter.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

std::int64_t heap_peak = 0;  ///< of the last refusal()
double seconds = 0;          ///< that it took this thread

/// The error of `work`; "" if there is none.
std::string refusal(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const std::int64_t before = heap_of_this_thread().bytes;
  const double start = now();
  reset_heap_peak_of_this_thread();
  std::string sentence;
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    sentence = error.what();
  }
  heap_peak = heap_peak_of_this_thread() - before;
  seconds = now() - start;
  return sentence;
}

struct Parser {
  const char* name;
  std::function<void(const std::string& text)> parse;
  const char* file;  ///< of a folder
  std::function<void(const std::string& folder)> read;
};

const std::vector<Parser> parsers{
    {"JSON", [](const auto& text) { io::parse_json(text, "a text"); }, "state.json",
     [](const auto& folder) { io::read_checkpoint_manifest(folder + "/state.json"); }},
    {"header", [](const auto& text) { io::parse_safetensors_header(text, 0, "a text"); }, "model.safetensors",
     [](const auto& folder) { io::SafetensorsFolder{folder}; }},
    {"index", [](const auto& text) { io::parse_safetensors_index(text, "a text"); }, "model.safetensors.index.json",
     [](const auto& folder) { io::SafetensorsFolder{folder}; }},
    {"config", [](const auto& text) { hub::parse_llama_config(text, "a text"); }, "config.json",
     [](const auto& folder) { hub::read_llama_config(folder); }},
    {"tokenizer", [](const auto& text) { data::Tokenizer::parse(text, "a text"); }, "tokenizer.json",
     [](const auto& folder) { data::Tokenizer::read(folder + "/tokenizer.json"); }},
};

struct BadText {
  const char* name;
  std::string text, sentence;
};

std::vector<BadText> bad_texts() {
  const std::size_t depth = 100'000, length = 2'000'000;
  const std::string begin = "{\"a\":", members = [] {
    std::string text = "{";
    for (int i = 0; i < 100'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
    return text + "\"a\":";
  }();
  std::string objects;
  for (std::size_t i = 0; i < depth; ++i) objects += begin;
  const auto byte = [](std::size_t at) {
    return "dspp: a text needs valid JSON, but byte " + std::to_string(at) + " ";
  };
  return {
      {"deep lists", begin + std::string(depth, '[') + std::string(depth, ']') + "}",
       byte(begin.size() + 64) + "opens more than 64 levels"},
      {"deep objects", objects, byte(begin.size() * 65) + "opens more than 64 levels"},
      {"a string without end", begin + "\"" + std::string(length, 'x'),
       byte(begin.size() + length + 1) + "is past the end"},
      {"NaN after many values", members + "NaN}", byte(members.size()) + "begins no value"},
      {"1e999 after many values", members + "-1e999}", byte(members.size()) + "begins a number that no f64 holds"},
      {"bad UTF-8", begin + "\"" + std::string(length, 'x') + "\xed\xa0\x80\"}",
       byte(begin.size() + length + 1) + "is not UTF-8"},
      {"a byte order mark", "\xef\xbb\xbf{\"a\":0}", byte(0) + "begins a byte order mark"},
  };
}

}  // namespace

TEST_CASE(
    "D5: texts that are too deep or long, or have bad numbers or UTF-8, are refused with the byte, without memory") {
  for (const BadText& bad : bad_texts())
    for (const Parser& parser : parsers) {
      CAPTURE(std::string(bad.name));
      CAPTURE(std::string(parser.name));
      const std::string said = refusal([&] { parser.parse(bad.text); });
      const bool header = parser.name == std::string("header") && bad.text[0] != '{';
      CHECK_MESSAGE(said.find(header ? "dspp: a text needs to begin with '{', but it does not" : bad.sentence) == 0,
                    said);
      CHECK(seconds < 1);
      CHECK(heap_peak < 4096);
    }
}

TEST_CASE("D5: a file of a gigabyte is refused by its size, before it is read") {
  for (const Parser& parser : parsers) {
    CAPTURE(std::string(parser.name));
    const Folder folder;
    const std::string path = folder.file(parser.file);
    std::ofstream(path, std::ios::binary) << std::string_view("\0\xca\x9a\x3b\0\0\0\0{\"a\":\"", 14);
    std::filesystem::resize_file(path, 1'000'000'008);
    const std::string said = refusal([&] { parser.read(folder.path.string()); });
    CHECK_MESSAGE(said.find(parser.file) != std::string::npos, said);
    CAPTURE(said);
    CHECK(said.find(parser.name == std::string("header") ? "but it claims 1000000000. " : "but it has 1000000008. ") !=
          std::string::npos);
    CHECK(seconds < 1);
    CHECK(heap_peak < 8192);
  }
}

TEST_CASE("a header is read in 2.1 times its bytes; shapes take 8 bytes an extent") {
  const auto entry = [](Size i) {
    return "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[)" + std::to_string(i) + "," +
           std::to_string(i + 1) + "]}";
  };
  const auto empty_entry = [](Size i) {
    return "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  };
  const auto repeated = [](Size count, auto one) {
    std::string text = "{";
    for (Size i = 0; i < count; ++i) text += (i ? "," : "") + one(i);
    return text + "}";
  };
  const auto numbers = [](Size count) {
    std::string list = "0";
    for (Size i = 1; i < count; ++i) list += ",0";
    return list;
  };
  const auto long_shape = [&](Size i) {
    return "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[)" + numbers(1000) + R"(],"data_offsets":[0,0]})";
  };
  const std::string one = R"({"t":{"dtype":"U8","shape":[)";
  struct Header {
    std::string text;
    Size data_bytes = 0;
    bool good = false;
    double times = 2.1;
    double more = 4096;  ///< the sentence, and nodes of what is small
  };
  const std::vector<Header> headers{
      {repeated(50'000, entry), 50'000, true},
      {repeated(50'000, empty_entry), 0, true},
      {repeated(1'000, long_shape), 0, true, 4.1},
      {one + numbers(65'000) + R"(],"data_offsets":[0,0]}})", 0, true, 4.1},
      {one + "0],\"data_offsets\":[0,0],\"x\":" + "[" + numbers(65'000) + "]}}", 0, true},
      {one + numbers(1'000'000) + R"(],"data_offsets":[0,0]}})", 0},
      {one + "0],\"data_offsets\":[0,0],\"x\":" + std::string(60, '[') + numbers(500'000) + std::string(60, ']') + "}}",
       0},
      {R"({"__metadata__":)" + repeated(200'000, [](Size i) { return "\"" + std::to_string(i) + "\":\"\""; }) + "}", 0},
      {R"({"__metadata__":{"a":")" + std::string(4'000'000, 'x') + "\"}}", 0, true},
      {repeated(50'000, empty_entry).insert(1, "\"49999\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"),
       0},
      {"{" + std::string(4'000'000, '{'), 0},
      {"{\"" + std::string(4'000'000, '{'), 0},
      {"{\"a\":\"" + std::string(4'000'000, '\\') + "\"}", 0}};
  for (const Header& header : headers) {
    const std::string& text = header.text;
    CAPTURE(text.substr(0, 60));
    CAPTURE(text.size());
    const std::string said = refusal([&] { io::parse_safetensors_header(text, header.data_bytes, "a header"); });
    CHECK(said.empty() == header.good);
    CHECK((header.good || said.starts_with("dspp: a header needs ")));
    CAPTURE(heap_peak);
    CHECK(static_cast<double>(heap_peak) <= header.times * static_cast<double>(text.size()) + header.more);
  }
}
