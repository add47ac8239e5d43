// SPDX-License-Identifier: Apache-2.0
/// A folder of checkpoints: each is complete or absent under its name, and `latest` names the newest.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/checkpoint_names.hpp>
#include <dspp/io/file_system.hpp>

namespace dspp::io {

/// Paths in such a folder:
///
///   step_00001000/model.safetensors       master weights, or parameters if there are none
///   step_00001000/optimizer.safetensors   moments; absent if there are none
///   step_00001000/state.json              everything else, and the checksums of the two
///   latest                                the name of the newest checkpoint, the number of its training, a checksum
///   .lock                                 the owner of the folder, while a training saves in it
///   .tmp-<name>                           a checkpoint that is being written or removed
struct CheckpointFolder {
  static constexpr const char *model = "model.safetensors", *optimizer = "optimizer.safetensors",
                              *manifest = detail::checkpoint_manifest_name;

  std::string folder;

  std::string path_of(const std::string& tag) const { return folder + "/" + tag; }
  std::string temporary(const std::string& tag) const { return folder + "/.tmp-" + tag; }
  std::string latest() const { return folder + "/latest"; }

  bool has_latest() const;
  /// The names of the checkpoints in the folder, sorted.
  std::vector<std::string> tags() const { return checkpoints_in(folder); }
  /// The checkpoint that `latest` names.
  ///
  /// Throws   Error(file) if the folder, the file or the checkpoint is absent, or the file was changed
  std::string read_latest() const { return read_latest_checkpoint().tag; }
  /// The same, and the number of its training; 0 if it is unknown.
  struct Latest {
    std::string tag;
    std::uint64_t run = 0;
  };
  Latest read_latest_checkpoint() const;
};

/// "step_00001000".
std::string step_tag(Size steps);
/// Throws Error(usage) unless the name has only letters, digits, `_`, `-` and `.`, is not hidden, and is not "latest".
void require_tag(const std::string& tag);

/// Creates an empty folder to write checkpoint `tag` in, and removes the leftovers of killed saves. Folders with
/// foreign files stay, and so do those that cannot be removed.
///
/// Throws   Error(file), also if such a folder is in the way of `tag`
void begin_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag);

/// Publishes the files in the temporary folder, which are durable already: writes the manifest, renames the folder to
/// the checkpoint's name, then rewrites `latest`. An earlier checkpoint of that name is replaced atomically. If this is
/// killed at any point, `latest` names a complete checkpoint, or is absent. Then removes all but `keep` of the
/// step-tagged checkpoints: this one, if it is, and those of the most steps; 0: removes none. Checkpoints of another
/// run than `run` stay (0: of any), and so do those with foreign files; what cannot be removed is left to a later save.
///
/// Throws   Error(file). Before the rename, the temporary folder is removed; after it, the checkpoint is there under
///          its name, and the temporary folder holds the one it replaced
void publish_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag,
                        const std::string& manifest, int keep, std::uint64_t run = 0);

/// Removes the temporary folder of a save that failed; throws nothing.
void abandon_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag) noexcept;

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::string_view temporary_prefix = ".tmp-";

/// Throws unless a folder, which is not a link to one, contains nothing but the files of a checkpoint.
void require_only_checkpoint(const std::string& path);
void remove_checkpoint(FileSystem& system, const std::string& path);

/// Cleans up as far as possible: its errors do not fail the save.
template <class CleanUp>
void unless_refused(CleanUp clean_up) {
  try {
    clean_up();
  } catch (const Error&) {
  }
}

/// Replaces a small file atomically.
void write_file_durably(FileSystem& system, const std::string& path, const std::string& text);

/// Renames the temporary folder to the checkpoint; returns true if it now holds an earlier checkpoint of that name.
bool name_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag);

/// The run in a checkpoint's manifest; 0 if it has none or cannot be read.
std::uint64_t run_of_checkpoint(const std::string& checkpoint);

