// SPDX-License-Identifier: Apache-2.0
// Regular files and nothing else: pipes, devices and links are refused or replaced, limits of the system are sentences.
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
#include <dspp/io/file_system.hpp>
#include <dspp/io/safetensors_folder.hpp>
#include <dspp/io/state_folder.hpp>
#include <dspp/io/state_manifest.hpp>
#include <dspp/observe/metrics.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class F>
std::string sentence_of(F action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "no error";
}

/// Every function that reads a file by its path.
const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> readers{
    {"File", [](const std::string& path) { File::to_read(path); }},
    {"File to write", [](const std::string& path) { File::to_write(path); }},
    {"mapped", [](const std::string& path) { MappedFile{path}; }},
    {"text file", [](const std::string& path) { read_text_file(path); }},
    {"manifest", [](const std::string& path) { read_state_manifest(path); }},
    {"state file",
     [](const std::string& path) {
       verify_state_file(path, {"x", 1, {0}}, 0, 1);
     }},
    {"safetensors", [](const std::string& path) { SafetensorsReader{path}; }},
    {"token shard", [](const std::string& path) { TokenShard{path}; }},
    {"token files", [](const std::string& path) { TokenShards{TokenFiles{path}}; }},
    {"tokenizer", [](const std::string& path) { Tokenizer::read(path); }},
    {"text", [](const std::string& path) { read_text({path}); }},
    {"text of a folder",
     [](const std::string& path) {
       std::vector<unsigned char> bytes;
       dspp::detail::append_text_file(path, bytes);
     }},
    {"list of texts", [](const std::string& path) { list_text_files(path); }},
};

/// The exit status of action() in a child process; 99 for one that did not end within five seconds.
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

TEST_CASE("a pipe, a socket, a device or a folder given for a file is one sentence at once, whoever reads") {
  const Folder folder;
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  fs::create_directory(folder.path / "folder");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  folder.file("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  for (const auto& [name, read] : readers)
    for (const std::string& path : {folder.file("pipe"), folder.file("socket"), std::string("/dev/zero"),
                                    std::string("/dev/null"), std::string("/dev/tty"), folder.file("folder")}) {
      CAPTURE(name);
      CAPTURE(path);
      CHECK(status_of_child([&, run = read] {
              const std::string sentence = sentence_of([&] { run(path); });
              _exit(sentence.starts_with("dspp: ") && sentence.find("'" + path + "'") != std::string::npos ? 7 : 8);
            }) == 7);
    }
  ::close(socket);
}

TEST_CASE("what a planted name leads to is not written: links, also to nothing, and files of others are replaced") {
  const Folder folder;
  const std::vector<std::pair<std::string, std::function<void()>>> writers{
      {"text.partial", [&] { StagedText(folder.file("text"), "new").commit(); }},
      {"model.safetensors.partial",
       [&] {
         SafetensorsWriter writer(folder.file("model.safetensors"), {{"a", ElementType::u8, {1}}});
         writer.create();
         const unsigned char one = 1;
         writer.write<unsigned char>("a", 0, 1, &one);
         writer.commit();
       }},
      {"a.tokens.partial",
       [&] {
         TokenShardWriter writer(folder.file("a.tokens"), TokenVocabulary{});
         writer.commit();
       }},
      {"file",
       [&] {
         FileSystem system;
         WrittenFile::create(system, folder.file("file")).write_at(0, "new", 3);
       }},
  };
  for (const auto& [name, write] : writers)
    for (const char* target : {"precious", "absent"}) {
      CAPTURE(name);
      folder.write("precious", "precious");
      fs::create_symlink(folder.path / target, folder.path / name);
      CHECK(sentence_of(write) == "no error");
      CHECK(folder.read("precious") == "precious");
      CHECK(!fs::exists(folder.path / "absent"));
      CHECK(!fs::is_symlink(folder.path / name));
      fs::remove(folder.path / name);
    }
  fs::create_symlink(folder.path / "precious", folder.path / "link");
  CHECK(sentence_of([&] { File::to_write(folder.file("link")); }).find("symbolic link") != std::string::npos);
  FileSystem system;
  CHECK(sentence_of([&] { WrittenFile::open(system, folder.file("link")); }).find("symbolic link") !=
        std::string::npos);
  CHECK(sentence_of([&] { remove_folder_of_files(system, folder.file("link")); }).find("not a link") !=
        std::string::npos);
}

TEST_CASE("a partial file is its owner's; the whole one has the permissions of new files") {
  const Folder folder;
  const auto mode_of = [&](const char* name) {
    struct stat status = {};
    CHECK(::stat(folder.file(name).c_str(), &status) == 0);
    return status.st_mode & 07777;
  };
  const mode_t before = ::umask(022);
  StagedText staged(folder.file("a"), "text");
  SafetensorsWriter writer(folder.file("m"), {{"a", ElementType::u8, {4}}});
  writer.create();
  CHECK(mode_of("m.partial") == 0600);
  staged.commit(), writer.commit();
  CHECK(mode_of("a") == 0644);
  CHECK(mode_of("m") == 0644);
  ::umask(077);
  StagedText(folder.file("b"), "text").commit();
  CHECK(mode_of("b") == 0600);
  ::umask(before);
}

TEST_CASE("a file-size limit is an error with its sentence, not a signal, and the program goes on") {
  const Folder folder;
  const std::vector<std::pair<const char*, std::function<void()>>> writers{
      {"File", [&] { File::create(folder.file("a")).write_at(0, std::string(5000, 'x').data(), 5000); }},
      {"resize", [&] { File::create(folder.file("a")).resize(5000); }},
      {"FileSystem",
       [&] {
         FileSystem system;
         WrittenFile::create(system, folder.file("b")).write_at(0, std::string(5000, 'x').data(), 5000);
       }},
      {"report", [&] { write_text_file(folder.file("c"), std::string(5000, 'x')); }},
      {"metrics", [&] { MetricsFile(folder.file("d")).write(JsonObject().add("a", std::string(5000, 'x'))); }},
  };
  for (const auto& [name, write] : writers) {
    CAPTURE(std::string(name));
    CHECK(status_of_child([&, run = write] {
            const rlimit limit{1000, 1000};
            setrlimit(RLIMIT_FSIZE, &limit);
            const auto without_free_bytes = [&] {  // which others on the disk change between two calls
              const std::string sentence = sentence_of(run);
              return sentence.substr(0, sentence.find(", where "));
            };
            const std::string sentence = without_free_bytes(), again = without_free_bytes();
            _exit(sentence.find("File too large") != std::string::npos && again == sentence ? 7 : 8);
          }) == 7);
  }
}

TEST_CASE("room is asked for before anything is written, with both figures") {
  const Folder folder;
  const Size most = INT64_MAX / 2;
  const std::string sentence = sentence_of([&] { require_free_bytes(folder.path.string(), most); });
  CHECK(sentence.starts_with("dspp: saving in '" + folder.path.string() + "' needs " + std::to_string(most) +
                             " bytes that are free, but there are "));
  require_free_bytes(folder.path.string(), 1);
  require_free_bytes(folder.file("absent"), most);  // which nobody knows
  const std::vector<TensorSpec> large{{"a", ElementType::u8, {most}}};
  CHECK(sentence_of([&] { SafetensorsWriter(folder.file("m"), large).create(); }).starts_with("dspp: saving in '"));
  CHECK(sentence_of([&] {
          SafetensorsFolderWriter(folder.file("f"), large, INT64_MAX).create();
        }).starts_with("dspp: saving in '"));
  CHECK(folder.list() == std::vector<std::string>{"f"});
}
