// SPDX-License-Identifier: Apache-2.0
/// The file of weights in a folder: its name, and checks of the folder.
#pragma once

#include <string>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <filesystem>
#include <system_error>
#include <vector>

#include <dspp/io/checkpoint_manifest.hpp>
#include <dspp/io/checkpoint_names.hpp>
#include <dspp/io/pickled.hpp>
#endif

namespace dspp::detail {

std::string weights_file(const std::string& directory);

/// Creates the directory if there is none.
void make_directory(const std::string& directory);

/// Throws if a folder has no weights file, but weights in another format, or checkpoints: with the newest. One that
/// cannot be listed is left to whoever opens the file.
void refuse_other_weights_in(const std::string& directory);

/// Verifies the checksums of chunks rank, rank + ranks, ... of a checkpoint's weights; a folder that is no checkpoint
/// has none.
void verify_weights_of_checkpoint(const std::string& directory, Size rank, Size ranks);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string weights_file(const std::string& directory) {
  return directory + "/model.safetensors";
}

DSPP_INLINE void make_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail(ErrorCode::file, "dspp: saving needs a directory that can be made, but '" + directory + "' gives '" +
                              error.message() + "'. Give another path.");
}

DSPP_INLINE void refuse_other_weights_in(const std::string& directory) {
  std::error_code ignored;
  if (std::filesystem::exists(weights_file(directory), ignored)) return;
  io::refuse_pickled_weights_in(directory);
  std::vector<std::string> tags;
  try {
    tags = io::checkpoints_newest_first(directory);
  } catch (const Error&) {
  }
  if (tags.empty()) return;
  fail(ErrorCode::file, "dspp: load_weights needs a checkpoint's own folder, but '" + directory +
                            "' is a folder of checkpoints. Load '" + directory + "/" + tags.front() +
                            "', the newest, or resume by load_checkpoint.");
}

DSPP_INLINE void verify_weights_of_checkpoint(const std::string& directory, Size rank, Size ranks) {
  if (!io::is_checkpoint(directory)) return;
  const std::string manifest = directory + "/" + io::detail::checkpoint_manifest_name;
  const std::string name = std::filesystem::path(weights_file(directory)).filename().string();
  io::verify_checkpoint_file(directory + "/" + name, io::read_checkpoint_manifest(manifest).file(name, manifest), rank,
                             ranks);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
