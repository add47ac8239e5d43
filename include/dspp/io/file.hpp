// SPDX-License-Identifier: Apache-2.0
/// Regular files by byte ranges: complete reads and writes at an offset, from several threads or processes, and a
/// durable rename.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <dspp/base/file_size_limit.hpp>
#endif

namespace dspp::io {

/// An open regular file, closed by its destructor; pipes, devices and folders are refused without blocking. Reading and
/// writing at offsets may happen from several threads at once.
///
/// Throws   Error(file), a sentence with the path and the system's reason
class File {
 public:
  File() = default;
  static File to_read(const std::string& path);
  /// Opens an existing file; links are not followed.
  static File to_write(const std::string& path);
  /// The same, or nothing if there is no such file.
  static File to_write_if_there(const std::string& path);
  /// Creates a file that only this user may open until share(). An existing file or link of that name is removed, never
  /// written through.
  static File create(const std::string& path);

  File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept;
  ~File();

  explicit operator bool() const { return descriptor_ != -1; }
  const std::string& path() const { return path_; }
  /// For direct system calls; owned by this object.
  int descriptor() const { return descriptor_; }
  Size size() const;
  /// Extends with zeros or truncates.
  void resize(Size bytes) const;
  /// Reads all `bytes` from `offset` on; fewer in the file is an error.
  void read_at(Size offset, void* out, Size bytes) const;
  void write_at(Size offset, const void* data, Size bytes) const;
  /// Gives a created file the permissions of new files of this process.
  void share() const;
  /// Returns when all writes are on the disk.
  void sync() const;

 private:
  File(const std::string& path, int flags, const char* purpose, int no_error = 0);
  [[noreturn]] void refuse(const char* wanted, int error) const;
  [[noreturn]] void refuse_write(Size bytes, int error) const;

  std::string path_;
  int descriptor_ = -1;
};

/// Fails unless the folder's file system has room for that many bytes; passes if the room is unknown.
///
/// Throws   Error(file), a sentence with both figures
void require_free_bytes(const std::string& folder, Size bytes);

/// Puts a synced file in the place of another atomically, also across a crash: readers see the old one or the new one.
void replace_file(const std::string& from, const std::string& to);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

[[noreturn]] void refuse_file(const std::string& path, const char* wanted, int error);

/// The bytes that users without privileges may still write in the folder's file system; -1 if unknown.
Size free_bytes_of(const std::string& folder);

/// The folder of a file: "a/b" of "a/b/c", "." of "c", "/" of "/c".
std::string folder_of(const std::string& path);

/// Throws for a failed write; names the missing bytes if the disk, a quota or the file-size limit is full.
[[noreturn]] void refuse_write(const std::string& path, Size bytes, Size free_bytes, int error);
void require_room(const std::string& folder, Size bytes, Size free_bytes);

/// The permissions of new files: `most` without the process's umask; the strictest if the umask is unknown.
mode_t shared_mode(mode_t most);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_file(const std::string& path, const char* wanted, int error) {
  fail(ErrorCode::file, "dspp: File needs '" + path + "' " + wanted +
                            ", but the system says: " + std::error_code(error, std::generic_category()).message() +
                            ". Check the path, its permissions and the disk.");
}

DSPP_INLINE Size free_bytes_of(const std::string& folder) {
  struct statvfs status = {};
  if (::statvfs(folder.empty() ? "." : folder.c_str(), &status) != 0) return -1;
  const auto unit = static_cast<Size>(status.f_frsize > 0 ? status.f_frsize : status.f_bsize);
  Size bytes = 0;
  return __builtin_mul_overflow(static_cast<Size>(status.f_bavail), unit, &bytes) ? -1 : bytes;
}

DSPP_INLINE std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

DSPP_INLINE void refuse_write(const std::string& path, Size bytes, Size free_bytes, int error) {
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) refuse_file(path, "to be writable", error);
  fail(ErrorCode::file,
       "dspp: File needs '" + path + "' to take " + std::to_string(bytes) +
           " bytes more, but the system says: " + std::error_code(error, std::generic_category()).message() +
           (free_bytes < 0 ? "" : ", where " + std::to_string(free_bytes) + " bytes are free") +
           ". Check the path, its permissions and the disk.");
}

DSPP_INLINE void require_room(const std::string& folder, Size bytes, Size free_bytes) {
  if (free_bytes >= 0 && free_bytes < bytes)
    fail(ErrorCode::file, "dspp: saving in '" + folder + "' needs " + std::to_string(bytes) +
                              " bytes that are free, but there are " + std::to_string(free_bytes) +
                              ". Remove something, or give a folder on another disk.");
}

