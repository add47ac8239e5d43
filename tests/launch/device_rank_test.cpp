// SPDX-License-Identifier: Apache-2.0
// A rank on a far device (support/far_device.hpp): mistakes that pass on the Cpu fail there.
// labels: thread
#include <sys/wait.h>

#include <cmath>

#include <doctest/doctest.h>

#include <dspp/launch/run.hpp>
#include <support/far_device.hpp>

using namespace dspp;

namespace {

using OnFar = Policy<F64, Far>;
using Vector = Tensor<double, 1, Far>;

Vector vector(Pool& pool, std::vector<double> values) {
  const auto x = Vector::uninitialized(shape(std::ssize(values)), pool);
  x.write([&](double* host) { std::copy(values.begin(), values.end(), host); });
  return x;
}

std::vector<double> values_of(const Vector& x) {
  std::vector<double> values;
  x.read([&](const double* host) { values.assign(host, host + x.count()); });
  return values;
}

template <class Program>
void on_far_ranks(int ranks, Program program) {
  run_ranks_of<OnFar>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, program);
}

/// The exit status and stderr of a child process that runs `work`.
template <class Work>
std::pair<int, std::string> in_a_process(Work work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char part[256];
  for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said};
}

}  // namespace

TEST_CASE("issued operations run in order, in their owner's wait and not before") {
  on_far_ranks(1, [](auto& world) {
    const auto x = vector(world.memory(), {1, 2, 3});
    const auto y = ops::scale(ops::add(x, x), 10);
    const Size before = far_device::of(world.memory()).waits();
    CHECK(values_of(y) == std::vector<double>{20, 40, 60});
    CHECK(far_device::of(world.memory()).waits() == before + 1);
    y.fill(7);
    CHECK(values_of(y) == std::vector<double>{7, 7, 7});
  });
}

TEST_CASE("an error of an operation after the last value that the host read is thrown when the program has returned") {
  CHECK_THROWS_WITH_AS(on_far_ranks(2,
                                    [](auto& world) {
                                      far_device::of(world.memory()).issue([] {
                                        fail(ErrorCode::state, "dspp: an operation needs x, but got y. Use x.");
                                      });
                                    }),
                       "dspp: an operation needs x, but got y. Use x.", Error);
}

TEST_CASE("a host that accesses device memory ends the process with a sentence") {
  for (const bool writes : {false, true}) {
    const auto [status, said] = in_a_process([&] {
      FarMemory memory;
      Pool pool(0, &memory);
      const auto x = vector(pool, {1, 2, 3});
      if (values_of(x)[1] != 2) ::_exit(6);
      if (writes)
        x.data()[1] = 5;
      else
        ::_exit(x.data()[1] == 2 ? 4 : 5);
    });
    CHECK(status == 3);
    CHECK(said == "far device: the host touched its memory\n");
  }
}

TEST_CASE("a collective that is not waited for reads as poison, and writing its input changes what is sent") {
  on_far_ranks(2, [](auto& world) {
    const double own = 1 + world.rank();
    const auto slice = vector(world.memory(), {own});
    const auto whole = Vector::uninitialized(shape(2), world.memory());
    auto pending = world.all().start_all_gather(buffer(static_cast<const double*>(slice.data()), 1),
                                                buffer(whole.data(), 2), Purpose::activation);
    const auto too_early = ops::scale(whole, 1);
    slice.fill(10 * own);
    pending.wait();
    CHECK(std::isnan(values_of(too_early)[1 - static_cast<std::size_t>(world.rank())]));
    CHECK(values_of(whole) == std::vector<double>{10, 20});
    CHECK(values_of(ops::scale(whole, 1)) == std::vector<double>{10, 20});
  });
}

TEST_CASE("two collectives under way, waited for in either order, have the results of running one by one") {
  on_far_ranks(3, [](auto& world) {
    for (const bool in_order : {true, false}) {
      const auto a = vector(world.memory(), {1.0 + world.rank()}), b = vector(world.memory(), {10.0 + world.rank()});
      auto first = world.all().start_all_reduce(buffer(a.data(), 1), Purpose::activation);
      auto second = world.replicas().start_all_reduce(buffer(b.data(), 1), Purpose::activation);
      (in_order ? first : second).wait();
      (in_order ? second : first).wait();
      CHECK(values_of(a) == std::vector<double>{6});
      CHECK(values_of(b) == std::vector<double>{33});
    }
    const auto dropped = vector(world.memory(), {1});
    { auto pending = world.all().start_all_reduce(buffer(dropped.data(), 1), Purpose::activation); }
    CHECK(values_of(dropped) == std::vector<double>{3});
  });
}

TEST_CASE("a collective refuses host memory, and the host's own communicator accepts it") {
  on_far_ranks(2, [](auto& world) {
    double number = world.rank();
    CHECK_THROWS_WITH_AS(all_reduce(world.all(), buffer(&number, 1), Purpose::scalar),
                         doctest::Contains("needs memory of this rank's device"), Error);
    all_reduce(world.host(), buffer(&number, 1), Purpose::scalar);
    CHECK(number == 1);
  });
}

TEST_CASE("an operation's exception is thrown by the next wait, and later operations are dropped") {
  on_far_ranks(1, [](auto& world) {
    const auto x = vector(world.memory(), {1});
    auto& memory = far_device::of(world.memory());
    memory.issue([] { throw Error(ErrorCode::usage, "dspp: a bad operation."); });
    x.fill(2);
    CHECK_THROWS_WITH_AS(values_of(x), "dspp: a bad operation.", Error);
    CHECK(values_of(x) == std::vector<double>{1});
  });
}
