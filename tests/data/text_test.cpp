// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <doctest/doctest.h>

#include <dspp/data/text.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

std::string as_string(data::ByteSpan bytes) {
  return {bytes.begin(), bytes.end()};
}

/// The error's sentence, with every occurrence of `path` written as PATH.
std::string sentence_of(const data::TextFiles& source) {
  try {
    data::read_text(source);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    std::string sentence = error.what();
    for (std::size_t at; (at = sentence.find(source.path)) != std::string::npos;)
      sentence.replace(at, source.path.size(), "PATH");
    return sentence;
  }
  return "no error";
}

}  // namespace

TEST_CASE("a file is its bytes, the last tenth held out") {
  const Folder folder;
  const data::Text text = data::read_text({folder.write("a.txt", "0123456789abcdefghij")});
  CHECK(as_string(text.training()) == "0123456789abcdefgh");
  CHECK(as_string(text.validation()) == "ij");
  CHECK(text.files == 1);
  CHECK(text.summary() == "20 bytes in 1 file");
}

TEST_CASE("a file longer than one read is read whole") {
  const Folder folder;
  std::string content;
  for (int i = 0; i < 600000; ++i) content += std::to_string(i);
  const data::Text text = data::read_text({folder.write("long.txt", content), 0.5, data::TextSplit::end});
  CHECK(as_string(text.bytes) == content);
  CHECK(std::ssize(text.validation()) == std::ssize(content) / 2);
}

TEST_CASE("of a text of many blocks every tenth is held out, and of any share as many, evenly spaced") {
  const Folder folder;
  const auto block = [](int i) { return std::string(data::text_block, static_cast<char>('a' + i)); };
  std::string content;
  for (int i = 0; i < 25; ++i) content += block(i);
  content += "the rest";
  const std::string path = folder.write("blocks.txt", content);

  const data::Text text = data::read_text({path});
  CHECK(as_string(text.validation()) == block(9) + block(19));
  std::string training = content;
  training.erase(19 * data::text_block, data::text_block).erase(9 * data::text_block, data::text_block);
  CHECK(as_string(text.training()) == training);
  CHECK(std::ssize(text.bytes) == std::ssize(content));

  const data::Text third = data::read_text({path, 0.4});
  CHECK(as_string(third.validation()).find(block(2) + block(4) + block(7) + block(9) + block(12)) == 0);
  CHECK(std::ssize(third.validation()) == 10 * data::text_block);
  const data::Text none = data::read_text({path, 0});
  CHECK(as_string(none.training()) == content);
  const data::Text end = data::read_text({path, 0.1, data::TextSplit::end});
  CHECK(as_string(end.bytes) == content);
  CHECK(std::ssize(end.validation()) == std::ssize(content) / 10);
  CHECK(end.digest() != text.digest());
}

TEST_CASE("a text without a tenth block holds out its end") {
  const Folder folder;
  const std::string content(9 * data::text_block + 100, 'x');
  const data::Text text = data::read_text({folder.write("few.txt", content)});
  CHECK(std::ssize(text.validation()) == std::ssize(content) / 10);
  const data::Text ten = data::read_text({folder.write("ten.txt", content + std::string(data::text_block, 'y'))});
  CHECK(std::ssize(ten.validation()) == data::text_block);
}

TEST_CASE("a folder is its files in the byte order of their paths, whatever the order of writing") {
  const Folder folder;
  folder.write("b/z", "3");
  folder.write("b.txt", "2");  // '.' comes before '/'
  folder.write("a/deep/er", "1");
  folder.write("B", "0");
  folder.write("c", "");
  const data::Text text = data::read_text({folder.path.string(), 0});
  CHECK(as_string(text.training()) == "0123");
  CHECK(text.validation().empty());
  CHECK(text.files == 5);
}

TEST_CASE("binary files in a folder are left out and listed") {
  const Folder folder;
  folder.write("a.txt", "text\twith\ttabs\r\n");
  folder.write("b/zero.bin", std::string("al\0most", 7));
  folder.write("control.bin", "abc\x01\x02");
  folder.write("utf8.txt", "gr\xc3\xbc\xc3\x9f");
  const data::Text text = data::read_text({folder.path.string()});
  CHECK(text.files == 2);
  CHECK(text.left_out == std::vector<std::string>{"b/zero.bin", "control.bin"});
  CHECK(text.summary() == "22 bytes in 2 files; 2 binary files left out (b/zero.bin, control.bin)");
  folder.write("d.bin", "\x7f");
  folder.write("e.bin", "\x0e");
  CHECK(data::read_text({folder.path.string()}).summary() ==
        "22 bytes in 2 files; 4 binary files left out (b/zero.bin, control.bin, d.bin, ...)");
}

