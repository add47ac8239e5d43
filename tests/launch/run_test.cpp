// SPDX-License-Identifier: Apache-2.0
// How run() ends: its options, and ranks that fail or never return. Each case is a child process.
// labels: engine
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm/communicator.hpp>
#include <dspp/launch/run.hpp>

using namespace dspp;

namespace {

using P = Policy<Zero<0>>;
using Clock = std::chrono::steady_clock;

/// A process that runs f, and its standard error. It is killed after `limit_seconds`.
class Child {
 public:
  explicit Child(const std::function<int()>& f) : start_(Clock::now()) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    id_ = fork();
    if (id_ == 0) {
      dup2(ends[1], 2);
      _exit(f());
    }
    close(ends[1]);
    err_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { close(err_); }

  void wait(double limit_seconds) {
    for (char text[512];;) {
      pollfd readable{err_, POLLIN, 0};
      const double left = limit_seconds - std::chrono::duration<double>(Clock::now() - start_).count();
      if (left <= 0 || poll(&readable, 1, static_cast<int>(1000 * left) + 1) == 0) kill(id_, SIGKILL);
      const auto bytes = read(err_, text, sizeof text);
      if (bytes <= 0) break;
      said.append(text, static_cast<std::size_t>(bytes));
    }
    int how = 0;
    waitpid(id_, &how, 0);
    status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  }

  int status = -1;
  double seconds = 0;
  std::string said;

 private:
  Clock::time_point start_;
  pid_t id_ = 0;
  int err_ = -1;
};

/// run() with these arguments.
int run_with(std::vector<std::string> arguments, const std::function<void(World<P>&)>& program) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> words;
  for (std::string& a : arguments) words.push_back(a.data());
  return run<P>(static_cast<int>(words.size()), words.data(), program);
}

struct Operation {
  std::string name;
  std::function<void(AnyCommunicator&)> call;
};

/// The seven operations of a communicator, as rank 0 of two calls them.
std::vector<Operation> every_operation() {
  static std::vector<float> a(8, 1.0f), b(8);
  static constexpr auto on = [](std::vector<float>& x, Size count) { return buffer(x.data(), count); };
  return {{"all_reduce", [](AnyCommunicator& c) { all_reduce(c, on(a, 8), Purpose::gradient); }},
          {"reduce_scatter", [](AnyCommunicator& c) { reduce_scatter(c, on(a, 8), on(b, 4), Purpose::gradient); }},
          {"all_gather", [](AnyCommunicator& c) { all_gather(c, on(a, 4), on(b, 8), Purpose::parameter); }},
          {"all_to_all", [](AnyCommunicator& c) { all_to_all(c, on(a, 8), on(b, 8), Purpose::activation); }},
          {"broadcast", [](AnyCommunicator& c) { broadcast(c, on(a, 8), 1, Purpose::parameter); }},
          {"receive", [](AnyCommunicator& c) { receive(c, on(a, 8), 1, Purpose::activation); }},
          {"barrier", [](AnyCommunicator& c) { c.barrier(); }}};
}

[[noreturn]] void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

[[noreturn]] void compute_for_ever() {
  static std::atomic<bool> on{true};
  while (on.load()) {
  }
  std::abort();
}

}  // namespace

TEST_CASE("a world says its rank's places along Data, Cp and Tp, which are those in the axes' groups") {
  run_ranks_of<Policy<F32, Cp<2>, Tp<2>>>(RunOptions{.ranks = 8}, [](auto& world) {
    CHECK(world.cp_rank() == world.cp().rank());
    CHECK(world.tp_rank() == world.tp().rank());
    CHECK(world.data_rank() == world.data().rank());
    CHECK(world.mesh().rank({.data = world.data_rank(), .cp = world.cp_rank(), .tp = world.tp_rank()}) == world.rank());
  });
}