DSPP_INLINE mode_t shared_mode(mode_t most) {
  std::FILE* const status = std::fopen("/proc/self/status", "re");  // umask() would change it for other threads
  if (!status) return 0600;
  unsigned mask = 077;
  char line[256];
  while (std::fgets(line, sizeof line, status) && std::sscanf(line, "Umask: %o", &mask) != 1) continue;
  std::fclose(status);
  return most & ~static_cast<mode_t>(mask);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

DSPP_INLINE File::File(const std::string& path, int flags, const char* purpose, int no_error)
    : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600)) {
  if (descriptor_ == -1 && errno == no_error) return;
  if (descriptor_ == -1) refuse(purpose, errno);
  struct stat status = {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) return;
  ::close(descriptor_);
  if (error != 0 || S_ISDIR(status.st_mode)) refuse(purpose, error != 0 ? error : EISDIR);
  fail(ErrorCode::file, "dspp: File needs '" + path_ + "' " + purpose +
                            ", but it is a pipe, a device or a socket. Name a regular file.");
}

DSPP_INLINE File File::to_read(const std::string& path) {
  return File(path, O_RDONLY, "to read");
}
DSPP_INLINE File File::to_write(const std::string& path) {
  return File(path, O_RDWR | O_NOFOLLOW, "to write");
}
DSPP_INLINE File File::to_write_if_there(const std::string& path) {
  return File(path, O_RDWR | O_NOFOLLOW, "to write", ENOENT);
}

DSPP_INLINE File::~File() {
  if (descriptor_ != -1) ::close(descriptor_);
}

DSPP_INLINE File File::create(const std::string& path) {
  constexpr int exclusive = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode) && ::unlink(path.c_str()) != 0 && errno != ENOENT)
    detail::refuse_file(path, "to be replaced", errno);
  return File(path, exclusive, "to write");
}

DSPP_INLINE void File::refuse(const char* wanted, int error) const {
  detail::refuse_file(path_, wanted, error);
}

DSPP_INLINE Size File::size() const {
  struct stat status = {};
  if (::fstat(descriptor_, &status) != 0) refuse("to have a size", errno);
  return status.st_size;
}

DSPP_INLINE void File::resize(Size bytes) const {
  const FileSizeLimitAsError limit;
  if (::ftruncate(descriptor_, bytes) != 0) refuse("to become longer", errno);
}

DSPP_INLINE void File::read_at(Size offset, void* out, Size bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, static_cast<std::size_t>(bytes), offset);
    if (got == -1 && errno == EINTR) continue;
    if (got == -1) refuse("to be readable", errno);
    if (got == 0)
      fail(ErrorCode::file, "dspp: File needs " + std::to_string(bytes) + " more bytes at " + std::to_string(offset) +
                                ", but '" + path_ + "' ends there. Write the file again.");
    to += got, offset += got, bytes -= got;
  }
}

DSPP_INLINE void File::write_at(Size offset, const void* data, Size bytes) const {
  const auto* from = static_cast<const char*>(data);
  const FileSizeLimitAsError limit;
  while (bytes > 0) {
    const ssize_t put = ::pwrite(descriptor_, from, static_cast<std::size_t>(bytes), offset);
    if (put == -1 && errno == EINTR) continue;
    if (put == -1) refuse_write(bytes, errno);
    from += put, offset += put, bytes -= put;
  }
}

DSPP_INLINE void File::refuse_write(Size bytes, int error) const {
  detail::refuse_write(path_, bytes, detail::free_bytes_of(detail::folder_of(path_)), error);
}

DSPP_INLINE void File::share() const {
  if (::fchmod(descriptor_, detail::shared_mode(0644)) != 0) refuse("to be readable", errno);
}

DSPP_INLINE void File::sync() const {
  if (::fsync(descriptor_) != 0) refuse("on the disk", errno);
}

DSPP_INLINE void require_free_bytes(const std::string& folder, Size bytes) {
  detail::require_room(folder, bytes, detail::free_bytes_of(folder));
}

DSPP_INLINE void replace_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) detail::refuse_file(to, "to be replaced", errno);
  const int descriptor = ::open(detail::folder_of(to).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor == -1) return;  // a folder that is searchable but not readable: renamed, but not yet durable
  ::fsync(descriptor);
  ::close(descriptor);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
