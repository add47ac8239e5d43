// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/data/text_files.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

std::string sentence_of(auto f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the concatenated files of a list are the text of read_text") {
  const Folder folder;
  folder.write("b/z", "three ");
  folder.write("b.txt", "two ");
  folder.write("a/deep/er", "one ");
  folder.write("c", "");
  folder.write("binary", std::string("al\0most", 7));
  const data::TextFileList list = data::list_text_files(folder.path.string());
  std::string all;
  for (const auto& [path, bytes] : list.files) {
    const std::string content = read_file(path);
    CHECK(std::ssize(content) == bytes);
    all += content;
  }
  const data::Text text = data::read_text({folder.path.string()});
  CHECK(all == std::string(text.bytes.begin(), text.bytes.end()));
  CHECK(all == "one two three ");
  CHECK(list.bytes == 14);
  CHECK(list.left_out == 1);
  CHECK(data::list_text_files(folder.file("b.txt")).bytes == 4);
}

TEST_CASE("a path without text is refused as by read_text") {
  const Folder folder;
  fs::create_directory(folder.file("nothing"));
  folder.write("empty", "");
  folder.write("binary", std::string(9, '\0'));
  for (const char* name : {"absent", "nothing", "empty", "binary"}) {
    CAPTURE(name);
    const std::string refused = sentence_of([&] { data::list_text_files(folder.file(name)); });
    CHECK(refused == sentence_of([&] { data::read_text({folder.file(name)}); }));
    CHECK(refused.starts_with("dspp: TextFiles needs"));
  }
  CHECK(sentence_of([&] { data::list_text_files("/dev/null"); }) ==
        sentence_of([&] { data::read_text({"/dev/null"}); }));
}
