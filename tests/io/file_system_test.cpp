// SPDX-License-Identifier: Apache-2.0
// Writing through a FileSystem: short writes continued, errors as sentences, folders created and removed.
#include <doctest/doctest.h>

#include <dspp/io/file_system.hpp>
#include <laws/faulty_files.hpp>
#include <laws/folder.hpp>
#include <laws/sentence.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Writes a byte or two at a time, or none, and gets EINTR.
class Slow : public io::FileSystem {
 public:
  int write(int descriptor, const void* data, Size bytes, Size offset, Size& written) override {
    written = 0;
    if (++calls_ % 3 == 0) return EINTR;
    if (stuck) return 0;
    return io::FileSystem::write(descriptor, data, std::min<Size>(bytes, 1 + calls_ % 2), offset, written);
  }
  bool stuck = false;

 private:
  Size calls_ = 0;
};

}  // namespace

TEST_CASE("writes at offsets, in any order and in any portions, are all in the file") {
  const Folder folder;
  io::FileSystem plain;
  Slow slow;
  for (io::FileSystem* system : {&plain, static_cast<io::FileSystem*>(&slow)}) {
    const std::string path = folder.write("file", "something that was there before, and is longer");
    {
      const io::WrittenFile file = io::WrittenFile::create(*system, path);
      file.write_at(6, "world", 5);
      file.write_at(0, "hello,", 6);
      file.sync();
    }
    CHECK(folder.read("file") == "hello,world");
    const io::WrittenFile again = io::WrittenFile::open(*system, path);
    again.write_at(5, " ", 1);
    CHECK(folder.read("file") == "hello world");
  }
}

TEST_CASE("every failing call gives one sentence with the path and the system's reason") {
  const Folder folder;
  const auto work = [&](io::FileSystem& system) {
    io::make_folders(system, folder.file("a/b"));
    {
      const io::WrittenFile file = io::WrittenFile::create(system, folder.file("a/b/file"));
      file.write_at(0, "text", 4);
      file.sync();
    }
    io::remove_folder_of_files(system, folder.file("a/b"));
  };
  FaultyFiles counting;
  work(counting);
  CHECK(counting.calls() == 9);
  for (Size n = 1; n <= 9; ++n) {
    CAPTURE(n);
    fs::remove_all(folder.path / "a");
    FaultyFiles faulty;
    faulty.fail_at(n, ENOSPC);
    const std::string sentence = sentence_of([&] { work(faulty); });
    CHECK(sentence.starts_with("dspp: File needs '" + folder.path.string()));
    CHECK(sentence.find("but the system says: No space left on device") != std::string::npos);
    CHECK(sentence.ends_with(". Check the path, its permissions and the disk."));
    CHECK(faulty.calls() == n);
  }
  Slow slow;
  slow.stuck = true;
  CHECK(sentence_of([&] {
          io::WrittenFile::create(slow, folder.file("file")).write_at(0, "text", 4);
        }).find("Input/output error") != std::string::npos);
}

TEST_CASE("a relative folder is created and synced, an absent one is not removed, a link never is") {
  const Folder folder;
  io::FileSystem system;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  io::make_folders(system, "a");
  fs::current_path(before);
  CHECK(io::is_real_folder(folder.file("a")));
  CHECK_FALSE(io::is_real_folder(folder.file("absent")));
  io::remove_folder_of_files(system, folder.file("absent"));
  folder.write("file", "x");
  CHECK_FALSE(io::is_real_folder(folder.file("file")));
  CHECK(sentence_of([&] {
          io::remove_folder_of_files(system, folder.file("file/in"));
        }).find("to be a folder, not a link") != std::string::npos);
  CHECK(system.sync_folder(folder.file("absent")) == ENOENT);
  CHECK(system.sync_folder(folder.file("a")) == 0);
  Size written = 1;
  CHECK(system.write(-1, "x", 1, 0, written) == EBADF);
  CHECK(written == 0);
  CHECK(sentence_of([&] { io::make_folders(system, "/proc/self/absent/a"); }).find("to be made") != std::string::npos);
}

TEST_CASE("folders are created once, listed in order, exchanged atomically") {
  const Folder folder;
  io::FileSystem system;
  io::make_folders(system, folder.file("a/b/c/"));
  io::make_folders(system, folder.file("a/b"));
  CHECK(folder.list() == std::vector<std::string>{"a", "a/b", "a/b/c"});
  folder.write("file", "");
  CHECK(sentence_of([&] { io::make_folders(system, folder.file("file")); }).find("file' to be a folder") !=
        std::string::npos);
  folder.write("x/2", "two"), folder.write("x/1", "one"), folder.write("y/3", "three");
  CHECK(io::names_in(folder.file("x")) == std::vector<std::string>{"1", "2"});
  CHECK(io::names_in(folder.file("absent")).empty());
  CHECK(sentence_of([&] { io::names_in(folder.file("file")); }).find("file' to list") != std::string::npos);
  const int error = system.exchange(folder.file("x"), folder.file("y"));
  if (error == EINVAL || error == ENOSYS) {
    MESSAGE("this file system cannot exchange two names");
  } else {
    CHECK(error == 0);
    CHECK(folder.read("x/3") == "three");
    CHECK(folder.read("y/2") == "two");
  }
  CHECK(system.exchange(folder.file("x"), folder.file("absent")) != 0);
}