TEST_CASE("a zero byte after the first 8 KB does not make a file binary") {
  const std::string start(8192, 'x');
  const Folder folder;
  CHECK(data::read_text({folder.write("late", start + std::string(1, '\0'))}).bytes.size() == 8193);
  CHECK(data::looks_binary(data::ByteSpan(reinterpret_cast<const unsigned char*>("a\0b"), 3)));
  CHECK_FALSE(data::looks_binary(data::ByteSpan()));
}

TEST_CASE("links to files are followed, links to folders and dangling links are not") {
  const Folder folder;
  const std::string file = folder.write("a/text", "once ");
  fs::create_symlink(folder.path, folder.path / "a" / "loop");
  fs::create_symlink(file, folder.path / "link");
  fs::create_symlink("nowhere", folder.path / "broken");
  CHECK(as_string(data::read_text({folder.path.string()}).bytes) == "once once ");
}

TEST_CASE("paths without text are refused") {
  const Folder folder;
  const std::string begin = "dspp: TextFiles needs a file or folder of text, but 'PATH' ";
  CHECK(sentence_of({(folder.path / "absent").string()}) == begin + "does not exist. Check the path.");
  CHECK(sentence_of({folder.path.string()}) == begin + "holds none. Name another folder.");
  CHECK(sentence_of({folder.write("empty", "")}) == begin + "is empty. Name a file with content.");
  CHECK(sentence_of({folder.path.string()}) == begin + "holds none. Name another folder.");
  CHECK(sentence_of({folder.write("binary", std::string(9, '\0'))}) == begin + "is binary. Name a text file.");
  CHECK(sentence_of({folder.path.string()}) ==
        begin + "holds only binary files, such as 'binary'. Name another folder.");
  CHECK(sentence_of({"/dev/null"}) == begin + "is neither. Name a regular file or a folder.");
  CHECK(sentence_of({"/proc/self/mem"}) == begin + "cannot be read: Input/output error. Check its permissions.");
  CHECK_THROWS_AS(data::read_text({folder.path.string(), 1.0}), Error);
  CHECK_THROWS_AS(data::read_text({folder.path.string(), -0.1}), Error);
}

TEST_CASE("a text for which there is no memory is refused before it is read") {
  const Folder folder;
  const std::string path = folder.write("sparse.txt", std::string(10000, 'a'));
  REQUIRE(::truncate(path.c_str(), off_t{64} << 30) == 0);  // has no blocks
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(3);  // also under the address sanitizer, which takes more
    int status = 4;
    try {
      data::read_text({path});
    } catch (const Error& error) {
      const bool told = error.code() == ErrorCode::out_of_memory &&
                        std::strstr(error.what(), "dspp: TextFiles needs more memory of the system") == error.what();
      status = told ? 0 : 5;
    } catch (...) {
      status = 6;
    }
    std::_Exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("files that may not be looked at are an error, not left out") {
  const Folder folder;
  std::filesystem::create_directories(folder.file("t/closed"));
  folder.write("t/a.txt", "a"), folder.write("t/closed/b.txt", "b");
  const std::string closed = folder.file("t/closed"), above = folder.file("t") + "/..";
  REQUIRE(::chmod(above.c_str(), 0755) == 0);
  REQUIRE(::chmod(closed.c_str(), 0444) == 0);  // may be listed, not entered
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) std::_Exit(3);
    int status = 4;
    try {
      data::read_text({folder.file("t")});
    } catch (const Error& error) {
      status = std::strstr(error.what(), "cannot be searched") != nullptr ? 0 : 5;
    } catch (...) {
      status = 6;
    }
    std::_Exit(status);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::chmod(closed.c_str(), 0755);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a folder is searched to its end, links to folders are not followed") {
  const Folder folder;
  std::filesystem::create_directories(folder.file("t/b/c"));
  folder.write("t/z.txt", "z"), folder.write("t/b/y.txt", "y"), folder.write("t/b/c/x.txt", "x");
  std::filesystem::create_directory_symlink("..", folder.file("t/b/up"));
  std::filesystem::create_symlink("z.txt", folder.file("t/link.txt"));
  std::filesystem::create_symlink("nowhere", folder.file("t/dangling.txt"));
  CHECK(as_string(data::ByteSpan(data::read_text({folder.file("t")}).bytes)) == "xyzz");
  CHECK(as_string(data::ByteSpan(data::read_text({folder.file("t/")}).bytes)) == "xyzz");
}
