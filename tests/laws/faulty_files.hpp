// SPDX-License-Identifier: Apache-2.0
/// A file system that counts its calls, keeps a log of them, and stops or fails at one. It does not wait for the disk:
/// what a process wrote outlives it, and the order of syncs is in the log. Ranks may share one: their calls are
/// serialized.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <dspp/io/file_system.hpp>

namespace dspp::laws {

class FaultyFiles : public io::FileSystem {
 public:
  enum class When { before, half_way };  ///< half-way: a write writes half of its bytes; other calls are made

  /// The n-th call, counted from 1, ends the process with `status`, as a kill would.
  void stop_at(Size n, When when, int status) { stop_ = n, when_ = when, status_ = status; }
  /// The n-th call fails with the error.
  void fail_at(Size n, int error) { fail_ = n, error_ = error; }

  Size calls() const { return calls_; }
  /// The log of calls: "write state.json". Only the last two folders of paths.
  const std::vector<std::string>& log() const { return log_; }

  int open(const std::string& path, bool create, int& descriptor) override {
    const std::scoped_lock turn(mutex_);
    descriptor = -1;
    try {
      const int error =
          call(create ? "create" : "open", path, [&] { return io::FileSystem::open(path, create, descriptor); });
      if (error == 0) path_of_[descriptor] = path;
      return error;
    } catch (...) {  // no memory for the log: nobody closes it
      if (descriptor >= 0) io::FileSystem::close(descriptor);
      throw;
    }
  }
  int write(int descriptor, const void* data, Size bytes, Size offset, Size& written) override {
    const std::scoped_lock turn(mutex_);
    if (calls_ + 1 == stop_ && when_ == When::half_way) {
      io::FileSystem::write(descriptor, data, bytes / 2, offset, written);
      _exit(status_);
    }
    return call("write", path_of_[descriptor],
                [&] { return io::FileSystem::write(descriptor, data, bytes, offset, written); });
  }
  int sync(int descriptor) override {
    const std::scoped_lock turn(mutex_);
    return call("sync", path_of_[descriptor], [] { return 0; });
  }
  int make_folder(const std::string& path) override {
    const std::scoped_lock turn(mutex_);
    return call("make", path, [&] { return io::FileSystem::make_folder(path); });
  }
  int sync_folder(const std::string& path) override {
    const std::scoped_lock turn(mutex_);
    return call("sync", path, [] { return 0; });
  }
  int rename(const std::string& from, const std::string& to) override {
    const std::scoped_lock turn(mutex_);
    return call("rename to", to, [&] { return io::FileSystem::rename(from, to); });
  }
  int exchange(const std::string& a, const std::string& b) override {
    const std::scoped_lock turn(mutex_);
    return call("exchange", b, [&] { return io::FileSystem::exchange(a, b); });
  }
  int remove_file(const std::string& path) override {
    const std::scoped_lock turn(mutex_);
    return call("remove", path, [&] { return io::FileSystem::remove_file(path); });
  }
  int remove_folder(const std::string& path) override {
    const std::scoped_lock turn(mutex_);
    return call("remove", path, [&] { return io::FileSystem::remove_folder(path); });
  }

 private:
  template <class Call>
  int call(const char* what, const std::string& path, Call really) {
    ++calls_;
    if (calls_ == stop_ && when_ == When::before) _exit(status_);
    if (calls_ == fail_) return error_;
    const int error = really();
    if (calls_ == stop_) _exit(status_);
    log_.push_back(std::string(what) + " " + short_name(path));
    return error;
  }
  static std::string short_name(const std::string& path) {
    const std::size_t last = path.rfind('/');
    const std::size_t before = last == std::string::npos || last == 0 ? last : path.rfind('/', last - 1);
    return before == std::string::npos ? path : path.substr(before + 1);
  }

  std::mutex mutex_;
  Size calls_ = 0, stop_ = 0, fail_ = 0;
  When when_ = When::before;
  int status_ = 0, error_ = 0;
  std::map<int, std::string> path_of_;
  std::vector<std::string> log_;
};

}  // namespace dspp::laws
