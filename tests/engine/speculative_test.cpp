// SPDX-License-Identifier: Apache-2.0
// Speculative: updates that begin in backward have the bits of a policy without, whatever the step then decides.
// labels: engine thread
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/offload_states.hpp>
#include <dspp/optim.hpp>

#include <laws/delayed_updates.hpp>
#include <laws/folder.hpp>
#include <laws/speculative_updates.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("an update ahead has the bits of one in the step, under every stage and precision") {
  check_speculative<AdamW, Compiled<F64>, Zero<0>>({.ranks = 1, .steps = 5});
  check_speculative<AdamW, Compiled<F64>, Zero<0>>({.ranks = 2, .steps = 5});
  check_speculative<AdamW, Compiled<F64>, Zero<1>>({.ranks = 3, .steps = 5});
  check_speculative<AdamW, Compiled<F64>, Zero<2>>({.ranks = 2, .accumulate = 2, .steps = 5});
  check_speculative<AdamW, Compiled<F64>, Zero<3>>({.ranks = 4, .steps = 5});
  check_speculative<AdamW, Compiled<Bf16>, Zero<1>>({.ranks = 2, .steps = 5});
  check_speculative<AdamW, Compiled<Bf16>, Zero<3>>({.ranks = 3, .accumulate = 2, .steps = 5});
  check_speculative<AdamW, Compiled<F64, Tp<2>>, Zero<2>>({.ranks = 4, .steps = 5});
  check_speculative<AdamW, Compiled<F64, Tp<2>, SequenceParallel>, Zero<3>>({.ranks = 4, .steps = 5});
}

TEST_CASE("an update ahead beside what is offloaded, by node, quantized, and by other optimizers") {
  check_speculative<AdamW, Compiled<Bf16>, Zero<2>, Offload<Optimizer, Host>>({.ranks = 2, .steps = 5});
  check_speculative<AdamW, Compiled<Bf16>, Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>(
      {.ranks = 2, .steps = 5});
  check_speculative<AdamW, Compiled<Bf16>, Zero<3>, SecondaryShards<Node>>(
      {.ranks = 4, .steps = 5, .ranks_per_node = 2});
  check_speculative<AdamW, Compiled<Bf16>, Zero<2>, Shards<Within<Node>>>(
      {.ranks = 4, .steps = 5, .ranks_per_node = 2});
  check_speculative<AdamW, Compiled<Bf16>, Zero<2>, ReduceAs<Int8>, Overlap<Off>>(
      {.ranks = 4, .steps = 5, .ranks_per_node = 2});
  check_speculative<Sgd, Compiled<F64>, Zero<1>>({.ranks = 2, .steps = 5});
}

TEST_CASE("gradients that overflow skip the step, and what was ahead of it") {
  Cell cell{.ranks = 2, .steps = 12, .loss_scale = {.initial = 1 << 24, .window = 2, .hysteresis = 1}};
  cell.clip_norm = 1e9;
  const Speculated ahead = speculated_course<Policy<F16>, Policy<F16, Zero<2>, Speculative>, AdamW>(cell);
  check_same_course(ahead.course, speculated_course<Policy<F16>, Policy<F16, Zero<2>>, AdamW>(cell).course);
  CHECK(std::count(ahead.course.skipped.begin(), ahead.course.skipped.end(), 1) > 0);
  CHECK(ahead.taken_over > 0);
}

TEST_CASE("bytes and traffic are the plan's") {
  const Cell cell{.ranks = 3, .steps = 4};
  const auto check = [&]<class... P>(P...) {
    const Trained whole = train_as_values<AdamW, Policy<Zero<0>, Speculative, P...>, P...>(cell);
    check_same_bits(train_as_values<AdamW, Policy<Zero<1>, Speculative, P...>, P...>(cell), whole);
    check_same_bits(train_as_values<AdamW, Policy<Zero<2>, Speculative, P...>, P...>(cell), whole);
    const Trained split = train_as_values<AdamW, Policy<Zero<3>, Speculative, P...>, P...>(cell);
    check_same_bits(split, whole);
    const Trained without = train_as_values<AdamW, Policy<Zero<3>, P...>, P...>(cell);
    check_same_bits(split, without);
    for (std::size_t r = 0; r < split.ranks.size(); ++r) CHECK(split.ranks[r].replicas == without.ranks[r].replicas);
    const RankRecord &own = split.ranks[0], &others = without.ranks[0];
    const Size owned = own.psi / 3 / split.facts.element,
               state = std::is_same_v<ElementOf<Policy<P...>>, double> ? 16 : 12;
    CHECK(own.resident - others.resident == owned * (split.facts.element + state) + 8 * StepScalars::count);
  };
  check(F64());
  check(Bf16());
}

TEST_CASE("what reads, sets or moves state and parameters before the step, it finds as they were") {
  using P = Policy<F32>;
  Cell cell{.ranks = 2, .steps = 6, .clip_norm = 1e9};
  const Folder folder;
  const auto with = [&]<class Q>(Q, auto before_update) { return speculated_course<P, Q, AdamW>(cell, before_update); };
  const auto check = [&](auto before_update) {
    const Speculated ahead = with(Policy<F32, Zero<2>, Speculative>(), before_update);
    check_same_course(ahead.course, with(Policy<F32, Zero<2>>(), before_update).course);
    return ahead.taken_over;
  };
  const Size all = check([](auto&, auto&, int) {});
  CHECK(all > 0);
  CHECK(check([](auto&, auto& engine, int step) { engine.set_learning_rate(1e-2 / (step + 2)); }) == 0);
  CHECK(check([](auto&, auto& engine, int) { engine.set_optimizer(AdamW{.lr = 1e-2, .beta2 = 0.9}); }) == 0);
  CHECK(check([](auto&, auto& engine, int step) {
          if (step % 2 == 0) return;
          auto& bucket = engine.units()[0]->trained_buckets().first[0];
          engine.state().change(bucket).moments[0].fill(0.01f);
        }) < all);
  CHECK(check([](auto&, auto& engine, int) {
          const auto& named = engine.inventory().parameters.front();
          const auto whole = engine.gather_parameter(named.name->text);
          set_parameter(engine, named.name->text, std::vector<double>(static_cast<std::size_t>(whole.count()), 0.02));
        }) == 0);
  check([](auto&, auto& engine, int) { static_cast<void>(engine.gather_gradient("positions.weight")); });
}

TEST_CASE("saves, moved states and a step that throws between updates ahead") {
  using P = Policy<F64>;
  Cell cell{.ranks = 2, .steps = 6, .clip_norm = 1e9};
  const Folder folder;
  const auto course = [&]<class Q>(Q, const char* name) {
    return speculated_course<P, Q, AdamW>(
        cell, [](auto&, auto&, int) {},
        [&](auto& world, auto& engine, int step) {
          if (step == 1) save_checkpoint(engine, (folder.path / name).string());
          if (step == 2) offload_states(engine), reload_states(engine);
          if (step == 4) load_checkpoint(engine, (folder.path / name).string());
          if (step != 3) return;
          auto batch = batch_of(world.memory(), 0, 0, 2, cell.sequence, small_gpt().vocabulary);
          batch.targets.fill(ignored_target);
          engine.backward(engine.forward(batch));
          CHECK_THROWS_AS(engine.step(), Error);
        });
  };
  const Speculated ahead = course(Policy<F64, Zero<2>, Speculative>(), "ahead");
  check_same_course(ahead.course, course(Policy<F64, Zero<2>>(), "without").course);
  CHECK(ahead.taken_over > 0);
}
