// SPDX-License-Identifier: Apache-2.0
// Regular files and nothing else: pipes, devices and links are refused or replaced, limits of the system give
// sentences.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <functional>

#include <dspp/data/shard_writer.hpp>
#include <dspp/data/text.hpp>
#include <dspp/data/text_files.hpp>
#include <dspp/data/token_shards.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/file_system.hpp>
#include <dspp/io/safetensors_folder.hpp>
#include <dspp/observe/metrics.hpp>
#include <laws/folder.hpp>
#include <laws/sentence.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Every function that reads a file by its path.
const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> readers{
    {"File", [](const std::string& path) { io::File::to_read(path); }},
    {"File to write", [](const std::string& path) { io::File::to_write(path); }},
    {"mapped", [](const std::string& path) { io::MappedFile{path}; }},
    {"text file", [](const std::string& path) { io::read_text_file(path); }},
    {"manifest", [](const std::string& path) { io::read_checkpoint_manifest(path); }},
    {"checkpoint file",
     [](const std::string& path) {
       io::verify_checkpoint_file(path, {"x", 1, {0}}, 0, 1);
     }},
    {"safetensors", [](const std::string& path) { io::SafetensorsReader{path}; }},
    {"token shard", [](const std::string& path) { data::TokenShard{path}; }},
    {"token files", [](const std::string& path) { data::TokenShards{data::TokenFiles{path}}; }},
    {"tokenizer", [](const std::string& path) { data::Tokenizer::read(path); }},
    {"text", [](const std::string& path) { data::read_text({path}); }},
    {"text of a folder",
     [](const std::string& path) {
       std::vector<unsigned char> bytes;
       dspp::data::detail::append_text_file(path, bytes);
     }},
    {"list of texts", [](const std::string& path) { data::list_text_files(path); }},
};

