// SPDX-License-Identifier: Apache-2.0
/// Programs under mpirun.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <examples/program.hpp>

namespace dspp::examples {

/// `mpirun -n ranks program options` in a folder.
inline Result mpirun(int ranks, const std::string& program, const std::string& options, const Folder& folder) {
  std::vector<std::string> arguments = {"-n", std::to_string(ranks), program};
  for (const std::string& word : words(options)) arguments.push_back(word);
  return Process(DSPP_MPIRUN, arguments, folder).wait();
}

/// One rank of each. Not by `mpirun -n 1 program options : -n 1 ...`, at which the mpirun of Open MPI 5.0.7 crashes: a
/// shell of each rank becomes its program.
inline Result mpirun_each(const std::vector<std::pair<std::string, std::string>>& programs, const Folder& folder) {
  std::string choice = "case ${OMPI_COMM_WORLD_RANK-$PMI_RANK} in";
  for (std::size_t r = 0; r < programs.size(); ++r)
    choice += " " + std::to_string(r) + ") exec '" + programs[r].first + "' " + programs[r].second + " ;;";
  return Process(DSPP_MPIRUN, {"-n", std::to_string(programs.size()), "sh", "-c", choice + " esac"}, folder).wait();
}

/// The lines that dspp printed; mpirun prints its own about jobs that fail.
inline std::vector<std::string> sentences_of(const std::string& text) {
  std::vector<std::string> sentences;
  for (const std::string& line : lines_of(text))
    if (line.find("dspp: ") != std::string::npos) sentences.push_back(line);
  return sentences;
}

}  // namespace dspp::examples
