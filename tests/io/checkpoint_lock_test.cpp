// SPDX-License-Identifier: Apache-2.0
// Two processes and one folder of checkpoints: the second is refused exactly as long as the first lives.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include <dspp/io/checkpoint_lock.hpp>
#include <laws/folder.hpp>
#include <laws/sentence.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// A process that holds the folder until it is asked to end, or is killed.
class Holder {
 public:
  explicit Holder(const std::string& folder) {
    int ready[2], go[2];
    REQUIRE((::pipe(ready) == 0 && ::pipe(go) == 0));
    pid = fork();
    char byte = 0;
    if (pid == 0) {
      ::close(go[1]);
      {
        const io::CheckpointLock lock(folder);
        byte = ::write(ready[1], "x", 1) == 1 ? 'y' : 'n';
        while (::read(go[0], &byte, 1) < 0) continue;
      }
      _exit(0);
    }
    ::close(go[0]);
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]), ::close(ready[1]);
    go_ = go[1];
  }
  void end(int signal = 0) {
    if (signal != 0) ::kill(pid, signal);
    ::close(go_);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
  }
  pid_t pid = 0;

 private:
  int go_ = -1;
};

}  // namespace

TEST_CASE(
    "a folder that another process holds is refused with pid, host and start; once that process ended it is free") {
  const Folder folder;
  const std::string at = folder.path.string();
  Holder first(at);
  const std::string sentence = sentence_of([&] { io::CheckpointLock{at}; });
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  CHECK(sentence.starts_with("dspp: saving needs a folder of checkpoints that no other job saves in, but '" + at +
                             "' is held by process " + std::to_string(first.pid) + " on '" + host +
                             "', which took it first at 20"));
  CHECK(sentence.ends_with(" UTC. Wait for its end, or give another folder."));
  first.end();
  CHECK(folder.list().empty());
  const io::CheckpointLock now(at);
  CHECK(folder.read(".lock").starts_with("pid " + std::to_string(::getpid()) + "\nhost " + host + "\nstart 20"));
}

TEST_CASE("a killed process leaves its lock's text, and the next process takes the folder over") {
  const Folder folder;
  const std::string at = folder.path.string();
  Holder first(at);
  first.end(SIGKILL);
  CHECK(folder.read(".lock").starts_with("pid " + std::to_string(first.pid) + "\n"));
  {
    const io::CheckpointLock second(at);
    CHECK(folder.read(".lock").starts_with("pid " + std::to_string(::getpid()) + "\n"));
  }
  CHECK(folder.list().empty());
}

