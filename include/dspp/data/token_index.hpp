// SPDX-License-Identifier: Apache-2.0
/// The index of a folder of token files, and its record of verified files.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/shard_header.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/text_file.hpp>

namespace dspp::data {

/// The files of a folder as written: names in order, each with the FNV-1a of its header, which holds the count and sum
/// of its tokens. While the folder is being written, the index is marked unfinished.
struct TokenIndex {
  static constexpr const char* name = "tokens.index";
  bool finished = false;
  std::vector<std::pair<std::string, std::uint64_t>> files{};

  /// Replaces the folder's index. Throws Error(file).
  void write(const std::string& folder) const;
};

/// The FNV-1a of a file's header.
inline std::uint64_t header_sum(const ShardHeader& header) {
  return Fnv1a().add(shard_header_bytes(header)).value();
}

/// Compares the names and headers of a folder's files with its index. A folder without one, from the first version,
/// needs consecutive file numbers only.
///
/// Throws   Error(file) if files are missing, added or exchanged
void require_indexed(const std::string& folder, const std::vector<std::pair<std::string, ShardHeader>>& files);

/// The verified files of a folder, by name, length, times, inode and sum, so that a file modified or replaced since is
/// verified again. Kept in the folder as `.verified`; if that cannot be written, each opening verifies.
class VerifiedFiles {
 public:
  explicit VerifiedFiles(const std::string& folder);
  /// Calls `verify` for an open file that is not recorded, and records it, unless it changed meanwhile or within the
  /// two seconds before `now`: a later change could then have the same time.
  template <class Verify>
  void once(const std::string& path, int descriptor, const ShardHeader& header, Verify verify,
            std::time_t now = std::time(nullptr));
  /// Writes new records; a failure is ignored.
  void keep() const noexcept;

 private:
  /// The identity of a file; empty if it cannot be read.
  static std::string line_of(const std::string& path, const struct stat& s, const ShardHeader& header);

