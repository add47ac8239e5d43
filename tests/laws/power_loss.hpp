// SPDX-License-Identifier: Apache-2.0
/// The possible contents of a disk after a power loss: every state that the order of syncs allows, with one write lost
/// or torn at a time.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <dspp/io/file_system.hpp>

namespace dspp::laws {

/// Passes every call on, and logs it with all bytes. Nothing waits for the disk.
class RecordedFiles : public io::FileSystem {
 public:
  struct Operation {
    enum Kind { create, write, make_folder, rename, exchange, remove_file, remove_folder, sync, sync_folder };
    Kind kind;
    std::string path{}, to{}, bytes{};
    Size offset = 0;
    /// The folder with its name, or the file itself.
    std::string synced_by() const {
      return kind == write ? path : dspp::io::detail::folder_of(kind == rename || kind == exchange ? to : path);
    }
    bool is_sync() const { return kind == sync || kind == sync_folder; }
  };
  std::vector<Operation> log{};

  int open(const std::string& path, bool create, int& descriptor) override {
    const int error = io::FileSystem::open(path, create, descriptor);
    if (error == 0) path_of_[descriptor] = path;
    if (error == 0 && create) log.push_back({Operation::create, path});
    return error;
  }
  int write(int descriptor, const void* data, Size bytes, Size offset, Size& written) override {
    const int error = io::FileSystem::write(descriptor, data, bytes, offset, written);
    log.push_back({Operation::write,
                   path_of_[descriptor],
                   {},
                   {static_cast<const char*>(data), static_cast<std::size_t>(written)},
                   offset});
    return error;
  }
  int sync(int descriptor) override { return note({Operation::sync, path_of_[descriptor]}, 0); }
  int sync_folder(const std::string& path) override { return note({Operation::sync_folder, path}, 0); }
  int make_folder(const std::string& path) override {
    return note({Operation::make_folder, path}, io::FileSystem::make_folder(path));
  }
  int rename(const std::string& from, const std::string& to) override {
    return note({Operation::rename, from, to}, io::FileSystem::rename(from, to));
  }
  int exchange(const std::string& a, const std::string& b) override {
    return note({Operation::exchange, a, b}, io::FileSystem::exchange(a, b));
  }
  int remove_file(const std::string& path) override {
    return note({Operation::remove_file, path}, io::FileSystem::remove_file(path));
  }
  int remove_folder(const std::string& path) override {
    return note({Operation::remove_folder, path}, io::FileSystem::remove_folder(path));
  }

 private:
  int note(Operation operation, int error) {
    if (error == 0) log.push_back(std::move(operation));
    return error;
  }
  std::map<int, std::string> path_of_;
};

/// Calls check(name) for every state of the disk after each prefix of the log: what was synced exists; of the rest
/// nothing, all, all but one, or all with one write torn: in the middle, after a sector of 512 bytes, after a page of
/// 4096. prepare() restores the earlier contents; the log's paths are used unchanged.
inline Size for_each_power_loss(const std::vector<RecordedFiles::Operation>& log, const std::function<void()>& prepare,
                                const std::function<void(const std::string&)>& check) {
  using Operation = RecordedFiles::Operation;
  const auto apply = [](const Operation& one, std::size_t bytes) {  // what its dropped forerunners prevent fails
    io::FileSystem disk;
    if (one.kind == Operation::create) std::ofstream(one.path, std::ios::binary | std::ios::app);
    if (one.kind == Operation::write) {
      std::fstream file(one.path, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(one.offset);
      file.write(one.bytes.data(), static_cast<std::streamsize>(bytes));
    }
    if (one.kind == Operation::make_folder) disk.make_folder(one.path);
    if (one.kind == Operation::rename) disk.rename(one.path, one.to);
    if (one.kind == Operation::exchange) disk.exchange(one.path, one.to);
    if (one.kind == Operation::remove_file) disk.remove_file(one.path);
    if (one.kind == Operation::remove_folder) disk.remove_folder(one.path);
  };
  Size states = 0;
  for (std::size_t length = 0; length <= log.size(); ++length) {
    std::vector<std::size_t> pending;
    for (std::size_t i = 0; i < length; ++i) {
      bool synced = log[i].is_sync();
      for (std::size_t j = i + 1; j < length && !synced; ++j)
        synced = log[j].is_sync() && log[j].path == log[i].synced_by();
      if (!synced) pending.push_back(i);
    }
    const std::size_t none = log.size();
    const auto state = [&](const std::string& name, bool all, std::size_t but, std::size_t torn, std::size_t at = 0) {
      prepare();
      std::size_t next = 0;
      for (std::size_t i = 0; i < length; ++i) {
        const bool waits = next < pending.size() && pending[next] == i;
        next += waits;
        if (log[i].is_sync() || i == but || (waits && !all)) continue;
        apply(log[i], i == torn ? at : log[i].bytes.size());
      }
      ++states;
      check("after " + std::to_string(length) + " operations, " + name);
    };
    state("nothing that was not synced", false, none, none);
    state("all", true, none, none);
    for (const std::size_t i : pending) {
      state("all but number " + std::to_string(i), true, i, none);
      if (log[i].kind != Operation::write) continue;
      for (const std::size_t at : {log[i].bytes.size() / 2, std::size_t{512}, std::size_t{4096}})
        if (at < log[i].bytes.size())
          state("number " + std::to_string(i) + " torn at " + std::to_string(at), true, none, i, at);
    }
  }
  return states;
}

}  // namespace dspp::laws
