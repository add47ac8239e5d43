// SPDX-License-Identifier: Apache-2.0
/// Writes one file of a checkpoint.
#pragma once

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/file_system.hpp>
#include <dspp/io/safetensors_header.hpp>

namespace dspp::io {

/// A safetensors file that several ranks write at once, each its own elements and their shares of its checksums. All
/// construct it with the same arguments; one calls create(), then all call open(), write() and close().
///
/// Memory   the header, and 4 bytes for each MiB of the file
/// Throws   Error(file), a sentence with the path
class CheckpointWriter {
 public:
  CheckpointWriter(std::string path, const std::vector<TensorSpec>& tensors,
                   std::map<std::string, std::string> metadata)
      : path_(std::move(path)),
        header_(lay_out_safetensors(tensors, std::move(metadata))),
        prefix_(safetensors_prefix(header_)),
        shares_(bytes()) {}

  Size bytes() const { return std::ssize(prefix_) + header_.data_bytes(); }
  void create(FileSystem& system) const { WrittenFile::create(system, path_); }
  void open(FileSystem& system, bool with_header);
  /// Calls `for_each_run(f)`, and writes the arguments of each f(first, count, data) to the tensor of that name.
  template <class ForEachRun>
  void write(const std::string& name, ForEachRun for_each_run) {
    const Size begin = std::ssize(prefix_) + header_.find(name)->begin;
    for_each_run([&]<class T>(Size first, Size count, const T* data) {
      const Size width = sizeof(T);
      write_bytes(begin + first * width, data, count * width);
    });
  }
  void close();
  std::vector<std::uint32_t>& shares() { return shares_.shares(); }

 private:
  void write_bytes(Size offset, const void* data, Size count);

  std::string path_;
  SafetensorsHeader header_;
  std::string prefix_;
  ChecksumShares shares_;
  std::optional<WrittenFile> file_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void CheckpointWriter::open(FileSystem& system, bool with_header) {
  file_.emplace(WrittenFile::open(system, path_));
  if (with_header) write_bytes(0, prefix_.data(), std::ssize(prefix_));
  if (with_header) file_->share();
}

DSPP_INLINE void CheckpointWriter::close() {
  file_->sync();
  file_.reset();
}

DSPP_INLINE void CheckpointWriter::write_bytes(Size offset, const void* data, Size count) {
  file_->write_at(offset, data, count);
  shares_.add(offset, data, count);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
