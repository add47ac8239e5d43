// SPDX-License-Identifier: Apache-2.0
// Row A3: the watchdog itself hangs. It waits for a lock, never runs again, or writes to a pipe that nobody reads, and
// the process still ends. Ranks need no watchdog to notice a timeout: each measures its wait.
// labels: faults
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <dspp/launch/meeting_watch.hpp>
#include <dspp/launch/run.hpp>

using namespace dspp;
using Clock = std::chrono::steady_clock;

namespace {

constexpr double timeout = 0.2, heartbeat = 0.5;

enum Fault { none, lock, never_runs, output };

std::mutex held;

/// The SIGUSR1 handlers of a thread.
void take_the_lock(int) {
  held.lock();
}
void stop_here(int) {
  for (;;) pause();
}

/// In this child process, from now on.
void begin(Fault fault) {
  if (fault == lock) held.lock();
  struct sigaction action {};
  action.sa_handler = fault == lock ? take_the_lock : stop_here;
  sigaction(SIGUSR1, &action, nullptr);
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0) _exit(99);
  const std::vector<char> much(1 << 12);
  if (fault == output)
    while (write(ends[1], much.data(), much.size()) > 0) {
    }
  fcntl(ends[1], F_SETFL, 0);  // blocks; the child also holds the read end and does not read
  dup2(ends[1], STDERR_FILENO);
}

void signal_thread(pid_t thread) {
  syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
}

/// Ranks of which one waits for another that sleeps; the thread that runs them is the watchdog.
void run_threads(Fault fault) {
  const pid_t watch = gettid();
  ThreadGroup group(2, {.timeout_seconds = timeout, .heartbeat_seconds = heartbeat});
  run_ranks(group, [&](int rank) {
    if (rank == 0 && (fault == lock || fault == never_runs)) signal_thread(watch);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
    group.communicator(rank).barrier();
  });
}

/// Ranks that all stop after an error that cannot be printed.
void run_to_the_end(Fault) {
  const RunOptions options{.ranks = 2, .timeout_seconds = timeout, .heartbeat_seconds = heartbeat};
  std::_Exit(run<Policy<Zero<0>, F32>>(options, [](World<Policy<Zero<0>, F32>>& world) {
    if (world.rank() == 1) fail(ErrorCode::state, "dspp: mine.");
    world.all().barrier();
  }));
}

/// A process that waits in MPI for ranks that do not come.
void meet(Fault fault) {
  Launch launch;
  launch.size = 2;
  const detail::MeetingWatch watch(launch, timeout, heartbeat);
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t id = std::stoi(thread.path().filename());
    if (id != gettid() && (fault == lock || fault == never_runs)) signal_thread(id);
  }
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

struct Ended {
  int status = 0;
  double seconds = 0;
};

/// How each of the programs ends; they run concurrently. One that does not end within 20 s is killed.
std::vector<Ended> end_of(const std::vector<std::function<void()>>& programs) {
  std::vector<pid_t> children;
  const auto start = Clock::now();
  for (const auto& program : programs) {
    children.push_back(fork());
    if (children.back() > 0) continue;
    program();
    _exit(0);
  }
  std::vector<Ended> all(programs.size());
  for (std::size_t left = programs.size(); left > 0;) {
    const double now = std::chrono::duration<double>(Clock::now() - start).count();
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (children[i] < 0) continue;
      if (now > 20) kill(children[i], SIGALRM);
      if (waitpid(children[i], &all[i].status, WNOHANG) != children[i]) continue;
      all[i].seconds = now;
      children[i] = -1;
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return all;
}

struct Case {
  std::string name;
  void (*program)(Fault);
  Fault fault;
  double at_most;  ///< seconds, until the system ends it
};

}  // namespace

TEST_CASE("A3: a process with a hanging watchdog is ended within the heartbeat, and one without is not") {
  const double stop = timeout + 0.5 + heartbeat, meeting = timeout + 2 + heartbeat, said = heartbeat + 2;
  const std::vector<Case> cases{{"threads", run_threads, none, stop},
                                {"threads, lock", run_threads, lock, stop},
                                {"threads, stopped", run_threads, never_runs, stop},
                                {"threads, output", run_threads, output, stop},
                                {"meeting", meet, none, meeting},
                                {"meeting, lock", meet, lock, meeting},
                                {"meeting, stopped", meet, never_runs, meeting},
                                {"meeting, output", meet, output, meeting},
                                {"last sentence", run_to_the_end, none, said},
                                {"last sentence, output", run_to_the_end, output, said}};
  std::vector<std::function<void()>> programs;
  for (const Case& c : cases) programs.push_back([&c] { begin(c.fault), c.program(c.fault); });
  const std::vector<Ended> ended = end_of(programs);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(cases[i].name);
    CAPTURE(ended[i].status);
    CAPTURE(ended[i].seconds);
    if (cases[i].fault == none) {
      CHECK((WIFEXITED(ended[i].status) && WEXITSTATUS(ended[i].status) == 1));
    } else {
      CHECK((WIFSIGNALED(ended[i].status) && WTERMSIG(ended[i].status) == SIGKILL));
      CHECK(ended[i].seconds >= cases[i].at_most - 0.05);
      CHECK(ended[i].seconds < cases[i].at_most + 5);
    }
  }
}

TEST_CASE("A3: a waiting rank notices the timeout itself, without a watchdog over the threads") {
  ThreadGroup group(3, {.timeout_seconds = timeout});
  std::vector<double> seconds(2);
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] {
        const auto start = Clock::now();
        CHECK_THROWS_AS(group.communicator(r).barrier(), Error);
        seconds[static_cast<std::size_t>(r)] = std::chrono::duration<double>(Clock::now() - start).count();
      });
  }
  for (const double s : seconds) CHECK((s >= timeout - 0.05 && s < timeout + 5));
}
