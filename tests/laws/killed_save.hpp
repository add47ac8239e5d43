// SPDX-License-Identifier: Apache-2.0
/// Saves of a tiny training in a child process that is killed at one of their file-system calls.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <laws/faulty_files.hpp>
#include <laws/training_run.hpp>

namespace dspp::laws {

/// One step of a TinyModel, on its own data.
template <class World, class Engine>
void take_step(World& world, Engine& engine) {
  const Size rows = 6 / world.data_size();
  auto loss = engine.forward(batch_of(world.memory(), 6 * engine.steps(), rows * world.data_rank(), rows, 4, 13));
  engine.backward(loss);
  engine.step();
}

/// Runs save(files) in a child process that is killed at the n-th file-system call; returns whether it was killed or
/// finished.
template <class Save>
bool killed_in_child(Size n, FaultyFiles::When when, Save save) {
  constexpr int killed = 42;
  const pid_t child = fork();
  if (child == 0) {
    FaultyFiles files;
    files.stop_at(n, when, killed);
    try {
      save(files);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == killed));
  return WEXITSTATUS(status) == killed;
}

}  // namespace dspp::laws
