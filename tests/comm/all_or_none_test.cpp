// SPDX-License-Identifier: Apache-2.0
// Work that fails on some ranks fails on all with one sentence; afterwards the group still works.
// labels: thread races
#include <doctest/doctest.h>

#include <atomic>

#include <dspp/comm/all_or_none.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("every rank throws the first failed rank's error with its code and number, and the group still works") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (int failing = 0; failing < 1 << ranks; ++failing) {
      CAPTURE(failing);
      std::atomic<int> done = 0;
      ThreadsWorld::run(ranks, [&](auto& c) {
        int lowest = 0;
        while (lowest < ranks && !(failing >> lowest & 1)) ++lowest;
        std::string sentence;
        try {
          all_or_none(c, [&] {
            ++done;
            if (failing >> c.rank() & 1)
              fail(ErrorCode::shape, "dspp: rank " + std::to_string(c.rank()) + std::string(c.rank() * 400, '.'));
          });
        } catch (const Error& error) {
          CHECK(error.code() == ErrorCode::shape);
          sentence = error.what();
        }
        std::string expected;
        if (failing != 0)
          expected = ("dspp: rank " + std::to_string(lowest) + std::string(lowest * 400, '.')).substr(0, 1022) +
                     (ranks > 1 ? " (It was rank " + std::to_string(lowest) + ".)" : "");
        CHECK(sentence == expected);
        int sum = 1;
        all_reduce(c, buffer(&sum, 1), Purpose::scalar);
        CHECK(sum == ranks);
      });
      CHECK(done == ranks);
    }
}

TEST_CASE("exceptions of other types are reported too") {
  ThreadsWorld::run(2, [](auto& c) {
    std::string sentence;
    try {
      all_or_none(c, [&] {
        if (c.rank() == 1) throw std::runtime_error("of another kind");
      });
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::state);
      sentence = error.what();
    }
    CHECK(sentence == "of another kind (It was rank 1.)");
  });
}

TEST_CASE("the first rank's text is broadcast to all") {
  for (int ranks = 1; ranks <= 3; ++ranks)
    ThreadsWorld::run(ranks, [](auto& c) {
      CHECK(text_of_first(c, c.rank() == 0 ? "step_00000001" : "something else") == "step_00000001");
      CHECK(text_of_first(c, c.rank() == 0 ? "" : "x").empty());
      CHECK(text_of_first(c, std::string(300, 'y')) == std::string(255, 'y'));
    });
}