TEST_CASE("a fork of the process that holds a folder neither holds nor releases it") {
  const Folder folder;
  const std::string at = folder.path.string();
  for (const bool unwinds : {false, true}) {
    CAPTURE(unwinds);
    io::CheckpointLocks locks;
    locks.hold(at);
    const pid_t pid = fork();
    if (pid == 0) {
      std::string sentence;
      {
        io::CheckpointLocks own = std::move(locks);
        if (!unwinds) sentence = sentence_of([&] { own.hold(at); });
      }
      const std::string wanted = "' is held by process " + std::to_string(::getppid()) + " on ";
      _exit(unwinds || sentence.find(wanted) != std::string::npos ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    CHECK(folder.list() == std::vector<std::string>{".lock"});
    const pid_t next = fork();
    if (next == 0) _exit(sentence_of([&] { io::CheckpointLock{at}; }) == "no error" ? 1 : 0);
    REQUIRE(waitpid(next, &status, 0) == next);
    CHECK(status == 0);
  }
  CHECK(folder.list().empty());
}

TEST_CASE("processes that lock and release a folder at the same time either hold it or get its holder's name") {
  const Folder folder;
  const std::string at = folder.path.string();
  std::vector<pid_t> processes;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
      while (std::chrono::steady_clock::now() < end) {
        const std::string sentence = sentence_of([&] { io::CheckpointLock{at}; });
        if (sentence == "no error" || sentence.find("' is held by process ") != std::string::npos) continue;
        std::fprintf(stderr, "%s\n", sentence.c_str());
        _exit(1);
      }
      _exit(0);
    }
    processes.push_back(pid);
  }
  for (const pid_t pid : processes) {
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
  CHECK(folder.list().empty());
}

TEST_CASE("a lock has the umask's permissions, works at descriptor 0, and has a unique number") {
  const Folder folder;
  const std::string at = folder.path.string();
  const pid_t pid = fork();
  if (pid == 0) {
    ::umask(022);
    ::close(0);
    errno = 0;
    {
      const io::CheckpointLock lock(at);
      struct stat status = {};
      if (::stat((at + "/.lock").c_str(), &status) != 0 || (status.st_mode & 0777) != 0644) _exit(1);
      if (!lock.is_there() || folder.read(".lock").find("\ntoken 0\n") != std::string::npos) _exit(2);
    }
    _exit(::fcntl(0, F_GETFD) == -1 && folder.list().empty() ? 0 : 3);
  }
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

TEST_CASE("a folder created for a lock is removed with it, unless it is not empty; a file in its place is not held") {
  const Folder folder;
  const std::string at = folder.file("made");
  for (const bool used : {false, true}) {
    fs::create_directory(at);
    {
      io::CheckpointLocks locks;
      locks.hold(at, true);
      if (used) folder.write("made/file", "x");
    }
    CHECK(fs::exists(at) == used);
  }
  CHECK(folder.list() == std::vector<std::string>{"made", "made/file"});
  io::CheckpointLock lock(at);
  CHECK(lock.is_there());
  fs::rename(at + "/.lock", at + "/other");
  CHECK_FALSE(lock.is_there());
  folder.write("made/.lock", "of another");
  CHECK_FALSE(lock.is_there());
  io::CheckpointLock moved = std::move(lock);
  CHECK_FALSE(moved.is_there());
}

TEST_CASE("several locks of one process hold one folder; a removed lock file is created again") {
  const Folder folder;
  const std::string at = folder.path.string();
  io::CheckpointLocks one;
  {
    io::CheckpointLocks other;
    one.hold(at), one.hold(at), other.hold(at);
  }
  CHECK(folder.list() == std::vector<std::string>{".lock"});
  fs::remove(folder.path / ".lock");
  one.hold(at);
  CHECK(folder.list() == std::vector<std::string>{".lock"});
}

TEST_CASE("a process that holds one folder takes the next as well, and releases both") {
  const Folder first, second;
  {
    io::CheckpointLocks both;
    for (const Folder* folder : {&first, &second, &first, &second}) both.hold(folder->path.string());
    for (const Folder* folder : {&first, &second}) CHECK(folder->list() == std::vector<std::string>{".lock"});
  }
  for (const Folder* folder : {&first, &second}) CHECK(folder->list().empty());
}

TEST_CASE("a lock that is a link, a pipe or has hostile text is refused in a sentence of printable characters") {
  const Folder folder;
  const std::string at = folder.path.string();
  folder.write("precious", "precious");
  fs::create_symlink(folder.path / "precious", folder.path / ".lock");
  CHECK(sentence_of([&] { io::CheckpointLock{at}; }).starts_with("dspp: File needs '" + at + "/.lock'"));
  CHECK(folder.read("precious") == "precious");
  fs::remove(folder.path / ".lock");
  REQUIRE(::mkfifo((at + "/.lock").c_str(), 0600) == 0);
  CHECK(sentence_of([&] { io::CheckpointLock{at}; }).find("is a pipe") != std::string::npos);
  fs::remove(folder.path / ".lock");
  Holder first(at);
  std::ofstream(folder.path / ".lock", std::ios::binary) << "pid 1\x1b[31m\nhost a~'\xff \x7f\n";
  const std::string sentence = sentence_of([&] { io::CheckpointLock{at}; });
  CHECK(sentence.find("held by process 1?[31m on 'a~?? ?', which took it first at ?. ") != std::string::npos);
  first.end();
  CHECK(sentence_of([&] { io::CheckpointLock{folder.file("absent")}; }).find("No such file") != std::string::npos);
}