TEST_CASE("a thread rank that never returns is named after the timeout, in every operation, and the process ends") {
  for (const auto& never_returns : {sleep_for_ever, compute_for_ever}) {
    std::vector<std::unique_ptr<Child>> children;
    for (const Operation& op : every_operation())
      children.push_back(std::make_unique<Child>([&] {
        return run_with({"--ranks=2", "--timeout", "0.4"}, [&](World<P>& world) {
          world.all().barrier();
          if (world.rank() == 1) never_returns();
          op.call(world.all());
        });
      }));
    for (std::size_t i = 0; i < children.size(); ++i) {
      Child& child = *children[i];
      child.wait(20);
      CAPTURE(every_operation()[i].name);
      CAPTURE(child.said);
      CHECK(child.status == 1);
      CHECK(child.said.find("dspp: rank 0 needs rank 1 in " + every_operation()[i].name) == 0);
      CHECK(child.said.find("waited 0.4 s and it did not come") != std::string::npos);
      CHECK(child.said.find("dspp: all ranks need to stop after that, but rank 1 still ran 0.5 s later, so the process "
                            "ends. Look for what keeps it.\n") != std::string::npos);
      const std::size_t list = child.said.find("\n  the last operations of each rank, the newest first; ");
      CHECK(list != std::string::npos);
      CHECK(child.said.find("\n    rank 0 > " + every_operation()[i].name, list) != std::string::npos);
      CHECK(child.said.find("\n    rank 1   barrier, the 1st operation of the world at launch/run_test.cpp:", list) !=
            std::string::npos);
      CHECK(child.said.find("dspp: ", list) == std::string::npos);
    }
  }
}

TEST_CASE("a rank that never returns does not hide the error of another, whose status the process has") {
  Child child([] {
    return run_with({"--ranks", "3", "--timeout=5"}, [](World<P>& world) {
      if (world.rank() == 2) fail(ErrorCode::file, "dspp: a file is gone.");
      if (world.rank() == 1) sleep_for_ever();
      world.all().barrier();
    });
  });
  child.wait(10);
  CHECK(child.status == 2);
  CHECK(child.seconds < 4);
  CHECK(child.said.find("dspp: a file is gone.\ndspp: all ranks need to stop after that, but rank 1 still ran") == 0);
}

TEST_CASE("a rank that runs on alone after the others gets a warning, and may continue") {
  Child child([] {
    return run_with({"--ranks=2", "--timeout=0.2"}, [](World<P>& world) {
      if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
    });
  });
  child.wait(10);
  CHECK(child.status == 0);
  CHECK(child.said ==
        "dspp: warning: rank 1 still runs, 0.2 s after all other ranks have ended. Look for what keeps it.\n");
}

TEST_CASE("an exception that is not a dspp::Error is reported with its rank") {
  struct Odd {};
  const auto said_of = [](int culprit, const std::function<void()>& fails) {
    Child child([&] {
      return run_with({"--ranks=3"}, [&](World<P>& world) {
        if (world.rank() == culprit) fails();
        world.all().barrier();
      });
    });
    child.wait(10);
    CHECK(child.status == 1);
    return child.said;
  };
  for (int culprit : {0, 1, 2}) {
    const std::string rank = "dspp: rank " + std::to_string(culprit) + " stopped with ";
    CHECK(said_of(culprit, [] { throw std::runtime_error("the cat sat on it"); }) ==
          rank + "an error of its own: the cat sat on it\n");
    CHECK(said_of(culprit, [] {
            throw std::bad_alloc();
          }).starts_with("dspp: rank " + std::to_string(culprit) + " needs more memory of the system, "));
    CHECK(said_of(culprit, [] { throw Odd{}; }) == rank + "an exception that is not a std::exception.\n");
    CHECK(said_of(culprit, [] { fail(ErrorCode::state, "dspp: own."); }) == "dspp: own.\n");
  }
}

TEST_CASE("the options of run are read in both spellings, the last one counts, and a wrong one gives one sentence") {
  const auto ranks_of = [](const std::vector<std::string>& arguments) {
    Child child([&] {
      int ranks = 0;
      const int status = run_with(arguments, [&](World<P>& world) {
        if (world.is_first()) ranks = world.size();
      });
      return status == 0 ? 100 + ranks : status;
    });
    child.wait(10);
    if (child.status == 2) CHECK(child.said.find("dspp: --") == 0);
    return child.status;
  };
  CHECK(ranks_of({}) == 101);
  CHECK(ranks_of({"--ranks", "4"}) == 104);
  CHECK(ranks_of({"--ranks=4"}) == 104);
  CHECK(ranks_of({"--ranks=4", "--ranks", "2"}) == 102);
  CHECK(ranks_of({"--ranks=3", "--seed=7", "--timeout=60", "--other"}) == 103);
  CHECK(ranks_of({"--ranks=3", "--ranks-per-node=2", "--sum-order", "transport"}) == 103);
  CHECK(ranks_of({"--sum-order=rank"}) == 101);
  for (const char* wrong :
       {"--ranks", "--ranks=", "--ranks=four", "--ranks=-1", "--ranks=5000", "--seed=x", "--timeout", "--timeout=0",
        "--timeout=-3", "--timeout=nan", "--timeout=1s", "--timeout=inf", "--ranks-per-node=-1", "--ranks-per-node=x",
        "--sum-order", "--sum-order=fast", "--sum-order=exact"})
    CHECK(ranks_of({wrong}) == 2);
}

