// SPDX-License-Identifier: Apache-2.0
/// A file as memory: pages are read from the disk on access.
#pragma once

#include <string>
#include <utility>

#include <dspp/io/file.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#endif

namespace dspp::io {

/// A file mapped for reading, unmapped by its destructor. Reading is const and may happen from several threads at once.
///
/// Cost     for a requested range: one check of the file's length; reading it then takes no system call
/// Memory   address space; the system loads and evicts the pages
/// Throws   Error(file), a sentence with the path and the system's reason
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept
      : file_(std::move(other.file_)),
        bytes_(std::exchange(other.bytes_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const std::string& path() const { return file_.path(); }
  /// The descriptor of the mapped file, even if its name was reused; owned by this object.
  int descriptor() const { return file_.descriptor(); }
  /// The length when it was mapped.
  Size size() const { return size_; }

  /// The bytes from `offset` on. Throws Error(usage) outside the file, Error(file) if it became shorter since it was
  /// mapped: accessing the mapping would then kill the process.
  const unsigned char* range(Size offset, Size bytes) const;

  /// Advises the system to read these bytes ahead.
  void will_need(Size offset, Size bytes) const;

 private:
  File file_;
  void* bytes_ = nullptr;
  Size size_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE MappedFile::MappedFile(const std::string& path) : file_(File::to_read(path)), size_(file_.size()) {
  if (size_ == 0) return;  // can be neither mapped nor read
  void* const at = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (at == MAP_FAILED) detail::refuse_file(path, "to be mapped into memory", errno);
  bytes_ = at;
}

DSPP_INLINE MappedFile::~MappedFile() {
  if (bytes_) ::munmap(bytes_, static_cast<std::size_t>(size_));
}

DSPP_INLINE const unsigned char* MappedFile::range(Size offset, Size bytes) const {
  if (offset < 0 || bytes < 0 || offset > size_ - bytes)
    fail(ErrorCode::usage, "dspp: MappedFile needs bytes in [0, " + std::to_string(size_) + ") of '" + path() +
                               "', but was asked for " + std::to_string(bytes) + " from " + std::to_string(offset) +
                               " on. Check the range.");
  const Size now = file_.size();
  if (now < size_)
    fail(ErrorCode::file, "dspp: MappedFile needs '" + path() + "' as long as it was, " + std::to_string(size_) +
                              " bytes, but it was cut to " + std::to_string(now) +
                              " while it was read. Write files elsewhere and rename them.");
  return static_cast<const unsigned char*>(bytes_) + offset;
}

DSPP_INLINE void MappedFile::will_need(Size offset, Size bytes) const {
  const Size page = ::sysconf(_SC_PAGESIZE);
  const Size end = std::clamp<Size>(offset + bytes, 0, size_), begin = std::clamp<Size>(offset, 0, end) / page * page;
  // Only advice: without it, the bytes are read on access.
  ::posix_madvise(static_cast<char*>(bytes_) + begin, static_cast<std::size_t>(end - begin), POSIX_MADV_WILLNEED);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
