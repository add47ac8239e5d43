// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <dspp/base/cores.hpp>
#include <laws/folder.hpp>

using namespace dspp;

TEST_CASE("ranks that are threads divide the cores of their process") {
  const Cores eight{.own = 8, .launched = 64};
  CHECK(eight.of_thread_rank(1) == 8);
  CHECK(eight.of_thread_rank(2) == 4);
  CHECK(eight.of_thread_rank(3) == 2);
  CHECK(eight.of_thread_rank(9) == 1);
}

TEST_CASE("ranks that are processes have the cores to which they are bound, and share them where they have to") {
  struct Case {
    int own, launched, ranks, each;
  };
  for (const Case& at : {Case{16, 16, 1, 16},
                         {16, 16, 2, 8},
                         {16, 16, 3, 5},
                         {16, 16, 17, 1},  // bound to nothing
                         {1, 16, 2, 1},
                         {1, 16, 16, 1},  // to a core each
                         {8, 16, 2, 8},
                         {8, 16, 4, 4},
                         {8, 16, 3, 4},  // to a socket
                         {4, 4, 2, 2},
                         {4, 16, 4, 4}}) {  // to some of them
    CAPTURE(at.own);
    CAPTURE(at.launched);
    CAPTURE(at.ranks);
    CHECK(Cores{at.own, at.launched}.of_process_rank(at.ranks) == at.each);
  }
}

TEST_CASE("a control group's quota of processor time bounds the threads of all ranks") {
  const Cores quarter{.own = 16, .launched = 16, .quota = 4};
  CHECK(quarter.of_thread_rank(1) == 4);
  CHECK(quarter.of_thread_rank(2) == 2);
  CHECK(quarter.of_thread_rank(8) == 1);
  CHECK(quarter.of_process_rank(2) == 2);
  CHECK(Cores{.own = 2, .launched = 2, .quota = 8}.of_thread_rank(1) == 2);
  CHECK(Cores{.own = 8, .launched = 8, .quota = 2.5}.of_thread_rank(1) == 2);
}

TEST_CASE("the quota is the least of those of a control group and of the groups around it") {
  const laws::Folder folder;
  const std::string root = folder.path.string();
  std::filesystem::create_directories(root + "/pod/box");
  const auto write = [&](const std::string& group, const char* text) {
    std::ofstream(root + group + "/cpu.max") << text;
  };
  const auto quota = [&](const char* group) { return detail::cpu_quota(root, group); };
  CHECK(quota("/pod/box") == 0);
  write("/pod/box", "max 100000\n");
  CHECK(quota("/pod/box") == 0);
  write("/pod", "350000 100000\n");
  CHECK(quota("/pod/box") == 3.5);
  CHECK(quota("/pod") == 3.5);
  CHECK(quota("/") == 0);
  write("/pod/box", "50000 25000\n");
  CHECK(quota("/pod/box") == 2);
  write("", "100000 100000\n");
  CHECK(quota("/pod/box") == 1);
  CHECK(quota("/") == 1);
  for (const char* bad : {"", "many 100000\n", "-1 100000\n", "100000 0\n", "100000\n"}) {
    CAPTURE(bad);
    write("", bad);
    CHECK(quota("/") == 0);
    CHECK(quota("/pod") == 3.5);
  }
}

#if defined(__linux__)
TEST_CASE("the cores of this process are those of its affinity mask") {
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  const Cores all = cores_of_this_process();
  CHECK(all.own == CPU_COUNT(&before));
  CHECK(all.launched >= all.own);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const Cores bound = cores_of_this_process();
  ::setenv("OMP_PROC_BIND", "true", 1);
  CHECK(cores_of_this_process().own == all.launched);
  for (const char* off : {"false", "FALSE"}) {
    ::setenv("OMP_PROC_BIND", off, 1);
    CHECK(cores_of_this_process().own == 1);
  }
  ::unsetenv("OMP_PROC_BIND");
  CHECK(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(bound.own == 1);
  CHECK(bound.of_thread_rank(1) == 1);
  CHECK(bound.of_process_rank(4) == 1);
}
#endif
