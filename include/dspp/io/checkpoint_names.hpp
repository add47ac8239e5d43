// SPDX-License-Identifier: Apache-2.0
/// The checkpoints in a folder, and the sentence that names them if another cannot be loaded.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include <dspp/io/file_system.hpp>

namespace dspp::io {

/// The place of a checkpoint: the folder of checkpoints, and the checkpoint's name in it.
struct CheckpointPlace {
  std::string folder, tag;
};

/// True if a folder is a checkpoint: it has a state.json.
bool is_checkpoint(const std::string& folder);
/// The place of a checkpoint's own folder.
CheckpointPlace place_of_checkpoint(const std::string& checkpoint);

/// The names of the checkpoints in a folder, sorted; none if there is no such folder. Throws Error(file).
std::vector<std::string> checkpoints_in(const std::string& folder);
/// The same by steps, the newest first; a checkpoint without steps in its name by those in its state.json.
std::vector<std::string> checkpoints_newest_first(const std::string& folder);

/// The advice if a checkpoint cannot be loaded: names the two newest others of its folder, and how to load them.
std::string load_another_than(const CheckpointPlace& place);
/// The same for a file of the checkpoint.
std::string load_another_than_that_of(const std::string& file);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr const char* checkpoint_manifest_name = "state.json";
inline constexpr std::string_view step_prefix = "step_";

/// Whether the name is "step_" and digits.
bool named_by_steps(std::string_view tag);

/// The number at the front of a text; -1 if there is none that fits.
Size number_at(std::string_view text);

/// The steps in the name of a checkpoint, else in its state.json; -1 if in neither.
Size steps_of_checkpoint(const std::string& folder, const std::string& tag);
bool exists(const std::string& path);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool named_by_steps(std::string_view tag) {
  return tag.starts_with(step_prefix) && tag.size() > step_prefix.size() &&
         tag.find_first_not_of("0123456789", step_prefix.size()) == std::string_view::npos;
}

DSPP_INLINE Size number_at(std::string_view text) {
  Size number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? number : -1;
}

DSPP_INLINE Size steps_of_checkpoint(const std::string& folder, const std::string& tag) {
  if (named_by_steps(tag)) return number_at(std::string_view(tag).substr(step_prefix.size()));
  constexpr std::string_view key = "\"steps\":";
  try {
    const File file = File::to_read(folder + "/" + tag + "/" + checkpoint_manifest_name);
    std::string text(static_cast<std::size_t>(std::min<Size>(file.size(), 4096)), '\0');
    file.read_at(0, text.data(), std::ssize(text));
    const std::size_t at = text.find(key);
    return at == std::string::npos ? -1 : number_at(std::string_view(text).substr(at + key.size()));
  } catch (const Error&) {  // an unreadable one counts as the oldest
    return -1;
  }
}

DSPP_INLINE bool exists(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

inline bool is_checkpoint(const std::string& folder) {
  return detail::exists(folder + "/" + detail::checkpoint_manifest_name);
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE CheckpointPlace place_of_checkpoint(const std::string& checkpoint) {
  std::filesystem::path path = checkpoint.substr(0, std::max<std::size_t>(checkpoint.find_last_not_of('/') + 1, 1));
  std::error_code error;
  if (path.empty() || path.filename() == "." || path.filename() == "..")
    path = std::filesystem::canonical(path.empty() ? "." : path, error);
  const std::string folder = path.parent_path().string();
  return {folder.empty() ? "." : folder, path.filename().string()};
}

DSPP_INLINE std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> found;
  for (const std::string& name : names_in(folder))
    if (name[0] != '.' && is_checkpoint(folder + "/" + name)) found.push_back(name);
  return found;
}

DSPP_INLINE std::vector<std::string> checkpoints_newest_first(const std::string& folder) {
  using Entry = std::tuple<Size, std::size_t, std::string>;
  std::vector<Entry> found;
  for (const std::string& tag : checkpoints_in(folder))
    found.emplace_back(detail::steps_of_checkpoint(folder, tag), tag.size(), tag);
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> tags;
  for (const Entry& entry : found) tags.push_back(std::get<2>(entry));
  return tags;
}

DSPP_INLINE std::string load_another_than(const CheckpointPlace& place) {
  std::vector<std::string> others;
  try {
    others = checkpoints_newest_first(place.folder);
  } catch (const Error&) {  // an unreadable folder is not what the sentence is about
  }
  std::erase(others, place.tag);
  if (others.empty()) return "Begin without, or give the folder of another training.";
  const auto quoted = [&](const std::string& tag) { return "'" + place.folder + "/" + tag + "'"; };
  return "Load " + quoted(others[0]) + (others.size() > 1 ? " or " + quoted(others[1]) : "") +
         ": give that path, or its last name as LoadOptions::tag.";
}

DSPP_INLINE std::string load_another_than_that_of(const std::string& file) {
  return load_another_than(place_of_checkpoint(std::filesystem::path(file).parent_path().string()));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
