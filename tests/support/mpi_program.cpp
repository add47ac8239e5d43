// SPDX-License-Identifier: Apache-2.0
/// A program for run() under mpirun: mpi_program <what it does> [rank]. Rank 0 prints "sum <of the ranks> of <ranks>".
///
/// mpi_program dies <rank> <operation, 0 to 6> <before, begun, during or after it> <how> <file> [transport]: that rank
/// writes the time into the file and ends by signal <how>, or by exit(0) or exit(1) as e0 or e1. Every rank opens
/// <file>.alive. With the last word sums are in MPI's own order.
/// mpi_program hangs <rank> <operation> <stopped, loops or away> <seconds of the timeout> <file>: that rank writes the
/// time and stops its process, loops for ever, or never calls. mpi_program late <rank> <seconds> <timeout>: it comes to
/// run() so much later. seed <number>: with that seed. order <number>: of sums. ranks_per_node <number>: so many.
/// nodes: rank 0 prints how many there are. other_arithmetic: rounds upwards.
#include <fcntl.h>
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dspp/launch/run.hpp>

using namespace dspp;
using P = Policy<Zero<2>, F32>;

/// What the failing rank does instead of its second sum.
static void misbehave(const std::string& what, World<P>& world) {
  if (what == "throws") fail(ErrorCode::file, "dspp: a file is gone.");
  if (what == "throws_other") throw std::runtime_error("the cat sat on it");
  if (what == "exits") std::exit(3);
  if (what == "exits_well") std::exit(0);
  if (what == "killed") std::abort();
  if (what == "killed_hard") std::raise(SIGKILL);
  if (what == "stays_away") std::this_thread::sleep_for(std::chrono::seconds(300));
  if (what == "ends") return;
  if (what == "differs") world.all().barrier();
}

/// Begins one of the seven operations on many elements; a barrier is called.
static std::vector<Pending<>> start(int operation, AnyCommunicator& c, std::vector<float>& in,
                                    std::vector<float>& out) {
  const Size n = c.size(), part = std::ssize(in) / n;
  const Buffer all = buffer(in.data(), n * part), all_out = buffer(out.data(), n * part),
               own = buffer(out.data(), part);
  std::vector<Pending<>> begun;
  switch (operation) {
    case 0: begun.push_back(c.start_all_reduce(all, Purpose::gradient)); break;
    case 1: begun.push_back(c.start_reduce_scatter(ConstBuffer(all), own, Purpose::gradient)); break;
    case 2: begun.push_back(c.start_all_gather(buffer(in.data(), part), all_out, Purpose::parameter)); break;
    case 3: begun.push_back(c.start_all_to_all(all, all_out, PartCounts{}, Purpose::activation)); break;
    case 4: begun.push_back(c.start_broadcast(all, 0, Purpose::parameter)); break;
    case 5:
      begun.push_back(c.start_send(all, (c.rank() + 1) % c.size(), Purpose::activation));
      begun.push_back(c.start_receive(all_out, (c.rank() + c.size() - 1) % c.size(), Purpose::activation));
      break;
    default: c.barrier();
  }
  return begun;
}

static void write_time(const char* file) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string text = std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  const int out = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (out < 0 || write(out, text.data(), text.size()) < 0) std::_Exit(9);
  close(out);
}

static void die(const std::string& how, const char* file) {
  write_time(file);
  if (how[0] == 'e') std::exit(how[1] - '0');
  kill(getpid(), std::atoi(how.c_str()));
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

/// Operations without end, until the rank at fault does its action.
static void work(World<P>& world, int culprit, char** argv) {
  const bool dies = std::string(argv[1]) == "dies";
  const int operation = std::atoi(argv[3]);
  const std::string when = argv[4];
  std::vector<float> in(1 << 20, 1.0f), out(1 << 20);
  AnyCommunicator c = world.all();
  if (open((std::string(argv[6]) + ".alive").c_str(), O_WRONLY) < 0)
    fail(ErrorCode::file, "dspp: .alive is not there.");
  std::jthread killer;
  for (int round = 0;; ++round) {
    const bool now = world.rank() == culprit && round == 2;
    if (now && !dies) {
      write_time(argv[6]);
      if (when == "stopped") raise(SIGSTOP);
      for (volatile bool always = when == "loops"; always;) continue;
      std::this_thread::sleep_for(std::chrono::seconds(300));
    }
    if (now && when == "before") die(argv[5], argv[6]);
    if (now && when == "during")
      killer = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(getpid() % 50 * 100));
        die(argv[5], argv[6]);
      });
    std::vector<Pending<>> begun = start(operation, c, in, out);
    if (now && when == "begun") die(argv[5], argv[6]);
    for (Pending<>& one : begun) one.wait();
    if (now && when == "after") die(argv[5], argv[6]);
  }
}

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int culprit = argc > 2 ? std::atoi(argv[2]) : -1;
  RunOptions options{.ranks = what == "three" ? 3 : 1, .timeout_seconds = what == "stays_away" ? 3.0 : 60};
  if (what == "seed") options.seed = static_cast<std::uint64_t>(culprit);
  if (what == "order") options.sum_order = static_cast<SumOrder>(culprit);
  if (what == "ranks_per_node") options.ranks_per_node = culprit;
  if (what == "other_arithmetic") std::fesetround(FE_UPWARD);
  if (what == "hangs") options.timeout_seconds = std::atof(argv[5]);
  if (argc > 7 && std::string(argv[7]) == name_of(SumOrder::transport)) options.sum_order = SumOrder::transport;
  if (what == "late") {
    options.timeout_seconds = std::atof(argv[4]);
    if (const char* rank = std::getenv("OMPI_COMM_WORLD_RANK"); rank != nullptr && std::atoi(rank) == culprit)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(argv[3])));
  }
  return run<P>(options, [&](World<P>& world) {
    if (what == "dies" || what == "hangs") return work(world, culprit, argv);
    if (what == "nodes" && world.is_first()) std::printf("%d ranks on %d node\n", world.local_size(), world.nodes());
    float sum = static_cast<float>(world.rank());
    all_reduce(world.all(), buffer(&sum, 1), Purpose::scalar);
    if (world.is_first()) {
      std::printf("sum %g of %d\n", static_cast<double>(sum), world.size());
      std::fflush(stdout);
    }
    if (world.rank() == culprit) {
      misbehave(what, world);
      if (what == "ends") return;
    }
    all_reduce(world.all(), buffer(&sum, 1), Purpose::scalar);
  });
}
