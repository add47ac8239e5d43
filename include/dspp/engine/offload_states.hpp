// SPDX-License-Identifier: Apache-2.0
/// A training's values and optimizer state, moved to the host's memory between steps, and back: a device's memory is
/// then free for another engine, or for another program.
#pragma once

#include <dspp/base/error.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/zero/sharded_state.hpp>

namespace dspp {

/// What is moved.
struct MovedStates {
  bool parameters = true;  ///< resident values: slices under Zero<3>, else whole
  bool optimizer = true;   ///< masters and moments, unless they are on a disk
};

namespace detail {
template <class Engine>
void move_states(Engine& engine, const MovedStates& which, Memory<typename Engine::D>* to, const char* who) {
  // clang-format off
  require(engine.at_step_boundary(), "dspp: offload_states and reload_states need a step that has ended, but micro-steps of one are pending, with their gradients. End the step first.",
          ErrorCode::usage);
  // clang-format on
  with_sentence(who, [&] {
    engine.replicas().complete_all();
    for (auto* unit : engine.units()) unit->release(), unit->forget_copies();  // on all ranks, whatever fails below
    engine.settle();
    for (auto* unit : engine.units()) {
      if (which.parameters) unit->move_values(to);
      if (!which.optimizer) continue;
      for (auto& bucket : unit->trained_buckets()) engine.state().move(bucket, to);
    }
  });
  auto& device = engine.world().memory();
  wait_for_operations<typename Engine::D>(device);
  for (auto* memory : {&device, engine.replicas().host_memory()})
    if constexpr (requires { memory->trim(); })
      if (memory) memory->trim();
}
}  // namespace detail

/// Moves values and optimizer state from the device's memory to the host's, and gives the device's back to the system.
/// Nothing depends on where they are: forwards, steps, saves and gathers go on, with the same bits, at the pace of the
/// link to the host. A WeightAverage stays. Call on every rank.
///
/// Cost     a copy of what is moved
/// Memory   of the host, what is moved
/// Throws   Error(usage) between the micro-steps of a step, Error(out_of_memory) if there is no room: what was moved
///          until then stays moved, and the call may be repeated
template <class Engine>
requires has_host_memory<typename Engine::D>
void offload_states(Engine& engine, const MovedStates& which = {}) {
  detail::move_states(engine, which, &engine.weights().host_memory(), "offload_states");
}

/// Moves them back to where the policy keeps them, and gives the host's memory back. As above.
template <class Engine>
void reload_states(Engine& engine, const MovedStates& which = {}) {
  detail::move_states<Engine>(engine, which, nullptr, "reload_states");
}

}  // namespace dspp