/// Keeps `tag` and the newest others of its run by their steps, `keep` step-tagged checkpoints in all; links do not
/// count, and stay. A checkpoint is renamed before its files are removed, so that none is ever partial.
void remove_old_checkpoints(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag, int keep,
                            std::uint64_t run);

/// The condition of require_tag.
bool is_tag(std::string_view tag);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void require_only_checkpoint(const std::string& path) {
  if (!is_real_folder(path))
    fail(ErrorCode::file, "dspp: removing '" + path +
                              "' needs a folder, but it is a link or a file, and what a link leads to stays. Remove it "
                              "yourself, or give another tag.");
  for (const std::string& name : names_in(path))
    if (name != CheckpointFolder::model && name != CheckpointFolder::optimizer && name != CheckpointFolder::manifest)
      fail(ErrorCode::file, "dspp: removing '" + path + "' needs a folder of nothing but a checkpoint, but it has '" +
                                name + "'. Move that elsewhere.");
}

DSPP_INLINE void remove_checkpoint(FileSystem& system, const std::string& path) {
  require_only_checkpoint(path);
  remove_folder_of_files(system, path);
}

DSPP_INLINE void write_file_durably(FileSystem& system, const std::string& path, const std::string& text) {
  const WrittenFile file = WrittenFile::create(system, path);
  file.write_at(0, text.data(), std::ssize(text));
  file.share();
  file.sync();
}

DSPP_INLINE bool name_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag) {
  const std::string from = checkpoints.temporary(tag), to = checkpoints.path_of(tag);
  struct stat there = {};
  if (::lstat(to.c_str(), &there) != 0) {
    require_done(system.rename(from, to), to, "to get its name");
    return false;
  }
  if (!exists(to + "/" + CheckpointFolder::manifest))
    fail(ErrorCode::file, "dspp: saving needs a name that is free or a checkpoint's, but '" + to +
                              "' is something else. Give another tag.");
  require_only_checkpoint(to);
  const int error = system.exchange(from, to);
  if (error == EINVAL || error == ENOSYS)
    fail(ErrorCode::file, "dspp: saving needs a file system that can replace a folder in one step, but that of '" + to +
                              "' cannot. Give a tag that is not there yet.");
  require_done(error, to, "to be replaced");
  return true;
}

DSPP_INLINE std::uint64_t run_of_checkpoint(const std::string& checkpoint) {
  try {
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint + "/" + CheckpointFolder::manifest);
    const Json training = manifest.training();
    const std::optional<Json> run = training.find("run");
    return run && run->is(Json::Kind::string) ? std::strtoull(run->string.c_str(), nullptr, 10) : 0;
  } catch (const Error&) {
    return 0;
  }
}

DSPP_INLINE void remove_old_checkpoints(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag,
                                        int keep, std::uint64_t run) {
  int kept = named_by_steps(tag) ? 1 : 0;
  for (const std::string& other : checkpoints_newest_first(checkpoints.folder)) {
    if (!named_by_steps(other) || other == tag || !is_real_folder(checkpoints.path_of(other))) continue;
    if ((run != 0 && run_of_checkpoint(checkpoints.path_of(other)) != run) || ++kept <= keep) continue;
    unless_refused([&] {
      require_only_checkpoint(checkpoints.path_of(other));
      require_done(system.rename(checkpoints.path_of(other), checkpoints.temporary(other)), checkpoints.path_of(other),
                   "to be removed");
      remove_checkpoint(system, checkpoints.temporary(other));
    });
  }
}

DSPP_INLINE bool is_tag(std::string_view tag) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !tag.empty() && tag.size() <= 200 && tag[0] != '.' && tag != "latest" &&
         tag.find_first_not_of(allowed) == std::string_view::npos;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE bool CheckpointFolder::has_latest() const {
  return detail::exists(latest());
}

