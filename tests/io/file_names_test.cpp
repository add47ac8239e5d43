// SPDX-License-Identifier: Apache-2.0
// Hostile names of files, tensors and options, in every sentence that echoes one.
#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <laws/folder.hpp>
#include <laws/json_tree.hpp>

#include <dspp/app/options.hpp>
#include <dspp/base/json_writer.hpp>
#include <dspp/data/text.hpp>
#include <dspp/data/token_folder.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/file.hpp>
#include <dspp/io/json.hpp>
#include <dspp/io/mapped_file.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/io/safetensors_folder.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/observe/metrics.hpp>
#include <dspp/observe/table.hpp>

using namespace dspp;
using namespace dspp::laws;
using laws::Folder;

namespace {

const std::vector<std::string> hostile_names = {
    "\x1b[31mred",    "\x1b]0;title\x07", "a\nb",         "a\r\x1b[Kdspp: all is well.",
    "\u202eexe.gnp",  "\u2066x\u2069",    "\u009b2J",     "tab\there",
    "\x7f",           "\xff\xfe",         "\u200bhidden", "bell\x07",
    "</script>\x1b[", "\u2028next",       "\xed\xa0\x80", "\U000e0041tag",
    "\b\b\b\bsafe",   "\x0e\x0f"};

/// A sentence about `name` from each place that echoes one.
struct Place {
  const char* where;
  std::function<void(const std::string& name, const Folder& folder)> says;
};

void write_tensors(const std::string& path, const std::string& header) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0, n = header.size(); n > 0; n >>= 8) bytes[i++] = static_cast<char>(n & 255);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  std::fwrite((bytes + header).data(), 1, 8 + header.size(), file);
  std::fclose(file);
}

void read_options(std::vector<const char*> words) {
  Size number = 0;
  std::string path;
  Options options("program", "Does something.");
  options.add("--number", number, {}, "a number");
  options.add("--path", path, TextKind::path, "a path");
  words.insert(words.begin(), "program");
  options.read(static_cast<int>(words.size()), words.data());
}

const std::vector<Place> places = {
    {"an unknown option", [](auto& name, auto&) { read_options({name.c_str()}); }},
    {"a value",
     [](auto& name, auto&) {
       read_options({"--number", name.c_str()});
     }},
    {"what follows an option",
     [](auto& name, auto&) {
       read_options({"--path", ("--" + name).c_str()});
     }},
    {"a variable",
     [](auto& name, auto&) {
       read_launch([&](const char* which) {
         return std::string(which) == "PMI_RANK" || std::string(which) == "PMI_SIZE" ? name.c_str() : nullptr;
       });
     }},
    {"a file", [](auto& name, auto& folder) { io::MappedFile{folder.file(name)}; }},
    {"a text", [](auto& name, auto& folder) { data::read_text({folder.file(name)}); }},
    {"tokens", [](auto& name, auto& folder) { data::TokenFolder{folder.file(name)}; }},
    {"a tokenizer", [](auto& name, auto& folder) { data::Tokenizer::read(folder.file(name)); }},
    {"a configuration", [](auto& name, auto& folder) { hub::read_gpt2_config(folder.file(name)); }},
    {"weights", [](auto& name, auto& folder) { io::SafetensorsReader{folder.file(name)}; }},
    {"sharded weights", [](auto& name, auto& folder) { io::SafetensorsFolder{folder.file(name)}; }},
    {"a checkpoint", [](auto& name, auto& folder) { io::CheckpointFolder{folder.file(name)}.read_latest(); }},
    {"a tag", [](auto& name, auto&) { io::require_tag(name); }},
    {"figures", [](auto& name, auto& folder) { MetricsFile{folder.file("absent/" + name)}; }},
    {"a run", [](auto& name, auto& folder) { create_run_folder("/proc/" + name + folder.file("x"), 0); }},
    {"a document", [](auto& name, auto&) { io::parse_json("{", name); }},
    {"a tensor without a type",
     [](auto& name, auto& folder) {
       write_tensors(folder.file("a"), "{\"" + name + "\":{\"dtype\":\"X\",\"shape\":[1],\"data_offsets\":[0,4]}}");
       io::SafetensorsReader{folder.file("a")};
     }},
    {"a type",
     [](auto& name, auto& folder) {
       write_tensors(folder.file("a"), "{\"w\":{\"dtype\":\"" + name + "\",\"shape\":[1],\"data_offsets\":[0,4]}}");
       io::SafetensorsReader{folder.file("a")};
     }},
};

}  // namespace

TEST_CASE("a hostile name is escaped in every sentence") {
  for (const Place& place : places)
    for (const std::string& name : hostile_names) {
      CAPTURE(place.where);
      CAPTURE(printable(name));
      const Folder folder;
      std::string sentence;
      try {
        place.says(name, folder);
      } catch (const Error& error) {
        sentence = error.what();
      }
      CAPTURE(sentence);
      CHECK(sentence.find("dspp: ") == 0);
      CHECK(printable(sentence) == sentence);  // one line, and nothing unprintable
    }
}

TEST_CASE("a hostile name is escaped in tables, and in JSON so that it reads back") {
  for (const std::string& name : hostile_names) {
    CAPTURE(printable(name));
    Table table({name, "bytes"});
    table.add({name, "1"});
    CHECK(printable(table.text(), LineEnds::kept) == table.text());
    CHECK(table.text().find('\n') == table.text().size() / 2 - 1);
    const std::string text = JsonObject().add(name, std::string_view(name)).text();
    CHECK(printable(text) == text);
    const JsonTree json = json_tree(text, "a text");
    if (name[0] != '\xff' && name[0] != '\xed') CHECK(json.find(name)->string == name);
  }
}
