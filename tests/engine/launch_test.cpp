// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <map>
#include <string>

#include <dspp/engine/launch.hpp>

using namespace dspp;

namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables) {
  return read_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal_of(const Variables& variables) {
  try {
    launch_of(variables);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a process that nobody launched is rank 0 of 1") {
  const Launch alone = launch_of({});
  CHECK(alone.is_first());
  CHECK(alone.size == 1);
  CHECK(alone.by.empty());
  CHECK(launch_of({{"SLURM_NTASKS", "4"}}).size == 1);
  CHECK(launch_of({{"OMPI_COMM_WORLD_RANK", "1"}}).size == 1);
}

TEST_CASE("the variables of Open MPI, PMI and Slurm say which rank of how many") {
  const Launch open_mpi =
      launch_of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  CHECK(open_mpi.rank == 2);
  CHECK(open_mpi.size == 8);
  CHECK(open_mpi.local_size == 4);
  CHECK_FALSE(open_mpi.is_first());
  CHECK(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).rank == 1);
  CHECK(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}).local_size == 3);
  CHECK(launch_of({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}}).by == "SLURM_PROCID");
  CHECK(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "3"}}).by ==
        "PMI_RANK");
}

TEST_CASE("two launchers that disagree are both named") {
  const std::string sentence =
      "dspp: run needs one answer to which rank this is, but OMPI_COMM_WORLD_RANK says rank 1 of 2 and SLURM_PROCID "
      "says "
      "rank 0 of 2. Unset the variables of the launcher that did not start it.";
  Variables v = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  CHECK(refusal_of(v) == sentence);
  v["SLURM_PROCID"] = "1";
  CHECK(refusal_of(v).empty());
  v["SLURM_NTASKS"] = "4";
  CHECK(refusal_of(v).find("SLURM_PROCID says rank 1 of 4") != std::string::npos);
}

TEST_CASE("a rank that is no number, or not below the size, is refused") {
  for (const char* rank : {"", "one", "-1", "1 ", "99999999999999999999"})
    CHECK(refusal_of({{"PMI_RANK", rank}, {"PMI_SIZE", "2"}}).find("a number in the variable PMI_RANK") !=
          std::string::npos);
  CHECK(refusal_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}).find("says rank 2 of 2") != std::string::npos);
  CHECK(refusal_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "0"}}) != "");
}