  std::string path_;
  std::set<std::string> lines_;
  bool changed_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::string_view index_begin = "dspp token files 1\n",
                                  index_open = "dspp token files 1, not finished\n";

/// The text of a file that ends with its checksum, without it; "" if the checksum is absent or wrong.
std::string unsealed_or_nothing(const std::string& path);

/// Calls found(line) for each line until it returns true; returns whether it did.
template <class Found>
bool any_line(std::string_view text, Found found) {
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    if (found(text.substr(0, end))) return true;
  return false;
}

/// The parts of a line of an index.
struct IndexedFile {
  explicit IndexedFile(std::string_view line);
  std::string_view name, sum;
};

/// The number in a name of six digits and ".tokens", or -1.
Size file_number(const std::string& name);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE IndexedFile::IndexedFile(std::string_view line) : name(line.substr(0, line.rfind(' '))) {
  sum = line.substr(std::min(line.size(), name.size() + 1));
}

DSPP_INLINE std::string unsealed_or_nothing(const std::string& path) {
  try {
    return io::unsealed_text(io::read_text_file(path), path);
  } catch (const Error&) {
    return {};
  }
}

DSPP_INLINE Size file_number(const std::string& name) {
  if (name.size() != 13 || !name.ends_with(".tokens") || name.find_first_not_of("0123456789") != 6) return -1;
  return std::stoll(name.substr(0, 6));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

template <class Verify>
void VerifiedFiles::once(const std::string& path, int descriptor, const ShardHeader& header, Verify verify,
                         std::time_t now) {
  struct stat before = {}, after = {};
  const std::string line = ::fstat(descriptor, &before) == 0 ? line_of(path, before, header) : "";
  if (!line.empty() && lines_.contains(line)) return;
  verify();
  if (line.empty() || now - std::max(before.st_ctim.tv_sec, before.st_mtim.tv_sec) < 2) return;
  if (::fstat(descriptor, &after) != 0 || line_of(path, after, header) != line) return;
  changed_ = lines_.insert(line).second || changed_;
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void TokenIndex::write(const std::string& folder) const {
  std::string text(finished ? detail::index_begin : detail::index_open);
  for (const auto& [file, sum] : files) text += file + " " + std::to_string(sum) + "\n";
  io::StagedText(folder + "/" + name, io::sealed_text(text)).commit();
}

DSPP_INLINE void require_indexed(const std::string& folder,
                                 const std::vector<std::pair<std::string, ShardHeader>>& files) {
  const auto refuse = [&](const std::string& needs, const std::string& got) {
    fail(ErrorCode::file, "dspp: TokenFiles needs " + needs + ", but '" + folder + "' " + got +
                              ". Restore the folder, or make it again with ./dspp tokenize.");
  };
  const std::string path = folder + "/" + TokenIndex::name;
  std::error_code absent;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, absent))) {
    for (std::size_t i = 1; i < files.size(); ++i) {
      const Size before = detail::file_number(files[i - 1].first), now = detail::file_number(files[i].first);
      if (before >= 0 && now > before + 1)
        refuse("every file of a sequence", "has '" + files[i - 1].first + "' and then '" + files[i].first + "'");
    }
    return;
  }
  const std::string text = detail::unsealed_or_nothing(path);
  if (text == detail::index_open) refuse("a folder whose writing came to its end", "was left before it was finished");
  if (!text.starts_with(detail::index_begin)) refuse("an index that was not changed", "has another in tokens.index");
  const std::string_view lines = std::string_view(text).substr(detail::index_begin.size());
  const std::string written = "the " + std::to_string(std::ranges::count(lines, '\n')) + " files that were written";
  const auto find = [&](auto is_wanted) {  // the first wanted file
    std::optional<detail::IndexedFile> found;
    detail::any_line(lines, [&](std::string_view line) {
      const detail::IndexedFile one(line);
      if (is_wanted(one)) found = one;
      return found.has_value();
    });
    return found;
  };
  const auto missing = find([&](const auto& one) {
    return std::none_of(files.begin(), files.end(), [&](const auto& file) { return file.first == one.name; });
  });
  if (missing) refuse(written, "lacks '" + std::string(missing->name) + "'");
  for (const auto& file : files) {
    const std::string& name = file.first;
    const std::string sum = std::to_string(header_sum(file.second));
    const auto own = find([&](const auto& one) { return one.name == name; });
    if (!own) refuse(written, "has '" + name + "', too");
    if (own->sum == sum) continue;
    const auto owner = find([&](const auto& one) { return one.sum == sum; });
    refuse("its files in their places",
           "has " + (owner ? "'" + std::string(owner->name) + "'" : "a file of another training set") +
               " under the name '" + name + "'");
  }
}

DSPP_INLINE VerifiedFiles::VerifiedFiles(const std::string& folder) : path_(folder + "/.verified") {
  constexpr std::size_t shortest = 32;  // shorter lines are ignored; at worst a file is verified again
  detail::any_line(detail::unsealed_or_nothing(path_), [&](std::string_view line) {
    if (line.size() >= shortest) lines_.emplace(line);
    return false;
  });
}

DSPP_INLINE std::string VerifiedFiles::line_of(const std::string& path, const struct stat& s,
                                               const ShardHeader& header) {
  std::string line = std::filesystem::path(path).filename().string();
  if (line.find('\n') != std::string::npos) return {};
  for (const auto number : {static_cast<std::uint64_t>(s.st_size), static_cast<std::uint64_t>(s.st_ino),
                            static_cast<std::uint64_t>(s.st_mtim.tv_sec), static_cast<std::uint64_t>(s.st_mtim.tv_nsec),
                            static_cast<std::uint64_t>(s.st_ctim.tv_sec), static_cast<std::uint64_t>(s.st_ctim.tv_nsec),
                            header_sum(header)})
    line += " " + std::to_string(number);
  return line;
}

DSPP_INLINE void VerifiedFiles::keep() const noexcept {
  if (!changed_) return;
  try {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    io::StagedText(path_, io::sealed_text(text)).commit();
  } catch (...) {
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
