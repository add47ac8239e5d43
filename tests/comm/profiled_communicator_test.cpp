// SPDX-License-Identifier: Apache-2.0
// labels: thread
#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Communicators of threads that a profiler hears of, erased.
struct ProfiledWorld {
  template <class F>
  static void run(int ranks, F f) {
    ThreadsWorld::run(ranks, [&](auto& inner) {
      Profiler profiler;
      const Traffic before = inner.traffic();
      AnyCommunicator c(ProfiledCommunicator(AnyCommunicator(inner), profiler));
      f(c);
      Size bytes = 0;
      for (const Profiler::Row& row : profiler.rows()) bytes += row.bytes;
      CHECK(bytes == (c.traffic() - before).total());
    });
  }
};

}  // namespace

TEST_CASE("a ProfiledCommunicator obeys the laws of a communicator, and tells the bytes that its rank reads") {
  for (int ranks : {1, 2, 3}) check_communicator_laws<ProfiledWorld>(ranks);
  check_random_programs<ProfiledWorld>(3, 20);
}

TEST_CASE("what is waited for late is told at the wait, and a dropped operation completes") {
  ThreadsWorld::run(2, [](Threads& inner) {
    Profiler profiler(100);
    ProfiledCommunicator c(AnyCommunicator(inner), profiler);
    std::vector<float> x(100, 1), y(100, 2), z(200);
    {
      Pending<> first = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
      Pending<> second = c.start_all_reduce(buffer(y.data(), 100), Purpose::activation);
      second.wait();
      CHECK(y[0] == 4);
    }
    CHECK(x[99] == 2);
    all_gather(c, buffer(static_cast<const float*>(x.data()), 100), buffer(z.data(), 200), Purpose::parameter);
    REQUIRE(profiler.rows().size() == 3);
    for (const Profiler::Row& row : profiler.rows()) CHECK(row.calls == 1);
    CHECK(profiler.events().size() == 5);  // the wait in a drop is not timed
    CHECK(std::string(profiler.rows()[2].purpose) == "parameter");
    CHECK(profiler.rows()[2].bytes == 400);
  });
}
