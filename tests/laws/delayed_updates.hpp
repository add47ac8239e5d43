// SPDX-License-Identifier: Apache-2.0
/// The laws of Delayed<1>, on any device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <laws/contributions.hpp>
#include <laws/training_run.hpp>

namespace dspp::laws {

/// What all ranks have of a training: losses, norms and verdicts by step, and the parameters at its end.
struct Course {
  std::vector<double> losses, norms;
  std::vector<int> skipped;
  ParameterValues parameters;
  Size late = 0;  ///< steps whose forward had other parameters than the last update gave
};
inline void check_same_course(const Course& a, const Course& b) {
  CHECK(same_bits(a.losses, b.losses));
  CHECK(same_bits(a.norms, b.norms));
  CHECK(a.skipped == b.skipped);
  CHECK(a.parameters == b.parameters);
  CHECK(!a.parameters.empty());
}

/// All parameters, on every rank.
template <class Engine>
ParameterValues parameters_of(Engine& engine) {
  ParameterValues all;
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    whole.read([&](const auto* host) { all[named.name->text].assign(host, host + whole.count()); });
  }
  return all;
}
template <class Engine>
void set_parameters(Engine& engine, const ParameterValues& all) {
  for (const auto& [name, values] : all) set_parameter(engine, name, values);
}

/// Trains Gpt<P> under Q, which it is given as values: `train(world, engine, course)` is called on every rank.
template <class P, class Q, class O, class Train>
Course course_of(const Cell& cell, Train train) {
  Course course;
  run_ranks_of<P>({.ranks = cell.ranks,
                   .threads_per_rank = 1,
                   .seed = 3,
                   .timeout_seconds = 60,
                   .ranks_per_node = cell.ranks_per_node},
                  [&](World<P>& world) {
                    const BatchSizes sizes{.accumulate = cell.accumulate};
                    const EngineConfig config{
                        .clip_norm = cell.clip_norm,
                        .bucket_bytes = cell.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
                        .loss_scale = cell.loss_scale,
                        .skip_nonfinite = cell.largest_norm > 0 ? 100 : 0,
                        .largest_norm = cell.largest_norm,
                        .check_ranks = cell.check_ranks,
                        .offload = cell.offload,
                        .delay_after = cell.delay_after,
                        .zenflow = cell.zenflow,
                        .error_feedback = cell.error_feedback};
                    Engine<Gpt<P>, O> engine(world, Gpt<P>(small_gpt(0.1)), O{.lr = 1e-2}, sizes, config,
                                             dspp::detail::replica_config<Q>(sizes, config));
                    Course own;
                    train(world, engine, own);
                    if (own.parameters.empty()) own.parameters = parameters_of(engine);
                    if (world.is_first()) course = std::move(own);
                  });
  return course;
}

/// One step, noted; `before_update()` is called between the last backward and the step.
template <class World, class Engine, class F>
void take_step(World& world, Engine& engine, const Cell& cell, Size step, Course& course, F before_update) {
  using E = std::decay_t<Engine>;
  const Size micro_batch = cell.samples / cell.accumulate / world.data_size();
  const Size own = cell.sequence / world.cp().size();
  double sum = 0;
  StepReport report;
  for (Size a = 0; a < cell.accumulate; ++a) {
    const Size first = (a * world.data_size() + world.data_rank()) * micro_batch;
    auto batch = batch_of<typename E::D>(world.memory(), step * cell.samples, first, micro_batch, own,
                                         small_gpt(0.1).vocabulary, own * world.cp().rank());
    auto loss = engine.forward(batch);
    sum += E::value_of(loss);
    engine.backward(loss);
    if (a + 1 == cell.accumulate) before_update();
    report = engine.step();
  }
  course.losses.push_back(sum), course.norms.push_back(report.gradient_norm);
  course.skipped.push_back(report.skipped);
}

/// The delayed course, by an engine that does not delay: its forwards are given the parameters without the last update,
/// and its updates all of them.
template <class P, class Without, class O>
Course course_by_hand(const Cell& cell) {
  return course_of<P, Without, O>(cell, [&](auto& world, auto& engine, Course& course) {
    ParameterValues latest = parameters_of(engine), seen = latest;
    Size updates = 0;
    for (int step = 0; step < cell.steps; ++step) {
      course.late += seen != latest;
      set_parameters(engine, seen);
      take_step(world, engine, cell, step, course, [&] { set_parameters(engine, latest); });
      const bool skipped = course.skipped.back() != 0;
      ParameterValues now = parameters_of(engine);
      seen = skipped || updates >= cell.delay_after ? latest : now;
      updates += !skipped;
      latest = std::move(now);
    }
    course.parameters = latest;
  });
}

/// Trains under `With`, which has Delayed<1>, and under `Without`, the same without it.
template <class P, class With, class Without, class O = AdamW>
void check_delayed(const Cell& cell) {
  CAPTURE(cell.ranks);
  CAPTURE(cell.delay_after);
  const auto steps = [&](auto after_each) {
    return course_of<P, With, O>(cell, [&](auto& world, auto& engine, Course& course) {
      for (int step = 0; step < cell.steps; ++step) {
        take_step(world, engine, cell, step, course, [] {});
        after_each(engine);
      }
    });
  };
  const Course delayed = steps([](auto&) {}), by_hand = course_by_hand<P, Without, O>(cell);
  check_same_course(delayed, by_hand);
  CHECK((by_hand.late > 0) == (cell.delay_after + 1 < cell.steps));
  const Course plain = course_of<P, Without, O>(cell, [&](auto& world, auto& engine, Course& course) {
    for (int step = 0; step < cell.steps; ++step) take_step(world, engine, cell, step, course, [] {});
  });
  CHECK((delayed.losses == plain.losses) == (by_hand.late == 0));
  // Whatever ends updates makes of it a course without delay.
  check_same_course(steps([](auto& engine) { engine.end_update(); }), plain);
  check_same_course(steps([](auto& engine) { static_cast<void>(parameters_of(engine)); }), plain);
}

}  // namespace dspp::laws
