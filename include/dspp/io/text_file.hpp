// SPDX-License-Identifier: Apache-2.0
/// Small text files, read and replaced whole.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include <dspp/io/file.hpp>

namespace dspp::io {

/// Reads the whole file.
///
/// Throws   Error(file), also if it is longer than `most_bytes`
std::string read_text_file(const std::string& path, Size most_bytes = 100'000'000);

/// Text that replaces a file at commit(), or is deleted.
///
///   StagedText staged("config.json", text);   // on the disk, as config.json.partial
///   staged.commit();                          // readers see the old file or the new one
///
/// Throws   Error(file)
class StagedText {
 public:
  StagedText(std::string path, std::string_view text);
  StagedText(StagedText&& other) noexcept
      : path_(std::move(other.path_)), staged_(std::exchange(other.staged_, false)) {}
  StagedText& operator=(StagedText&&) = delete;
  ~StagedText() {
    if (staged_) ::unlink(partial().c_str());
  }
  void commit();

 private:
  std::string partial() const { return path_ + ".partial"; }

  std::string path_;
  bool staged_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string read_text_file(const std::string& path, Size most_bytes) {
  const File file = File::to_read(path);
  const Size bytes = file.size();
  if (bytes > most_bytes)
    fail(ErrorCode::file, "dspp: '" + path + "' needs at most " + std::to_string(most_bytes) + " bytes, but it has " +
                              std::to_string(bytes) + ". Is it another file?");
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read_at(0, text.data(), bytes);
  return text;
}

DSPP_INLINE StagedText::StagedText(std::string path, std::string_view text) : path_(std::move(path)) {
  const File file = File::create(partial());
  try {
    file.write_at(0, text.data(), std::ssize(text));
    file.share();
    file.sync();
  } catch (...) {
    ::unlink(partial().c_str());
    throw;
  }
  staged_ = true;
}

DSPP_INLINE void StagedText::commit() {
  replace_file(partial(), path_);
  staged_ = false;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
