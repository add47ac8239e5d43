// SPDX-License-Identifier: Apache-2.0
/// Text as bytes: read from a file or a folder, split into a training part and a held-out part.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include <dspp/base/digest.hpp>
#include <dspp/base/out_of_memory.hpp>
#endif

namespace dspp::data {

using ByteSpan = std::span<const unsigned char>;

/// Which bytes of a text are held out for validation. `blocks`: of its blocks of 64 KiB as many as the share, evenly
/// spaced, so that every part of a folder is among them: the tenth, the twentieth, ... of a share of 0.1; of a text
/// that has none, its end. `end`: the share at its end.
enum class TextSplit { blocks, end };
inline constexpr Size text_block = 64 * 1024;

/// The path of a text: a file, or a folder that is searched recursively. `held_out` is the share that is kept for
/// validation.
struct TextFiles {
  std::string path;
  double held_out = 0.1;
  TextSplit split = TextSplit::blocks;
};

/// The bytes of a text, and the files they come from. Those that are held out are behind the others.
struct Text {
  std::vector<unsigned char> bytes;
  Size training_bytes = 0;
  Size files = 0;
  std::vector<std::string> left_out;  ///< paths of binary files, below the folder, sorted

  /// The first training_bytes, and the remaining bytes.
  ByteSpan training() const { return ByteSpan(bytes).first(static_cast<std::size_t>(training_bytes)); }
  ByteSpan validation() const { return ByteSpan(bytes).subspan(static_cast<std::size_t>(training_bytes)); }

  /// A fingerprint of all bytes and of training_bytes.
  std::uint64_t digest() const;

  /// "8669561 bytes in 530 files; 2 binary files left out (a.png, b.bin)".
  std::string summary() const;
};

/// Reads a file, or all text files below a folder, concatenated in the byte order of their paths, so that the result is
/// the same on every machine. Links to files are followed, links to folders are not. A file is binary if its first 8 KB
/// hold a zero byte or more than a tenth of control characters: in a folder it is left out and listed; named directly,
/// it is an error.
///
/// Memory   the text, and what is held out of it once more
/// Throws   Error(file) if the path is absent, unreadable, empty, binary, or a folder without text;
///          Error(out_of_memory) before a file is read for which there is none
Text read_text(const TextFiles& source);

/// What batches(world, files, ...) reads.
std::shared_ptr<const Text> open_data(const TextFiles& files);

/// True if these bytes, the beginning of a file, are binary.
bool looks_binary(ByteSpan start);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr Size binary_probe_bytes = 8192;

[[noreturn]] void refuse_text(const std::string& path, const std::string& got, const char* advice);

/// Appends a file to `bytes`, unless it is binary: then false, and nothing is appended.
bool append_text_file(const std::string& path, std::vector<unsigned char>& bytes);

/// Regular files below a folder, as (path below it, path), sorted by the bytes of the first.
std::vector<std::pair<std::string, std::string>> files_below(const std::string& folder);

enum class TextKind { file, folder };
/// Throws   Error(file) if the path is absent, cannot be read, or is neither
TextKind kind_of_text(const std::string& path);

/// Puts the held-out blocks of a share behind the others, in order. Returns their bytes: 0 if there is none.
Size hold_out_blocks(std::vector<unsigned char>& bytes, double share);

void read_folder(const std::string& path, Text& text);
void read_single_file(const std::string& path, Text& text);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_text(const std::string& path, const std::string& got, const char* advice) {
  fail(ErrorCode::file, "dspp: TextFiles needs a file or folder of text, but '" + path + "' " + got + ". " + advice);
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

DSPP_INLINE bool append_text_file(const std::string& path, std::vector<unsigned char>& bytes) {
  const auto refuse = [&] {
    refuse_text(path, "cannot be read: " + std::error_code(errno, std::generic_category()).message(),
                "Check its permissions.");
  };
  const int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // does not block on a pipe
  const std::unique_ptr<std::FILE, CloseFile> file(descriptor < 0 ? nullptr : ::fdopen(descriptor, "rb"));
  struct stat status = {};
  if (!file || ::fstat(descriptor, &status) != 0) refuse();
  if (!S_ISREG(status.st_mode)) refuse_text(path, "is neither", "Name a regular file or a folder.");
  const std::size_t before = bytes.size();
  std::size_t wanted = static_cast<std::size_t>(binary_probe_bytes);
  while (true) {
    const std::size_t start = bytes.size();
    bytes.resize(start + wanted);
    errno = 0;
    const std::size_t got = std::fread(bytes.data() + start, 1, wanted, file.get());
    bytes.resize(start + got);
    if (std::ferror(file.get())) refuse();
    if (start == before && looks_binary(ByteSpan(bytes).subspan(before))) {
      bytes.resize(before);
      return false;
    }
    if (got < wanted) return true;
    if (start == before) {
      const std::size_t end = before + static_cast<std::size_t>(status.st_size);
      if (end > bytes.capacity()) bytes.reserve(std::max(end, before == 0 ? end : 2 * bytes.capacity()));
    }
    wanted = std::size_t{1} << 20;
  }
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

/// Appends the files of `folder`, which is `below` plus the folder that is searched. Links to folders are not followed.
DSPP_INLINE void add_files_below(const std::string& folder, const std::string& below,
                                 std::vector<std::pair<std::string, std::string>>& found) {
  const auto refuse = [&] {
    refuse_text(folder, "cannot be searched: " + std::error_code(errno, std::generic_category()).message(),
                "Check its permissions.");
  };
  std::vector<std::string> folders;
  {
    const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.c_str()));
    if (!open) refuse();
    errno = 0;
    for (const dirent* entry; (entry = ::readdir(open.get())) != nullptr; errno = 0) {
      const std::string name = entry->d_name, path = folder + (folder.ends_with('/') ? "" : "/") + name;
      struct stat status = {};
      if (name == "." || name == "..") continue;
      if (::lstat(path.c_str(), &status) != 0) {
        if (errno == ENOENT) continue;  // removed since
        refuse();
      }
      if (S_ISDIR(status.st_mode))
        folders.push_back(name);
      else if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))  // a dangling link is not text
        found.emplace_back(below + name, path);
    }
    if (errno != 0) refuse();
  }
  for (const std::string& name : folders)
    add_files_below(folder + (folder.ends_with('/') ? "" : "/") + name, below + name + "/", found);
}

