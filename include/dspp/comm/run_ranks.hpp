// SPDX-License-Identifier: Apache-2.0
/// Runs one thread per rank and stops them together.
#pragma once

#include <exception>
#include <new>
#include <thread>
#include <vector>

#include <dspp/base/out_of_memory.hpp>
#include <dspp/comm/threads.hpp>

namespace dspp {

/// Calls f(rank) on one new thread per rank of the group and returns when all have ended. A rank that throws stops the
/// others at once; then throws what the rank to blame threw, else what the lowest rank threw. A std::bad_alloc is
/// thrown as Error(out_of_memory), also where the system has no memory or no thread for a rank.
template <class F>
void run_ranks(ThreadGroup group, F&& f) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(group.size()));
  const auto run_one = [&](int rank) {
    try {
      f(rank);
      group.leave(rank);
    } catch (const std::bad_alloc&) {
      try {
        or_out_of_memory("a rank", []() -> void { throw std::bad_alloc(); });
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        group.abort(rank, error.what());
      }
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      group.abort(rank, error.what());
    } catch (...) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      group.abort(rank, "it threw something that is not a std::exception");
    }
  };
  for (int r = 0; r < group.size(); ++r) group.join(r);
  {
    std::vector<std::jthread> threads;
    try {
      or_out_of_memory("a rank's thread", [&] {
        for (int r = 0; r < group.size(); ++r) threads.emplace_back(run_one, r);
      });
    } catch (const std::exception& error) {
      group.abort(static_cast<int>(threads.size()), error.what());
      throw;
    }
  }
  const int culprit = group.culprit();
  for (int r = 0; r < group.size(); ++r) {
    if (group.world_rank(r) == culprit && errors[static_cast<std::size_t>(r)])
      std::rethrow_exception(errors[static_cast<std::size_t>(r)]);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace dspp
