// SPDX-License-Identifier: Apache-2.0
/// Ranks that are forked processes and connect by TCP on loopback, for the laws and for faults.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/comm/tcp/world.hpp>

namespace dspp::laws {

namespace detail {

/// Counts the checks that fail in this process: a forked one has no doctest that reports for it.
class FailedChecks final : public doctest::IReporter {
 public:
  explicit FailedChecks(const doctest::ContextOptions&) {}
  static int& count() {
    static int all = 0;
    return all;
  }

  void log_assert(const doctest::AssertData& it) override {
    if (it.m_failed && (it.m_at & doctest::assertType::is_warn) == 0) ++count();
  }
  void log_message(const doctest::MessageData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
inline const int failed_checks_are_counted = doctest::registerReporter<FailedChecks>("failed checks", 2, false);

}  // namespace detail

/// A port of loopback that no other process is given while this lives. One of this machine may listen on it.
class HeldPort {
 public:
  HeldPort() : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    REQUIRE(setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    REQUIRE(bind(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(getsockname(file_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    port_ = ntohs(address.sin_port);
  }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  ~HeldPort() { ::close(file_); }

  int port() const { return port_; }
  int file() const { return file_; }

 private:
  int file_, port_ = 0;
};

/// How a process ended, and what it returned.
struct EndedProcess {
  int status = -1;  ///< 0 if all its checks held; 128 + the signal that ended it
  double seconds = 0;
  std::string said;
};

/// said = f(i) in each of `count` forked processes. Those that have not ended after `limit_seconds` are killed.
template <class F>
std::vector<EndedProcess> in_processes(int count, F f, double limit_seconds = 60) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::cout.flush(), std::fflush(nullptr);
  struct Child {
    pid_t id;
    int said;
  };
  std::vector<Child> children;
  for (int i = 0; i < count; ++i) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const pid_t id = fork();
    REQUIRE(id >= 0);
    if (id == 0) {
      for (const Child& other : children) ::close(other.said);
      std::string said;
      detail::FailedChecks::count() = 0;
      try {
        said = f(i);
      } catch (const std::exception& error) {
        said = error.what();
      } catch (...) {  // a REQUIRE that failed, which is counted
      }
      std::cout.flush(), std::fflush(nullptr);
      const auto sent = write(ends[1], said.data(), said.size());
      _exit(sent == static_cast<ssize_t>(said.size()) && detail::FailedChecks::count() == 0 ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back({id, ends[0]});
  }
  std::vector<EndedProcess> all;
  for (const Child& child : children) {
    EndedProcess ended;
    for (char text[4096];;) {
      pollfd readable{child.said, POLLIN, 0};
      const double left = limit_seconds - std::chrono::duration<double>(Clock::now() - start).count();
      if (left <= 0 || poll(&readable, 1, static_cast<int>(1000 * left) + 1) == 0) kill(child.id, SIGKILL);
      const auto bytes = read(child.said, text, sizeof text);
      if (bytes <= 0) break;
      ended.said.append(text, static_cast<std::size_t>(bytes));
    }
    ::close(child.said);
    int how = 0;
    waitpid(child.id, &how, 0);
    ended.status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    ended.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    all.push_back(std::move(ended));
  }
  return all;
}

/// f(world) on each rank of a mesh, processes on loopback; what it throws is said.
template <class F>
std::vector<EndedProcess> on_tcp_ranks(const Mesh& mesh, F f, double timeout_seconds = 60,
                                       bool async_progress = false) {
  const HeldPort port;
  return in_processes(mesh.world_size(), [&](int rank) -> std::string {
    TcpWorld world(mesh, {.rank = rank, .size = mesh.world_size(), .port = port.port()}, timeout_seconds,
                   async_progress);
    try {
      f(world);
      world.end();
      return "";
    } catch (const Error& error) {
      world.abort(error);
      world.end(5);
      return error.what();
    }
  });
}

/// No process failed.
inline void check_all_passed(const std::vector<EndedProcess>& all) {
  for (const EndedProcess& one : all) {
    INFO(one.said);
    CHECK(one.status == 0);
    CHECK(one.said.empty());
  }
}

struct TcpRanksWorld {
  static constexpr Size most_elements = 140'001;  // two tiles of f32 on two ranks
  template <class F>
  static void run(int ranks, F f) {
    check_all_passed(on_tcp_ranks(Mesh(Degrees{.data = ranks}), [&](TcpWorld& world) {
      Tcp c = *world.groups().world.get_if<Tcp>();
      f(c);
    }));
  }
};

/// With a progress thread each.
struct TcpProgressWorld {
  static constexpr Size most_elements = TcpRanksWorld::most_elements;
  template <class F>
  static void run(int ranks, F f) {
    const auto rank = [&](TcpWorld& world) {
      Tcp c = *world.groups().world.get_if<Tcp>();
      f(c);
    };
    check_all_passed(on_tcp_ranks(Mesh(Degrees{.data = ranks}), rank, 60, true));
  }
};

/// The axis Data of a mesh of 2 x ranks, both groups at once: communicators of subgroups.
struct TcpSubgroupWorld {
  static constexpr Size most_elements = 3001;
  template <class F>
  static void run(int ranks, F f) {
    check_all_passed(on_tcp_ranks(Mesh(Degrees{.data = ranks, .tp = 2}), [&](TcpWorld& world) {
      AnyCommunicator c = world.groups()[Axis::Data];
      f(c);
    }));
  }
};

}  // namespace dspp::laws
