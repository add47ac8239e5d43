// SPDX-License-Identifier: Apache-2.0
/// The system calls that change files and folders, one function each, so that a test can make any of them fail.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dspp/io/file.hpp>

namespace dspp::io {

/// The system calls through which a checkpoint is written. Each function is one call (a few calls where its comment
/// says so) and returns 0 or the system's error; tests override them to count, stop and fail. Stateless: ranks may
/// share one.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Opens a file for writing; if `create`, a new one (EEXIST if it exists) that only this user may open. Links are not
  /// followed.
  virtual int open(const std::string& path, bool create, int& descriptor);
  /// Writes up to `bytes` and returns how many.
  virtual int write(int descriptor, const void* data, Size bytes, Size offset, Size& written);
  /// Returns when all writes are on the disk.
  virtual int sync(int descriptor);
  /// Gives a created file the permissions of new files of this process.
  virtual int share(int descriptor) { return result(::fchmod(descriptor, detail::shared_mode(0666))); }
  virtual void close(int descriptor) { ::close(descriptor); }

  /// The bytes that may still be written in the folder's file system; -1 if unknown.
  virtual Size free_bytes(const std::string& folder) { return detail::free_bytes_of(folder); }

  virtual int make_folder(const std::string& path) { return result(::mkdir(path.c_str(), 0777)); }
  /// Makes the folder's entries durable, if the file system supports that: open, fsync, close.
  virtual int sync_folder(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to) {
    return result(::rename(from.c_str(), to.c_str()));
  }
  /// Exchanges the two names atomically. ENOSYS or EINVAL if the system or the file system cannot.
  virtual int exchange(const std::string& a, const std::string& b);
  virtual int remove_file(const std::string& path) { return result(::unlink(path.c_str())); }
  virtual int remove_folder(const std::string& path) { return result(::rmdir(path.c_str())); }

 protected:
  static int result(int returned) { return returned == 0 ? 0 : errno; }
};

/// Throws Error(file) unless `error` is 0: "dspp: File needs '<path>' <wanted>, but the system says: ...".
void require_done(int error, const std::string& path, const char* wanted);

/// A file that is written through a FileSystem, closed by its destructor.
///
/// Throws   Error(file), a sentence with the path and the system's reason
class WrittenFile {
 public:
  /// Creates a file. An existing file or link of that name is removed, never written through.
  static WrittenFile create(FileSystem& system, const std::string& path) { return {system, path, true}; }
  static WrittenFile open(FileSystem& system, const std::string& path) { return {system, path, false}; }
  WrittenFile(WrittenFile&& other) noexcept
      : system_(other.system_), path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  WrittenFile& operator=(WrittenFile&&) = delete;
  ~WrittenFile() {
    if (descriptor_ >= 0) system_->close(descriptor_);
  }

  const std::string& path() const { return path_; }
  void write_at(Size offset, const void* data, Size bytes) const;
  void share() const { require_done(system_->share(descriptor_), path_, "to be readable"); }
  void sync() const;

 private:
  WrittenFile(FileSystem& system, const std::string& path, bool create);

  FileSystem* system_;
  std::string path_;
  int descriptor_ = -1;
};

/// The names in a folder, sorted; none if there is no such folder. Throws Error(file).
std::vector<std::string> names_in(const std::string& folder);

/// Creates the folder and its parents, each durable before the next. Throws Error(file).
void make_folders(FileSystem& system, const std::string& path);

/// True if the path itself is a folder, not a link to one.
bool is_real_folder(const std::string& path);

/// Removes a folder and the files and links in it; it must not contain folders. Throws Error(file), also if `path` is a
/// link: its target stays.
void remove_folder_of_files(FileSystem& system, const std::string& path);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void require_done(int error, const std::string& path, const char* wanted) {
  if (error != 0) detail::refuse_file(path, wanted, error);
}

DSPP_INLINE int FileSystem::open(const std::string& path, bool create, int& descriptor) {
  descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT | O_EXCL : 0), 0600);
  return descriptor < 0 ? errno : 0;
}

DSPP_INLINE int FileSystem::write(int descriptor, const void* data, Size bytes, Size offset, Size& written) {
  const FileSizeLimitAsError limit;
  const ssize_t put = ::pwrite(descriptor, data, static_cast<std::size_t>(bytes), offset);
  written = std::max<Size>(put, 0);
  return put < 0 ? errno : 0;
}

DSPP_INLINE int FileSystem::sync(int descriptor) {
  return result(::fsync(descriptor));
}

DSPP_INLINE int FileSystem::sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = result(::fsync(descriptor));
  ::close(descriptor);
  return error == EINVAL ? 0 : error;  // some network file systems do not sync folders
}

DSPP_INLINE int FileSystem::exchange([[maybe_unused]] const std::string& a, [[maybe_unused]] const std::string& b) {
#ifdef RENAME_EXCHANGE
  return result(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
#else
  return ENOSYS;
#endif
}

DSPP_INLINE WrittenFile::WrittenFile(FileSystem& system, const std::string& path, bool create)
    : system_(&system), path_(path) {
  int error = system.open(path, create, descriptor_);
  if (create && error == EEXIST) {  // left by a killed save, or planted
    require_done(system.remove_file(path), path, "to be replaced");
    error = system.open(path, create, descriptor_);
  }
  require_done(error, path, "to write");
}

DSPP_INLINE void WrittenFile::write_at(Size offset, const void* data, Size bytes) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    Size written = 0;
    const int error = system_->write(descriptor_, from, bytes, offset, written);
    if (error == EINTR) continue;
    if (error != 0) detail::refuse_write(path_, bytes, system_->free_bytes(detail::folder_of(path_)), error);
    if (written == 0) require_done(EIO, path_, "to be writable");
    from += written, offset += written, bytes -= written;
  }
}

DSPP_INLINE void WrittenFile::sync() const {
  int error = EINTR;
  while (error == EINTR) error = system_->sync(descriptor_);
  require_done(error, path_, "on the disk");
}

DSPP_INLINE std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  struct Close {
    void operator()(DIR* open) const { ::closedir(open); }
  };
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (!open && errno == ENOENT) return names;
  if (!open) detail::refuse_file(folder, "to list", errno);
  errno = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  require_done(errno, folder, "to list");
  std::sort(names.begin(), names.end());
  return names;
}

DSPP_INLINE void make_folders(FileSystem& system, const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0)
    return require_done(S_ISDIR(status.st_mode) ? 0 : ENOTDIR, path, "to be a folder");
  const std::string above = detail::folder_of(path);
  if (above != path) make_folders(system, above);
  const int error = system.make_folder(path);
  if (error == EEXIST) return;
  require_done(error, path, "to be made");
  require_done(system.sync_folder(above), above, "on the disk");
}

DSPP_INLINE bool is_real_folder(const std::string& path) {
  struct stat status = {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

DSPP_INLINE void remove_folder_of_files(FileSystem& system, const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return;
  if (!is_real_folder(path)) require_done(ENOTDIR, path, "to be a folder, not a link");
  for (const std::string& name : names_in(path))
    require_done(system.remove_file(path + "/" + name), path + "/" + name, "to be removed");
  const int error = system.remove_folder(path);
  if (error != ENOENT) require_done(error, path, "to be removed");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
