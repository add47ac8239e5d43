// SPDX-License-Identifier: Apache-2.0
/// Programs under mpirun.
#pragma once

#include <utility>

#include <examples/program.hpp>

namespace dspp::examples {

/// `mpirun -n ranks program options` in a folder.
inline Result mpirun(int ranks, const std::string& program, const std::string& options, const Folder& folder) {
  std::vector<std::string> arguments = {"-n", std::to_string(ranks), program};
  for (const std::string& word : words(options)) arguments.push_back(word);
  return Process(DSPP_MPIRUN, arguments, folder).wait();
}

/// One rank of each: `mpirun -n 1 program options : -n 1 program options : ...`.
inline Result mpirun_each(const std::vector<std::pair<std::string, std::string>>& programs, const Folder& folder) {
  std::vector<std::string> arguments;
  for (const auto& [program, options] : programs) {
    if (!arguments.empty()) arguments.push_back(":");
    arguments.insert(arguments.end(), {"-n", "1", program});
    for (const std::string& word : words(options)) arguments.push_back(word);
  }
  return Process(DSPP_MPIRUN, arguments, folder).wait();
}

/// The lines that dspp printed; mpirun prints its own about jobs that fail.
inline std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> sentences;
  for (const std::string& line : lines_of(text))
    if (line.find("dspp: ") != std::string::npos) sentences.push_back(line);
  return sentences;
}

}  // namespace dspp::examples
