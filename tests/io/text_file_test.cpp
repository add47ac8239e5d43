// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/io/text_file.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("a text is read whole, up to a limit") {
  const Folder folder;
  const std::string path = folder.write("a", "some text\n");
  CHECK(io::read_text_file(path) == "some text\n");
  CHECK(io::read_text_file(path, 10) == "some text\n");
  CHECK_THROWS_WITH_AS(io::read_text_file(path, 9),
                       ("dspp: '" + path + "' needs at most 9 bytes, but it has 10. Is it another file?").c_str(),
                       Error);
  CHECK(io::read_text_file(folder.write("b", "")).empty());
  CHECK_THROWS_AS(io::read_text_file(folder.file("absent")), Error);
}

TEST_CASE("a staged text replaces the file when it is committed") {
  const Folder folder;
  const std::string path = folder.write("a", "old");
  io::StagedText staged(path, "new, and longer");
  CHECK(folder.read("a") == "old");
  staged.commit();
  CHECK(folder.read("a") == "new, and longer");
  CHECK(folder.list() == std::vector<std::string>{"a"});
}

TEST_CASE("a staged text that is not committed leaves nothing") {
  const Folder folder;
  {
    io::StagedText staged(folder.write("a", "old"), "new");
    io::StagedText moved(std::move(staged));
    CHECK(folder.list() == std::vector<std::string>{"a", "a.partial"});
  }
  CHECK(folder.list() == std::vector<std::string>{"a"});
  CHECK(folder.read("a") == "old");
  CHECK_THROWS_AS(io::StagedText(folder.file("absent/a"), "new"), Error);
}