DSPP_INLINE CheckpointFolder::Latest CheckpointFolder::read_latest_checkpoint() const {
  const auto refuse = [&](const std::string& got) {
    fail(ErrorCode::file, "dspp: resuming needs a file '" + latest() + "' that names a checkpoint, but " + got + ". " +
                              load_another_than({folder, ""}));
  };
  if (!detail::exists(folder)) refuse("the folder does not exist");
  if (!has_latest()) refuse("the folder has none");
  std::string text = read_small_file(latest());
  try {
    text = unsealed_text(std::move(text), latest());
  } catch (const Error&) {
    refuse("this one is cut off or was changed");
  }
  const std::size_t end = text.find('\n');
  if (end == 0 || end == std::string::npos) refuse("this one names none");
  Latest found{text.substr(0, end)};
  constexpr std::string_view key = "run ";
  const std::string_view rest = std::string_view(text).substr(end + 1);
  if (!rest.empty()) {
    const auto [stop, error] =
        std::from_chars(rest.data() + std::min(key.size(), rest.size()), rest.data() + rest.size(), found.run);
    if (!rest.starts_with(key) || error != std::errc() || stop + 1 != rest.data() + rest.size() || *stop != '\n')
      refuse("this one names more than a checkpoint");
  }
  if (!detail::is_tag(found.tag)) refuse("it names '" + found.tag + "', which no checkpoint is called");
  if (!detail::exists(path_of(found.tag))) refuse("it names '" + found.tag + "', which is not there");
  return found;
}

DSPP_INLINE std::string step_tag(Size steps) {
  const std::string digits = std::to_string(steps);
  return std::string(detail::step_prefix) + std::string(8 - std::min<std::size_t>(8, digits.size()), '0') + digits;
}

DSPP_INLINE void require_tag(const std::string& tag) {
  if (!detail::is_tag(tag))
    fail(ErrorCode::usage,
         "dspp: a checkpoint needs a name of letters, digits, '_', '-' and '.', at most 200, but got '" + tag +
             "'. Take one like 'step_00001000' or 'best'.");
}

DSPP_INLINE void begin_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag) {
  make_folders(system, checkpoints.folder);
  for (const std::string& name : names_in(checkpoints.folder)) {
    const std::string path = checkpoints.folder + "/" + name;
    if (!name.starts_with(detail::temporary_prefix)) continue;
    const bool own = path == checkpoints.temporary(tag), real = is_real_folder(path);
    if (own && real) detail::remove_checkpoint(system, path);
    if (own && !real) require_done(system.remove_file(path), path, "to be replaced");  // the link, not its target
    if (!own && real) detail::unless_refused([&] { detail::remove_checkpoint(system, path); });
  }
  require_done(system.make_folder(checkpoints.temporary(tag)), checkpoints.temporary(tag), "to be made");
}

DSPP_INLINE void publish_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints, const std::string& tag,
                                    const std::string& manifest, int keep, std::uint64_t run) {
  const std::string temporary = checkpoints.temporary(tag);
  bool replaced = false;
  try {
    detail::write_file_durably(system, temporary + "/" + CheckpointFolder::manifest, manifest);
    require_done(system.sync_folder(temporary), temporary, "on the disk");
    replaced = detail::name_checkpoint(system, checkpoints, tag);
  } catch (...) {
    abandon_checkpoint(system, checkpoints, tag);
    throw;
  }
  require_done(system.sync_folder(checkpoints.folder), checkpoints.folder, "on the disk");
  const std::string next = checkpoints.temporary("latest");
  detail::write_file_durably(system, next,
                             sealed_text(tag + "\n" + (run != 0 ? "run " + std::to_string(run) + "\n" : "")));
  require_done(system.rename(next, checkpoints.latest()), checkpoints.latest(), "to be replaced");
  require_done(system.sync_folder(checkpoints.folder), checkpoints.folder, "on the disk");
  if (replaced) detail::unless_refused([&] { detail::remove_checkpoint(system, temporary); });
  if (keep > 0) detail::unless_refused([&] { detail::remove_old_checkpoints(system, checkpoints, tag, keep, run); });
}

DSPP_INLINE void abandon_checkpoint(FileSystem& system, const CheckpointFolder& checkpoints,
                                    const std::string& tag) noexcept {
  try {
    detail::remove_checkpoint(system, checkpoints.temporary(tag));
  } catch (...) {
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