/// The exit status of action() in a child process; 99 if it did not end within five seconds.
int status_of_child(const std::function<void()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    action();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a pipe, a socket, a device or a folder in place of a file gives one sentence at once, in every reader") {
  const Folder folder;
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  fs::create_directory(folder.path / "folder");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  folder.file("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  for (const auto& reader : readers)
    for (const std::string& path : {folder.file("pipe"), folder.file("socket"), std::string("/dev/zero"),
                                    std::string("/dev/null"), std::string("/dev/tty"), folder.file("folder")}) {
      const char* name = reader.first;
      CAPTURE(name);
      CAPTURE(path);
      CHECK(status_of_child([&, run = reader.second] {
              const std::string sentence = sentence_of([&] { run(path); });
              _exit(sentence.starts_with("dspp: ") && sentence.find("'" + path + "'") != std::string::npos ? 7 : 8);
            }) == 7);
    }
  ::close(socket);
  CHECK(sentence_of([&] { io::File::to_read(folder.file("pipe")); }).find("is a pipe, a device or a socket") !=
        std::string::npos);
  CHECK(sentence_of([&] { io::File::to_read(folder.file("folder")); }).find("Is a directory") != std::string::npos);
}

TEST_CASE("bytes are read and written at their offsets, not beyond the end, and errors have their reason") {
  const Folder folder;
  const io::File file = io::File::create(folder.file("a"));
  errno = EINTR;  // left by an earlier call
  file.write_at(2, "cdef", 4);
  file.write_at(0, "ab", 2);
  char bytes[6] = {};
  file.read_at(1, bytes, 5);
  CHECK(std::string(bytes, 5) == "bcdef");
  CHECK(file.size() == 6);
  file.read_at(6, nullptr, 0);
  errno = EINTR;
  CHECK(sentence_of([&] { file.read_at(4, bytes, 5); }) ==
        "dspp: File needs 3 more bytes at 6, but '" + folder.file("a") + "' ends there. Write the file again.");
  CHECK(sentence_of([&] { file.read_at(-1, bytes, 1); }).find("to be readable, but the system says: Invalid") !=
        std::string::npos);
  CHECK(sentence_of([&] { file.write_at(-1, bytes, 1); }).find("to be writable, but the system says: Invalid") !=
        std::string::npos);
  CHECK(sentence_of([&] { file.resize(-1); }).find("to become longer, but the system says: Invalid") !=
        std::string::npos);
  const std::string bad = ", but the system says: Bad file descriptor. Check the path, its permissions and the disk.";
  CHECK(sentence_of([&] { io::File().size(); }) == "dspp: File needs '' to have a size" + bad);
  CHECK(sentence_of([&] { io::File().share(); }) == "dspp: File needs '' to be readable" + bad);
  CHECK(sentence_of([&] { io::File().sync(); }) == "dspp: File needs '' on the disk" + bad);
  CHECK(sentence_of([&] { io::File::create("/proc/self/status"); }).find("' to be replaced, but") != std::string::npos);
  CHECK_FALSE(io::File::to_write_if_there(folder.file("absent")));
  CHECK(io::File::to_write_if_there(folder.file("a")));
  CHECK(dspp::io::detail::folder_of("a") == ".");
  CHECK(dspp::io::detail::folder_of("b/a") == "b");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  io::require_free_bytes("", 1);
  folder.write("from", "x");
  io::replace_file("from", "to");
  fs::current_path(before);
  CHECK(folder.read("to") == "x");
  CHECK(sentence_of([&] { io::replace_file(folder.file("b"), folder.file("c")); }).find("' to be replaced, but") !=
        std::string::npos);
}

TEST_CASE("a program whose standard input is closed has its files at descriptor 0, and closes them") {
  const Folder folder;
  CHECK(status_of_child([&] {
          ::close(0);
          errno = 0;
          {
            const io::File file = io::File::create(folder.file("a"));
            if (!file || file.descriptor() != 0) _exit(1);
            file.write_at(0, "x", 1);
          }
          if (::fcntl(0, F_GETFD) != -1) _exit(2);
          io::replace_file(folder.file("a"), folder.file("b"));
          if (::fcntl(0, F_GETFD) != -1) _exit(3);
          errno = 0;
          if (sentence_of([&] { io::File::to_read(folder.path.string()); }).find("Is a directory") == std::string::npos)
            _exit(4);
          _exit(::fcntl(0, F_GETFD) == -1 && folder.read("b") == "x" ? 7 : 5);
        }) == 7);
}

TEST_CASE("a failed write names the missing bytes if there is no room, and the free bytes if known") {
  const auto refused = [](Size free_bytes, int error) {
    return sentence_of([&] { dspp::io::detail::refuse_write("a", 5, free_bytes, error); });
  };
  for (const int full : {ENOSPC, EDQUOT, EFBIG}) {
    const std::string begin = "dspp: File needs 'a' to take 5 bytes more, but the system says: ";
    CHECK(refused(0, full).starts_with(begin));
    CHECK(refused(0, full).find(", where 0 bytes are free. Check") != std::string::npos);
    CHECK(refused(-1, full).find("free") == std::string::npos);
  }
  CHECK(refused(0, EIO).starts_with("dspp: File needs 'a' to be writable, but the system says: "));
  const auto room = [](Size bytes, Size free_bytes) {
    return sentence_of([&] { dspp::io::detail::require_room("f", bytes, free_bytes); });
  };
  CHECK(room(5, 5) == "no error");
  CHECK(room(5, -1) == "no error");
  CHECK(room(0, 0) == "no error");
  CHECK(room(5, 4).starts_with("dspp: saving in 'f' needs 5 bytes that are free, but there are 4."));
  CHECK(room(1, 0).starts_with("dspp: saving in 'f' needs 1 bytes that are free, but there are 0."));
}

TEST_CASE("planted names are not written through: links, also dangling ones, and foreign files are replaced") {
  const Folder folder;
  const std::vector<std::pair<std::string, std::function<void()>>> writers{
      {"text.partial", [&] { io::StagedText(folder.file("text"), "new").commit(); }},
      {"model.safetensors.partial",
       [&] {
         io::SafetensorsWriter writer(folder.file("model.safetensors"), {{"a", ElementType::u8, {1}}});
         writer.create();
         const unsigned char one = 1;
         writer.write<unsigned char>("a", 0, 1, &one);
         writer.commit();
       }},
      {"a.tokens.partial",
       [&] {
         data::TokenShardWriter writer(folder.file("a.tokens"), data::TokenVocabulary{});
         writer.commit();
       }},
      {"file",
       [&] {
         io::FileSystem system;
         io::WrittenFile::create(system, folder.file("file")).write_at(0, "new", 3);
       }},
  };
  for (const auto& writer : writers)
    for (const char* target : {"precious", "absent"}) {
      const std::string& name = writer.first;
      CAPTURE(name);
      folder.write("precious", "precious");
      fs::create_symlink(folder.path / target, folder.path / name);
      CHECK(sentence_of(writer.second) == "no error");
      CHECK(folder.read("precious") == "precious");
      CHECK(!fs::exists(folder.path / "absent"));
      CHECK(!fs::is_symlink(folder.path / name));
      fs::remove(folder.path / name);
    }
  fs::create_symlink(folder.path / "precious", folder.path / "link");
  CHECK(sentence_of([&] { io::File::to_write(folder.file("link")); }).find("symbolic link") != std::string::npos);
  io::FileSystem system;
  CHECK(sentence_of([&] { io::WrittenFile::open(system, folder.file("link")); }).find("symbolic link") !=
        std::string::npos);
  CHECK(sentence_of([&] { io::remove_folder_of_files(system, folder.file("link")); }).find("not a link") !=
        std::string::npos);
}

TEST_CASE("a partial file is private to its owner; the complete one has the permissions of new files") {
  const Folder folder;
  const auto mode_of = [&](const char* name) {
    struct stat status = {};
    CHECK(::stat(folder.file(name).c_str(), &status) == 0);
    return status.st_mode & 07777;
  };
  const mode_t before = ::umask(022);
  io::StagedText staged(folder.file("a"), "text");
  io::SafetensorsWriter writer(folder.file("m"), {{"a", ElementType::u8, {4}}});
  writer.create();
  CHECK(mode_of("m.partial") == 0600);
  staged.commit(), writer.commit();
  CHECK(mode_of("a") == 0644);
  CHECK(mode_of("m") == 0644);
  ::umask(077);
  io::StagedText(folder.file("b"), "text").commit();
  CHECK(mode_of("b") == 0600);
  ::umask(before);
}

TEST_CASE("a file-size limit gives an error with a sentence, not a signal, and the program continues") {
  const Folder folder;
  const std::vector<std::pair<const char*, std::function<void()>>> writers{
      {"File", [&] { io::File::create(folder.file("a")).write_at(0, std::string(5000, 'x').data(), 5000); }},
      {"resize", [&] { io::File::create(folder.file("a")).resize(5000); }},
      {"FileSystem",
       [&] {
         io::FileSystem system;
         io::WrittenFile::create(system, folder.file("b")).write_at(0, std::string(5000, 'x').data(), 5000);
       }},
      {"report", [&] { write_text_file(folder.file("c"), std::string(5000, 'x')); }},
      {"metrics", [&] { MetricsFile(folder.file("d")).write(JsonObject().add("a", std::string(5000, 'x'))); }},
  };
  for (const auto& writer : writers) {
    CAPTURE(std::string(writer.first));
    CHECK(status_of_child([&, run = writer.second] {
            const rlimit limit{1000, 1000};
            setrlimit(RLIMIT_FSIZE, &limit);
            const auto without_free_bytes = [&] {  // which other processes on the disk change between two calls
              const std::string sentence = sentence_of(run);
              return sentence.substr(0, sentence.find(", where "));
            };
            const std::string sentence = without_free_bytes(), again = without_free_bytes();
            _exit(sentence.find("File too large") != std::string::npos && again == sentence ? 7 : 8);
          }) == 7);
  }
}

TEST_CASE("room is checked before anything is written, with both figures in the sentence") {
  const Folder folder;
  const Size most = INT64_MAX / 2;
  const std::string sentence = sentence_of([&] { io::require_free_bytes(folder.path.string(), most); });
  CHECK(sentence.starts_with("dspp: saving in '" + folder.path.string() + "' needs " + std::to_string(most) +
                             " bytes that are free, but there are "));
  io::require_free_bytes(folder.path.string(), 1);
  io::require_free_bytes(folder.file("absent"), most);  // unknown: passes
  const std::vector<io::TensorSpec> large{{"a", ElementType::u8, {most}}};
  CHECK(sentence_of([&] { io::SafetensorsWriter(folder.file("m"), large).create(); }).starts_with("dspp: saving in '"));
  CHECK(sentence_of([&] {
          io::SafetensorsFolderWriter(folder.file("f"), large, INT64_MAX).create();
        }).starts_with("dspp: saving in '"));
  CHECK(folder.list() == std::vector<std::string>{"f"});
}

TEST_CASE("the folder of a file is what stands before its last slash") {
  using io::detail::folder_of;
  for (const auto& [path, folder] : {std::pair{"a/b/c", "a/b"},
                                     {"c", "."},
                                     {"/c", "/"},
                                     {"/", "/"},
                                     {"a/", "a"},
                                     {"a//b", "a"},
                                     {"//b", "/"},
                                     {"./c", "."},
                                     {"../c", ".."}})
    CHECK(folder_of(path) == folder);
}
