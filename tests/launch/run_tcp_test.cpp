// SPDX-License-Identifier: Apache-2.0
// labels: launch
// run() of processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT connect: forked, on loopback.
#include <cstdlib>
#include <map>
#include <thread>

#include <dspp/launch/run.hpp>

#include <laws/contributions.hpp>
#include <laws/tcp_processes.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<Zero<0>>;
using Variables = std::map<std::string, std::string>;

/// What a process's program said and, after it, its standard error.
struct Ran {
  int status;
  std::string said;
};

/// run() in `ranks` processes with the launcher's variables, and others of `own(rank)`. Where `prints` is false its
/// error is caught instead: processes but the first wait for two seconds before they print.
template <class Own, class Program>
std::vector<Ran> run_with(int ranks, Own own, Program program, const RunOptions& options = {.timeout_seconds = 5},
                          bool prints = true) {
  const HeldPort port;
  std::vector<Ran> all;
  for (const EndedProcess& one : in_processes(ranks, [&](int rank) {
         Variables given{{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(ranks)},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(port.port())}};
         for (const auto& [name, value] : own(rank)) given[name] = value;
         for (const auto& [name, value] : given)
           value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
         std::FILE* const err = std::tmpfile();
         dup2(fileno(err), 2);
         std::string said;
         const auto keep = [&](World<P>& world) { said = program(world); };
         if (!prints) {
           try {
             run_ranks_of<P>(options, keep);
             return "0" + said;
           } catch (...) {
             const auto ending = dspp::detail::ending_of(std::current_exception(), -1);
             return std::to_string(ending.status) + ending.sentence + "\n";
           }
         }
         const int status = run<P>(options, keep);
         std::rewind(err);
         for (char text[4096]; std::fgets(text, sizeof text, err) != nullptr;) said += text;
         return std::to_string(status) + said;
       }))
    all.push_back({one.status == 0 ? one.said[0] - '0' : -1, one.said.substr(1)});
  return all;
}

Variables nothing(int) {
  return {};
}

}  // namespace

TEST_CASE("processes with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are the ranks of run()") {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto all = run_with(ranks, nothing, [](World<P>& world) {
      std::vector<float> x = contributions<float>(world.rank(), 1000);
      all_reduce(world.data(), all_of(x), Purpose::gradient);
      CHECK(same_bits(x, sums<float>(world.size(), 1000)));
      return std::to_string(world.rank()) + " of " + std::to_string(world.size()) + ", " +
             std::to_string(world.local_rank()) + " of " + std::to_string(world.local_size());
    });
    for (int r = 0; r < ranks; ++r) {
      const std::string place = std::to_string(r) + " of " + std::to_string(ranks);
      CHECK(all[static_cast<std::size_t>(r)].status == 0);
      CHECK(all[static_cast<std::size_t>(r)].said == place + ", " + place);
    }
  }
}

TEST_CASE("each process ends with the sentence of the rank that failed, and its status") {
  struct Case {
    std::function<void()> thrown;
    int status;
    std::string sentence;
  };
  for (const Case& one :
       {Case{[] { fail(ErrorCode::usage, "dspp: a program needs x, but got y. Use x."); }, 2,
             "dspp: a program needs x, but got y. Use x.\n"},
        Case{[] { throw std::runtime_error("no more"); }, 1,
             "dspp: rank 1 stopped with an error of its own: no more\n"},
        Case{[] { throw 7; }, 1, "dspp: rank 1 stopped with an exception that is not a std::exception.\n"}}) {
    CAPTURE(one.sentence);
    const auto all = run_with(3, nothing, [&](World<P>& world) -> std::string {
      if (world.rank() == 1) one.thrown();
      world.all().barrier();
      return "passed";
    });
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(all[r].status == one.status);
      if (one.status == 2 || r == 1) CHECK(all[r].said == one.sentence);
    }
  }
}

TEST_CASE("ranks that were started differently are a sentence on every rank") {
  const auto program = [](World<P>&) -> std::string { return "begun"; };
  const auto check = [&](const auto& own, int status, const std::string& sentence) {
    for (const Ran& one : run_with(2, own, program, {.timeout_seconds = 0.5}, false)) {
      INFO(one.said);
      CHECK(one.status == status);
      CHECK(one.said.find(sentence) != std::string::npos);
      CHECK(one.said.find('\n') == one.said.size() - 1);
    }
  };
  const auto all_have = [](const Variables& v) { return [v](int) { return v; }; };
  check(all_have({{"MASTER_PORT", ""}}), 2, "needs the variable MASTER_PORT beside MASTER_ADDR");
  check(all_have({{"MASTER_ADDR", ""}}), 2, "needs the variable MASTER_ADDR beside MASTER_PORT");
  check(all_have({{"MASTER_PORT", "port"}}), 2, "in the variable MASTER_PORT, but it holds 'port'");
  check(all_have({{"RANK", "x"}}), 2, "needs a number in the variable RANK");
  check(all_have({{"RANK", "2"}}), 2, "RANK says rank 2 of 2");
  check(all_have({{"MASTER_ADDR", "192.0.2.1"}}), 2, "needs the variable DSPP_TOKEN for a MASTER_ADDR beyond");
  check([](int rank) { return Variables{{"WORLD_SIZE", std::to_string(2 + rank)}}; }, 2, "need one WORLD_SIZE");
}

TEST_CASE("processes whose options differ are named before the program begins") {
  const HeldPort port;
  for (const EndedProcess& one : in_processes(2, [&](int rank) -> std::string {
         setenv("RANK", std::to_string(rank).c_str(), 1);
         setenv("WORLD_SIZE", "2", 1);
         setenv("MASTER_ADDR", "127.0.0.1", 1);
         setenv("MASTER_PORT", std::to_string(port.port()).c_str(), 1);
         run_ranks_of<P>({.seed = static_cast<std::uint64_t>(rank), .timeout_seconds = 5},
                         [](World<P>&) { CHECK(false); });
         return "";
       })) {
    CHECK(one.status == 0);
    CHECK(one.said.find("'seed' is 1 on rank 1 and 0 on rank 0") != std::string::npos);
  }
}
