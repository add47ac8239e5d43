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

TEST_CASE(
    "an operation is in flight from its start until it was waited for, dropped or refused, but with other ranks") {
  for (const int ranks : {1, 2})
    ThreadsWorld::run(ranks, [ranks](Threads& inner) {
      const auto kept = std::make_shared<Profiler>(100);
      ProfiledCommunicator c(AnyCommunicator(inner), kept);
      std::vector<float> x(100, 1), y(100, 2);
      {
        Pending<> first = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
        Pending<> second = c.start_all_reduce(buffer(y.data(), 100), Purpose::gradient);
        first.wait();
        { const ProfiledKernel kernel(kept.get(), "zero"); }
      }
      { const ProfiledKernel kernel(kept.get(), "zero"); }
      c.barrier();
      CHECK_THROWS_AS(c.start_broadcast(buffer(x.data(), 100), 9, Purpose::scalar), Error);
      const auto& flights = kept->flights();
      const Profiler::Communication sum = kept->communication();
      REQUIRE(flights.size() == (ranks == 1 ? 0 : 3));
      if (ranks == 1) {
        CHECK(sum.under_way + sum.hidden + sum.exposed == 0);
        return;
      }
      const auto at = [&](std::size_t i) { return kept->events()[i]; };  // start, start, wait, zero, zero, barrier
      CHECK(flights[0].begin == at(0).begin);
      CHECK(flights[0].end >= at(2).end);
      CHECK(flights[0].end <= at(3).begin);
      CHECK(flights[1].begin == at(1).begin);
      CHECK(flights[1].end >= at(3).end);
      CHECK(flights[1].end <= at(4).begin);
      CHECK(flights[2].begin == at(5).begin);
      const auto length = [](const Profiler::Event& event) { return event.end - event.begin; };
      CHECK(sum.under_way == flights[1].end - flights[0].begin + length(flights[2]));
      CHECK(sum.hidden == length(at(3)));
      CHECK(sum.exposed == length(at(0)) + length(at(1)) + length(at(2)) + length(at(5)));
    });
}

TEST_CASE("what is in flight when a profile ends was under way until then") {
  ThreadsWorld::run(2, [](Threads& inner) {
    const auto profiler = std::make_shared<Profiler>(100);
    std::vector<float> x(100, 1);
    ProfiledCommunicator c(AnyCommunicator(inner), profiler);
    Pending<> pending = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
    CHECK(profiler->communication().under_way > 0);
    profiler->stop();
    const std::int64_t until_then = profiler->elapsed() - profiler->events().front().begin;
    CHECK(profiler->communication().under_way == until_then);
    pending.wait();
    CHECK(profiler->communication().under_way == until_then);
    CHECK(profiler->flights().empty());
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
