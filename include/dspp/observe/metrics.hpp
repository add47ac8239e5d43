// SPDX-License-Identifier: Apache-2.0
/// A run's figures: a folder named by the time, and files of one JSON object per line.
#pragma once

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/file_size_limit.hpp>
#include <dspp/base/json_writer.hpp>

namespace dspp {

/// Creates parent/2026-01-31T12-00-05, or the same with -2, -3... if it exists, and returns its path.
///
/// Throws   Error(file)
std::string create_run_folder(const std::string& parent, std::time_t now);

/// Writes `text` to a file, created or replaced.
///
/// Throws   Error(file)
void write_text_file(const std::string& path, const std::string& text);

/// A file to which each step adds a line. write() passes the line to the system: the file is readable however the
/// program ends.
///
/// Throws   Error(file)
class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
    if (!file_) refuse();
  }

  void write(const JsonObject& object);

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void refuse() const;
  struct Close {
    void operator()(std::FILE* file) const {
      const FileSizeLimitAsError limit;  // what could not be written is retried once
      std::fclose(file);
    }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void MetricsFile::write(const JsonObject& object) {
  const std::string line = object.text() + "\n";
  const FileSizeLimitAsError limit;
  errno = 0;
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) refuse();
}

DSPP_INLINE void MetricsFile::refuse() const {
  fail(ErrorCode::file, "dspp: MetricsFile needs a file that it can write, but '" + path_ +
                            "' cannot be written: " + std::error_code(errno, std::generic_category()).message() +
                            ". Check its permissions and the free space.");
}

DSPP_INLINE std::string create_run_folder(const std::string& parent, std::time_t now) {
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H-%M-%S", &local);
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  for (int n = 1; !error; ++n) {
    const std::string path = parent + "/" + stamp + (n > 1 ? "-" + std::to_string(n) : std::string());
    if (std::filesystem::create_directory(path, error)) return path;
  }
  fail(ErrorCode::file, "dspp: a run needs a folder for its figures, but '" + parent + "' cannot hold one: " +
                            error.message() + ". Check its permissions, or start in another folder.");
}

DSPP_INLINE void write_text_file(const std::string& path, const std::string& text) {
  const FileSizeLimitAsError limit;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file && std::fclose(file) != 0) written = false;
  if (!written)
    fail(ErrorCode::file, "dspp: a report needs a file that it can write, but '" + path +
                              "' cannot be written: " + std::error_code(errno, std::generic_category()).message() +
                              ". Check its permissions and the free space.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
