// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstring>

#include <dspp/io/mapped_file.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("a mapped file's ranges are its bytes") {
  const Folder folder;
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += static_cast<char>(i * 7);
  const io::MappedFile file(folder.write("a", bytes));
  CHECK(file.size() == 20000);
  CHECK(file.path() == folder.file("a"));
  for (const Size begin : {0, 1, 4095, 4096, 19999, 20000}) {
    const Size count = std::min<Size>(5000, file.size() - begin);
    file.will_need(begin, count);
    CHECK(std::memcmp(file.range(begin, count), bytes.data() + begin, static_cast<std::size_t>(count)) == 0);
  }
  io::MappedFile moved(io::MappedFile(folder.file("a")));
  CHECK(moved.range(0, 1)[0] == 0);
}

TEST_CASE("an empty file has an empty range") {
  const Folder folder;
  const io::MappedFile file(folder.write("a", ""));
  CHECK(file.size() == 0);
  CHECK_NOTHROW(file.range(0, 0));
  file.will_need(0, 0);
}

TEST_CASE("a range outside the file is refused") {
  const Folder folder;
  const io::MappedFile file(folder.write("a", "12345678"));
  for (const auto& range : {std::pair<Size, Size>{0, 9}, {8, 1}, {-1, 1}, {0, -1}, {9, 0}, {INT64_MAX, 8}}) {
    CAPTURE(range.first);
    CHECK_THROWS_AS(file.range(range.first, range.second), Error);
  }
  CHECK_THROWS_WITH_AS(file.range(4, 5),
                       ("dspp: MappedFile needs bytes in [0, 8) of '" + file.path() +
                        "', but was asked for 5 from 4 on. Check the range.")
                           .c_str(),
                       Error);
}

TEST_CASE("a file that is truncated while it is mapped gives a sentence, not a signal") {
  const Folder folder;
  const io::MappedFile file(folder.write("a", std::string(10000, 'x')));
  fs::resize_file(folder.file("a"), 3);
  CHECK_THROWS_WITH_AS(
      file.range(5000, 10),
      ("dspp: MappedFile needs '" + file.path() +
       "' as long as it was, 10000 bytes, but it was cut to 3 while it was read. Write files elsewhere "
       "and rename them.")
          .c_str(),
      Error);
}

TEST_CASE("a file that cannot be mapped gives a sentence with the system's reason") {
  const Folder folder;
  CHECK_THROWS_WITH_AS(io::MappedFile(folder.file("absent")),
                       ("dspp: File needs '" + folder.file("absent") +
                        "' to read, but the system says: No such file or directory. Check the path, its permissions "
                        "and the disk.")
                           .c_str(),
                       Error);
}
