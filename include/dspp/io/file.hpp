// SPDX-License-Identifier: Apache-2.0
/// Files by byte ranges: whole reads and writes at an offset, from several threads or processes, and a durable rename.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp {

/// An open file, closed with its owner. Reading and writing at offsets may happen from several threads at once.
///
/// Throws   Error(file), a sentence with the path and the system's reason
class File {
 public:
  File() = default;
  static File to_read(const std::string& path) { return File(path, O_RDONLY, "to read"); }
  static File to_write(const std::string& path) { return File(path, O_RDWR, "to write"); }
  /// Empty, whether or not there was one before.
  static File create(const std::string& path) { return File(path, O_RDWR | O_CREAT | O_TRUNC, "to write"); }

  File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  explicit operator bool() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }
  /// For the system's own calls; stays this object's.
  int descriptor() const { return descriptor_; }
  Size size() const;
  /// Grows with zeros or cuts.
  void resize(Size bytes) const;
  /// All `bytes` from `offset` on; fewer in the file is an error.
  void read_at(Size offset, void* out, Size bytes) const;
  void write_at(Size offset, const void* data, Size bytes) const;
  /// Returns when what was written is on the disk.
  void sync() const;

 private:
  File(const std::string& path, int flags, const char* purpose);
  [[noreturn]] void refuse(const char* wanted, int error) const;

  std::string path_;
  int descriptor_ = -1;
};

/// Puts a synced file in the place of another in one step, which survives a crash: whoever reads sees the old one or
/// the new one.
void replace_file(const std::string& from, const std::string& to);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
[[noreturn]] inline void refuse_file(const std::string& path, const char* wanted, int error) {
  fail(ErrorCode::file, "dspp: File needs '" + path + "' " + wanted +
                            ", but the system says: " + std::error_code(error, std::generic_category()).message() +
                            ". Check the path, its permissions and the disk.");
}
}  // namespace detail

inline File::File(const std::string& path, int flags, const char* purpose)
    : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) refuse(purpose, errno);
  struct stat status = {};
  if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(descriptor_);
    refuse(purpose, EISDIR);
  }
}

inline void File::refuse(const char* wanted, int error) const {
  detail::refuse_file(path_, wanted, error);
}

inline Size File::size() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) refuse("to have a size", errno);
  return status.st_size;
}

inline void File::resize(Size bytes) const {
  if (::ftruncate(descriptor_, bytes) != 0) refuse("to become longer", errno);
}

inline void File::read_at(Size offset, void* out, Size bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, static_cast<std::size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("to be readable", errno);
    if (got == 0)
      fail(ErrorCode::file, "dspp: File needs " + std::to_string(bytes) + " more bytes at " + std::to_string(offset) +
                                ", but '" + path_ + "' ends there. Write the file again.");
    to += got, offset += got, bytes -= got;
  }
}

inline void File::write_at(Size offset, const void* data, Size bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(descriptor_, from, static_cast<std::size_t>(bytes), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) refuse("to be writable", errno);
    from += put, offset += put, bytes -= put;
  }
}

inline void File::sync() const {
  if (::fsync(descriptor_) != 0) refuse("on the disk", errno);
}

inline void replace_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) detail::refuse_file(to, "to be replaced", errno);
  const std::filesystem::path folder = std::filesystem::path(to).parent_path();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder that may be searched but not read: the rename stands, only not at once
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace dspp
