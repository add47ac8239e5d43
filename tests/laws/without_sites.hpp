// SPDX-License-Identifier: Apache-2.0
/// Sentences of collectives without the lines of the calls, which move as a test is edited.
#pragma once

#include <regex>
#include <string>

namespace dspp::laws {

/// Without " at folder/file.cpp:41 (folder/header.hpp:40)".
inline std::string without_sites(const std::string& sentence) {
  static const std::regex site(" at [^ ]*[.][a-z]+:[0-9]+( [(][^ ]*:[0-9]+[)])?");
  return std::regex_replace(sentence, site, "");
}

}  // namespace dspp::laws
