// SPDX-License-Identifier: Apache-2.0
/// One job at a time in a folder of checkpoints: a lock that ends with its process and names its owner.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include <dspp/io/file.hpp>
#endif

namespace dspp::io {

/// Holds `.lock` in an existing folder, and writes the owner into it: pid, host, start. The system releases the lock
/// with the process, however it ends; the next owner overwrites the text. Several locks of one process may hold a
/// folder. If the file system has no locks, nothing is held.
///
/// Throws   Error(file), a sentence with pid, host and start of the process that holds it
class CheckpointLock {
 public:
  /// `made`: the folder was created for the lock, which removes it if nothing was saved.
  explicit CheckpointLock(const std::string& folder, bool made = false);
  CheckpointLock(CheckpointLock&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        holder_(other.holder_),
        made_(other.made_) {}
  CheckpointLock& operator=(CheckpointLock&& other) noexcept;
  /// Also removes the file, unless this is a fork of the process that locked it.
  ~CheckpointLock();

  /// True if this process holds the file, and it still has its name: the folder may have been removed.
  bool is_there() const;

 private:
  bool take();

  std::string path_;
  int descriptor_ = -1;
  pid_t holder_ = -1;  ///< the process that locked it, no fork of it
  bool made_ = false;
};

/// The folders that one owner holds.
class CheckpointLocks {
 public:
  /// Does nothing if the folder is held already. Throws as CheckpointLock.
  void hold(const std::string& folder, bool made = false);

 private:
  std::vector<std::pair<std::string, CheckpointLock>> held_;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The text of this process's locks: three facts for readers, and a unique number.
std::string lock_facts();

/// The value of a key in such a text, of printable characters.
std::string lock_fact(std::string_view facts, const std::string& key);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string lock_facts() {
  static const std::uint64_t token = [] {
    std::uint64_t random = 0;
    return ::getrandom(&random, sizeof random, 0) == sizeof random ? random : 0;
  }();
  char host[256] = "?", start[64] = "?";
  ::gethostname(host, sizeof host - 1);
  static const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (::gmtime_r(&now, &utc)) std::strftime(start, sizeof start, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return "pid " + std::to_string(::getpid()) + "\nhost " + host + "\nstart " + start + "\ntoken " +
         std::to_string(token) + "\n";
}

DSPP_INLINE std::string lock_fact(std::string_view facts, const std::string& key) {
  const std::size_t at = facts.find(key + " ");
  if (at == std::string_view::npos) return "?";
  const std::size_t begin = at + key.size() + 1;
  std::string value(facts.substr(begin, facts.find('\n', begin) - begin));
  for (char& c : value)
    if (c < 0x20 || c > 0x7e || c == '\'') c = '?';
  return value;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

/// False if the file was removed by its holder while this one waited for its turn: a new one exists.

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE CheckpointLock& CheckpointLock::operator=(CheckpointLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(holder_, other.holder_);
  std::swap(made_, other.made_);
  return *this;
}

DSPP_INLINE CheckpointLock::CheckpointLock(const std::string& folder, bool made)
    : path_(folder + "/.lock"), holder_(::getpid()), made_(made) {
  while (!take()) continue;
}

DSPP_INLINE bool CheckpointLock::take() {
  const int made = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (made == -1 && errno != EEXIST) detail::refuse_file(path_, "to be made", errno);
  if (made != -1) {
    ::fchmod(made, detail::shared_mode(0666));
    ::close(made);
  }
  const File file = File::to_write_if_there(path_);
  if (!file) return false;
  const std::string own = detail::lock_facts();
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return true;  // a file system without locks
    char facts[1024];
    const ssize_t got = ::pread(file.descriptor(), facts, sizeof facts, 0);
    const std::string_view text(facts, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (text == own) return true;
    fail(ErrorCode::file, "dspp: saving needs a folder of checkpoints that no other job saves in, but '" +
                              detail::folder_of(path_) + "' is held by process " + detail::lock_fact(text, "pid") +
                              " on '" + detail::lock_fact(text, "host") + "', which took it first at " +
                              detail::lock_fact(text, "start") + ". Wait for its end, or give another folder.");
  }
  struct stat held = {}, named = {};
  if (::fstat(file.descriptor(), &held) != 0 || ::lstat(path_.c_str(), &named) != 0 || held.st_ino != named.st_ino)
    return false;
  file.resize(0);
  file.write_at(0, own.data(), std::ssize(own));
  descriptor_ = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);  // both descriptors share the lock
  if (descriptor_ == -1) detail::refuse_file(path_, "to be held", errno);
  return true;
}

DSPP_INLINE CheckpointLock::~CheckpointLock() {
  if (descriptor_ == -1) return;
  if (is_there()) {
    ::unlink(path_.c_str());  // while it is held: waiting processes see that it lost its name
    if (made_) ::rmdir(path_.substr(0, path_.size() - 6).c_str());  // unless it is not empty
  }
  ::close(descriptor_);
}

DSPP_INLINE bool CheckpointLock::is_there() const {
  struct stat held = {}, named = {};
  return descriptor_ != -1 && ::getpid() == holder_ && ::fstat(descriptor_, &held) == 0 &&
         ::lstat(path_.c_str(), &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

DSPP_INLINE void CheckpointLocks::hold(const std::string& folder, bool made) {
  for (auto& [name, lock] : held_)
    if (name == folder && lock.is_there()) return;
  std::erase_if(held_, [&](const auto& one) { return one.first == folder; });
  held_.emplace_back(folder, CheckpointLock(folder, made));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
