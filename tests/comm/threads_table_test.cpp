// SPDX-License-Identifier: Apache-2.0
// Counts this program's heap allocations per thread.
// alone: replaces operator new
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include <dspp/comm.hpp>

#include <support/sanitizer.hpp>

#if defined(DSPP_TEST_UNDER_TSAN) && defined(__clang__)
#include <sanitizer/allocator_interface.h>
#endif

namespace {
thread_local long allocations = 0;
}

#if defined(DSPP_TEST_UNDER_TSAN) && defined(__clang__)
// clang++ links its thread sanitizer as an archive, whose operator new a program cannot replace.
static const int counted = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {});
#else
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

using namespace dspp;

TEST_CASE("the collectives of a thread group allocate nothing once their slots are warm") {
  const ThreadWorld world(Mesh(Degrees{.data = 2, .tp = 2}), {.timeout_seconds = 60});
  run_ranks(world.group(), [&](int rank) {
    RankGroups groups = world.groups(rank);
    std::vector<float> x(100'000), y(50'000);
    const auto step = [&] {
      AnyCommunicator& data = groups[Axis::Data];
      const ScatterPair scatter[] = {{buffer(x.data(), 10), buffer(y.data(), 5)},
                                     {buffer(x.data(), 20), buffer(y.data() + 5, 10)}};
      Pending<> a = data.start_all_reduce(buffer(x.data() + 100, 99'900), Purpose::gradient);
      Pending<> b = data.start_reduce_scatter(scatter, Purpose::gradient);
      Pending<> c =
          groups[Axis::Tp].start_all_gather(buffer(y.data() + 20, 10), buffer(y.data() + 30, 20), Purpose::parameter);
      b.wait();
      groups.world.barrier();
      c.wait();
      a.wait();
    };
    for (int i = 0; i < 32; ++i) step();
    long least = 1000;
    for (int block = 0; block < 20; ++block) {  // a rank that is descheduled for long may allocate: take the least
      const long before = allocations;
      for (int i = 0; i < 20; ++i) step();
      least = std::min(least, allocations - before);
    }
    CHECK(least == 0);
    const long before = allocations;
    ::operator delete(::operator new(1));
    const long after = allocations;
    CHECK(after == before + 1);  // the counter counts
  });
}
