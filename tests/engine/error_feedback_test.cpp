// SPDX-License-Identifier: Apache-2.0
// ReduceAs<format, LoCo>: what quantized gradients lose comes to the next ones.
// labels: engine thread
#include <doctest/doctest.h>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim.hpp>

#include <laws/delayed_updates.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Plain = ReduceAs<Int4>;
using Fed = ReduceAs<Int4, LoCo>;

template <int Stage, class Reduce>
Trained trained(const Cell& cell) {
  return train_as_values<AdamW, Policy<Zero<Stage>, Reduce, F64>, F64>(cell);
}

}  // namespace

TEST_CASE("fed back errors cost their memory and nothing else, stages share their bits, and the first step has none") {
  for (const Cell& cell : {Cell{.ranks = 3, .steps = 10}, Cell{.ranks = 4, .steps = 10, .ranks_per_node = 2},
                           Cell{.ranks = 4, .accumulate = 2, .steps = 10, .ranks_per_node = 2}}) {
    CAPTURE(cell.ranks);
    CAPTURE(cell.accumulate);
    const Trained plain = trained<2, Plain>(cell), fed = trained<2, Fed>(cell);
    check_same_bits(trained<3, Fed>(cell), fed);
    if (cell.accumulate == 1) check_same_bits(trained<1, Fed>(cell), fed);
    CHECK((fed.norms[0] == plain.norms[0]) == (cell.accumulate == 1));
    CHECK(fed.norms[2] != plain.norms[2]);
    const Trained exact = train_as_values<AdamW, Policy<Zero<2>, F64>, F64>(cell);
    CHECK(relative_gap(fed.losses, exact.losses) < 0.05);
    for (std::size_t r = 0; r < fed.ranks.size(); ++r) {
      const RankRecord &own = fed.ranks[r], &other = plain.ranks[r];
      CHECK(own.replicas == other.replicas);
      CHECK(own.links == other.links);
      const Size whole = own.psi / fed.facts.element * fed.facts.gradient, on_node = cell.ranks_per_node;
      CHECK(own.resident - other.resident == whole + (on_node > 0 ? own.psi / on_node : 0));
    }
  }
}

TEST_CASE("errors that are reset after every step are those of a training without") {
  const Cell cell{.ranks = 4, .steps = 4, .ranks_per_node = 2, .error_feedback = {.reset_steps = 1}};
  check_same_bits(trained<2, Fed>(cell), trained<2, Plain>(cell));
  Cell two = cell;
  two.error_feedback.reset_steps = 2;
  CHECK(trained<2, Fed>(two).norms[1] != trained<2, Plain>(two).norms[1]);
}

TEST_CASE("a save is part of the schedule: what goes on from it has the bits of what saved it") {
  using P = Policy<Bf16>;
  using Q = Policy<Bf16, Zero<2>, Fed>;
  const Folder folder;
  const std::string path = folder.path.string();
  const Cell cell{.ranks = 2, .steps = 6};
  const auto train = [&](bool saves) {
    return course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        take_step(world, engine, cell, step, course, [] {});
        if (saves && step == 2) save_checkpoint(engine, path);
      }
    });
  };
  const Course whole = train(true), without = train(false);
  CHECK(whole.losses != without.losses);
  const Course resumed = course_of<P, Q, AdamW>(cell, [&](auto& world, auto& engine, Course& course) {
    take_step(world, engine, cell, 9, course, [] {});
    course = {};
    load_checkpoint(engine, path);
    for (int step = 3; step < cell.steps; ++step) take_step(world, engine, cell, step, course, [] {});
  });
  CHECK(same_bits(resumed.losses, {whole.losses.begin() + 3, whole.losses.end()}));
  CHECK(resumed.parameters == whole.parameters);
}

TEST_CASE("steps that overflow leave no error that is not finite, and numbers out of range are refused") {
  const Cell overflows{.ranks = 2, .steps = 8, .loss_scale = {.initial = 0x1p24}};
  const Trained scaled = laws::detail::train_as<Policy<F16, Zero<2>, Fed>, Gpt<Policy<F16>>>(overflows);
  CHECK(scaled.ranks[0].skipped > 2);
  CHECK(scaled.ranks[0].skipped < 8);
  using P = Policy<F32, Zero<1>, Fed>;
  for (const ErrorFeedback wrong : {ErrorFeedback{.decay = 1}, ErrorFeedback{.decay = -0.1}, ErrorFeedback{0.5, 0}})
    CHECK(sentence_of([&] {
            run_ranks_of<P>({.ranks = 1}, [&](World<P>& world) {
              Engine engine{world, Gpt<P>(small_gpt()), AdamW{}, EngineConfig{.error_feedback = wrong}};
            });
          }).find("dspp: Engine needs an error_feedback with a decay from 0 to below 1") != std::string::npos);
}
