// SPDX-License-Identifier: Apache-2.0
// Offload<...> with Policy<..., Cuda>: state, slices and inputs in memory of the host that the GPU in software reaches,
// or in a file; the bits of the same policy without it, at the cost of the plan on every tier.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/muon.hpp>

#include <laws/folder.hpp>
#include <laws/moved_states.hpp>
#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Gpt<Policy<P..., Cuda>>, which is given what `Members` say as values, so that all share an engine.
template <class O, class... P>
struct Offloads {
  template <class... Members>
  static Trained train(const Cell& cell) {
    using Q = Policy<Cuda, P..., Members...>;
    Trained trained = laws::detail::train_as<Q, RecomputedGpt<Policy<Cuda, P...>>, O>(cell);
    check_run(trained);
    for (int r = 0; r < cell.ranks; ++r)
      check_plan(plan_of<RecomputedGpt<Q>, O>(cell, r), trained.ranks[static_cast<std::size_t>(r)], r);
    return trained;
  }
};

/// Bytes of the device's memory that hold state, and their planned peak, are less than without Offload.
void check_less(const Trained& offloaded, const Trained& resident) {
  for (std::size_t r = 0; r < resident.ranks.size(); ++r) {
    CHECK(offloaded.ranks[r].resident < resident.ranks[r].resident);
    CHECK(offloaded.ranks[r].host > 0);
    CHECK(offloaded.ranks[r].values_print == resident.ranks[r].values_print);
  }
}

template <class O, int Stage, class... P>
void check_state(Cell cell) {
  CAPTURE(cell.ranks);
  CAPTURE(Stage);
  const Folder folder;
  const std::string path = folder.path.string();
  cell.offload.folder = path;
  using Of = Offloads<O, P...>;
  const Trained resident = Of::template train<Zero<Stage>>(cell);
  const Trained host = Of::template train<Zero<Stage>, Offload<Optimizer, Host>>(cell);
  check_same_bits(host, resident);
  check_less(host, resident);
  const Trained disk = Of::template train<Zero<Stage>, Offload<Optimizer, Disk>>(cell);
  check_same_bits(disk, resident);
  check_less(disk, resident);
  for (std::size_t r = 0; r < resident.ranks.size(); ++r) {
    CHECK(host.ranks[r].host == resident.ranks[r].state[Category::optimizer]);
    CHECK(disk.ranks[r].disk >= 2 * host.ranks[r].host);
  }
  CHECK(fs::is_empty(folder.path));
}

}  // namespace

TEST_CASE("on a GPU, optimizer state in the host's memory or a file gives the bits of the device's") {
  check_state<AdamW, 0, F32>({.ranks = 1, .steps = 3});
  check_state<AdamW, 2, Bf16>({.ranks = 2, .accumulate = 2, .steps = 3});
  check_state<Lamb, 3, F32>({.ranks = 2, .steps = 2});
  check_state<Muon, 1, F32>({.ranks = 2, .steps = 2});
}

TEST_CASE("on a GPU, slices of values and gradients, and inputs of blocks, in the host's memory give the same bits") {
  using Of = Offloads<AdamW, Bf16>;
  Cell cell{.ranks = 2, .accumulate = 2, .steps = 3};
  const Folder folder;
  const std::string path = folder.path.string();
  cell.offload.folder = path;
  const Trained resident = Of::train<Zero<3>>(cell);
  const Trained values = Of::train<Zero<3>, Offload<Parameters, Host>>(cell);
  check_same_bits(values, resident);
  check_less(values, resident);
  const Trained inputs = Of::train<Zero<3>, Offload<Activations, Host>>(cell);
  check_same_bits(inputs, resident);
  CHECK(inputs.ranks[0].host > 0);
  CHECK(inputs.ranks[0].by_category[Category::activations] < resident.ranks[0].by_category[Category::activations]);
  const Trained all =
      Of::train<Zero<3>, Offload<Parameters, Host>, Offload<Activations, Host>, Offload<Optimizer, Host>>(cell);
  check_same_bits(all, resident);
  check_less(all, values);
  const Trained both =
      Of::train<Zero<3>, Offload<Parameters, Host>, Offload<Activations, Host>, Offload<Optimizer, Disk>>(cell);
  check_same_bits(both, resident);
  check_less(both, values);
  const Trained files = Of::train<Zero<3>, Offload<Parameters, Disk>, Offload<Optimizer, Disk>>(cell);
  check_same_bits(files, resident);
  check_less(files, values);
  CHECK(files.ranks[0].disk > both.ranks[0].disk);
  const Trained kept = Of::train<Zero<3>, Offload<Activations, Disk>>(cell);
  check_same_bits(kept, resident);
  CHECK(kept.ranks[0].by_category[Category::activations] < resident.ranks[0].by_category[Category::activations]);
  CHECK(kept.ranks[0].host > 0);  // windows
  CHECK(kept.ranks[0].disk > 0);
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("on a GPU, states that are moved to the host's memory between steps, and back, give the same bits") {
  constexpr MovedStates all{}, none{false, false}, parameters{true, false};
  const std::vector<Moves> in_turn{{all, all}, {parameters, none}, {all, all}};
  check_moved_states<Policy<Cuda, Bf16>, Policy<Cuda, Bf16, Zero<2>>>({.ranks = 2}, in_turn);
  check_moved_states<Policy<Cuda, Bf16>, Policy<Cuda, Bf16, Zero<3>>>({.ranks = 2}, in_turn);
}
