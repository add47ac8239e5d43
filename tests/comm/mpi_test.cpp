// SPDX-License-Identifier: Apache-2.0
// labels: mpi
// Run by mpirun on 1, 2, 3 and 4 ranks: every process runs every test.
#include <laws/communicator.hpp>
#include <laws/mpi_worlds.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("Mpi obeys the laws of a communicator") {
  check_communicator_laws<MpiRanksWorld>(mpi_ranks());
}

TEST_CASE("Mpi erased and recorded obeys the laws of a communicator, and moves what was planned") {
  check_communicator_laws<ErasedWorld<MpiRanksWorld>>(mpi_ranks());
  check_communicator_laws<RecordedWorld<MpiRanksWorld>>(mpi_ranks());
}

TEST_CASE("random programs on MPI ranks end with the right bits") {
  check_random_programs<RecordedWorld<MpiRanksWorld>>(mpi_ranks(), 200);
}

TEST_CASE("the communicators of an axis of MPI ranks obey the laws of a communicator") {
  if (mpi_ranks() % 2 == 0) check_communicator_laws<MpiSubgroupWorld>(mpi_ranks() / 2);
}
