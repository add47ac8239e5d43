// SPDX-License-Identifier: Apache-2.0
/// The laws of Speculative, on any device.
#pragma once

#include <algorithm>
#include <vector>

#include <laws/delayed_updates.hpp>

namespace dspp::laws {

/// A training, and how many buckets were updated ahead on the first rank.
struct Speculated {
  Course course;
  Size taken_over = 0;
};

/// `before_update` and `after` are called with world, engine and step between its last backward and the step, and after
/// it.
template <class P, class Q, class O, class Before, class After>
Speculated speculated_course(const Cell& cell, Before before_update, After after) {
  Speculated result;
  result.course = course_of<P, Q, O>(cell, [&](auto& world, auto& engine, Course& course) {
    for (int step = 0; step < cell.steps; ++step) {
      take_step(world, engine, cell, step, course, [&] { before_update(world, engine, step); });
      after(world, engine, step);
    }
    if (world.is_first()) result.taken_over = engine.state().speculative().taken_over();
  });
  return result;
}
template <class P, class Q, class O, class Before>
Speculated speculated_course(const Cell& cell, Before before_update) {
  return speculated_course<P, Q, O>(cell, before_update, [](auto&, auto&, int) {});
}
template <class P, class Q, class O>
Speculated speculated_course(const Cell& cell) {
  return speculated_course<P, Q, O>(cell, [](auto&, auto&, int) {});
}

/// Members of a policy that a model is compiled for.
template <class... M>
struct Compiled {
  using P = Policy<M...>;
  template <class... More>
  using With = Policy<M..., More...>;
};

/// Trains a model compiled for `Of`, which is given `More` as values, with Speculative and without: with a clipping
/// that is never active, that always is, and that is in about half of the steps.
template <class O, class Of, class... More>
void check_speculative(Cell cell) {
  CAPTURE(cell.ranks);
  std::vector<double> norms;
  for (const int clipping : {0, 1, 2}) {
    CAPTURE(clipping);
    cell.clip_norm = clipping == 0 ? 1e9 : clipping == 1 ? 1e-3 : norms[norms.size() / 2];
    using P = typename Of::P;
    const Speculated ahead = speculated_course<P, typename Of::template With<More..., Speculative>, O>(cell);
    check_same_course(ahead.course, speculated_course<P, typename Of::template With<More...>, O>(cell).course);
    if (clipping < 2) CHECK((ahead.taken_over > 0) == (clipping == 0));
    if (clipping == 0) norms = ahead.course.norms, std::sort(norms.begin(), norms.end());
  }
}

}  // namespace dspp::laws
