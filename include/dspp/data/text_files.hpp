// SPDX-License-Identifier: Apache-2.0
/// The text files below a folder, without their content.
#pragma once

#include <string>
#include <vector>

#include <dspp/base/types.hpp>
#include <dspp/data/text.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>

#include <dspp/io/file.hpp>
#endif

namespace dspp::data {

/// Files to read in order, with their lengths when they were listed.
struct TextFileList {
  struct Entry {
    std::string path;
    Size bytes = 0;
  };
  std::vector<Entry> files;
  Size bytes = 0;     ///< of all
  Size left_out = 0;  ///< the number of binary files
};

/// The files that read_text reads, in the same order, with the same errors for a path without text.
///
/// Cost     8 KB of each file
/// Throws   Error(file)
TextFileList list_text_files(const std::string& path);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Lists a file unless it is binary.
void list_text_file(const std::string& path, TextFileList& list);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void list_text_file(const std::string& path, TextFileList& list) {
  const io::File file = io::File::to_read(path);
  const Size bytes = file.size();
  unsigned char start[binary_probe_bytes];
  const Size probed = std::min(bytes, binary_probe_bytes);
  file.read_at(0, start, probed);
  if (looks_binary(ByteSpan(start, static_cast<std::size_t>(probed)))) {
    ++list.left_out;
    return;
  }
  list.files.push_back({path, bytes});
  list.bytes += bytes;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE TextFileList list_text_files(const std::string& path) {
  TextFileList list;
  const bool folder = detail::kind_of_text(path) == detail::TextKind::folder;
  if (folder) {
    for (const auto& [name, file] : detail::files_below(path)) detail::list_text_file(file, list);
  } else {
    detail::list_text_file(path, list);
    if (list.left_out > 0) detail::refuse_text(path, "is binary", "Name a text file.");
  }
  if (list.bytes == 0)
    detail::refuse_text(path, folder ? "holds none" : "is empty",
                        folder ? "Name another folder." : "Name a file with content.");
  return list;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
