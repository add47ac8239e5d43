// SPDX-License-Identifier: Apache-2.0
/// A program that links dspp::mpi. Started alone, its rank is a thread.
#include <cstdio>
#include <dspp/comm/mpi/world.hpp>
#include <dspp/dspp.hpp>

static_assert(dspp::Communicator<dspp::Mpi>);

int main() {
  return dspp::run<dspp::Policy<>>(dspp::RunOptions{}, [](dspp::World<dspp::Policy<>>& world) {
    std::printf("consumer: rank %d of %d\n", world.rank(), world.size());
  });
}
