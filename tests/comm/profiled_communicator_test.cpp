// SPDX-License-Identifier: Apache-2.0
// labels: thread
#include <memory>

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
      const auto profiler = std::make_shared<Profiler>();
      const Traffic before = inner.traffic();
      AnyCommunicator c(ProfiledCommunicator(AnyCommunicator(inner), profiler));
      f(c);
      Size bytes = 0;
      for (const Profiler::Row& row : profiler->rows()) bytes += row.bytes;
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
    const auto kept = std::make_shared<Profiler>(100);
    const Profiler& profiler = *kept;
    ProfiledCommunicator c(AnyCommunicator(inner), kept);
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

TEST_CASE("an operation outlives the communicator that began it, and what comes after the profile is not told") {
  ThreadsWorld::run(2, [](Threads& inner) {
    auto profiler = std::make_shared<Profiler>(100);
    std::vector<float> x(100, 1), y(100, 1);
    Pending<> waited, dropped;
    {
      ProfiledCommunicator c(AnyCommunicator(inner), profiler);
      waited = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
      dropped = c.start_all_reduce(buffer(y.data(), 100), Purpose::gradient);
    }
    profiler->stop();
    const std::int64_t elapsed = profiler->elapsed();
    const std::size_t told = profiler->events().size();
    waited.wait();
    dropped = Pending<>();
    CHECK(x[99] == 2);
    CHECK(y[99] == 2);
    CHECK(profiler->events().size() == told);
    CHECK(profiler->elapsed() == elapsed);
  });
}
