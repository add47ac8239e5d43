// SPDX-License-Identifier: Apache-2.0
/// Refuses weights pickled by Python: a pickle is a program, and reading one runs it.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <dspp/base/error.hpp>

namespace dspp::io {

/// Refuses a folder that has weights as torch.save writes them; call if it has no safetensors.
///
/// Throws   Error(file) that names the first such file
void refuse_pickled_weights_in(const std::string& folder);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

[[noreturn]] void refuse_pickled(const std::string& path);

/// True if eight bytes begin a pickle, or the zip file around one that torch.save writes.
bool begins_pickled(const unsigned char* bytes);
bool is_pickled_name(const std::filesystem::path& path);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_pickled(const std::string& path) {
  fail(ErrorCode::file, "dspp: loading needs weights as safetensors, but '" + path +
                            "' is pickled: reading it would run the program in it, which dspp never does. Convert it "
                            "with safetensors.torch.save_file, or save_pretrained of transformers.");
}

DSPP_INLINE bool begins_pickled(const unsigned char* bytes) {
  const bool zip = bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == 3 && bytes[3] == 4;
  return zip || (bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5);
}

DSPP_INLINE bool is_pickled_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string(), end = path.extension().string();
  return end == ".pt" || end == ".pth" || end == ".ckpt" || end == ".pkl" || end == ".pickle" ||
         (name.starts_with("pytorch_model") && end == ".bin");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_pickled_weights_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (detail::is_pickled_name(entry.path())) found.push_back(entry.path().string());
  if (!found.empty()) detail::refuse_pickled(*std::min_element(found.begin(), found.end()));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
