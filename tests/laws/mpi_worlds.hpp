// SPDX-License-Identifier: Apache-2.0
/// Ways to make communicators of MPI ranks, for the laws: every process calls run(), and f runs once in each.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include <dspp/comm/mpi/world.hpp>

namespace dspp::laws {

inline int mpi_ranks() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

inline int mpi_rank(MPI_Comm comm = MPI_COMM_WORLD) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

/// The number of hosts, each of which has as many consecutive ranks: set by mpi_two_hosts.sh.
inline int mpi_hosts() {
  const char* said = std::getenv("DSPP_TEST_HOSTS");
  return said ? std::stoi(said) : 1;
}

struct MpiRanksWorld {
  template <class F>
  static void run(int ranks, F f) {
    MpiWorld world(Mesh(Degrees{.data = ranks}), {.timeout_seconds = 60});
    Mpi c = *world.groups().world.get_if<Mpi>();
    f(c);
  }
};

/// With a progress thread each.
struct MpiProgressWorld {
  template <class F>
  static void run(int ranks, F f) {
    MpiWorld world(Mesh(Degrees{.data = ranks}), {.timeout_seconds = 60, .async_progress = true});
    Mpi c = *world.groups().world.get_if<Mpi>();
    f(c);
  }
};

/// MPI's own collectives reduce and gather.
struct MpiCollectivesWorld {
  template <class F>
  static void run(int ranks, F f) {
    MpiWorld world(Mesh(Degrees{.data = ranks}), {.timeout_seconds = 60, .sum_order = SumOrder::transport});
    Mpi c = *world.groups().world.get_if<Mpi>();
    f(c);
  }
};

/// The axis Data of a mesh of 2 x ranks, both groups at once: communicators of subgroups.
struct MpiSubgroupWorld {
  template <class F>
  static void run(int ranks, F f) {
    MpiWorld world(Mesh(Degrees{.data = ranks, .tp = 2}), {.timeout_seconds = 60});
    AnyCommunicator c = world.groups()[Axis::Data];
    f(c);
  }
};

}  // namespace dspp::laws
