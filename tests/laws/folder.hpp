// SPDX-License-Identifier: Apache-2.0
/// A test's temporary folder, and whole files in it.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

namespace dspp::laws {

namespace fs = std::filesystem;

/// Everything in the file, or "" if there is none.
inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A folder of files that wait for no disk, where there is one.
inline fs::path in_memory() {
  return ::access("/dev/shm", W_OK | X_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

/// Removed with its contents at the end of the test.
struct Folder {
  fs::path path;
  explicit Folder(const fs::path& in = fs::temp_directory_path()) {
    std::string name = (in / ("dspp_" + std::string(6, 'X'))).string();  // mkdtemp fills it
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(const std::string& name) const { return (path / name).string(); }
  /// Writes the file, and the folders on the way to it; returns its path.
  std::string write(const std::string& name, const std::string& content) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << content;
    return file(name);
  }
  std::string read(const std::string& name) const { return read_file(path / name); }
  /// Names of all files and folders below, sorted. A process may write there: what goes while it is listed is listed
  /// again.
  std::vector<std::string> list() const {
    for (int tries = 1;; ++tries) {
      std::vector<std::string> names;
      std::error_code gone;
      for (fs::recursive_directory_iterator at(path, gone), end; !gone && at != end; at.increment(gone))
        names.push_back(at->path().lexically_relative(path).string());
      if (gone && tries == 100) throw fs::filesystem_error("list", path, gone);
      if (gone) continue;
      std::sort(names.begin(), names.end());
      return names;
    }
  }
};

}  // namespace dspp::laws
