// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <optional>

#include <dspp/launch/staged_communicator.hpp>

#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// A device whose memory is the host's. Its n-th next copy to the host throws.
struct NearMemory {
  int fails_in = 0;

  void to_host(void* host, const std::byte* from, Size bytes) {
    if (fails_in > 0 && --fails_in == 0) fail(ErrorCode::usage, "dspp: a check found something. Look at it.");
    std::memcpy(host, from, static_cast<std::size_t>(bytes));
  }
  void from_host(std::byte* to, const void* host, Size bytes) {
    std::memcpy(to, host, static_cast<std::size_t>(bytes));
  }
};

template <class World>
struct StagedWorld {
  template <class F>
  static void run(int ranks, F f) {
    World::run(ranks, [&](auto& inner) {
      NearMemory memory;
      AnyCommunicator c(StagedCommunicator<NearMemory>(AnyCommunicator(inner), memory));
      f(c);
    });
  }
};

}  // namespace

TEST_CASE("collectives through the host obey the laws of a communicator, in either order of sums") {
  for (int ranks : {1, 2, 3}) check_communicator_laws<RecordedWorld<StagedWorld<ThreadsWorld>>>(ranks);
  check_communicator_laws<StagedWorld<RingWorld>>(3);
  check_random_programs<StagedWorld<ThreadsWorld>>(3, 100);
}

TEST_CASE("an operation that could not be issued through the host leaves nothing under way") {
  ThreadsWorld::run(2, [](Threads& inner) {
    NearMemory memory;
    StagedCommunicator<NearMemory> c(AnyCommunicator(inner), memory);
    std::vector<float> x(100, 1.0f), y(100, 2.0f);
    memory.fails_in = 1;
    CHECK_THROWS_AS(static_cast<void>(c.start_all_reduce(all_of(x), Purpose::gradient)), Error);
    for (float& a : x) a = 7;
    c.start_all_reduce(all_of(y), Purpose::gradient).wait();
    CHECK(x == std::vector<float>(100, 7.0f));
    CHECK(y == std::vector<float>(100, 4.0f));
  });
}

TEST_CASE("a message through the host is waited for alone: not after those that were issued before") {
  ThreadsWorld::run(2, [](Threads& inner) {
    NearMemory memory;
    StagedCommunicator<NearMemory> c(AnyCommunicator(inner), memory);
    std::vector<float> in(10, 1.0f), more(10, 2.0f), out(10), rest(10);
    if (c.rank() == 0) {
      Pending<> later = c.start_receive(all_of(out), 1, Purpose::activation);
      c.start_send(all_of(in), 1, Purpose::activation).wait();
      c.start_send(all_of(more), 1, Purpose::activation).wait();
      later.wait();
      CHECK(out == in);
    } else {
      c.start_receive(all_of(out), 0, Purpose::activation).wait();
      c.start_receive(all_of(rest), 0, Purpose::activation).wait();
      c.start_send(all_of(out), 0, Purpose::activation).wait();
      CHECK(rest == more);
    }
  });
}

TEST_CASE("operations that an exception abandons through the host are safe for the other ranks") {
  for (int round = 0; round < 20; ++round) {
    const ThreadGroup group(2, {.timeout_seconds = 60});
    CHECK_THROWS_AS(run_ranks(group,
                              [&](int rank) {
                                NearMemory memory;
                                StagedCommunicator<NearMemory> c(AnyCommunicator(group.communicator(rank)), memory);
                                std::vector<float> x(50'000, 1.0f), y(50'000, 1.0f);
                                std::optional<Pending<>> first = c.start_all_reduce(all_of(x), Purpose::gradient);
                                const Pending<> second = c.start_all_reduce(all_of(y), Purpose::gradient);
                                if (rank == 1) fail(ErrorCode::usage, "dspp: rank 1 gives up. Nothing to do.");
                              }),
                    Error);
  }
}
