// SPDX-License-Identifier: Apache-2.0
/// The laws of offload_states and reload_states, on any device.
#pragma once

#include <dspp/engine/offload_states.hpp>

#include <laws/contributions.hpp>
#include <laws/folder.hpp>
#include <laws/training_run.hpp>

namespace dspp::laws {

/// What a rank moves before a step.
struct Moves {
  MovedStates away{false, false}, back{false, false};
};

/// Trains under Q with Gpt<P>, which is given Q's stage and members as values, as many steps as there are `moves`, and
/// compares the run with one that moves nothing: the bits of losses, of parameters that are gathered while they are
/// away, and of state; and the memory before and after.
template <class P, class Q, class O = AdamW>
void check_moved_states(const Cell& cell, const std::vector<Moves>& moves) {
  const Folder folder;
  const std::string path = folder.path.string();
  struct Run {
    std::vector<double> losses;
    std::vector<std::uint64_t> prints;  // of each rank's values and state
    ParameterValues parameters;
  };
  OffloadConfig offload = cell.offload;
  offload.folder = path;
  const auto train = [&](bool moves_them) {
    Run run{{}, std::vector<std::uint64_t>(static_cast<std::size_t>(cell.ranks)), {}};
    run_ranks_of<P>({.ranks = cell.ranks, .threads_per_rank = 1, .seed = 3, .timeout_seconds = 60},
                    [&](World<P>& world) {
                      const EngineConfig config{
                          .bucket_bytes = cell.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
                          .live_bytes = cell.live_bytes,
                          .check_ranks = 2,
                          .offload = offload};
                      Engine<Gpt<P>, O> engine(world, Gpt<P>(small_gpt(0.1)), O{.lr = 1e-2}, BatchSizes{}, config,
                                               dspp::detail::replica_config<Q>({}, config));
                      Pool& pool = world.memory();
                      const CategoryBytes before = pool.live_by_category();
                      const auto host = [&] {
                        Memory<typename P::DeviceType>* const memory = engine.replicas().host_memory();
                        return memory ? memory->live() : 0;
                      };
                      const Size host_before = host();
                      for (std::size_t step = 0; step < moves.size(); ++step) {
                        if (moves_them) {
                          offload_states(engine, moves[step].away);
                          const CategoryBytes live = pool.live_by_category();
                          if (moves[step].away.parameters) CHECK(live[Category::parameters] == 0);
                          if (moves[step].away.optimizer) CHECK(live[Category::optimizer] == 0);
                        }
                        double loss = 0;
                        detail::train_step<Gpt<P>>(world, engine, cell, static_cast<Size>(step), loss);
                        if (world.is_first()) run.losses.push_back(loss);
                        if (moves_them) reload_states(engine, moves[step].back);
                      }
                      detail::gather_all(world, engine, run.parameters);
                      if (moves_them) reload_states(engine);
                      engine.state().settle();  // windows, where states are on a disk
                      for (const Category of : {Category::parameters, Category::optimizer})
                        CHECK(pool.live_by_category()[of] == before[of]);
                      CHECK(host() == host_before);
                      run.prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
                    });
    return run;
  };
  const Run whole = train(false), moved = train(true);
  CHECK(same_bits(moved.losses, whole.losses));
  CHECK(moved.prints == whole.prints);
  CHECK(moved.parameters == whole.parameters);
  CHECK(!whole.parameters.empty());
}

}  // namespace dspp::laws
