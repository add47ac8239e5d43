// SPDX-License-Identifier: Apache-2.0
// Values and optimizer state that are moved to the host's memory between steps, and back.
// labels: engine thread
#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/optim.hpp>

#include <laws/moved_states.hpp>
#include <laws/sentence_of.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr MovedStates all{}, none{false, false}, parameters{true, false}, optimizer{false, true};
/// A later call finds some of it where it asks for it.
const std::vector<Moves> in_turn{{all, all}, {parameters, none}, {all, optimizer}, {none, none}, {all, none}};

}  // namespace

TEST_CASE("moved states give the bits of states that stay, under every stage, in every precision, beside Offload") {
  check_moved_states<Policy<F64>, Policy<F64>>({.ranks = 1}, in_turn);
  check_moved_states<Policy<F64>, Policy<F64, Zero<1>>, Lamb>({.ranks = 2}, in_turn);
  check_moved_states<Policy<Bf16>, Policy<Bf16, Zero<2>>, Muon>({.ranks = 3}, in_turn);
  check_moved_states<Policy<Bf16>, Policy<Bf16, Zero<3>>>({.ranks = 3}, in_turn);
  check_moved_states<Policy<Bf16>, Policy<Bf16, Zero<3>>>({.ranks = 2, .live_bytes = 1 << 20}, in_turn);
  check_moved_states<Policy<F32>, Policy<F32, Zero<3>, Offload<Parameters, Host>>>({.ranks = 2}, in_turn);
  check_moved_states<Policy<F32>, Policy<F32, Zero<1>, Offload<Optimizer, Host>>>({.ranks = 2}, in_turn);
  check_moved_states<Policy<Bf16>, Policy<Bf16, Zero<2>, Offload<Optimizer, Disk>>>({.ranks = 2}, in_turn);
  check_moved_states<Policy<Bf16>, Policy<Bf16, Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>>(
      {.ranks = 2, .offload = {.optimizer = {.share = 0.5}, .parameters = {.share = 0.4}}}, in_turn);
  using OnDisk = Policy<Bf16, Zero<3>, Offload<Optimizer, Disk>, Offload<Parameters, Disk>>;
  check_moved_states<Policy<Bf16>, OnDisk>({.ranks = 2}, in_turn);
  check_moved_states<Policy<F64, Tp<2>>, Policy<F64, Tp<2>, Zero<3>>>({.ranks = 4}, in_turn);
}

TEST_CASE("states move between steps only, and what a full memory refuses may be asked again") {
  using P = Policy<F32>;
  run_ranks_of<P>({.ranks = 1}, [](World<P>& world) {
    Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), AdamW{},
                                 BatchSizes{.micro_batch = 2, .sequence = 12, .accumulate = 2});
    const auto batch = batch_of(world.memory(), 0, 0, 2, 12, 61);
    engine.backward(engine.forward(batch));
    engine.step();
    for (const auto& move : {+[](Engine<Gpt<P>, AdamW>& of) { offload_states(of); },
                             +[](Engine<Gpt<P>, AdamW>& of) { reload_states(of); }})
      CHECK(sentence_of([&] { move(engine); }).find("but micro-steps of one are pending") != std::string::npos);
    engine.backward(engine.forward(batch));
    engine.step();

    Pool& pool = world.memory();
    const Size live = pool.live(), state = pool.live_by_category()[Category::optimizer];
    const std::uint64_t print = print_of_state(engine);
    offload_states(engine);
    CHECK(engine.replicas().host_bytes() == state / 2 * 3);  // moments, and values of their size
    CHECK(pool.reserved() < pool.peak_reserved());           // the system has it
    for (Size limit : {live / 8, live / 3, live / 2, live - 1}) {
      CAPTURE(limit);
      pool.set_limit(limit);
      CHECK_THROWS_AS(reload_states(engine), Error);
      CHECK(print_of_state(engine) == print);
    }
    pool.set_limit(0);
    reload_states(engine);
    CHECK(pool.live() == live);
    CHECK(engine.replicas().host_memory()->live() == 0);
    CHECK(print_of_state(engine) == print);
  });
}
