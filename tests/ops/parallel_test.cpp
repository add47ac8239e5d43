// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/ops/cpu/parallel.hpp>

using namespace dspp;

namespace {

/// As in a rank with that many threads.
struct Threads {
#if DSPP_HAS_OPENMP()
  int before = omp_get_max_threads();
  explicit Threads(int n) {
    omp_set_num_threads(n);
  }
  ~Threads() {
    omp_set_num_threads(before);
  }
#else
  explicit Threads(int) {}
#endif
};

}  // namespace

TEST_CASE("the pieces cover the range once, whatever the number of threads") {
  for (const int threads : {1, 2, 3}) {
    const Threads here(threads);
    std::vector<int> seen(1003, 0);
    cpu::parallel_for(std::ssize(seen), 100, [&](Size begin, Size end) {
      CHECK(begin % 100 == 0);
      for (Size i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    CHECK(seen == std::vector<int>(1003, 1));
  }
}

TEST_CASE("an exception in a piece is thrown by the loop, on one thread and on several") {
  for (const int threads : {1, 2, 4}) {
    const Threads here(threads);
    std::atomic<int> ended{0};
    std::string told;
    try {
      cpu::parallel_for(64, 1, [&](Size begin, Size) {
        if (begin == 7) throw std::runtime_error("piece 7");
        ++ended;
      });
    } catch (const std::runtime_error& error) {
      told = error.what();
    }
    CHECK(told == "piece 7");
#if DSPP_HAS_OPENMP()
    CHECK(ended == (threads > 1 ? 63 : 7));
#else
    CHECK(ended == 7);
#endif
  }
}
