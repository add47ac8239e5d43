// SPDX-License-Identifier: Apache-2.0
/// The main function of the tests that run under mpirun: every rank runs every test, rank 0 prints, and the status is
/// the worst of all ranks.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <mpi.h>

#include <cstdio>
#include <sstream>
#include <string>

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);  // for progress threads
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  doctest::Context context(argc, argv);
  std::ostringstream said;
  if (rank > 0) context.setCout(&said);
  int failed = context.run();
  if (rank > 0 && failed != 0) std::fprintf(stderr, "rank %d:\n%s\n", rank, said.str().c_str());
  int worst = 0;
  MPI_Allreduce(&failed, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return worst;
}
