// SPDX-License-Identifier: Apache-2.0
/// A program for run() under mpirun: mpi_program <what it does> [rank]. Rank 0 prints "sum <of the ranks> of <ranks>".
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <dspp/engine/run.hpp>

using namespace dspp;
using P = Policy<Zero<2>, F32>;

/// What the rank to blame does instead of its second sum.
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

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int culprit = argc > 2 ? std::atoi(argv[2]) : -1;
  RunOptions options{.ranks = what == "three" ? 3 : 1, .timeout_seconds = what == "stays_away" ? 0.5 : 60};
  return run<P>(options, [&](World<P>& world) {
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
