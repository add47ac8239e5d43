// SPDX-License-Identifier: Apache-2.0
// Threads under what is laid over a communicator: a type that is erased, a Recorder, and both.
// labels: thread races
#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("Threads erased and recorded obeys the laws of a communicator, and moves what was planned") {
  for (int ranks : {1, 2, 3, 4}) {
    check_communicator_laws<ErasedWorld<ThreadsWorld>>(ranks);
    check_communicator_laws<RecordedWorld<ThreadsWorld>>(ranks);
  }
}

TEST_CASE("Threads in ring order, erased and recorded, obeys the laws of its tier") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<RecordedWorld<ErasedWorld<RingWorld>>>(ranks);
  check_random_programs<RecordedWorld<RingWorld>>(3, 100);
}
