// SPDX-License-Identifier: Apache-2.0
/// The open files of this process, as /proc/self lists them, and fewer of them.
#pragma once

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dspp {

/// The numbers of the open files whose names begin with `name`, in order.
inline std::vector<int> open_files(const std::string& name) {
  std::vector<int> all, files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    all.push_back(std::stoi(entry.path().filename().string()));
  for (const int file : all) {
    std::error_code closed;  // as the folder itself is by now
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), closed).string();
    if (!closed && target.rfind(name, 0) == 0) files.push_back(file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Those of now that are not `before`.
inline std::vector<int> opened_since(const std::vector<int>& before, const std::string& name) {
  std::vector<int> files;
  for (const int file : open_files(name))
    if (!std::binary_search(before.begin(), before.end(), file)) files.push_back(file);
  return files;
}

/// The number of mappings of files whose names begin with `name`.
inline int mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int mappings = 0;
  for (std::string line; std::getline(maps, line);) mappings += line.find(" " + name) != std::string::npos;
  return mappings;
}

/// While it lives this process can open `more` files and no other.
class FewFiles {
 public:
  explicit FewFiles(int more) {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    while (taken_.empty() || taken_.back() < 200) taken_.push_back(dup(STDERR_FILENO));
    const rlimit few{static_cast<rlim_t>(taken_.back() + 1 + more), before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;
  ~FewFiles() {
    setrlimit(RLIMIT_NOFILE, &before_);
    for (const int file : taken_) close(file);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

/// While it lives this process has no standard input, as one that a daemon started: the next file that it opens is 0.
class NoInput {
 public:
  NoInput() : input_(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100)) { close(STDIN_FILENO); }
  NoInput(const NoInput&) = delete;
  NoInput& operator=(const NoInput&) = delete;
  ~NoInput() {
    if (input_ < 0) return;  // there was none before
    dup2(input_, STDIN_FILENO);
    close(input_);
  }
  /// True unless a file has its number.
  bool is_free() const { return fcntl(STDIN_FILENO, F_GETFD) < 0; }

 private:
  int input_;
};

}  // namespace dspp
