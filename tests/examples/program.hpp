// SPDX-License-Identifier: Apache-2.0
/// Runs a program in a folder of its own, as its user would, and records its output and status.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <laws/folder.hpp>

namespace dspp::examples {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

using laws::Folder;

/// The metrics of the only run in a folder, or "" if there are none yet.
inline std::string metrics_in(const Folder& folder) {
  for (const std::string& name : folder.list())
    if (name.size() > 13 && name.substr(name.size() - 13) == "metrics.jsonl") return folder.read(name);
  return {};
}

struct Result {
  int status = -1;  ///< exit status, or 128 + the signal that ended it
  std::string out, err;
};

/// A program that runs. Its standard output and error go to files beside the folder.
class Process {
 public:
  /// With `largest_file_bytes`, a write beyond it fails as on a full disk.
  Process(const std::string& program, std::vector<std::string> arguments, const Folder& folder,
          rlim_t largest_file_bytes = RLIM_INFINITY) {
    const std::string out = (output_.path / "out").string(), err = (output_.path / "err").string();
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    id_ = fork();
    if (id_ != 0) return;
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGXFSZ, SIG_DFL);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    const rlimit limit{largest_file_bytes, largest_file_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    if (chdir(folder.path.c_str()) == 0) execv(program.c_str(), argv.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }

  void signal(int number) const { kill(id_, number); }
  pid_t id() const { return id_; }
  std::string out() const { return output_.read("out"); }

  /// Returns when it has ended.
  Result wait() {
    int status = 0;
    waitpid(id_, &status, 0);
    id_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output_.read("out"), output_.read("err")};
  }

 private:
  Folder output_;
  pid_t id_ = 0;
};

/// Waits for `happens`, at most a minute.
inline bool wait_until(const std::function<bool()>& happens) {
  const auto start = Clock::now();
  while (!happens()) {
    if (seconds_since(start) > 60) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Words separated by spaces.
inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace dspp::examples