DSPP_INLINE std::vector<std::pair<std::string, std::string>> files_below(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  add_files_below(folder, "", found);
  std::sort(found.begin(), found.end());
  return found;
}

DSPP_INLINE TextKind kind_of_text(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) refuse_text(path, "does not exist", "Check the path.");
    refuse_text(path, "cannot be read: " + std::error_code(errno, std::generic_category()).message(),
                "Check its permissions.");
  }
  if (S_ISDIR(status.st_mode)) return TextKind::folder;
  if (!S_ISREG(status.st_mode)) refuse_text(path, "is neither", "Name a regular file or a folder.");
  return TextKind::file;
}

DSPP_INLINE void read_folder(const std::string& path, Text& text) {
  for (const auto& [name, file] : files_below(path)) {
    if (append_text_file(file, text.bytes))
      ++text.files;
    else
      text.left_out.push_back(name);
  }
  if (!text.bytes.empty()) return;
  refuse_text(path,
              text.left_out.empty() ? "holds none" : "holds only binary files, such as '" + text.left_out[0] + "'",
              "Name another folder.");
}

DSPP_INLINE void read_single_file(const std::string& path, Text& text) {
  if (!append_text_file(path, text.bytes)) refuse_text(path, "is binary", "Name a text file.");
  if (text.bytes.empty()) refuse_text(path, "is empty", "Name a file with content.");
  text.files = 1;
}

DSPP_INLINE Size hold_out_blocks(std::vector<unsigned char>& bytes, double share) {
  const Size blocks = std::ssize(bytes) / text_block;
  const auto place = [&](Size block) { return bytes.begin() + block * text_block; };
  const auto before = [share](Size block) { return static_cast<Size>(static_cast<double>(block) * share); };
  std::vector<unsigned char> held_out;
  held_out.reserve(static_cast<std::size_t>(before(blocks) * text_block));
  auto kept = bytes.begin();
  for (Size block = 0; block < blocks; ++block) {
    if (before(block + 1) > before(block))
      held_out.insert(held_out.end(), place(block), place(block + 1));
    else
      kept = std::copy(place(block), place(block + 1), kept);
  }
  kept = std::copy(place(blocks), bytes.end(), kept);
  std::copy(held_out.begin(), held_out.end(), kept);
  return std::ssize(held_out);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::uint64_t Text::digest() const {
  return Digest().add(bytes.data(), std::ssize(bytes)).add(static_cast<std::uint64_t>(training_bytes)).value();
}

DSPP_INLINE bool looks_binary(ByteSpan start) {
  const auto is_control = [](unsigned char c) {
    return (c < 0x20 && !(c >= '\b' && c <= '\r') && c != 0x1b) || c == 0x7f;
  };
  const auto zero = std::find(start.begin(), start.end(), 0);
  return zero != start.end() || std::count_if(start.begin(), start.end(), is_control) * 10 > std::ssize(start);
}

DSPP_INLINE Text read_text(const TextFiles& source) {
  require(source.held_out >= 0 && source.held_out < 1,
          "dspp: TextFiles needs held_out in [0, 1), but it is not. Give a share such as 0.1.");
  Text text;
  Size held_out = 0;
  or_out_of_memory("TextFiles", [&] {
    if (detail::kind_of_text(source.path) == detail::TextKind::folder)
      detail::read_folder(source.path, text);
    else
      detail::read_single_file(source.path, text);
    text.bytes.shrink_to_fit();
    if (source.split == TextSplit::blocks) held_out = detail::hold_out_blocks(text.bytes, source.held_out);
  });
  if (held_out == 0) held_out = static_cast<Size>(static_cast<double>(text.bytes.size()) * source.held_out);
  text.training_bytes = std::ssize(text.bytes) - held_out;
  return text;
}

DSPP_INLINE std::shared_ptr<const Text> open_data(const TextFiles& files) {
  return std::make_shared<const Text>(read_text(files));
}

DSPP_INLINE std::string Text::summary() const {
  const auto counted = [](Size n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  std::string line = counted(std::ssize(bytes), "byte") + " in " + counted(files, "file");
  if (left_out.empty()) return line;
  line += "; " + counted(std::ssize(left_out), "binary file") + " left out (";
  for (std::size_t i = 0; i < left_out.size() && i < 3; ++i) line += (i ? ", " : "") + left_out[i];
  return line + (left_out.size() > 3 ? ", ...)" : ")");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
