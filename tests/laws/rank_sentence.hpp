// SPDX-License-Identifier: Apache-2.0
/// The error of a program of several ranks.
#pragma once

#include <functional>
#include <string>

#include <dspp/launch/run.hpp>

namespace dspp::laws {

/// Runs `program(world)` on every rank; the sentence of the error that stops it, or "".
template <class P>
std::string sentence_of(int ranks, const std::function<void(World<P>&)>& program) {
  try {
    run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 30}, program);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace dspp::laws