TEST_CASE("thread ranks have virtual nodes, and a wrong number of ranks per node gives one sentence") {
  struct Expected {
    int ranks, ranks_per_node, nodes;
  };
  for (const Expected& e : std::vector<Expected>{{1, 0, 1},
                                                 {1, 1, 1},
                                                 {2, 1, 2},
                                                 {2, 2, 1},
                                                 {3, 0, 1},
                                                 {3, 2, 2},
                                                 {3, 3, 1},
                                                 {4, 1, 4},
                                                 {4, 2, 2},
                                                 {4, 3, 2}})
    run_ranks_of<P>(RunOptions{.ranks = e.ranks, .ranks_per_node = e.ranks_per_node}, [&](World<P>& world) {
      const int each = e.ranks_per_node == 0 ? e.ranks : e.ranks_per_node;
      CHECK(world.nodes() == e.nodes);
      CHECK(world.node() == world.rank() / each);
      CHECK(world.local_rank() == world.rank() % each);
      CHECK(world.local_size() == std::min(each, e.ranks - world.node() * each));
    });
  CHECK_THROWS_WITH_AS(run_ranks_of<P>(RunOptions{.ranks = 2, .ranks_per_node = 3}, [](World<P>&) {}),
                       "dspp: virtual nodes need ranks_per_node from 1 to the number of ranks, 2, or 0 for one node, "
                       "but got 3. Leave it out, or start more ranks.",
                       Error);
}

TEST_CASE(
    "a rank's threads are those of the options, of OMP_NUM_THREADS, or its share; one more where a core is left") {
  const char* const set = std::getenv("OMP_NUM_THREADS");
  const std::string before = set ? set : "";
  const auto threads_with = [](const char* text, const RunOptions& options) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    return dspp::detail::threads_per_rank(options, 6);
  };
  CHECK(threads_with("3", {}) == 3);
  CHECK(threads_with("5,2", {}) == 5);  // of nested levels the first
  CHECK(threads_with(" 4", {}) == 4);
  CHECK(threads_with("3", {.threads_per_rank = 7}) == 7);
  for (const char* none : {"", "0", "-2", "many"}) CHECK(threads_with(none, {}) == 6);
  const auto has_progress = [](const char* text, const RunOptions& options, int ranks = 4) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    return dspp::detail::has_progress_thread(options, ranks, 6);
  };
  CHECK(!has_progress("6", {}));  // no core is left
  CHECK(has_progress("5", {}));
  CHECK(has_progress("", {.threads_per_rank = 1}));
  CHECK(!has_progress("5", {}, 1));
  CHECK(!has_progress("5", {.async_progress = AsyncProgress::off}));
  CHECK(has_progress("7", {.async_progress = AsyncProgress::on}));
  CHECK(!has_progress("7", {.async_progress = AsyncProgress::on}, 1));
  dspp::detail::check_async_progress({.async_progress = AsyncProgress::on}, true);
  dspp::detail::check_async_progress({}, false);
  CHECK_THROWS_WITH_AS(dspp::detail::check_async_progress({.async_progress = AsyncProgress::on}, false),
                       "dspp: run needs a policy on the Cpu for AsyncProgress::on, but this one is on a device, whose "
                       "streams move data by themselves. Leave RunOptions::async_progress, or --async-progress, out.",
                       Error);
  set ? ::setenv("OMP_NUM_THREADS", before.c_str(), 1) : ::unsetenv("OMP_NUM_THREADS");
}

TEST_CASE("thread ranks add in the order given to run()") {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport})
    run_ranks_of<P>(RunOptions{.ranks = 3, .sum_order = order}, [&](World<P>& world) {
      CHECK(world.all().sum_order() == order);
      CHECK(world.replicas().sum_order() == order);
      CHECK(world.tp().sum_order() == SumOrder::exact);
      std::vector<float> x(3, world.rank() == 1 ? 1e8f : world.rank() == 2 ? -1e8f : 1.0f);
      all_reduce(world.all(), buffer(x.data(), 3), Purpose::scalar);
      CHECK(x == (order == SumOrder::rank ? std::vector<float>{0, 0, 0} : std::vector<float>{1, 0, 0}));
    });
  CHECK_THROWS_AS(run_ranks_of<P>(RunOptions{.ranks = 2, .sum_order = SumOrder::exact}, [](World<P>&) {}), Error);
}
