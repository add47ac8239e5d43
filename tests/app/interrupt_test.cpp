// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>

#include <dspp/app/interrupt.hpp>

using namespace dspp;

namespace {

/// Runs f in a child process with default signal handling, and returns waitpid's status.
int in_process(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGHUP, SIG_DFL);
    std::signal(SIGUSR1, SIG_DFL);
    _exit(f());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

bool soon(const std::function<bool()>& happens) {
  for (int i = 0; i < 500 && !happens(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return happens();
}

}  // namespace

TEST_CASE("the first signal is a request, and the program continues") {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const int status = in_process([signal] {
      Interrupt interrupt;
      if (interrupt.requested()) return 1;
      kill(getpid(), signal);
      return soon([&] { return interrupt.requested(); }) ? 7 : 2;
    });
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
}

TEST_CASE("the second signal ends the process at once") {
  const int status = in_process([] {
    Interrupt interrupt;
    kill(getpid(), SIGINT);
    soon([&] { return interrupt.requested(); });
    kill(getpid(), SIGTERM);
    soon([] { return false; });
    return 0;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
}

TEST_CASE("after an Interrupt, signals are handled as before it") {
  const int status = in_process([] {
    { Interrupt interrupt; }
    kill(getpid(), SIGINT);
    soon([] { return false; });
    return 0;
  });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

TEST_CASE("a signal that the process was started to ignore stays ignored") {
  const int status = in_process([] {
    std::signal(SIGINT, SIG_IGN);
    Interrupt interrupt;
    kill(getpid(), SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return interrupt.requested() ? 1 : 7;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}
